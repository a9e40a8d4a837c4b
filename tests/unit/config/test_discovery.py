"""Which cluster file a command means, what `--set` changes in it, and how hosts are reached."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.spec import Inventory
from dtctl.cli import scope
from dtctl.cli.options import Scope
from dtctl.config import find_cluster_file
from dtctl.config.cluster import Cluster
from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError, TransportError, UsageError
from dtctl.model import SshSettings, TaskId
from dtctl.operations.history import Memory
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.plan import RunPlan, plan_roster
from dtctl.plan.run import plan_run
from dtctl.rooms.init.operation import write_template
from tests.unit.coordinated import inventory


@pytest.fixture
def below(tmp_path: Path) -> Path:
    """A directory two below the root of a repository, which itself lies below a stray cluster.yaml."""
    (tmp_path / "cluster.yaml").touch()
    (tmp_path / "repo/.git").mkdir(parents=True)
    deep = tmp_path / "repo/a/b"
    deep.mkdir(parents=True)
    return deep


@pytest.mark.parametrize(
    ("named", "environ", "expected"),
    [
        pytest.param("elsewhere/mine.yaml", {"DTCTL_CONFIG": "mine.yaml"}, "elsewhere/mine.yaml", id="argument first"),
        pytest.param(None, {"DTCTL_CONFIG": "mine.yaml"}, "mine.yaml", id="variable before directory"),
        pytest.param(None, {"DTCTL_CONFIG": ""}, "cluster.yaml", id="empty variable ignored"),
    ],
)
def test_cluster_file_is_that_of_argument_variable_or_directory(
    below: Path, named: str | None, environ: dict[str, str], expected: str
) -> None:
    for name in ("cluster.yaml", "mine.yaml"):
        (below / name).touch()
    found = find_cluster_file(Path(named) if named else None, environ, below)
    assert found == (Path(expected) if named else below / expected)


def test_a_variable_that_names_a_missing_file_is_an_error(below: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_cluster_file(None, {"DTCTL_CONFIG": "gone.yaml"}, below)
    assert caught.value.summary == "$DTCTL_CONFIG names gone.yaml, which does not exist"


def test_the_nearest_file_in_the_repository_is_taken(below: Path) -> None:
    repository = below.parents[1]
    (below / "cluster.yaml").mkdir()
    assert find_cluster_file(None, {}, below) == below / "cluster.yaml", "a directory where there is no file"
    (repository / "cluster.yaml").touch()
    assert find_cluster_file(None, {}, below) == repository / "cluster.yaml"
    (below.parent / "cluster.yaml").touch()
    assert find_cluster_file(None, {}, below) == below.parent / "cluster.yaml"


def test_a_file_of_the_other_ending_is_named_and_not_taken(below: Path) -> None:
    other = below.parent / "cluster.yml"
    other.touch()
    with pytest.raises(UsageError) as caught:
        find_cluster_file(None, {}, below)
    assert caught.value.summary == "there is no cluster.yaml here, but a cluster.yml"
    assert caught.value.hint.startswith(f"mv {other} {below.parent / 'cluster.yaml'}    or name it")
    (below / "cluster.yaml").touch()
    assert find_cluster_file(None, {}, below) == below / "cluster.yaml"


def test_nothing_above_the_repository_is_taken(below: Path) -> None:
    with pytest.raises(UsageError) as caught:
        find_cluster_file(None, {}, below)
    tried = [str(folder / "cluster.yaml") for folder in (below, below.parent, below.parents[1])]
    assert caught.value.detail == f"no file was named, $DTCTL_CONFIG is not set, and there is no {', no '.join(tried)}"
    assert caught.value.hint.startswith("dtctl init")


def test_without_a_repository_only_the_directory_itself_counts(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").touch()
    inner = tmp_path / "inner"
    inner.mkdir()
    with pytest.raises(UsageError):
        find_cluster_file(None, {}, inner)
    assert find_cluster_file(None, {}, tmp_path) == tmp_path / "cluster.yaml"


ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))


def loaded(example: Path, directory: Path) -> Cluster:
    """The example in the place of the cluster.yaml of the template that it names."""
    text = example.read_text()
    (template,) = re.findall(r"^# The trainer: dtctl init --template (\S+)$", text, re.MULTILINE)
    write_template(template, directory, "digits")
    (directory / "cluster.yaml").write_text(text)
    return load_cluster(directory / "cluster.yaml")


def planned(cluster: Cluster) -> RunPlan:
    names = {host.name: host.reach.target for host in cluster.hosts.values()}  # type: ignore[union-attr]
    return plan_run(cluster, names, local_python="python3")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_planned_with_the_trainer_that_it_names(example: Path, tmp_path: Path) -> None:
    cluster = loaded(example, tmp_path)
    trainer = (tmp_path / "train.py").read_text()
    for task in planned(cluster).tasks:
        flags = [word.partition("=")[0] for word in task.argv[2:]]
        assert "--output_dir" in flags
        assert [flag for flag in flags if f'"{flag}"' not in trainer and not flag.endswith("_hosts")] == []


def test_the_examples_cover_the_ways_that_the_readme_names(tmp_path: Path) -> None:
    ways = {example.stem: planned(loaded(example, tmp_path / example.stem)).strategy.value for example in EXAMPLES}
    assert ways == {
        "async-ps": "async-ps",
        "sync-ps": "sync-ps",
        "ps-strategy": "ps-strategy",
        "mirrored": "collective",
        "behind-a-jump-host": "async-ps",
    }


def test_the_machines_behind_a_jump_host_are_reached_through_it(tmp_path: Path) -> None:
    cluster = loaded(ROOT / "examples" / "behind-a-jump-host.yaml", tmp_path)
    assert {host.reach.jump for host in cluster.hosts.values()} == {"me@gate.example.com"}  # type: ignore[union-attr]


TEXT = """\
name: digits
hosts:
  a: 10.0.0.1
  b.lan: {gpus: 1}
