"""The peers that are libraries, for the Python that has them: `python libraries.py NAME FIELD.json run|push WORD`.

A word is a command, or the directory of a tree. Each library is used as in its documentation, for many hosts at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

NAME, FIELD, DOING, WORD = sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), sys.argv[3], sys.argv[4]


def asyncssh() -> str:
    """Sends a tree with its scp."""
    import asyncssh

    async def work(place: list[str], free: asyncio.Semaphore) -> str:
        address, user = place
        how = {"username": user, "client_keys": [FIELD["key"]], "known_hosts": FIELD["known_hosts"], "config": None}
        async with free, asyncssh.connect(address, FIELD["port"], agent_path=None, **how) as connection:
            if DOING == "push":
                await asyncssh.scp(WORD, (connection, "code"), recurse=True)
                return ""
            return str((await connection.run(WORD, check=True)).stdout)

    async def everywhere() -> list[str]:
        free = asyncio.Semaphore(FIELD["width"])
        return await asyncio.gather(*(work(place, free) for place in FIELD["hosts"]))

    return "".join(asyncio.run(everywhere()))


def fabric() -> str:
    """In a bounded number of threads; a tree is one archive that is sent and unpacked."""
    from fabric import Connection
    from paramiko import RejectPolicy

    def work(place: list[str]) -> str:
        how = {"key_filename": FIELD["key"], "allow_agent": False, "look_for_keys": False}
        with Connection(place[0], user=place[1], port=FIELD["port"], connect_kwargs=how) as connection:
            connection.client.load_host_keys(FIELD["known_hosts"])
            connection.client.set_missing_host_key_policy(RejectPolicy())
            if DOING == "push":
                connection.put(file.name, "code.tgz")
            command = "tar -xzf code.tgz && rm code.tgz" if DOING == "push" else WORD
            return str(connection.run(command, hide=True, in_stream=False).stdout)

    with ThreadPoolExecutor(FIELD["width"]) as pool, tempfile.NamedTemporaryFile(suffix=".tgz") as file:
        if DOING == "push":
            with tarfile.open(file.name, "w:gz", compresslevel=6) as archive:
                archive.add(WORD, "code")
        return "".join(pool.map(work, FIELD["hosts"]))


def mitogen() -> str:
    """Calls a function in a Python on each host, over OpenSSH's client; sends no tree."""
    import subprocess

    from mitogen.master import Broker, Router

    options = {"port": FIELD["port"], "identity_file": FIELD["key"], "check_host_keys": "enforce"}
    ssh_args = ["-F", "none", "-o", f"UserKnownHostsFile={FIELD['known_hosts']}"]
    broker = Broker()
    router = Router(broker)

    def work(place: list[str]) -> str:
        address, user = place
        context = router.ssh(hostname=address, username=user, python_path="python3", ssh_args=ssh_args, **options)
        return str(context.call(subprocess.check_output, ["sh", "-c", WORD]).decode())

    try:
        with ThreadPoolExecutor(FIELD["width"]) as pool:
            return "".join(pool.map(work, FIELD["hosts"]))
    finally:
        broker.shutdown()
        broker.join()


def parallel_ssh() -> str:
    """Uses its native client (libssh2), which checks no host keys; sends a tree with its copy_file (SFTP)."""
    from gevent import joinall
    from pssh.clients import ParallelSSHClient
    from pssh.config import HostConfig

    client = ParallelSSHClient(
        [address for address, _ in FIELD["hosts"]],
        host_config=[HostConfig(user=user, port=FIELD["port"], private_key=FIELD["key"]) for _, user in FIELD["hosts"]],
        pool_size=FIELD["width"],
        allow_agent=False,
    )
    if DOING == "push":
        joinall(client.copy_file(WORD, "code", recurse=True), raise_error=True)
        return ""
    answers = client.run_command(WORD)
    client.join(answers)
    printed = "\n".join(line for answer in answers for line in answer.stdout)
    if any(answer.exit_code for answer in answers):
        raise RuntimeError(printed)
    return printed


def paramiko() -> str:
    """In a bounded number of threads; a tree is sent file by file over SFTP, without confirmation of each file."""
    import paramiko

    def send(sftp: Any) -> None:
        for directory, _, files in os.walk(WORD):
            there = Path("code", Path(directory).relative_to(WORD))
            sftp.mkdir(str(there))
            for name in files:
                sftp.put(os.path.join(directory, name), str(there / name), confirm=False)

    def work(place: list[str]) -> str:
        address, user = place
        with paramiko.SSHClient() as client:
            client.load_host_keys(FIELD["known_hosts"])
            login = {"key_filename": FIELD["key"], "allow_agent": False, "look_for_keys": False}
            client.connect(address, FIELD["port"], user, **login)
            if DOING == "push":
                with client.open_sftp() as sftp:
                    send(sftp)
                return ""
            _, stdout, _ = client.exec_command(WORD)
            printed = stdout.read().decode()
            if stdout.channel.recv_exit_status():
                raise RuntimeError(f"{address}: {printed}")
            return printed

    with ThreadPoolExecutor(FIELD["width"]) as pool:
        return "".join(pool.map(work, FIELD["hosts"]))


DOES = {"asyncssh": asyncssh, "fabric": fabric, "mitogen": mitogen, "parallel-ssh": parallel_ssh, "paramiko": paramiko}
print(DOES[NAME]())
