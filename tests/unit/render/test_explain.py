"""`dtctl explain` knows every key, exit code and answer; scalars stay within their frame."""

from __future__ import annotations

import ast
import dataclasses
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.metrics.records import MetricsResult
from dtctl.config.outgoing import Sending
from dtctl.errors import ExitCode, UsageError
from dtctl.operations.checkpoints import newest_of_run
from dtctl.operations.consent import LocalProgram
from dtctl.render.checkpoints import checkpoint_lines, show_checkpoints
from dtctl.render.machine import document
from dtctl.render.machine.results import allow
from dtctl.render.manual import ANSWERS, EXITS, STATES, WORDS, find, listed, names, show
from dtctl.rooms.metrics.document import metrics, point
from dtctl.rooms.metrics.operation import Metrics, Point, Series
from dtctl.rooms.metrics.screen import Curve, csv_line, line_of, plot, show_plots, show_table, sparkline
from tests.fuzz import cases
from tests.unit.render.test_safe_output import FOUND, run_status
from tests.unit.tasks import checkpoint, checkpoint_directory, task_status

PACKAGE = Path(__file__).resolve().parents[3] / "dtctl"


def test_every_exit_code_is_explained_in_order() -> None:
    assert [trouble.code for trouble in EXITS] == list(ExitCode)
    assert [trouble.code for trouble in EXITS if not trouble.causes] == [ExitCode.OK]


def refusals() -> set[object]:
    """Codes with which the agent refuses requests, anywhere in its sources."""
    found: set[object] = set()
    for path in (PACKAGE / "agent").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            called = getattr(node, "func", None)
            name = getattr(called, "id", getattr(called, "attr", ""))
            if isinstance(node, ast.Call) and name in ("Refused", "fail") and node.args:
                code = node.args[0]
                found |= {code.value} if isinstance(code, ast.Constant) and " " not in str(code.value) else set()
    return found


def test_every_answer_of_a_host_is_explained() -> None:
    assert len(refusals()) > 15
    assert {trouble.code for trouble in ANSWERS} >= refusals()


def test_every_name_leads_to_an_explanation() -> None:
    assert [name for name in names() if not all(topic.text for topic in find([name]))] == []


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ("nan", "diverged"),
        ("CUDA out of memory", "gpu_memory"),
        ("killed_for_memory", "killed_for_memory"),
        ("no space left on device", "disk_full"),
        ("worker cannot connect", "firewall"),
        ("OSError: [Errno 28] No space left on device: '/data'", "disk_full"),
    ],
)
def test_error_of_a_trainer_is_explained_as_diagnose_does(asked: str, name: str) -> None:
    *_, topic = find([asked])
    assert (topic.kind, topic.name) == ("error of a trainer", name)
    assert all((topic.text, topic.causes))
    assert "{" not in topic.text


