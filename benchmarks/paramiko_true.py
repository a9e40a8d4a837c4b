"""Bare paramiko: `true` on every host, in 16 threads. `python paramiko_true.py USER PORT KEY KNOWN_HOSTS HOST...`"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import paramiko

USER, PORT, KEY, KNOWN_HOSTS, *HOSTS = sys.argv[1:]
THREADS = 16


def run_true(host: str) -> int:
    with paramiko.SSHClient() as client:
        client.load_host_keys(KNOWN_HOSTS)
        client.connect(host, int(PORT), USER, key_filename=KEY, allow_agent=False, look_for_keys=False)
        _, stdout, _ = client.exec_command("true")
        return stdout.channel.recv_exit_status()


with ThreadPoolExecutor(THREADS) as pool:
    sys.exit(any(pool.map(run_true, HOSTS)))
