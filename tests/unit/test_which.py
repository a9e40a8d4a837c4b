"""Which cluster a command means, and how its hosts are reached: this directory, what was named, what is remembered."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import pytest
import typer.main

from dtctl.cli import which
from dtctl.cli.completion import complete_clusters
from dtctl.cli.scope import Announced, Scope
from dtctl.cli.table import COMMANDS, Effect
from dtctl.errors import ConfigError, ExitCode, UsageError
from dtctl.model import SshSettings, TaskId
from dtctl.operations.history import Memory
from dtctl.operations.local import make_local
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.operations.stop import Ending
from dtctl.plan import plan_roster

TEXT = """
name: {name}
ssh: {{user: train, identity_file: {key}}}
hosts: {{a: , b: {{ssh: {{port: {port}}}}}}}
jobs: {{worker: {{hosts: [a, b]}}}}
trainer: {{command: ./train}}
"""

CHANGING = sorted(name for name, entry in COMMANDS.items() if entry.effect is Effect.CHANGES)
LOOKING = sorted(name for name, entry in COMMANDS.items() if entry.effect is Effect.READS)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory without a cluster file, and an empty memory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DTCTL_CONFIG", raising=False)
    directory = tmp_path / "elsewhere"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


def project(directory: Path, name: str = "digits", *, key: str = "old_key", port: int = 22) -> Path:
    directory.mkdir(exist_ok=True)
    (directory / "train").write_text("")
    file = directory / "cluster.yaml"
    file.write_text(TEXT.format(name=name, key=key, port=port))
    return file


def started(file: Path, run: str, created: float = 1.0, *, local: bool = False, **options: str) -> RunRecord:
    """As `up` remembers it; `options`: those of its command line."""
    cluster = Scope("up", config=file, **options).cluster()  # type: ignore[arg-type]
    record = record_of(plan_roster(make_local(cluster) if local else cluster), run, created)
    Memory().save(record)
    return record


def two_clusters(tmp_path: Path) -> None:
    """digits of the directory one, and words of two, which was started last."""
    started(project(tmp_path / "one"), "digits-1", 1.0)
    started(project(tmp_path / "two", "words"), "words-7", 2.0)


def ssh(record: RunRecord, host: str) -> SshSettings:
    reach = {**record.others, **record.hosts}[host].reach
    assert isinstance(reach, SshSettings)
    return reach


@pytest.mark.parametrize("command", CHANGING)
def test_changing_commands_name_candidate_clusters_and_guess_none(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    two_clusters(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dtctl", "--color", "never", command, "worker:1", "-v"])
    with pytest.raises(UsageError) as refused:
        Scope(command).record()
    assert refused.value.exit_code == ExitCode.USAGE
    for expected in ("digits-1", "words-7", str(tmp_path / "one"), str(tmp_path / "two"), "since 1970"):
        assert expected in refused.value.detail
    assert refused.value.hint.splitlines() == [
        f"dtctl --color never {command} --cluster words worker:1 -v",
        f"dtctl --color never {command} --cluster digits worker:1 -v",
    ]


@pytest.mark.parametrize("command", LOOKING)
def test_reading_commands_show_the_last_run_and_say_so(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started(project(tmp_path / "one"), "digits-1")
    assert Scope(command).record().cluster == "digits"
    output = capsys.readouterr()
    assert (output.out, output.err) == (
        "",
        f"no cluster.yaml here: this is digits in {tmp_path / 'one'}, started last from this machine\n",
    )


def test_reading_commands_show_another_run_after_down(tmp_path: Path) -> None:
    two_clusters(tmp_path)
    Memory().forget("words-7")
    assert Scope("status").record().cluster == "digits"


@pytest.mark.parametrize("command", CHANGING)
def test_the_directorys_own_cluster_is_meant_whatever_was_started_last(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    two_clusters(tmp_path)
    monkeypatch.chdir(tmp_path / "one")
    assert Scope(command).record().cluster == "digits"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DTCTL_CONFIG", "two/cluster.yaml")
    assert Scope(command).record().cluster == "words"
    assert Scope(command, config=Path("one/../one/cluster.yaml")).record().cluster == "digits"
    assert capsys.readouterr().err == ""


def test_a_cluster_is_named_from_anywhere(tmp_path: Path) -> None:
    two_clusters(tmp_path)
    scope = Scope("stop", named="digits")
    assert (scope.record().cluster, scope.file()) == ("digits", tmp_path / "one" / "cluster.yaml")
    assert scope.record().run is None, "its current run is meant, whoever has started it"
    assert complete_clusters("w") == ["words"]
    with pytest.raises(UsageError, match="no run of a cluster 'digit'") as refused:
        Scope("stop", named="digit").record()
    assert refused.value.hint == "did you mean 'digits'?"


def test_a_name_that_two_directories_have_is_not_guessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, name in enumerate(("one", "two")):
        started(project(tmp_path / name), f"digits-{index}", float(index))
    monkeypatch.setattr(sys, "argv", ["dtctl", "stop", "--cluster", "digits"])
    with pytest.raises(UsageError, match="2 directories have a cluster 'digits'") as refused:
        Scope("stop", named="digits").record()
    assert refused.value.hint.splitlines() == [
        f"dtctl stop -c {tmp_path / name / 'cluster.yaml'}" for name in ("two", "one")
    ]
    monkeypatch.chdir(tmp_path / "one")
    assert Scope("stop", named="digits").record().file == tmp_path / "one" / "cluster.yaml", "the directory decides"


def test_a_run_whose_directory_is_gone_is_named_by_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for index, name in enumerate(("one", "two")):
        started(project(tmp_path / name), f"digits-{index}", float(index))
    (tmp_path / "one" / "cluster.yaml").unlink()
    monkeypatch.setattr(sys, "argv", ["dtctl", "down", "-y"])
    with pytest.raises(UsageError) as refused:
        Scope("down").record()
    assert refused.value.hint.splitlines()[1] == "dtctl down --run digits-0 -y"


def test_known_outcomes_are_shown_and_unfinished_runs_first(tmp_path: Path) -> None:
    started(project(tmp_path / "one"), "digits-1", 1.0)
    ended = started(project(tmp_path / "two", "words"), "words-7", 2.0)
    Memory().change(ended, outcome="Succeeded")
    Memory().begin(dataclasses.replace(ended, run="other-1", cluster="other", created=0.0))
    with pytest.raises(UsageError) as refused:
        Scope("stop").record()
    lines = refused.value.detail.splitlines()[1:]
    assert [line.split()[1] for line in lines] == ["digits-1", "other-1", "words-7"]
    assert "its start was not finished" in lines[1]
    assert "Succeeded" in lines[2]


@pytest.mark.parametrize("other", ["other.yaml", "../one/other.yaml"])
def test_two_files_are_an_error_unless_they_are_one(
    other: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project(tmp_path / "one")
    (file.parent / "other.yaml").write_text(file.read_text())
    monkeypatch.chdir(file.parent)
    with pytest.raises(UsageError, match="are two cluster files"):
        Scope("up", config=Path(other)).cluster(Path("cluster.yaml"))
    assert Scope("up", config=Path("../one/cluster.yaml")).cluster(Path("cluster.yaml")).name == "digits"
    with pytest.raises(UsageError, match="both select a cluster"):
        Scope("up", named="digits").cluster(Path("cluster.yaml"))


def test_a_run_of_another_cluster_than_the_one_that_is_named_is_an_error(tmp_path: Path) -> None:
    started(project(tmp_path / "one"), "digits-1")
    with pytest.raises(UsageError, match="digits-1 is a run of digits, not of words"):
        Scope("stop", named="words", run="digits-1").record()


def test_a_corrected_file_applies_to_its_running_run(tmp_path: Path) -> None:
    file = project(tmp_path / "one")
    started(file, "digits-1")
    project(tmp_path / "one", key="new_key", port=2200)
    for scope in (Scope("stop", config=file), Scope("stop", run="digits-1"), Scope("status", named="digits")):
        record = scope.record()
        assert ssh(record, "a").identity_file == str(tmp_path / "one" / "new_key")
        assert ssh(record, "b").port == 2200
    assert ssh(Scope("stop", config=file, identity=file, user="me").record(), "a") == dataclasses.replace(
        ssh(record, "a"), identity_file=str(file), user="me"
    )


def test_an_unchanged_file_is_not_parsed_and_a_changed_one_only_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project(tmp_path / "one")
    started(file, "digits-1")
    project(tmp_path / "one", key="new_key")
    Scope("status", config=file).record()
    monkeypatch.setattr(
        "dtctl.config.load.load_cluster", lambda *_, **__: pytest.fail("it is known what the file says")
    )
    assert ssh(Scope("status", config=file).record(), "a").identity_file == str(tmp_path / "one" / "new_key")


def test_overrides_of_up_apply_until_the_file_changes(tmp_path: Path) -> None:
    file = project(tmp_path / "one")
    started(file, "digits-1", user="me")
    project(tmp_path / "one", port=2200)
    assert [(ssh(Scope("stop", config=file).record(), "b").user) for _ in range(2)] == ["me", "me"]
    file.write_text(file.read_text().replace("user: train", "user: other"))
    assert ssh(Scope("stop", config=file).record(), "b").user == "other"


@pytest.mark.parametrize(
    ("now", "why"), [(None, "there is no such file"), ("hosts: [", "cluster.yaml"), (TEXT, "cluster.yaml")]
)
def test_recorded_routes_apply_where_the_file_has_none(
    now: str | None, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = project(tmp_path / "one")
    started(file, "digits-1")
    file.unlink()
    if now is not None:
        file.write_text(now)
    record = Scope("stop", run="digits-1").record()
    assert ssh(record, "a").identity_file == str(tmp_path / "one" / "old_key")
    output = capsys.readouterr().err
    assert why in output
    assert "hosts are reached as remembered of digits-1" in output


def test_a_host_that_has_left_the_file_is_reached_as_before_and_new_ones_are_known(tmp_path: Path) -> None:
    file = project(tmp_path / "one")
    before = started(file, "digits-1")
    file.write_text(file.read_text().replace("b: {ssh: {port: 22}}", "c: ").replace("[a, b]", "[a, c]"))
    record = Scope("stop", config=file).record()
    assert (list(record.hosts), list(record.others)) == (["a", "b"], ["c"])
    assert ssh(record, "b") == ssh(before, "b")


def test_a_run_of_this_machine_does_not_follow_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = project(tmp_path / "one")
    started(file, "digits-1", local=True)
    project(tmp_path / "one", key="new_key")
    assert Scope("stop", config=file).record().is_local
    file.unlink()
    assert Scope("stop", run="digits-1").record().is_local
    assert capsys.readouterr().err == ""


def test_a_run_of_another_directory_is_not_ended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = started(project(tmp_path / "one"), "digits-1", 1.0)
    other = started(project(tmp_path / "two"), "digits-2", 2.0)
    tasks = (TaskId("worker", 0), TaskId("worker", 1))
    Announced(Scope("stop"), own, "stopping")(Ending("digits-1", tasks, ("a", "b")))
    assert capsys.readouterr() == ("", "stopping digits-1: 2 tasks on 2 hosts\n")
    Announced(Scope("stop"), own, "stopping", say=False)(Ending("digits-1", tasks, ("a", "b")))
    Announced(Scope("stop"), own, "stopping")(Ending("digits-1"))
    Announced(Scope("stop"), own, "stopping")(Ending("digits-9-of-somebody-else"))
    assert capsys.readouterr().err == ""
    with pytest.raises(UsageError, match=r"digits-2 is live, and was started from .*two/cluster\.yaml"):
        Announced(Scope("stop"), own, "stopping")(Ending("digits-2", tasks, ("a", "b")))
    Announced(Scope("stop", run="digits-2"), own, "stopping")(Ending("digits-2", tasks, ("a", "b")))
    assert other.file is not None
    other.file.unlink()
    Announced(Scope("stop"), own, "stopping")(Ending("digits-2", tasks, ("a", "b")))


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (KeyboardInterrupt, "interrupted: nothing was changed\n"),
        (None, "interrupted: it goes on there\n  dtctl status\n"),
    ],
)
def test_an_interrupt_at_the_question_changes_nothing(
    answer: type[BaseException] | None, expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def agreed(found: Ending) -> None:
        if answer is not None:
            raise answer

    scope = Scope("down")
    scope.transport.reached = True
    before = Announced(scope, started(project(tmp_path / "one"), "digits-1"), "stopping", agreed=agreed)

    def end() -> None:
        with scope.on_interrupt(lambda: "it goes on there", "dtctl status", announced=before):
            before(Ending("digits-1"))
            raise KeyboardInterrupt

    with pytest.raises(typer.Exit) as ending:
        end()
    assert (ending.value.exit_code, capsys.readouterr().err) == (130, expected)


def test_a_problem_of_a_file_is_shown_on_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as wrong:
        Scope("plan", config=tmp_path / "none.yaml").cluster()
    assert which.first_problem(wrong.value) == f"{tmp_path}/none.yaml: there is no such file"
    assert which.first_problem(UsageError("so it is")) == "so it is"
