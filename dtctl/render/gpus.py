"""The GPUs of tasks and hosts as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dtctl.agent.records.vitals import Gpu
from dtctl.operations.findings import Facts, used_by
from dtctl.operations.snapshot import RunStatus
from dtctl.render.format import size

COLUMNS = {
    **dict.fromkeys(("host", "GPU", "kind", "use", "memory", "temperature", "clock", "held back by"), "nowrap"),
    **dict.fromkeys(("tasks", "used by"), "wide"),
}
"""Headings, and the class of their width on a page."""


def use(gpus: Sequence[Gpu]) -> str:
    """The use of each of a few GPUs, or the range of many, and whether any is lost: `93 95%`, `12..97% lost`."""
    busy = [round(100 * gpu["busy"]) for gpu in gpus if gpu["busy"] is not None]
    several = f"{min(busy)}..{max(busy)}" if len(set(busy)) > 1 else " ".join(map(str, busy[:1]))
    known = [f"{' '.join(map(str, busy)) if len(busy) <= _FEW else several}%"] if busy else []
    return " ".join([*known, *(["lost"] if any(gpu["lost"] for gpu in gpus) else [])])


_FEW = 4


def memory(gpus: Sequence[Gpu]) -> str:
    """The memory of the fullest GPU: 31.2 of 40.0 GB."""
    known = [gpu for gpu in gpus if gpu["memory_bytes"]]
    if not known:
        return ""
    fullest = max(known, key=lambda gpu: gpu["used_bytes"] / gpu["memory_bytes"])
    used, unit = size(fullest["used_bytes"]).split()
    most, own = size(fullest["memory_bytes"]).split()
    return f"{used} of {most} {own}" if unit == own else f"{used} {unit} of {most} {own}"


def heat(gpus: Sequence[Gpu]) -> str:
    """The highest temperature, and why clocks are lowered: 91 C thermal."""
    degrees = max((gpu["degrees"] for gpu in gpus if gpu["degrees"] is not None), default=None)
    reasons = dict.fromkeys(reason for gpu in gpus for reason in gpu["throttled"])
    return " ".join([*([] if degrees is None else [f"{degrees} C"]), *reasons])


def rows(status: RunStatus) -> Iterator[list[str]]:
    """A row for each GPU, in COLUMNS."""
    for host, gpu in every(status):
        clock = "" if gpu["clock_mhz"] is None else f"{gpu['clock_mhz']} MHz"
        figures = (use([gpu]), memory([gpu]), heat([{**gpu, "throttled": []}]), clock, ", ".join(gpu["throttled"]))
        yield [host, str(gpu["index"]), gpu["name"], *figures, ", ".join(gpu["given"]), used_by(gpu["users"])]


def every(status: RunStatus) -> Iterator[tuple[str, Gpu]]:
    """The GPUs of all hosts with tasks."""
    facts = Facts(status)
    for host in dict.fromkeys(task.host for task in status.tasks.values()):
        yield from ((host, gpu) for gpu in facts.gpus(host))
