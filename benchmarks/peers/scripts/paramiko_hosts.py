"""Bare paramiko in bounded threads; a tree is sent file by file over SFTP, with nothing asked back for each file."""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import paramiko

FIELD, DOING, WORD = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], sys.argv[3]


def connect(place: list[str]) -> paramiko.SSHClient:
    address, user = place
    client = paramiko.SSHClient()
    client.load_host_keys(FIELD["known_hosts"])
    client.connect(address, FIELD["port"], user, key_filename=FIELD["key"], allow_agent=False, look_for_keys=False)
    return client


def run(place: list[str]) -> str:
    with connect(place) as client:
        _, stdout, _ = client.exec_command(WORD)
        printed = stdout.read().decode()
        if stdout.channel.recv_exit_status():
            raise RuntimeError(f"{place[0]}: {printed}")
        return printed


def push(place: list[str]) -> str:
    with connect(place) as client, client.open_sftp() as sftp:
        for directory, _, files in os.walk(WORD):
            there = Path("code", Path(directory).relative_to(WORD))
            sftp.mkdir(str(there))
            for name in files:
                sftp.put(os.path.join(directory, name), str(there / name), confirm=False)
    return ""


with ThreadPoolExecutor(FIELD["width"]) as pool:
    print("".join(pool.map({"run": run, "push": push}[DOING], FIELD["hosts"])))
