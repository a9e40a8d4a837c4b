"""Fabric's connections in bounded threads; a tree is one archive that is put and unpacked, as its tutorial does it."""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from fabric import Connection
from paramiko import RejectPolicy

FIELD, DOING, WORD = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], sys.argv[3]


def connect(place: list[str]) -> Connection:
    address, user = place
    how = {"key_filename": FIELD["key"], "allow_agent": False, "look_for_keys": False}
    connection = Connection(address, user=user, port=FIELD["port"], connect_kwargs=how)
    connection.client.load_host_keys(FIELD["known_hosts"])
    connection.client.set_missing_host_key_policy(RejectPolicy())
    return connection


def run(place: list[str]) -> str:
    with connect(place) as connection:
        return str(connection.run(WORD, hide=True, in_stream=False).stdout)


def push(place: list[str], archive: str) -> str:
    with connect(place) as connection:
        connection.put(archive, "code.tgz")
        connection.run("tar -xzf code.tgz && rm code.tgz", hide=True, in_stream=False)
    return ""


with ThreadPoolExecutor(FIELD["width"]) as pool, tempfile.NamedTemporaryFile(suffix=".tgz") as file:
    if DOING == "push":
        with tarfile.open(file.name, "w:gz", compresslevel=6) as archive:
            archive.add(WORD, "code")
        list(pool.map(lambda place: push(place, file.name), FIELD["hosts"]))
    else:
        print("".join(pool.map(run, FIELD["hosts"])))
