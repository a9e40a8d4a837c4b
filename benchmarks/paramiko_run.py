"""Bare paramiko, in as many threads as dtctl's: `paramiko_run.py COMMAND USER PORT KEY KNOWN_HOSTS HOST...`"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import paramiko

COMMAND, USER, PORT, KEY, KNOWN_HOSTS, *HOSTS = sys.argv[1:]
THREADS = 24


def run(host: str) -> int:
    with paramiko.SSHClient() as client:
        client.load_host_keys(KNOWN_HOSTS)
        client.connect(host, int(PORT), USER, key_filename=KEY, allow_agent=False, look_for_keys=False)
        _, stdout, _ = client.exec_command(COMMAND)
        return stdout.channel.recv_exit_status()


with ThreadPoolExecutor(THREADS) as pool:
    sys.exit(any(pool.map(run, HOSTS)))
