"""Hosts that hand the files of a data set to each other, over TLS on the loopback."""

from __future__ import annotations

import dataclasses
import os
import random
import shutil
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles.tree import Manifest, Tree
from dtctl.agent.link.tls import NONCE_BYTES, PROOF_BYTES, GivenIdentity, context_of
from dtctl.agent.records.values import BLOCK_BYTES, CHUNK_BYTES, LARGE_BYTES
from dtctl.agent.rooms.data import relay
from dtctl.agent.rooms.data.dataset import DataSet
from dtctl.agent.rooms.data.relay import FileServer
from dtctl.bundle import Bundle
from dtctl.bundle.scanning import scan
from dtctl.bundle.sender import Sender
from dtctl.errors import ConnectionLost
from dtctl.operations.credentials import Authority
from dtctl.transport.seam import Message
from tests.agent.bundles.pushing import content
from tests.agent.link.ends import PipeSession, conversation
from tests.hosts.ports import free_port
from tests.waiting import eventually

SMALL = ("a/1", "a/2", "b/1")
BLOCKS = LARGE_BYTES // BLOCK_BYTES + 1
Feeders = Iterator[int]


def credentials() -> Any:
    return dataclasses.asdict(Authority("push").issue("push", coordinates=True))


@pytest.fixture
def bundle(tmp_path: Path) -> Bundle:
    """Three small files, and a large one that comes last."""
    source = tmp_path / "source"
    for name in SMALL:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name * 100)
    (source / "empty").touch()
    (source / "large").write_bytes(random.Random(1).randbytes(LARGE_BYTES + 5))
    return scan(source, data=True)


def feeder(bundle: Bundle, held: Path, shown: Any, lacking: Sequence[int] = ()) -> int:
    """The port of a host that has the bundle, as it believes."""
    shutil.copytree(bundle.root, held)
    tree = Tree(str(held), Manifest.parse(bundle.manifest.canonical, bundle.id), root=str(held))
    port = FileServer(tree, lacking, shown, []).port
    assert port is not None
    return port


def asked(bundle: Bundle, at: Path, shown: Any) -> Any:
    return {"dir": str(at), "bundle": bundle.id, "overwrite": False, "credentials": shown, "ports": []}


def pushed(bundle: Bundle, at: Path, shown: Any, ports: Feeders) -> tuple[Any, list[Message]]:
    """What the host answers, and the needs that its controller has met itself, as no feeder was left."""
    request = asked(bundle, at, shown)
    own: list[Message] = []
    root = at.with_name(f"{at.name}-root")
    with (
        conversation(lambda wire: DataSet(str(root), str(at)).push(request, wire, lambda: None)) as (session, outcome),
        Sender(bundle) as sender,
        suppress(ConnectionLost),
    ):
        while True:
            need = awaited(session)
            if not need["manifest"] and not need["digests"]:
                port = next(ports, None)
                session.send({"type": "feeder", "address": "127.0.0.1", "port": port})
                if port is not None:
                    continue
                own.append(need)
            sender.serve(session, need)
    if isinstance(outcome[0], Exception):
        raise outcome[0]
    return outcome[0], own


def awaited(session: PipeSession, kind: str = "need") -> Message:
    """The next message of this kind. The controller, which is slow here, leaves no host to its feeder."""
    while (message := session.receive()).type != kind:
        if message.type == "fed":
            session.send({"type": "feeder_review", "stays": False})
    return message


def _differ(file: Path, at: int = 0) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(b"lie")


