"""`gpus`: which hosts are asked, which GPUs count as free, and the table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.vitals import Gpu, Gpus, GpuUser
from dtctl.agent.rooms.gpus.records import GpusResult
from dtctl.errors import TransportError
from dtctl.rooms.gpus.document import gpus as as_document
from dtctl.rooms.gpus.operation import gpus, is_free
from dtctl.rooms.gpus.screen import show_gpus
from dtctl.transport.fanout import Outcomes
from tests.unit.coordinated import record
from tests.unit.fakes import FakeSession, FakeTransport

GB = 10**9


def gpu(index: int = 0, **fields: Any) -> Gpu:
    return made(Gpu, **{"index": index, "name": "A100", "busy": 0.0, "memory_bytes": 40 * GB, **fields})


def user(**fields: Any) -> GpuUser:
    return made(GpuUser, **{"pid": 7, "name": "python", "user": "ada", "used_bytes": 30 * GB, **fields})


def answer(*each: Gpu, **fields: Any) -> GpusResult:
    return {"gpus": made(Gpus, each=list(each), **fields)}


HELD = gpu(1, busy=0.95, used_bytes=31 * GB, users=[user(run="digits-1", task="worker:1")])
TAKEN = gpu(2, busy=0.5, used_bytes=30 * GB, users=[user()])
ANSWERS = {
    "a": answer(gpu(), HELD, TAKEN),
    "b": answer(problem="no_driver", text="there is no libnvidia-ml.so.1"),
    "c": answer(),
    "d": answer(problem="silent"),
}


@pytest.mark.parametrize(
    ("one", "free"),
    [
        (gpu(), True),
        (gpu(used_bytes=3 * GB), True),
        (gpu(used_bytes=5 * GB), False),
        (gpu(users=[user()]), False),
        (gpu(lost=True, memory_bytes=0), False),
    ],
    ids=["idle", "a desktop's memory", "memory of somebody unseen", "a user", "lost"],
)
def test_a_gpu_is_free_if_it_answers_and_nobody_uses_it(one: Gpu, free: bool) -> None:
    assert is_free(one) is free


def test_every_named_host_is_asked_and_one_that_is_away_is_an_error() -> None:
    def says(session: FakeSession, fields: Mapping[str, Any]) -> list[Any]:
        return [{"type": "result", **ANSWERS[session.host.name]}] if fields["type"] == "gpus" else []

    transport = FakeTransport(says, {"c": TransportError("c is away")})
    found = gpus(record(), transport, ["a", "c", "d"])
    assert (list(found.results), list(found.errors)) == (["a", "d"], ["c"])
    assert set(transport.opened) == {"a", "c", "d"}


def test_table_names_tasks_and_programs_and_folds_hosts_without_gpus(capsys: pytest.CaptureFixture[str]) -> None:
    show_gpus(ANSWERS)
    head, *rows, bare, silent, last = capsys.readouterr().out.splitlines()
    assert head.split() == ["HOST", "GPU", "MODEL", "GPU", "USE", "GPU", "MEMORY", "USED", "BY"]
    assert [row.split()[:3] for row in rows] == [["a", str(index), "A100"] for index in range(3)]
    assert rows[0].split()[3:] == ["0%", "0", "B", "of", "40.0", "GB"]
    assert rows[1].endswith("worker:1 of digits-1")
    assert rows[2].endswith("python of ada")
    assert (bare, silent) == ("b,c: no GPUs", "d: its GPUs are unknown, as their driver does not answer")
    assert last == "1 of 3 GPUs is free"


def test_many_users_are_cut_and_each_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    twice = [user(pid=number) for number in (7, 8)]
    show_gpus({"a": answer(gpu(users=[*twice, *(user(pid=9, name=f"p{n}") for n in range(4))]))})
    assert "python of ada, p0 of ada, p1 of ada and 2 more" in capsys.readouterr().out


def test_memory_without_a_visible_process_is_of_an_unknown_user(capsys: pytest.CaptureFixture[str]) -> None:
    show_gpus({"a": answer(gpu(used_bytes=30 * GB))})
    row, last = capsys.readouterr().out.splitlines()[1:]
    assert row.endswith("unknown")
    assert last == "0 of 1 GPUs are free"


def test_document_has_the_sums_and_why_gpus_are_unknown() -> None:
    found = as_document(Outcomes(ANSWERS, {"e": TransportError("e is away")}))
    assert (found["free"], found["total"]) == (1, 3)
    assert [(one["host"], one["problem"], len(one["gpus"])) for one in found["hosts"]] == [
        ("a", None, 3),
        ("b", "no_driver", 0),
        ("c", None, 0),
        ("d", "silent", 0),
    ]
    assert [one["free"] for one in found["hosts"][0]["gpus"]] == [True, False, False]
    assert found["errors"][0]["host"] == "e"
