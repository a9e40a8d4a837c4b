"""When a trainer stops: the helper's signals, with TensorFlow neither installed nor needed."""

from __future__ import annotations

import ast
import itertools
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from dtctl import trainer
from dtctl.errors import UsageError
from dtctl.rooms.init.operation import write_helper, write_template
from dtctl.trainer import SAVED, Stop, serve
from tests.unit.agent.test_bootstrap import imported

SOURCE = Path(trainer.__file__)


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_loop_ends_before_the_next_item_and_the_exit_says_start_me_again(capsys: pytest.CaptureFixture[str]) -> None:
    stop, done = Stop(), []
    for step in stop.between(itertools.count()):
        if step == 3:
            signal.raise_signal(signal.SIGTERM)
        done.append(step)
    assert done == [0, 1, 2, 3]
    with pytest.raises(SystemExit) as exit_:
        stop.exit_if_due()
    assert exit_.value.code == SAVED == 128 + signal.SIGTERM
    assert str(SAVED) in capsys.readouterr().err


def test_training_that_comes_to_its_end_succeeds() -> None:
    stop = Stop()
    assert list(stop.between(range(3))) == [0, 1, 2]
    stop.exit_if_due()


@pytest.mark.parametrize("last", [0, 2])
def test_a_signal_during_or_after_the_last_step_does_not_undo_a_success(last: int) -> None:
    stop = Stop()
    for step in stop.between(range(last + 1)):
        if step == last:
            signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
    stop.exit_if_due()


def test_before_the_first_step_a_signal_still_kills() -> None:
    before = signal.getsignal(signal.SIGTERM)
    stop = Stop()
    items = stop.between(range(2))
    assert signal.getsignal(signal.SIGTERM) == before
    next(items)
    assert signal.getsignal(signal.SIGTERM) != before


def test_replaced_signal_handler_is_restored_at_the_next_step() -> None:
    stop = Stop()
    steps = stop.between(itertools.count())
    next(steps)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    next(steps)
    signal.raise_signal(signal.SIGTERM)
    assert list(steps) == []


def test_the_second_ctrl_c_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    stop = Stop()
    assert not stop.due()
    signal.raise_signal(signal.SIGINT)
    assert stop.due()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_trainer_that_was_started_with_ctrl_c_ignored_continues_to_ignore_it() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = Stop()
    assert not stop.due()
    signal.raise_signal(signal.SIGINT)
    assert not stop.due()


def test_a_stop_once_due_stays_due() -> None:
    stop = Stop(every=2)
    assert not stop.due()
    signal.raise_signal(signal.SIGTERM)
    # The second question of two needs no agreement, and gets none.
    assert [stop.due() for _ in range(4)] == [False, True, True, True]


def test_a_worker_stops_when_another_one_wishes_it_and_waits_for_its_save() -> None:
    others = [False, True, True]
    asked: list[bool] = []

    def agree(own: bool) -> bool:
        asked.append(own)
        return own or others[len(asked) - 1]

    stop = Stop(agree=agree)
    assert [stop.due() for _ in range(3)] == [False, True, True]
    with pytest.raises(SystemExit) as ended:
        stop.exit_if_due()
    assert ended.value.code == SAVED
    assert asked == [False, False, True]  # the last one: it has saved


@pytest.mark.parametrize("at_its_end", [True, False])
def test_a_hook_stops_a_session_unless_that_has_just_come_to_its_end(
    monkeypatch: pytest.MonkeyPatch, at_its_end: bool
) -> None:
    v1 = SimpleNamespace(train=SimpleNamespace(SessionRunHook=SimpleNamespace))
    compat = SimpleNamespace(v1=v1)
    for name, module in {"": SimpleNamespace(compat=compat), ".compat": compat, ".compat.v1": v1}.items():
        monkeypatch.setitem(sys.modules, f"tensorflow{name}", module)
    stop, run_context = Stop(), Mock(stop_requested=False)
    hook = stop.hook()
    hook.after_run(run_context, None)
    signal.raise_signal(signal.SIGTERM)
    run_context.stop_requested = at_its_end
    hook.after_run(run_context, None)
    assert run_context.request_stop.called != at_its_end
    with nullcontext() if at_its_end else pytest.raises(SystemExit):
        stop.exit_if_due()


def test_a_server_serves_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    naps = []

    def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr("dtctl.trainer.time.sleep", nap)
    with pytest.raises(SystemExit) as exit_:
        serve(server=object())
    assert exit_.value.code == SAVED
    assert len(naps) == 3


def test_helper_needs_only_python_3_8_and_tensorflow() -> None:
    tree = ast.parse(SOURCE.read_text(), feature_version=(3, 8))
    assert imported(tree) <= {*sys.stdlib_module_names, "tensorflow"}
    at_the_start = ast.Module([node for node in tree.body if not isinstance(node, ast.FunctionDef | ast.ClassDef)], [])
    assert "tensorflow" not in imported(at_the_start)


def test_init_writes_it_beside_a_template_or_alone_and_never_over_a_file(tmp_path: Path) -> None:
    written = write_template("ps-async", tmp_path / "new", "new")
    assert tmp_path / "new" / "train.py" in written
    assert write_helper(tmp_path / "old") == (tmp_path / "old" / "graceful.py",)
    for project in ("new", "old"):
        helper = tmp_path / project / "graceful.py"
        assert helper.read_text() == SOURCE.read_text()
        helper.write_text("mine")
        with pytest.raises(UsageError, match="already exists"):
            write_helper(tmp_path / project)
        assert helper.read_text() == "mine"