@pytest.mark.parametrize(
    ("asked", "hint"),
    [
        ("ssh.password", "identity_file"),
        ("password", "identity_file"),
        ("ssh.key", "identity_file"),
        ("passphrase", "ssh-add"),
    ],
)
def test_a_key_of_other_programs_leads_to_what_helps(asked: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        find([asked])
    assert hint in refused.value.hint
    assert "ssh.port" not in refused.value.hint


def test_every_listed_topic_is_found() -> None:
    for group in listed().values():
        assert group.keys() <= names()


def test_tables_are_in_order() -> None:
    assert list(WORDS) == sorted(WORDS)
    assert [trouble.name for trouble in ANSWERS] == sorted(trouble.name for trouble in ANSWERS)
    assert len(STATES) == 9


@pytest.mark.parametrize(
    ("words", "topics"),
    [
        (["jobs.worker.port"], {"jobs.NAME.port"}),
        (["hosts.gpu-1.example.com.gpus"], {"hosts.NAME.gpus"}),
        (["jobs.worker"], {"jobs.NAME"}),
        (["port"], {"ssh.port", "jobs.NAME.port", "coordinator.port"}),
        *((words, {"5"}) for words in (["5"], ["exit", "5"], ["exit", "code", "5"], ["PREFLIGHT"])),
        (["tasks would fail as soon as they start, so nothing was started"], {"5"}),
        (["address in use"], {"port_taken"}),
        (["Address already in use"], {"port_taken"}),
        (["hang"], {"hang"}),
        (["125"], {"125"}),
        (["exit code 127"], {"127"}),
        (["port 2222 is in use on this host"], {"5"}),
        (["the host key of gpu-1 (10.0.0.1:22) is not known"], {"4"}),
        (["refuses connections"], {"4"}),
        (["ModuleNotFoundError: No module named numpy"], {"1"}),
    ],
)
def test_keys_exit_codes_and_error_messages_are_found(words: list[str], topics: set[str]) -> None:
    found = find(words)
    assert ({topic.name for topic in found}, len(found)) == (topics, len(topics))
    assert topics != {"5"} or found[0].kind == "exit code"


@pytest.mark.parametrize(("word", "hint"), [("trainr", "did you mean 'trainer'?"), ("xyzzy", "dtctl explain    ")])
def test_an_unknown_word_is_an_error_with_the_nearest_one(word: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        find([word])
    assert hint in caught.value.hint


def test_a_screen_shows_type_default_and_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    show(find(["grace"]))
    shown = capsys.readouterr().out
    assert "default: 30s" in shown
    assert "example: grace: 2m" in shown
    assert "](" not in shown


def series(*values: float, tag: str = "loss", name: str = "train") -> Series:
    points = tuple(Point(step, 1000.0 + step, value) for step, value in enumerate(values))
    return Series(tag, name, "a", "/data", points, len(values), min(values), max(values), 1100.0)


def found(*some: Series) -> Metrics:
    return Metrics("demo-1", some, {"a": made(MetricsResult, run="demo-1", time=1.0, dirs=["/data"])})


def drawn(curves: list[Curve], **options: bool) -> list[str]:
    return ["".join(text for text, _ in line) for line in plot(curves, 40, 10, **options)]


def test_a_rising_curve_goes_from_the_lower_left_to_the_upper_right() -> None:
    lines = drawn([Curve("", [(step, float(step)) for step in range(100)])], braille=False)
    assert [line.index("*") for line in lines[:-2]] == sorted((line.index("*") for line in lines[:-2]), reverse=True)
    assert lines[0].startswith("  99 |")
    assert lines[-3].split() == ["0", "|***"]
    assert lines[-1].split() == ["0", "99"]


def test_a_log_scale_makes_decades_equal_and_leaves_out_what_is_not_above_zero() -> None:
    lines = drawn([Curve("", [(0, 100.0), (1, 10.0), (2, 1.0), (3, -1.0)])], log=True, braille=False)
    assert lines[0].split()[0] == "100"
    assert lines[4].split()[0] == "10"
    assert lines[7].split()[0] == "1"
    assert lines[-1].split() == ["0", "2"]


def test_nan_and_infinite_points_are_gaps_and_are_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert sparkline([0.0, math.nan, 1.0], 10) == "▁ █"
    assert plot([Curve("", [(0, math.nan)])], 40, 10) == []
    show_plots(found(series(0.5, math.nan, math.inf)), log=False)
    assert "train: nan at step 1, and 2 such points in all" in capsys.readouterr().out


@cases
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2**53), st.floats()), max_size=20), min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
)
def test_a_plot_keeps_its_size_for_any_values(curves: list[list[tuple[int, float]]], log: bool, braille: bool) -> None:
    lines = drawn([Curve("", points) for points in curves], log=log, braille=braille)
    assert len(lines) in (0, 10)
    assert all(len(line) <= 60 for line in lines)
    assert all(len(sparkline([value for _, value in points], 16)) <= 16 for points in curves)


def test_the_table_has_a_row_for_each_tag_and_directory(capsys: pytest.CaptureFixture[str]) -> None:
    show_table(found(series(1.0, 0.25), series(2.0, 0.5, name="validation")))
    head, train, validation = (line.split() for line in capsys.readouterr().out.splitlines())
    assert head == ["TAG", "RUN", "STEP", "LAST", "MIN", "MAX", "POINTS", "AGE", "CURVE", "WHERE"]
    assert train == ["loss", "train", "1", "0.25", "0.25", "1", "2", "1m39s", "█▁", "a:/data"]
    assert validation[:4] == ["loss", "validation", "1", "0.5"]


