"""The strategies as seen from outside: which tasks wait for which, and what they log and exit with after a loss."""

from __future__ import annotations

import sys
import threading
import time
from contextlib import suppress
from typing import NoReturn

from .group import Group
from .network import Gone, Peer, Server
from .parameters import Parameters
from .place import Place

LOST = "INFO:tensorflow:An error was raised. This may be due to a preemption in a connected worker or parameter server."
EXIT_SAVED = 42
"""Of TensorFlow's PreemptionCheckpointHandler: saved, to be restarted."""


def serve_parameters(place: Place) -> NoReturn:
    """Runs a ps, with every strategy: it never exits by itself."""
    Server(place.address, Parameters().answer)
    print(f"ps {place.options.task_index} serves at {place.address}")
    while True:
        time.sleep(3600)


def asynchronous(place: Place) -> None:
    """Tasks wait only for the ps tasks; the chief restores a lost ps, and restores at its own start."""
    Server(place.address, lambda request: {})
    ps = place.peers(place.ps)
    step = _session(place, ps)
    while not place.finished(step):
        try:
            step = _push(place, ps)
        except Gone as error:
            print(f"{LOST} {error}")
            step = _session(place, ps)
            continue
        place.reached(step)
        place.pace(len(place.workers))
    place.end(step)


def synchronous(place: Place) -> None:
    """Every step needs every worker. If a ps is lost the chief fails, and others end as if they had succeeded."""
    Server(place.address, lambda request: {})
    ps = place.peers(place.ps)
    step = _session(place, ps)
    try:
        while not place.finished(step):
            first, *others = ps
            answer = first.call("join", of=len(place.workers), wants_end=place.wants_end)
            if None in (answer["step"], *(peer.call("get")["step"] for peer in others)):
                raise Gone("Variables not initialized")
            step, place.enough = answer["step"], answer["enough"]
            place.reached(step)
            place.pace(1)
    except Gone as error:
        if place.is_chief:
            sys.exit(f"CancelledError: FIFOQueue '_0_sync_token_q' is closed. {error}")
    place.end(step)


def strategy(place: Place) -> None:
    """ParameterServerStrategy: the chief drives; it waits for a lost worker, and fails with a lost ps."""
    if not place.is_chief:
        _serve_chief(place)
    ps = place.peers(place.ps)
    step = _session(place, ps)
    working = threading.Semaphore(0)
    for worker in place.peers(place.driven):
        threading.Thread(target=_drive, args=(worker, working), daemon=True).start()
    while not place.finished(step):
        if working.acquire(timeout=0.5):
            try:
                step = _push(place, ps)
            except Gone as error:
                sys.exit(f"UnavailableError: {error}")
            place.reached(step)
            place.pace(1)
    place.end(step)


def collective(place: Place) -> None:
    """All or none: a lost member ends the others."""
    group = Group(place) if place.is_chief else None
    Server(place.address, group.answer if group else lambda request: {}, group.lost if group else lambda me: None)
    chief = Peer(place.workers[0], place.name)
    answer = chief.wait("join")
    chief.limit_s = place.options.heartbeat_s
    while "step" in answer and not place.finished(step := answer["step"]):
        place.reached(step)
        place.pace(1)
        try:
            answer = chief.call("step", stopping=place.stopping, wants_end=place.wants_end)
        except Gone as error:
            sys.exit(f"UnavailableError: Collective ops is aborted by: {error}")
        place.stopping |= answer.get("stop", False)
        place.enough |= answer.get("enough", False)
    if "failed" in answer:
        sys.exit(f"UnavailableError: Collective ops is aborted by: {answer['failed']}")
    place.end(step)
    with suppress(Gone):
        chief.call("leave")
    if place.stopping:
        sys.exit(EXIT_SAVED)


def _session(place: Place, ps: list[Peer]) -> int:
    """Waits until every ps is there and holds the variables, which the chief puts there; returns the step."""
    while True:
        for peer in ps:
            answer = peer.wait("get", lambda answer: place.is_chief or answer["step"] is not None, place.options.poll_s)
        if not place.is_chief:
            return int(answer["step"])
        step = place.restore()
        with suppress(Gone):
            place.act(f"restores step {step}")
            for peer in ps:
                peer.call("restore", step=step)
            return step


def _push(place: Place, ps: list[Peer]) -> int:
    """The step after this task's part of it has been sent to every ps."""
    answers = [peer.call("push", count=1 if peer is ps[0] else 0, wants_end=place.wants_end) for peer in ps]
    if None in [answer["step"] for answer in answers]:
        raise Gone("Variables not initialized")
    place.enough = answers[0]["enough"]
    return int(answers[0]["step"])


def _serve_chief(place: Place) -> NoReturn:
    Server(place.address, lambda request: {})
    print(f"worker {place.options.task_index} serves at {place.address}")
    while True:
        time.sleep(3600)


def _drive(worker: Peer, working: threading.Semaphore) -> None:
    while True:
        worker.wait("compute", every_s=1.0)
        working.release()
        time.sleep(0.01)


WAYS = {"async": asynchronous, "sync": synchronous, "ps-strategy": strategy, "collective": collective}
