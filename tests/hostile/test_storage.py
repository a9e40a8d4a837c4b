"""Every command that reads storage, on a storage server that lies: a cluster file may name any server."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests import event_files, warm
from tests.buckets import Bucket, hdfs
from tests.desk import Desk
from tests.hostile.bench import MOST_MEMORY_MB
from tests.local.conftest import settled_desk
from tests.nights import at_night
from tests.webhdfs import Lie

DATA = Path(__file__).parents[1] / "agent/data/checkpoints/tf1_plain"

COMMANDS = (
    "status",
    "checkpoints",
    "metrics",
    "checkpoints verify",
    "checkpoints pull 200 best",
    "checkpoints prune --keep 1 --yes",
    "status -o json",
)

CLUSTER = """\
name: {name}
{hosts}
jobs: {{worker: {{hosts: node-1}}}}
trainer: {{command: [python, train.py], python: PYTHON, dialect: none}}
dirs: {{output: URL}}
grace: 100ms
"""

LONGEST_S = 200.0

Handler = BaseHTTPRequestHandler


@pytest.fixture(scope="module")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Desk, Bucket]]:
    """A run that lasts, and its storage."""
    with hdfs() as bucket, settled_desk(tmp_path_factory.mktemp("desk") / "home") as home:
        (home.project / "train.py").write_text("import fsspec\nimport time\n\ntime.sleep(1000)\n")
        home.write_cluster(CLUSTER.replace("PYTHON", sys.executable).replace("URL", f"{bucket.url}/digits"))
        home.dtctl("up", "--local", "-q")
        yield home, bucket


@pytest.fixture
def bucket(lasting: tuple[Desk, Bucket]) -> Iterator[Bucket]:
    """Its files are as if no test had been here before."""
    _, served = lasting
    for file in DATA.iterdir():
        served.put(f"digits/{file.name}", file.read_bytes())
    served.put("digits/train/events.out.tfevents.1.a", event_files.scalar(1, "loss", 0.5))
    yield served
    served.server.lie = None


@pytest.fixture
def started(lasting: tuple[Desk, Bucket]) -> Desk:
    """Likewise its files."""
    home, _ = lasting
    shutil.rmtree(home.project / "best", ignore_errors=True)
    return home


class Victim:
    """A server of this machine that no storage server may make dtctl ask."""

    def __init__(self) -> None:
        asked = self.asked = []  # type: list[str]

        class Noting(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(200)
                self.end_headers()

            do_PUT = do_POST = do_DELETE = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Noting)
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.server_port}"


@pytest.fixture
def victim() -> Iterator[Victim]:
    made = Victim()
    yield made
    made.server.shutdown()
    made.server.server_close()


def answer(handler: Handler, body: bytes, status: int = 200, **headers: str) -> bool:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name.replace("_", "-"), value)
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(body)
    return True


def endless(handler: Handler, begin: bytes, piece: bytes, status: int = 200, pause_s: float = 0.0) -> bool:
    """Until the other end has closed, or for 4 GB."""
    handler.send_response(status)
    handler.send_header("Connection", "close")
    handler.close_connection = True
    handler.end_headers()
    with suppress(OSError):
        handler.wfile.write(begin)
        for _ in range((4 << 30) // len(piece)):
            handler.wfile.write(piece)
            time.sleep(pause_s)
    return True


def entry(**fields: Any) -> dict[str, Any]:
    name = "model.ckpt-200.index"
    return {"pathSuffix": name, "type": "FILE", "length": 5, "modificationTime": 1_700_000_000_000, **fields}


def listing(*entries: Any) -> Lie:
    return listed({"FileStatuses": {"FileStatus": list(entries)}})


def listed(content: object) -> Lie:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    return lambda handler, operation, is_data: operation == "LISTSTATUS" and answer(handler, body)


def content(lie: Callable[[Handler], bool]) -> Lie:
    """Of files; listings are right."""
    return lambda handler, operation, is_data: operation == "OPEN" and is_data and lie(handler)


def to_all(lie: Callable[[Handler], bool]) -> Lie:
    return lambda handler, operation, is_data: lie(handler)


def sent_to(url: str) -> Lie:
    return to_all(lambda handler: answer(handler, b"", 307, Location=url))


_ENTRY = json.dumps(entry()).encode() + b","
_MANY = b'{"FileStatuses":{"FileStatus":['


@cache
def bomb() -> bytes:
    """A few KB."""
    return gzip.compress(gzip.compress(bytes(1 << 28), 1), 1)


LIES: Mapping[str, Lie] = {
    "an endless listing": lambda handler, operation, _: (
        operation == "LISTSTATUS" and endless(handler, _MANY, _ENTRY * 5000)
    ),
    "a listing of empty objects": listed(_MANY + b"{}," * 5_000_000 + b"{}]}}"),
    "a listing of small texts": listed(_MANY + b'"ab",' * 3_000_000 + b'""]}}'),
    "a listing that is nested deeply": listed(b"[" * 900_000),
    "lengths that are no numbers": listing(entry(length="many")),
    "lengths that are lists": listing(entry(length=[1])),
    "lengths below zero": listing(entry(length=-5), entry(pathSuffix="model.ckpt-200.data-00000-of-00001", length=-9)),
    "lengths beyond all disks": listing(
        entry(length=2**52), entry(pathSuffix="model.ckpt-200.data-00000-of-00001", length=2**52)
    ),
    "lengths that are not finite": listed(_MANY + json.dumps(entry()).replace(" 5", " 1e999").encode() + b"]}}"),
    "times that are no times": listing(entry(modificationTime="soon")),
    "times beyond all calendars": listing(entry(modificationTime=2**62)),
    "names that are numbers": listing(entry(pathSuffix=7)),
    "names that are half characters": listing(entry(pathSuffix="model\ud800.index")),
    "names that lead elsewhere": listing(entry(pathSuffix="../../../../victim")),
    "entries that are nothing": listing(None, None),
    "a listing that is a text": listed({"FileStatuses": "none"}),
    "no JSON": listed(b"<html>busy</html>"),
    "an endless file": content(lambda handler: endless(handler, b"", b"x" * 65536)),
    "a file that is longer than listed": content(lambda handler: answer(handler, b"x" * 300_000)),
    "a file of a terabyte": content(lambda handler: answer(handler, b"x" * 1000, Content_Length=str(1 << 40))),
    "a length that is no number": to_all(lambda handler: answer(handler, b"x", Content_Length="many")),
    "several lengths": to_all(lambda handler: answer(handler, b"x", Content_Length="1, 2")),
    "compressed zeros": to_all(lambda handler: answer(handler, bomb(), Content_Encoding="gzip, gzip")),
    "an endless error": to_all(lambda handler: endless(handler, b"", b"x" * 65536, 403)),
    "an error of strange types": to_all(lambda handler: answer(handler, b'{"RemoteException": [1]}', 403)),
    "an error as long as a book": to_all(
        lambda handler: answer(
            handler, json.dumps({"RemoteException": {"exception": "X", "message": "no " * 300_000}}).encode(), 403
        )
    ),
    "an endless redirect": lambda handler, operation, _: endless(handler, b"", b"x" * 65536, 307),
    "a redirect to itself": lambda handler, operation, _: answer(handler, b"", 307, Location=handler.path),
    "a redirect to a file": sent_to("file:///etc/passwd"),
    "a redirect to the credentials of a cloud": sent_to("http://169.254.169.254/webhdfs/v1/latest?op=OPEN"),
    "a redirect to the same in another form": sent_to("http://0xa9fea9fe/webhdfs/v1/latest?op=OPEN"),
    "a redirect to another site": sent_to("http://192.0.2.1/webhdfs/v1/digits?op=OPEN"),
    "a redirect to nowhere": sent_to("http://"),
    "a redirect to a port that is none": sent_to("http://127.0.0.1:99999/webhdfs/v1/digits?op=OPEN"),
}


@dataclass(frozen=True)
class Done:
    words: str
    code: int
    memory_mb: float
    errors: str

    def wrongs(self) -> list[str]:
        found = {
            f"dtctl {self.words}: a traceback: {self.errors[-1500:]}": "Traceback" in self.errors,
            f"dtctl {self.words}: exit code {self.code}": self.code not in (0, 1, 4, 7),
            f"dtctl {self.words}: {self.memory_mb:.0f} MB of memory": self.memory_mb > MOST_MEMORY_MB,
            f"dtctl {self.words}: {len(self.errors)} characters of output": len(self.errors) > 60_000,
        }
        return [what for what, is_so in found.items() if is_so]


def run(desk: Desk, words: str) -> Done:
    shutil.rmtree(desk.home / ".cache/dtctl/storage", ignore_errors=True)
    output = desk.home / "output"
    with output.open("wb") as file:
        started = warm.start(words.split(), desk.project, desk.env, os.dup(file.fileno()), os.dup(file.fileno()))
    in_time = started.has_ended(LONGEST_S)
    if not in_time:
        started.has_ended_after(signal.SIGKILL, LONGEST_S)
    code, memory_mb = started.end()
    assert in_time, f"dtctl {words} did not end in {LONGEST_S:.0f} s"
    return Done(words, code, memory_mb, output.read_text(errors="replace"))


CASES = [f"{words}: {what}" for words in COMMANDS for what in LIES]
BY_DAY = [f"{COMMANDS[number % len(COMMANDS)]}: {what}" for number, what in enumerate(LIES)]
"""One command for each lie, in turn."""


@pytest.mark.parametrize("case", at_night(CASES, but=BY_DAY))
@pytest.mark.timeout(300)
def test_a_lying_storage_server_harms_no_command(started: Desk, bucket: Bucket, case: str) -> None:
    words, _, what = case.partition(": ")
    bucket.server.lie = LIES[what]
    assert run(started, words).wrongs() == []
    assert not list(started.home.rglob("victim"))
    bucket.server.lie = None
    assert "complete, newest" in started.dtctl("checkpoints"), "the truth is read again"


@pytest.mark.parametrize("path", ["/latest/meta-data", "/webhdfs/v1/../../admin?op=OPEN", "/webhdfs/v1/digits"])
def test_a_redirect_asks_no_other_server_of_this_machine(
    started: Desk, bucket: Bucket, victim: Victim, path: str
) -> None:
    bucket.server.lie = sent_to(f"http://{victim.address}{path}")
    found = run(started, "checkpoints")
    assert found.wrongs() == []
    assert "sends dtctl on to 127.0.0.1" in found.errors
    assert victim.asked == []


@pytest.mark.timeout(300)
def test_a_byte_a_second_ends_a_listing_after_its_limit(started: Desk, bucket: Bucket) -> None:
    bucket.server.lie = to_all(lambda handler: endless(handler, b"", b"x", pause_s=1.0))
    found = run(started, "status")
    assert found.wrongs() == []
    assert "did not answer within 30 s" in found.errors