def test_lines_of_points() -> None:
    one = series(0.5)
    assert line_of(one, one.points[0]).split()[1:] == ["train", "loss", "step", "0", "0.5"]
    assert csv_line(one, one.points[0]) == "0,1000.0,loss,train,0.5\n"
    assert point(Point(3, 0.0, math.nan)) == {"step": 3, "time": "1970-01-01T00:00:00.000Z", "value": "nan"}


def test_steps_of_logs_are_in_the_json_of_a_run_without_event_files() -> None:
    task = task_status("worker:0", step=7, rate=2.5, loss="0.1")
    status = dataclasses.replace(run_status(), tasks={task.id: task})
    reported = metrics(Metrics("run", ()), status)["tasks"]
    assert reported == [{"task": "worker:0", "step": 7, "rate": 2.5, "loss": "0.1"}]


def test_json_of_what_is_allowed_has_each_program_and_each_sending() -> None:
    program = LocalProgram(Path("cluster.yaml"), "setup", ("sh", "-c", "make"), hosts=("a",))
    shown = {"what": "setup", "hosts": ["a"], "words": ["sh", "-c", "make"], "settings": {}, "new": True}
    sending = Sending(Path("cluster.yaml"), "trainer.secrets", "your environment", {"a": "10.0.0.1"}, ("KEY",))
    sent = {
        "key": "trainer.secrets",
        "source": "your environment",
        "names": ["KEY"],
        "to": {"a": "10.0.0.1"},
        "doubt": "",
        "new": False,
    }
    assert allow([program], [sending], [program]) == {"programs": [shown], "sendings": [sent]}


def test_a_tag_can_be_neither_a_formula_nor_another_line_of_csv() -> None:
    hostile = series(0.5, tag="=cmd|' /C calc'!A0\n1,2,3")
    assert csv_line(hostile, hostile.points[0]) == "0,1000.0,\"'=cmd|' /C calc'!A0\\n1,2,3\",train,0.5\n"


PROBLEM = "/dir: only part of it was searched: there are more than 100000 names"
UNKNOWN = checkpoint_directory("a", "/dir", problem=PROBLEM)


def test_an_incomplete_search_for_checkpoints_is_kept_in_the_answer() -> None:
    assert newest_of_run([UNKNOWN]) == UNKNOWN
    assert document.checkpoints(UNKNOWN)["problem"] == PROBLEM


def test_an_incomplete_search_for_checkpoints_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    show_checkpoints([UNKNOWN], 10.0)
    output = " ".join(capsys.readouterr().out.split())
    assert output == f"a:/dir there may be more than those found: {PROBLEM} none found"
    status = dataclasses.replace(run_status(), checkpoints=(UNKNOWN,))
    assert checkpoint_lines(status) == ["checkpoint: none known on a", f"            there may be others: {PROBLEM}"]


def test_hosts_that_share_a_directory_stand_before_it_together(capsys: pytest.CaptureFixture[str]) -> None:
    shared = dataclasses.replace(FOUND, host="node-1", others=("node-2", "node-3"))
    show_checkpoints([shared], 10.0)
    assert capsys.readouterr().out.startswith("node-[1-3]:/dir\n")


def test_a_directory_that_only_a_command_line_names_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    show_checkpoints([checkpoint_directory("a", "/dir", guessed=True)], 10.0)
    assert capsys.readouterr().out.startswith("a:/dir (which no setting names)\n")


def test_what_other_hosts_hold_is_shown_in_the_place_of_what_is_missing(capsys: pytest.CaptureFixture[str]) -> None:
    part = checkpoint("model-7", 7, complete=False, problem="a shard is missing", shards=3, held=[0])
    place = checkpoint_directory("a", "/dir", part)
    show_checkpoints([place], 10.0, lambda *_: {1: "b", 2: "c"})
    assert "2 shards of 3 on b,c alone, which a restore here does not see" in capsys.readouterr().out
    show_checkpoints([place], 10.0, lambda *_: {1: "b"})
    assert "1 shard of 3 on b, others on no host that answers" in capsys.readouterr().out
