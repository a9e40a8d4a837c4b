"""False messages from an agent with a genuine certificate: one line each.

Each makes, from the genuine hello of its host, the lines that are sent in its place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from dtctl.agent.records.reasons import said

Message = dict[str, Any]
Lie = Callable[[Message], list[bytes]]
OWN, FOREIGN = "worker:0", "ps:0"
NO_END = b"x" * (3 << 20)


def line(message: Message) -> bytes:
    return json.dumps(message).encode() + b"\n"


def news(hello: Message) -> Message:
    """A message after a hello."""
    return {**{name: hello[name] for name in ("state", "intents", "kept", "lost_session")}, "type": "state"}


def changed(change: Callable[[Message], object]) -> Lie:
    """A changed hello."""

    def lie(hello: Message) -> list[bytes]:
        reported = copy.deepcopy(hello)
        change(reported)
        return [line(reported)]

    return lie


def after(change: Callable[[Message], object]) -> Lie:
    """A genuine hello, and then a changed state."""

    def lie(hello: Message) -> list[bytes]:
        reported = copy.deepcopy(news(hello))
        change(reported)
        return [line(hello), line(reported)]

    return lie


def raw(*lines: bytes) -> Lie:
    return lambda hello: [line(hello), *lines]


def text(old: str, new: str) -> Lie:
    """A change of the JSON itself, for text that json.dumps does not write."""
    return lambda hello: [line(hello).replace(old.encode(), new.encode(), 1)]


def entry(**fields: Any) -> Callable[[Message], object]:
    return lambda reported: reported["state"]["tasks"][OWN].update(fields)


def intent(**fields: Any) -> Callable[[Message], object]:
    return lambda reported: reported["intents"][OWN].update(fields)


def whole(**fields: Any) -> Callable[[Message], object]:
    return lambda reported: reported.update(fields)


def foreign_intent(reported: Message) -> None:
    reported["intents"][FOREIGN] = {"want": "stop", "generation": 9, "version": 99, "why": said("lie"), "by": "liar"}


def foreign_state(reported: Message) -> None:
    reported["state"]["tasks"][FOREIGN] = {**reported["state"]["tasks"][OWN], "state": "failed", "why": said("lie")}


def event(**fields: Any) -> Message:
    usual = {"time": 1e9, "task": OWN, "attempt": 1, "from": "running", "to": "failed", "why": said("lie")}
    return {**usual, **fields}


def events(first: Any, *reported: Any) -> bytes:
    return line({"type": "events", "from": first, "events": list(reported)})


def progress(tasks: Message) -> bytes:
    return line({"type": "progress", "serial": 9, "tasks": tasks})


GPUS = {"each": [{"index": 0, "busy": 7.0}]}
MACHINE = {"time": 1.0, "cpus": 1, "load": 0, "memory_bytes": 9, "available_bytes": 9, "waiting": {}, "gpus": GPUS}
PAST = {"attempt": 1, "started": 1.0, "ended": 2.0, "asked": False, "code": 1, "signal": None}

LIES: dict[str, Lie] = {
    "it is another host": changed(whole(host="a")),
    "it is the coordinator's host": changed(whole(host="b")),
    "it is a host that is not there": changed(whole(host="z")),
    "its name is a path": changed(whole(host="../../c")),
    "it is of another run": changed(whole(run="other-1")),
    "it speaks another version": changed(whole(v=99)),
    "it has no version": changed(lambda reported: reported.pop("v")),
    "no state": changed(lambda reported: reported.pop("state")),
    "a state that is null": changed(whole(state=None)),
    "a state that is a list": changed(whole(state=[])),
    "a state of another host": changed(lambda reported: reported["state"].update(host="a")),
    "a state of another run": changed(lambda reported: reported["state"].update(run="other-1")),
    "a state without its task": changed(lambda reported: reported["state"].update(tasks={})),
    "a state of a foreign task": changed(foreign_state),
    "a state of a foreign task, later": after(foreign_state),
    "a state that does not exist": changed(entry(state="exploded")),
    "an attempt that is text": changed(entry(attempt="1")),
    "an attempt below zero": changed(entry(attempt=-1)),
    "an attempt that is true": changed(entry(attempt=True)),
    "a generation without end": changed(entry(generation=10**40)),
    "a step that is a fraction": changed(entry(step=0.5)),
    "a step that is a list": after(entry(step=[1])),
    "GPUs that are busier than can be": changed(lambda reported: reported["state"].update(machine=MACHINE)),
    "an exit that is a number": changed(entry(exit=7)),
    "an exit code of a thousand": changed(entry(exit={"code": 1000})),
    "a tail of megabytes": changed(entry(exit={"code": 1, "tail": "x" * 500_000})),
    "a reason of megabytes": changed(entry(why=[{"kind": "said", "text": "x" * 500_000}])),
    "a history that is null": changed(entry(history=None)),
    "a history of null": changed(entry(history=[None])),
    "a history without times": changed(entry(history=[{"attempt": 1}])),
    "an end that is null": changed(entry(history=[{**PAST, "ended": None}])),
    "a history of a thousand ends": changed(entry(history=[{**PAST, "attempt": number} for number in range(1000)])),
    "processes that are numbers": changed(entry(left=[1, 2])),
    "a time that is text": after(entry(since="now")),
    "a time before all times": changed(entry(since=-1e300)),
    "a time without end": text('"finished": ', '"serial": 1e999, "finished": '),
    "a time that is no number": text('"finished": ', '"serial": NaN, "finished": '),
    "an agent that is null": changed(whole(agent=None)),
    "an agent without a pid": changed(whole(agent={"boot_id": "b"})),
    "no intents": changed(lambda reported: reported.pop("intents")),
    "intents that are a list": changed(whole(intents=[])),
    "intents of nothing": changed(whole(intents={})),
    "intents of a foreign task": changed(foreign_intent),
    "intents of a foreign task, later": after(foreign_intent),
    "an intent that is null": changed(lambda reported: reported["intents"].update({OWN: None})),
    "an intent that is text": after(lambda reported: reported["intents"].update({OWN: "stop"})),
    "a want that does not exist": changed(intent(want="die")),
    "a version that is text": changed(intent(version="9")),
    "a version below zero": changed(intent(version=-9)),
    "a version without end": changed(intent(version=10**30)),
    "a grace that is text": after(intent(grace_s="soon")),
    "a grace below zero": changed(intent(grace_s=-5)),
    "kept that is a number": changed(whole(kept=1)),
    "a lost session that is null": after(whole(lost_session=None)),
    "a stop of the run that is a list": changed(intent(ends_run=[])),
    "a stop of the run by nobody": changed(intent(ends_run={"why": said("lie")})),
    "a reason that is text where facts stand": changed(intent(why="stalled")),
    "a fact without a kind": after(intent(why=[{"text": "lie"}])),
    "a reason of facts without end": changed(intent(why=[{"kind": "stopped"}] * 1000)),
    "progress of a foreign task": raw(progress({FOREIGN: {"step": 9}})),
    "progress of a step that is text": raw(progress({OWN: {"step": "9"}})),
    "progress before hello": lambda hello: [progress({OWN: {"step": 9}}), line(hello)],
    "events that are a number": raw(line({"type": "events", "from": 0, "events": 7})),
    "events from below zero": raw(events(-5, event())),
    "an event of a foreign task": raw(events(0, event(task=FOREIGN))),
    "an event of text": raw(events(0, "lie")),
    "an event of a kind of its own": raw(events(0, event(to="exploded"))),
    "an event of megabytes": raw(events(0, event(why=[{"kind": "said", "text": "x" * 500_000}]))),
    "a thousand events at once": raw(events(0, *[event() for _ in range(1000)])),
    "a host that joins": raw(line({"type": "join", "joins": {"z": {"address": "z", "addresses": {}}}})),
    "a type that does not exist": raw(line({"type": "shutdown"})),
    "a type that is a list": raw(line({"type": ["state"]})),
    "no type": raw(b"{}\n"),
    "orders, as if it were the coordinator": raw(
        line({"type": "orders", "intents": {}, "recovering": False, "over": True})
    ),
    "hello twice": lambda hello: [line(hello), line(hello)],
    "a state before hello": lambda hello: [line(news(hello)), line(hello)],
    "no JSON": raw(b"GET / HTTP/1.1\r\n\r\n"),
    "no UTF-8": raw(b'{"type": "\xff\xfe"}\n'),
    "a number of a million digits": raw(b'{"type": "beat", "n": ' + b"9" * 900_000 + b"}\n"),
    "brackets without end": raw(b'{"type": "beat", "n": ' + b"[" * 900_000 + b"\n"),
    "a line without end": raw(NO_END),
}
