"""Real ends of links for a test, strangers included."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.messages import PROTOCOL
from dtctl.agent.records.reasons import said
from dtctl.agent.records.run_state import State
from dtctl.agent.run.runfiles import CREDENTIAL_FILES
from dtctl.operations.credentials import Authority, Credentials
from tests.agent.link.intruder import PATIENCE_S, Intruder
from tests.reasons import reason_of
from tests.waiting import eventually

Message = dict[str, Any]
PROGRAM = Path(__file__).with_name("link_end.py")


AGENT = {"pid": 1, "start_time": 1, "boot_id": "b"}
_PIECE = 4000


def hello(host: str, **fields: Any) -> Message:
    whole = {"type": "hello", "v": PROTOCOL, "run": "r1", "host": host, "agent": AGENT, "events": 0}
    return {**state(), **whole, **fields}


def state(mark: str = "", size: int = 0) -> Message:
    """Of some `size` in bytes, and known again by `mark_of`."""
    others = {f"worker:{number}": {"why": said("x" * _PIECE)} for number in range(1, size // _PIECE + 2 if size else 1)}
    message = made(State, run="r1", host="h1", tasks={"worker:0": {"why": said(mark)}, **others})
    return {"type": "state", "state": message, "intents": {}, "kept": True, "lost_session": False}


def orders(mark: str = "", size: int = 0, over: bool = False) -> Message:
    others = {f"worker:{number}": {"why": said("x" * _PIECE)} for number in range(1, size // _PIECE + 2 if size else 1)}
    return {"type": "orders", "intents": {"worker:0": {"why": said(mark)}, **others}, "recovering": False, "over": over}


def mark_of(message: Message) -> str:
    tasks = message["state"]["tasks"] if message["type"] == "state" else message["intents"]
    return reason_of(tasks["worker:0"])


def write_credentials(directory: Path, credentials: Credentials, run: str = "r1") -> Path:
    """As an agent of the run keeps them; `run` is in a file of that name, for link_end.py."""
    directory.mkdir(parents=True, exist_ok=True)
    for field, file in CREDENTIAL_FILES.items():
        (directory / file).write_text(getattr(credentials, field))
    (directory / "run").write_text(run)
    return directory


def issued(directory: Path, host: str, run: str = "r1", authority: Authority | None = None) -> Path:
    """Credentials of a host; the coordinator's is c."""
    authority = authority or Authority(run)
    return write_credentials(directory, authority.issue(host, coordinates=host == "c"), run)


class End:
    """A process with a Hub or a Dialer in it. Leaving it checks that nothing has gone wrong there."""

    def __init__(self, python: str, role: str, directory: Path, where: object) -> None:
        self.process = subprocess.Popen(
            [python, "-IS", str(PROGRAM), role, str(directory), str(where)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.messages: list[Message] = []
        self._read = 0
        self._reader = threading.Thread(target=self._listen)
        self._reader.start()

    def ask(self, method: str, *arguments: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps({method: arguments}).encode() + b"\n")
        self.process.stdin.flush()

    def expect(self, wanted: Callable[[Any], Any], key: str = "said", what: str = "") -> Any:
        """The next thing reported under `key` of which `wanted` is true; what was reported before it is passed over."""

        def found() -> list[Any]:
            while self._read < len(self.messages):
                facts = self.messages[self._read]
                self._read += 1
                if key in facts and wanted(facts[key]):
                    return [facts[key]]
            assert self.process.poll() is None, "the process has ended"
            return []

        return eventually(found, PATIENCE_S, what)[0]

    def expect_type(self, type_: str, host: str | None = None) -> Message:
        """From a dialer; from a hub with the host."""

        def is_it(body: Any) -> bool:
            if isinstance(body, dict):
                return bool(body["type"] == type_)
            return bool(body[0] == host and body[1]["type"] == type_)

        body = self.expect(is_it, what=f"{type_} {host or ''}")
        message: Message = body if isinstance(body, dict) else body[1]
        return message

    def said(self, type_: str, host: str | None = None) -> list[Message]:
        """All of that type until now, whether it was expected or not."""
        everything = [facts["said"] for facts in self.messages if "said" in facts]
        messages = [body if isinstance(body, dict) else {**body[1], "host": body[0]} for body in everything]
        return [message for message in messages if message["type"] == type_ and message.get("host") == host]

    def steps(self) -> int:
        """How often its loop has turned."""
        self.ask("count")
        return int(self.expect(lambda _: True, "steps"))

    def measure(self) -> dict[str, float]:
        """cpu_s, resident_kb and descriptors of the process."""
        self.ask("measure")
        found: dict[str, float] = self.expect(lambda _: True, "measured")
        return found

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
            self.messages.append(json.loads(line))

    def _finish(self) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self._reader.join()
        self.process.stdin.close()
        self.process.stdout.close()


class Links:
    """A run r1 with a coordinator c, its hub, and dialers; `python` is the interpreter of the ends."""

    def __init__(self, directory: Path, python: str, address: str = "coordinator:0") -> None:
        self.authority, self.past_authority = Authority("r1"), Authority("r0")
        self._directory = directory
        self.directory = self.credentials("c")
        issued(self.directory / "past", "c", "r0", self.past_authority)
        self._python = python
        self._ends: list[End] = []
        self._intruders: list[Intruder] = []
        self.hub = self.end("hub", address)
        self.port = self.hub.expect(lambda port: port, "port")

    def credentials(self, host: str) -> Path:
        """Of a host of the run."""
        directory = self._directory / f"run-{host}"
        return directory if directory.exists() else issued(directory, host, authority=self.authority)

    def past(self, host: str) -> Path:
        """Of a host of the run before."""
        return issued(self._directory / f"past-{host}", host, "r0", self.past_authority)

    def end(self, role: str, where: object, directory: Path | None = None) -> End:
        self._ends.append(End(self._python, role, directory or self.directory, where))
        return self._ends[-1]

    def dialer(self, directory: Path | None = None, address: str = "127.0.0.1", host: str = "h1") -> End:
        return self.end("dialer", f"{address}:{self.port}", directory or self.credentials(host))

    def agent(self, host: str, **fields: object) -> End:
        """One that has said hello and was heard."""
        agent = self.dialer(host=host)
        agent.expect_type("connected")
        agent.ask("send", hello(host, **fields))
        self.hub.expect_type("hello", host)
        return agent

    def intruder(self, source: str = "127.0.0.1") -> Intruder:
        self._intruders.append(Intruder(self.port, source))
        return self._intruders[-1]

    def keyholder(self, host: str = "h1") -> Intruder:
        """Who has a host's key, but does not keep to the protocol."""
        intruder = self.intruder()
        intruder.prove_token(self.credentials(host))
        intruder.start_tls(self.credentials(host))
        return intruder

    def forget(self, end: End) -> None:
        self._ends.remove(end)

    def close(self) -> None:
        for intruder in self._intruders:
            intruder.close()
        for end in reversed(self._ends):
            end.close()


def client_hello() -> bytes:
    """As anybody's TLS begins."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing).do_handshake()
    return outgoing.read()
