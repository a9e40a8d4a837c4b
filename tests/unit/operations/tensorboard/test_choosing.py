"""Where TensorBoard is to run."""

from __future__ import annotations

import pytest

from dtctl.agent.records.tensorboard import EventDirsResult
from dtctl.errors import PreflightError
from dtctl.operations.tensorboard.copies import Looked, Place, choose


def answer(*names: str, tensorboard: bool = True) -> EventDirsResult:
    return {
        "run": "c-1",
        "dirs": ["/out"],
        "folders": [{"dir": "/out", "name": name, "identity": f"7-{name}"} for name in names],
        "sizes": {"files": len(names), "bytes": 10},
        "tensorboard": "/venv/bin/python" if tensorboard else None,
        "tried": [] if tensorboard else ["/usr/bin/python3"],
    }


def looked(**answers: EventDirsResult) -> Looked:
    return Looked("c-1", answers, {})


CASES = {
    "one host has them": (looked(a=answer("x"), b=answer()), True, Place("a", "one_host")),
    "the lead's host of those that share them": (looked(a=answer("x"), b=answer("x")), True, Place("b", "one_host")),
    "that of them which can": (
        looked(a=answer("x"), b=answer("x", tensorboard=False)),
        False,
        Place("a", "one_host"),
    ),
    "none yet": (looked(a=answer(), b=answer()), True, Place("b", "no_files")),
    "the host cannot, this machine can": (
        looked(a=answer("x", tensorboard=False), b=answer(tensorboard=False)),
        True,
        Place(None, "no_tensorboard", ("b", "a")),
    ),
    "on two hosts": (looked(a=answer("x"), b=answer("y")), True, Place(None, "several_hosts", ("b", "a"))),
    "on two hosts, and not here": (
        looked(a=answer("x", "z"), b=answer("y")),
        False,
        Place("a", "not_here", left_out=("b",)),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_runs_where_it_shows_all_of_them(case: str) -> None:
    found, here, place = CASES[case]
    assert choose(found, "b", copy=False, here=here) == place


def test_copies_are_of_each_directory_once_and_of_hosts_that_may_still_have_some() -> None:
    found = looked(a=answer("x"), b=answer("x", "y"), c=answer(), d=answer("x"))
    assert choose(found, "b", copy=True, here=True) == Place(None, "asked", ("b", "c"))


def test_where_nobody_has_tensorboard_it_is_said_where_it_was_looked_for() -> None:
    with pytest.raises(PreflightError) as nowhere:
        choose(looked(a=answer("x", tensorboard=False)), "a", copy=False, here=False)
    assert "a has none in /usr/bin/python3" in nowhere.value.detail
    assert "pip install tensorboard" in nowhere.value.hint
    with pytest.raises(PreflightError):
        choose(looked(a=answer("x")), "a", copy=True, here=False)