jobs:
  ps: {hosts: a, port: 3000}
  worker: {hosts: [a, b.lan]}
trainer:
  command: [python, train.py]
  args: {batch_size: 128}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.yaml"
    path.write_text(TEXT)
    return path


def load(file: Path, *overrides: str) -> Cluster:
    return load_cluster(file, overrides=overrides)


@pytest.mark.parametrize(
    ("overrides", "read", "expected"),
    [
        (["name=other"], lambda found: found.name, "other"),
        (["name=x", "name=y"], lambda found: found.name, "y"),
        (
            ["trainer.args.train_steps=100", "trainer.args.lr=1e-4", "trainer.args.sync=true"],
            lambda found: found.jobs["worker"].launch.args,
            ("--batch_size=128", "--train_steps=100", "--lr=1e-4", "--sync"),
        ),
        (["dirs.work=/tmp/x"], lambda found: found.dirs, {"work": "/tmp/x"}),
        (["trainer.env.A= two words "], lambda found: found.jobs["ps"].launch.env, {"A": "two words"}),
        (["jobs.worker.hosts=[a,a]"], lambda found: found.jobs["worker"].hosts, ("a", "a")),
        (["hosts.b.lan={gpus: 4, ssh: x}"], lambda found: found.hosts["b.lan"].gpus, 4),
        (["hosts.b.lan.gpus=2"], lambda found: found.hosts["b.lan"].gpus, 2),
        (["jobs.ps.port="], lambda found: found.jobs["ps"].ports, (2222,)),
        (["jobs.ps.port=null"], lambda found: found.jobs["ps"].ports, (2222,)),
    ],
)
def test_override_takes_the_place_of_a_value(
    file: Path, overrides: list[str], read: Callable[[Cluster], object], expected: object
) -> None:
    assert read(load(file, *overrides)) == expected


