"""A host that speaks dtctl's protocol and lies: a program, to be run in place of a login's python3, or for a directory
of sockets. Standard library only.

    lying_host NAME NUMBER        one conversation on standard input and output
    lying_host --serve DIRECTORY  conversations on DIRECTORY/NAME.LIE.sock for every name and the number of every lie
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from tests.hostile.host_answers import Fields, GoneError, Host, greeting
from tests.hostile.host_lies import LIES
from tests.hostile.saying import HONEST, Lie, Said

NAMES = ("a", "b", "c")
EVERY = [HONEST, *LIES.values()]
"""Lies by their numbers."""


def converse(name: str, lie: Lie, reader: BinaryIO, writer: BinaryIO) -> None:
    """Accepts the agent that is sent, does not run it, and answers in its place until the controller has gone."""

    def hear() -> Fields:
        line = reader.readline()
        if not line.endswith(b"\n"):
            raise GoneError
        fields: Fields = json.loads(line)
        reader.read(fields.get("bytes", 0))
        return fields

    def say(asked: str, fields: Fields, payload: bytes = b"") -> None:
        for chunk in lie(Said(asked, fields, payload)):
            if chunk is None:  # silence, until the controller gives up
                while reader.read(1 << 16):
                    pass
                raise GoneError
            writer.write(chunk)
            writer.flush()

    reader.read(int(reader.readline()))
    reader.read(int(reader.readline().split()[0]))
    say("", greeting(name))
    host = Host(name, hear)
    while True:
        request = hear()
        if request["type"] != "abort":
            for fields, payload in host.answer(request):
                say(request["type"], fields, payload)


def serve(directory: Path) -> None:
    for number, lie in enumerate(EVERY):
        for name in NAMES:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(directory / f"{name}.{number}.sock"))
            listener.listen(64)
            threading.Thread(target=_accept, args=(listener, name, lie), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


def _accept(listener: socket.socket, name: str, lie: Lie) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_talk, args=(connection, name, lie), daemon=True).start()


def _talk(connection: socket.socket, name: str, lie: Lie) -> None:
    with (
        connection,
        connection.makefile("rb") as reader,
        connection.makefile("wb", buffering=0) as writer,
        suppress(GoneError, OSError, ValueError),
    ):
        unbuffered: Any = _Whole(writer)
        converse(name, lie, reader, unbuffered)


class _Whole:
    """Writes all of its data, which a raw stream does not guarantee."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._stream.write(rest) :]

    def flush(self) -> None: ...


if __name__ == "__main__":
    if sys.argv[1] == "--serve":
        serve(Path(sys.argv[2]))
    else:
        with suppress(GoneError, OSError, ValueError):
            converse(sys.argv[1], EVERY[int(sys.argv[2])], sys.stdin.buffer, sys.stdout.buffer)
