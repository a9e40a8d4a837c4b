"""Real ends of links for a test, strangers included."""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dtctl.operations.credentials import make_credentials
from tests.waiting import eventually

Message = dict[str, Any]
PROGRAM = Path(__file__).with_name("link_end.py")
PATIENCE_S = 60.0


def hello(host: str, **fields: Any) -> Message:
    return {
        "type": "hello",
        "v": 1,
        "run": "r1",
        "host": host,
        "agent": {"pid": 1},
        "kept": True,
        "lost_session": False,
        "stop_run": None,
        "events": 0,
        "state": {},
        "intents": {},
        **fields,
    }


def state(**fields: Any) -> Message:
    return {"type": "state", "state": fields, "intents": {}, "kept": True, "lost_session": False, "stop_run": None}


def orders(intent: Any, over: bool = False) -> Message:
    return {"type": "orders", "intents": {"worker:0": intent}, "mending": False, "over": over}


def write_credentials(directory: Path) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    credentials = make_credentials()
    (directory / "link.key").write_text(credentials.key)
    (directory / "link.crt").write_text(credentials.certificate)
    return directory


class End:
    """A process with a Hub or a Dialer in it. Leaving it checks that nothing has gone wrong there."""

    def __init__(self, python: str, role: str, directory: Path, where: object) -> None:
        self.process = subprocess.Popen(
            [python, "-IS", str(PROGRAM), role, str(directory), str(where)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.told: list[Message] = []
        self._read = 0
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def ask(self, method: str, *arguments: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({method: arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def expect(self, wanted: Callable[[Any], Any], key: str = "said", what: str = "") -> Any:
        """The next thing told under `key` of which `wanted` is true; what was told before it is passed over."""

        def found() -> list[Any]:
            while self._read < len(self.told):
                facts = self.told[self._read]
                self._read += 1
                if key in facts and wanted(facts[key]):
                    return [facts[key]]
            assert self.process.poll() is None, "the process has ended"
            return []

        return eventually(found, PATIENCE_S, what)[0]

    def expect_type(self, type_: str, host: str | None = None) -> Message:
        """From a dialer; from a hub with the host."""

        def is_it(said: Any) -> bool:
            if isinstance(said, dict):
                return bool(said["type"] == type_)
            return bool(said[0] == host and said[1]["type"] == type_)

        said = self.expect(is_it, what=f"{type_} {host or ''}")
        message: Message = said if isinstance(said, dict) else said[1]
        return message

    def said(self, type_: str, host: str | None = None) -> list[Message]:
        """All of that type until now, whether it was expected or not."""
        everything = [facts["said"] for facts in self.told if "said" in facts]
        messages = [said if isinstance(said, dict) else {**said[1], "host": said[0]} for said in everything]
        return [message for message in messages if message["type"] == type_ and message.get("host") == host]

    def steps(self) -> int:
        """How often its loop has turned."""
        self.ask("measure")
        return int(self.expect(lambda _: True, "steps"))

    def close(self) -> None:
        """As when the process ends its work; it must not have failed."""
        assert self.process.stdin
        self.process.stdin.close()
        assert self.process.wait(PATIENCE_S) == 0
        self._finish()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._finish()

    def _listen(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.told.append(json.loads(line))

    def _finish(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Intruder:
    """A connection made by hand: of somebody who holds `credentials`, or has none and may not even speak TLS."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)

    def knock(self, credentials: Path) -> None:
        """As one who holds them, or who has seen it on the network."""
        self.send(hashlib.sha256(b"dtctl link\n" + (credentials / "link.key").read_bytes()).digest())

    def start_tls(self, credentials: Path | None) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if credentials:
            context.load_cert_chain(credentials / "link.crt", credentials / "link.key")
        self._socket = context.wrap_socket(self._socket)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def say(self, message: Message) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def hear(self) -> bytes:
        """Everything until the other end closes; empty when it resets the connection."""
        pieces = []
        try:
            while piece := self._socket.recv(65536):
                pieces.append(piece)
        except (ConnectionError, ssl.SSLError):
            pass
        return b"".join(pieces)

    def close(self) -> None:
        self._socket.close()