def test_a_mistake_of_the_file_is_gone_once_it_is_overridden(file: Path) -> None:
    file.write_text(TEXT.replace("port: 3000", "port: many"))
    assert load(file, "jobs.ps.port=3000").jobs["ps"].ports == (3000,)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("dirs.wrok=/x", "--set dirs.wrok=/x: dirs.wrok is not a key here"),
        ("jobs.ps.port=many", "--set jobs.ps.port=many: jobs.ps.port is 'many', expected a whole number"),
        ("jobs.ps.hosts=[a,z]", "--set jobs.ps.hosts=[a,z]: jobs.ps.hosts[1] names z, which is not in hosts"),
        ("hosts.a.gpus=2", "--set hosts.a.gpus=2: hosts.a is '10.0.0.1', so gpus cannot be set in it"),
        ("trainer.command.0=x", "--set trainer.command.0=x: trainer.command is a list, so 0 cannot be set in it"),
        ("name", "--set name: 'name' is not an override"),
        ("=x", "--set =x: '=x' is not an override"),
        ("a..b=x", "--set a..b=x: 'a..b=x' is not an override"),
        ("name=[", "--set name=[: this is not YAML: a value is missing here"),
        ("name={a: 1, a: 2}", "--set name={a: 1, a: 2}: a is here a second time; the first is"),
        ("name=x\n---\ny", "--set name=x --- y: a second document begins here; a cluster file holds one"),
        ("grace=" + "x" * 99, f"--set grace={'x' * 51}...: grace is '{'x' * 57}...', expected a duration such as"),
    ],
)  # fmt: skip
def test_a_mistake_of_an_override_has_the_override_as_its_place(file: Path, override: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, override)
    problem = caught.value.problems[0]
    assert f"{problem.place}: {problem.summary}".startswith(message)


def test_mistakes_of_overrides_and_of_the_file_are_reported_together(file: Path) -> None:
    file.write_text(TEXT.replace("gpus: 1", "gpus: two"))
    with pytest.raises(ConfigError) as caught:
        load(file, "grace=soon", "what")
    assert [problem.summary.split(" ")[0] for problem in caught.value.problems] == [
        "grace",
        "'what'",
        "hosts.b.lan.gpus",
    ]


REACHED = """
name: digits
hosts: {a: , b: , %s}
jobs: {worker: {hosts: [a, b]}}
trainer: {command: ./train}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "project"
    directory.mkdir()
    (directory / "cluster.yaml").write_text(REACHED % "c:")
    (directory / "train").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("DTCTL_CONFIG", raising=False)
    monkeypatch.chdir(directory)
    return directory


def started(run: str = "digits-1") -> RunRecord:
    return record_of(plan_roster(Scope().cluster()), run, created=1.0)


def moved(record: RunRecord, to: str) -> RunRecord:
    """The run as its hosts tell it after `replace b TO` by somebody else."""
    newer = dataclasses.replace(record, run="digits-2", roster={**record.roster, TaskId("worker", 1): to})
    return record.as_known(checked(Inventory, inventory(newer)))


def test_a_run_that_has_moved_to_another_host_of_the_file_is_reached_there(project: Path) -> None:
    known = moved(Scope(user="me").record(), "c")
    assert list(known.hosts) == ["a", "c"] or set(known.hosts) == {"a", "c"}
    assert isinstance(known.route_to("c").reach, SshSettings)


def test_hosts_without_a_task_are_remembered(project: Path) -> None:
    Memory().save(started())
    (project / "cluster.yaml").unlink()
    record = Scope(run="digits-1").record()
    assert set(moved(record, "c").hosts) == {"a", "c"}


def test_a_host_that_was_added_to_the_file_since_is_reached(project: Path) -> None:
    """As the error says that is shown for a host that only the run knows."""
    Memory().save(started())
    with pytest.raises(TransportError, match=r"d is in run digits-2, but not in cluster\.yaml") as refused:
        moved(Scope().record(), "d").route_to("d")
    assert "add d under hosts:" in refused.value.hint
    (project / "cluster.yaml").write_text(REACHED % "c: , d: {ssh: me@10.0.0.9}")
    reached = moved(Scope(identity=Path(__file__)).record(), "d").route_to("d")
    assert isinstance(reached.reach, SshSettings)
    assert (reached.reach.target, reached.reach.identity_file) == ("10.0.0.9", __file__)


def test_a_file_that_is_broken_now_does_not_take_the_run_away(project: Path) -> None:
    Memory().save(started())
    (project / "cluster.yaml").write_text("hosts: [")
    assert set(moved(Scope().record(), "c").hosts) == {"a", "c"}


def test_the_file_is_not_read_where_the_run_is_where_it_was(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Memory().save(started())
    monkeypatch.setattr(Scope, "cluster", lambda *_: pytest.fail("nobody had to know"))
    record = Scope().record()
    assert moved(record, "b").hosts == record.hosts


def test_a_silent_host_is_reported_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    scope._report_silence("gpu-3", 10.0, 30.0)
    assert capsys.readouterr() == ("", "waiting for gpu-3: silent for 10 s, given up after 30 s\n")