def _cut(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.truncate(5 * BLOCK_BYTES)


EVERYTHING = ["a/1", "a/2", "b/1", "empty", "large"]


@pytest.mark.parametrize(
    ("happens", "files", "blocks"),
    [
        pytest.param(lambda held: None, [], [], id="has all"),
        pytest.param(lambda held: _differ(held / "a/2"), EVERYTHING[1:], [], id="lies in a small file"),
        pytest.param(lambda held: _differ(held / "large", 3 << 20), [], [3], id="lies in a large file"),
        pytest.param(lambda held: (held / "b/1").unlink(), EVERYTHING[2:], [], id="loses a file"),
        pytest.param(lambda held: _cut(held / "large"), [], list(range(5, BLOCKS)), id="dies in a large file"),
    ],
)
def test_controller_sends_files_that_a_feeder_sends_wrongly(
    happens: Callable[[Path], None], files: list[str], blocks: list[int], bundle: Bundle, tmp_path: Path
) -> None:
    shown = credentials()
    port = feeder(bundle, tmp_path / "held", shown)
    happens(tmp_path / "held")
    answer, own = pushed(bundle, tmp_path / "data", shown, iter([port]))
    assert answer["sent_files"] == len(EVERYTHING)
    assert content(tmp_path / "data") == content(bundle.root)
    assert [bundle.manifest.files[index].path for need in own for index in need["files"]] == files
    assert [one["number"] for need in own for one in need["blocks"]] == blocks


def test_a_feeder_that_gets_nothing_itself_is_given_up(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay, "REVIEW_S", 0.3)
    monkeypatch.setattr(relay, "_ALIVE_S", 0.1)
    shown = credentials()
    port = feeder(bundle, tmp_path / "held", shown, range(len(EVERYTHING)))
    answer, own = pushed(bundle, tmp_path / "data", shown, iter([port]))
    assert (answer["sent_files"], len(own)) == (len(EVERYTHING), 1)


def test_a_feeder_that_sends_a_byte_now_and_then_is_left(
    bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its frame is never whole, and each byte ends a silence."""
    monkeypatch.setattr(relay, "REVIEW_S", 0.3)
    shown = credentials()

    def drip(guest: ssl.SSLSocket) -> None:
        guest.recv(CHUNK_BYTES)
        guest.sendall(b'{"type":"file","index":0,"encoding":"raw","last":true,"bytes":200000}\n')
        while True:
            guest.sendall(b"x")
            time.sleep(0.05)

    with evil_feeder(shown, drip) as port:
        answer, own = pushed(bundle, tmp_path / "data", shown, iter([port]))
    assert (answer["sent_files"], len(own)) == (len(EVERYTHING), 1)
    assert content(tmp_path / "data") == content(bundle.root)


@contextmanager
def evil_feeder(shown: Any, attend: Callable[[ssl.SSLSocket], None]) -> Iterator[int]:
    """A compromised host of the push, which has its credentials; the port."""
    identity = GivenIdentity(shown)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection = listener.accept()[0]
                nonce = os.urandom(NONCE_BYTES)
                connection.sendall(nonce)
                assert connection.recv(PROOF_BYTES, socket.MSG_WAITALL) == identity.token_proof(nonce)
                with identity.context(server=True).wrap_socket(connection, server_side=True) as guest:
                    attend(guest)

        serving = threading.Thread(target=serve)
        serving.start()
        try:
            yield listener.getsockname()[1]
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            serving.join()


def test_silent_strangers_keep_no_guest_out(bundle: Bundle, tmp_path: Path) -> None:
    shown = credentials()
    port = feeder(bundle, tmp_path / "held", shown)
    with ExitStack() as stack:
        strangers = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 10)) for _ in range(64)]
        for stranger in strangers:
            assert stranger.recv(1), "the port has accepted it"
        answer, own = pushed(bundle, tmp_path / "data", shown, iter([port]))
    assert (answer["sent_files"], own) == (len(EVERYTHING), [])


def test_silent_guests_of_one_address_keep_those_of_others_not_out(bundle: Bundle, tmp_path: Path) -> None:
    """A compromised host has the credentials of the push."""
    shown = credentials()
    port = feeder(bundle, tmp_path / "held", shown)
    identity = GivenIdentity(shown)
    with ExitStack() as stack:
        for _ in range(2 * relay._MOST_GUESTS):
            guest = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, ("127.0.0.2", 0)))
            guest.sendall(identity.token_proof(guest.recv(NONCE_BYTES, socket.MSG_WAITALL)))
            guest.setblocking(True)
            stack.enter_context(identity.context(server=False).wrap_socket(guest))
        answer, own = pushed(bundle, tmp_path / "data", shown, iter([port]))
    assert (answer["sent_files"], own) == (len(EVERYTHING), [])


def test_credentials_are_read_by_a_python_that_was_built_for_an_old_libc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    assert context_of(credentials(), server=True).get_ca_certs()


@pytest.mark.parametrize("knows_the_token", [False, True])
def test_peer_without_the_certificate_of_the_push_neither_sends_nor_receives(
    bundle: Bundle, tmp_path: Path, knows_the_token: bool
) -> None:
    ours, theirs = credentials(), credentials()
    token_of = theirs if knows_the_token else ours
    port = feeder(bundle, tmp_path / "held", theirs)
    _, own = pushed(bundle, tmp_path / "data", ours, iter([port]))
    assert len(own[0]["files"]) == len(EVERYTHING), "a stranger feeds nobody"
    context = context_of(ours, server=False)
    context.verify_mode = ssl.CERT_NONE
    got = b""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 10) as plain:
        nonce = plain.recv(NONCE_BYTES, socket.MSG_WAITALL)
        plain.sendall(GivenIdentity(token_of).token_proof(nonce))
        with context.wrap_socket(plain) as guest:
            guest.sendall(b'{"type":"need","files":[0]}\n')
            got = guest.recv(CHUNK_BYTES)
    assert not got, "nor is one fed"


def test_a_feeder_that_cannot_be_reached_is_not_needed(bundle: Bundle, tmp_path: Path) -> None:
    answer, own = pushed(bundle, tmp_path / "data", credentials(), iter([free_port()]))
    assert (answer["sent_files"], len(own[0]["files"])) == (len(EVERYTHING), len(EVERYTHING))


def test_a_host_feeds_others_while_it_is_fed(bundle: Bundle, tmp_path: Path) -> None:
    """The second host has half of the large file when the first has no more of it."""
    shown = credentials()
    request = asked(bundle, tmp_path / "1", shown)
    own = DataSet(str(tmp_path / "1-root"), str(tmp_path / "1"))
    with (
        conversation(lambda wire: own.push(request, wire, lambda: None)) as (session, outcome),
        Sender(bundle) as sender,
    ):
        sender.serve(session, awaited(session))
        need = awaited(session)
        session.send({"type": "feeder", "address": "", "port": None})
        chunks = [(index, chunk) for index in need["files"] for chunk in sender._chunks.of(index)]
        second: list[Any] = []
        with conversation(lambda _: second.append(pushed(bundle, tmp_path / "2", shown, iter([need["port"]])))):
            for number, (index, chunk) in enumerate(chunks):
                if number == len(chunks) // 2:
                    eventually(lambda: _arriving(tmp_path / "2") >= BLOCK_BYTES, what="half of it to be at the second")
                last = number + 1 == len(chunks) or chunks[number + 1][0] != index
                encoding = "zlib" if chunk.compressed else "raw"
                session.send({"type": "file", "index": index, "encoding": encoding, "last": last}, chunk.data)
    assert outcome[0]["port"] == need["port"], "it goes on to feed others"
    assert second[0][1] == []
    assert content(tmp_path / "2") == content(bundle.root)


def _arriving(place: Path) -> int:
    return sum(path.stat().st_size for path in place.glob(".dtctl-incoming/.incoming-*/partial-*"))
