"""The network between the tasks of a plan: their ports are listened on, and the others' connected to.

What listens lives as long as the conversation, as other hosts may come to it until all of them have answered.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress

from ...host import files, paths
from ...records.kinds import made
from ...records.spec import ports_of
from ...run.runfiles import RunFiles
from ...survival import revival
from ..network import connecting, listening
from ..network.listening import CHUNK, READY, SENT_AHEAD
from ..network.records import Bound, Measured, NetworkFacts, NetworkQuestion, Peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, FrozenSet, List, Optional, Tuple

    from ...conversation import Conversation
    from ...records.spec import Spec


def network_facts(talk: Conversation, question: NetworkQuestion) -> NetworkFacts:
    first = bool(question["listen"] or question["names"])
    return {
        "bound": _listen(talk, question) if question["listen"] else [],
        "interfaces": connecting.interfaces() if first else [],
        "resolved": connecting.own_names(question["names"], question["limit_s"]) if question["names"] else [],
        "proxies": connecting.proxies() if first else {},
        "reached": connecting.reach(question["reach"], question["nonce"], question["limit_s"]),
        # one after the other, so that none takes the bandwidth of another
        "measured": [_measure(peer, question["nonce"], question["measure_s"]) for peer in question["measure"]],
    }


def _listen(talk: Conversation, question: NetworkQuestion) -> List[Bound]:
    listener = listening.Listener(question["host"], question["nonce"])
    talk.leaving.append(listener.close)
    bound = listening.bind(listener, question["listen"], _live_ports(talk, question), _other_runs(talk))
    listener.start()
    return bound


def _live_ports(talk: Conversation, question: NetworkQuestion) -> FrozenSet[int]:
    """The ports of the cluster's current run, unless that has finally ended."""
    if question["cluster"] is None:
        return frozenset()
    directory = paths.cluster_directory(talk.root, question["cluster"], question["host"])
    with suppress(files.Unfit, paths.Damaged, OSError):
        run = paths.read_text(os.path.join(directory, "current"))
        if run and paths.is_component(run):
            current = RunFiles(paths.run_directory(talk.root, run, question["host"]))
            if not current.state()["finished"]:
                return frozenset(ports_of(current.spec()))
    return frozenset()


def _other_runs(talk: Conversation) -> Dict[int, Spec]:
    """The ports of this user's live runs, and the spec of each."""
    found: Dict[int, Spec] = {}
    for files_of in revival.every(talk.root):
        with suppress(OSError, paths.Damaged):  # is being removed, or damaged: `status` reports that
            if files_of.is_of_this_machine() and not revival.is_over(files_of):
                spec = files_of.spec()
                found.update(dict.fromkeys(ports_of(spec), spec))
    return found


_ECHOES = 21
_LIMIT_S = 10.0


def _measure(peer: Peer, nonce: str, seconds: float) -> Measured:
    answer = made(Measured, whose=peer["whose"], host=peer["host"])
    try:
        with _connected(peer["address"], nonce, "echo") as connection:
            answer["latency_s"] = _latency(connection)
        with _connected(peer["address"], nonce, "give") as connection:
            answer["received"] = _received(connection, seconds)
        with _connected(peer["address"], nonce, "take") as connection:
            answer["sent"] = _sent(connection, seconds)
            answer["again"] = _again(connection)
    except (OSError, ValueError) as error:
        answer["problem"] = str(error)[:4096]
    return answer


def _connected(address: str, nonce: str, what: str) -> socket.socket:
    name, _, port = address.rpartition(":")
    connection = socket.create_connection((name.strip("[]"), int(port)), _LIMIT_S)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection.sendall(("%s %s\n" % (nonce, what)).encode("ascii"))
        if connection.recv(1) != READY:
            raise OSError("it does not answer")
    except BaseException:
        connection.close()
        raise
    return connection


def _latency(connection: socket.socket) -> Optional[float]:
    took = []
    for _ in range(_ECHOES):
        began = time.perf_counter()
        connection.sendall(b".")
        if not connection.recv(1):
            return None
        took.append(time.perf_counter() - began)
    return sorted(took)[len(took) // 2]


def _received(connection: socket.socket, seconds: float) -> float:
    """The received bytes a second, counted from the first bytes on, without the start of the other side."""
    buffer = bytearray(1 << 20)
    connection.recv_into(buffer)
    began, count = time.monotonic(), 0
    while True:
        size = connection.recv_into(buffer)
        count += size
        passed = time.monotonic() - began
        if not size or passed >= seconds:
            return count / max(passed, 1e-6)


def _sent(connection: socket.socket, seconds: float) -> float:
    """The bytes a second that the system accepts; its own buffer is filled before the measurement."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENT_AHEAD)
    _send(connection, seconds / 4)
    count, passed = _send(connection, seconds)
    return count / max(passed, 1e-6)


def _send(connection: socket.socket, seconds: float) -> Tuple[int, float]:
    """The number of sent bytes, and the time. On a slow link only a part of a chunk is accepted at a time."""
    began, count = time.monotonic(), 0
    while True:
        count += connection.send(CHUNK)
        passed = time.monotonic() - began
        if passed >= seconds:
            return count, passed


def _again(connection: socket.socket) -> Optional[float]:
    """The share of segments sent again: tcp(7), TCP_INFO: tcpi_total_retrans, and tcpi_segs_out since Linux 4.2."""
    answer = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    if len(answer) < 140:
        return None
    again, out = struct.unpack_from("=I", answer, 100)[0], struct.unpack_from("=I", answer, 136)[0]
    return min(1.0, again / out) if out else None
