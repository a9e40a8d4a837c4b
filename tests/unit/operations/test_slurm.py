"""A run in a batch job of Slurm: where its tasks are placed, and what is asked of Slurm's programs."""

from __future__ import annotations

import dataclasses
import os
import shlex
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from dtctl.config.cluster import Cluster
from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError, DtctlError, PreflightError, TransportError
from dtctl.model import CHOSEN_PORT, OtherTransport, TaskId, TaskState
from dtctl.operations.engines import Allocation, Submitted, again, engine_of
from dtctl.operations.failed_starts import is_refusal
from dtctl.operations.history import Memory
from dtctl.operations.run_record import RunRecord, follow_file, record_of
from dtctl.operations.snapshot import Outcome
from dtctl.operations.status import status
from dtctl.operations.submit import submit, words_of
from dtctl.operations.up.launch import make_plan, prepare_launch
from dtctl.operations.up.up import live_elsewhere
from dtctl.operations.waiting import await_machines, has_no_machines, status_of_waiting
from dtctl.plan import plan_roster
from dtctl.plan.run import plan_run
from dtctl.render.allocation import line
from dtctl.render.plan import survival_lines
from dtctl.render.status import in_short
from dtctl.rooms.slurm import queue
from dtctl.rooms.slurm.engine import SlurmEngine
from dtctl.rooms.slurm.kept import Kept
from dtctl.rooms.slurm.placement import Given, Node, machines, placed, unknown_nodes
from dtctl.rooms.slurm.submission import Submission, least_limit_s, limit_s, log_of, options, run_of, script
from dtctl.transport.connect import Transports

DIGITS = """\
name: digits
hosts: {gpu-1: 10.0.0.1, gpu-2: {gpus: 2}, gpu-3: , store: 10.0.0.9, gate: }
jobs:
  ps: {hosts: [store, gpu-1], port: 2222}
  worker: {hosts: [gpu-2, gpu-1], port: 2232}
trainer: {command: [python, train.py]}
spares: gpu-3
arbiters: gate
dirs: {output: out}
"""
NUMBERED = """\
name: digits
hosts: {node-1: 10.0.0.1, node-2: 10.0.0.2}
jobs: {worker: {hosts: "node-[1-2]"}}
trainer: {command: [python, train.py]}
"""
"""Its hosts are called like nodes of a job that waits."""
RUN = "digits-20260101-000000-0a0b"
NODES = [Node("n7", "10.1.0.7", 2), *(Node(f"n{number}", f"10.1.0.{number}") for number in (8, 9, 10))]


def cluster_of(place: Path, more: str = "", text: str = DIGITS) -> Cluster:
    (place / "train.py").touch()
    file = place / "cluster.yaml"
    file.write_text(text + more)
    return load_cluster(file)


def on_nodes(place: Path, more: str = "") -> Cluster:
    return placed(cluster_of(place, more), NODES, "12", "/opt/tf/bin/python")


def test_the_leads_host_is_the_first_node_and_spares_are_the_last(tmp_path: Path) -> None:
    assert machines(cluster_of(tmp_path)) == ("gpu-2", "gpu-1", "store", "gpu-3")


def test_tasks_are_placed_on_nodes_as_they_were_on_hosts(tmp_path: Path) -> None:
    found = on_nodes(tmp_path)
    assert {name: job.hosts for name, job in found.jobs.items()} == {"ps": ("n9", "n8"), "worker": ("n7", "n8")}
    assert (found.spares, found.arbiters) == (("n10",), ())
    assert found.hosts["n9"].reach == OtherTransport("slurm", "12/n9")
    assert [found.hosts[name].gpus for name in ("n7", "n8")] == [2, 0]


def test_nodes_choose_every_port_as_other_jobs_may_share_them(tmp_path: Path) -> None:
    found = on_nodes(tmp_path, "coordinator: {port: 3000}\n")
    assert {port for job in found.jobs.values() for port in job.ports} == {CHOSEN_PORT}
    assert found.coordinator_port == CHOSEN_PORT


def test_nothing_of_a_run_comes_back_after_its_job(tmp_path: Path) -> None:
    assert on_nodes(tmp_path).recovery.reboot == "never"


def test_the_planner_gives_tasks_the_addresses_of_their_nodes(tmp_path: Path) -> None:
    plan = plan_run(on_nodes(tmp_path), {}, local_python="python3")
    assert {str(task.id): task.address for task in plan.tasks}["ps:0"] == "10.1.0.9:auto"
    assert {task.argv[0] for task in plan.tasks} == {"/opt/tf/bin/python"}


def test_the_files_own_interpreter_is_kept(tmp_path: Path) -> None:
    text = DIGITS.replace("{command", "{python: /opt/py/bin/python, command")
    found = placed(cluster_of(tmp_path, text=text), NODES, "12", "/opt/tf/bin/python")
    assert {host.python for host in found.hosts.values()} == {None}


def test_data_of_the_shared_file_system_is_read_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    text = DIGITS.replace("output: out", "output: out, data: data")
    found = placed(cluster_of(tmp_path, f"data: {{from: {tmp_path}/set}}\n", text), NODES, "12", "python3")
    assert (found.dirs["data"], found.data.source) == (f"{tmp_path}/set", None)


@pytest.mark.parametrize(
    ("devices", "expected"),
    [("", (None, "")), ("2,3", (2, "2,3")), ("GPU-1f,GPU-2e", (2, ""))],
)
def test_gpus_of_a_node_are_those_that_slurm_names(devices: str, expected: tuple[int | None, str]) -> None:
    node = Node.of("n1", "10.1.0.1", devices)
    assert (node.gpus, node.gpu_numbers) == expected


def test_trainers_see_the_gpus_that_the_job_has(tmp_path: Path) -> None:
    nodes = [Node.of("n7", "10.1.0.7", "2,3"), *NODES[1:]]
    plan = plan_run(placed(cluster_of(tmp_path), nodes, "12", "python3"), {}, local_python="python3")
    assert {str(task.id): task.env["CUDA_VISIBLE_DEVICES"] for task in plan.tasks if task.gpus}["worker:0"] == "2,3"


def test_too_few_nodes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PreflightError, match="job 12 has 3 nodes, and the cluster needs 4"):
        placed(cluster_of(tmp_path), NODES[:3], "12", "python3")


def test_what_a_job_was_given_survives_its_way_through_a_variable() -> None:
    given = Given("12", "digits-20260101-000000-0a0b", tuple(NODES))
    assert Given.from_json(given.to_json()) == given


KEPT = Kept("0" * 64, "1" * 64, None, {}, None)
SUBMISSION = Submission("digits-20260101-000000-0a0b", "/p/cluster.yaml", (), 30.0, requeue=False, kept=KEPT)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", ["--nodes=4", "--cpus-per-task=2", "--gpus-per-node=2", "--no-requeue", "--signal=B:TERM@90"]),
        ("slurm: {partition: gpu, account: 'a b'}\n", ["--partition=gpu", "--account=a b"]),
        ("slurm: {time: 90m}\n", ["--time=90:00"]),
        ("active_deadline: 2h\n", ["--time=120:00"]),
        ("slurm: {gres: 'gpu:a100:1', constraint: ib}\n", ["--gres=gpu:a100:1", "--constraint=ib"]),
        ("slurm: {cpus: 8, requeue: true}\n", ["--cpus-per-task=8", "--requeue"]),
    ],
)
def test_options_of_sbatch_follow_from_the_file(more: str, expected: list[str], tmp_path: Path) -> None:
    assert set(expected) <= set(options(SUBMISSION.run, cluster_of(tmp_path, more)))


@pytest.mark.parametrize(("more", "least"), [("grace: 5s\nslurm: {time: 99s}\n", 100), ("slurm: {time: 150s}\n", 0)])
def test_a_time_limit_within_which_slurm_warns_at_once_is_reported(more: str, least: int, tmp_path: Path) -> None:
    found = cluster_of(tmp_path, more)
    assert (least_limit_s(found) if (limit_s(found) or 0) < least_limit_s(found) else 0) == least


def test_gres_takes_the_place_of_gpus_per_node(tmp_path: Path) -> None:
    found = options(SUBMISSION.run, cluster_of(tmp_path, "slurm: {gres: 'gpu:1'}\n"))
    assert not [word for word in found if word.startswith("--gpus-per-node")]


def test_words_of_the_file_stand_over_all_others(tmp_path: Path) -> None:
    more = "slurm: {cpus: 8, words: [--cpus-per-task=1, '--comment=a; b']}\n"
    assert options(SUBMISSION.run, cluster_of(tmp_path, more))[-2:] == ["--cpus-per-task=1", "--comment=a; b"]


def test_a_word_that_is_no_option_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        cluster_of(tmp_path, "slurm: {words: [evil.sh]}\n")
    assert "slurm.words[0]" in str(refused.value.problems[0].summary)


def test_the_batch_script_holds_no_text_of_the_file_but_a_quoted_path() -> None:
    path = Path("/home/a b/$(date)'`id`.json")
    shebang, command, *rest = script(path).splitlines()
    assert (shebang, rest) == ("#!/bin/sh", [])
    assert shlex.split(command)[-1] == str(path)


@pytest.mark.parametrize(
    ("run", "restarts", "expected"),
    [
        ("a-20260101-000000-0a0b", 0, "a-20260101-000000-0a0b"),
        ("a-20260101-000000-0a0b", 2, "a-20260101-000000-0a0b-r2"),
        ("a-20260101-000000-0a0b-r2", 3, "a-20260101-000000-0a0b-r3"),
        ("a-r1-20260101-000000-0a0b-r2", 0, "a-r1-20260101-000000-0a0b"),
    ],
)
def test_each_start_of_a_job_is_a_run_of_its_own(run: str, restarts: int, expected: str) -> None:
    assert run_of(run, restarts) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0:57", 57),
        ("12:00:01", 43201),
        ("2-00:00:10", 172810),
        ("59", 59),
        ("UNLIMITED", None),
        ("NOT_SET", None),
        ("INVALID", None),
        ("364-23:59:59", None),
        ("", None),
    ],
)
def test_the_time_left_is_read_as_squeue_writes_it(text: str, expected: float | None) -> None:
    assert queue.seconds_left(text) == expected


SQUEUE = """\
#!/bin/sh
case "$*" in
  *PENDING*) printf '9|70\\n12|50\\n11|50\\n4_[1-9]|60\\n' ;;
  *) printf '12|PENDING|Resources|1:00:00||gpu|50\\n8|RUNNING|None|10:00|n[1-2]|gpu|1\\n4_2|RUNNING|None|1|n|gpu|1\\n'
esac
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs that print what Slurm prints."""
    place = tmp_path / "bin"
    place.mkdir()
    for name, text in (("squeue", SQUEUE), ("scontrol", "#!/bin/sh\necho JobId=12 Requeue=1 Restarts=2 Nice=0\n")):
        (place / name).write_text(text)
        (place / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)


def record(place: Path, job: str, **changes: Any) -> RunRecord:
    found = placed(cluster_of(place), [Node(name, name) for name in "abcd"], job, "python3")
    return dataclasses.replace(record_of(plan_roster(found), "digits-20260101-000000-0a0b", 1.0), **changes)


@pytest.mark.usefixtures("slurm")
def test_a_waiting_job_has_its_reason_and_its_place_in_the_queue(tmp_path: Path) -> None:
    found = SlurmEngine().allocation(record(tmp_path, "12"))
    assert found is not None
    assert (found.phase, found.reason, found.position) == ("pending", "Resources", 4)
    assert line(found) == "pending: Resources, position 4 (job 12)"


@pytest.mark.usefixtures("slurm")
def test_a_live_job_has_its_nodes_its_time_and_the_run_of_this_start(tmp_path: Path) -> None:
    found = SlurmEngine().allocation(record(tmp_path, "8"))
    assert found is not None
    assert (found.phase, found.nodes, found.left_s) == ("running", "n[1-2]", 600)
    assert found.run == "digits-20260101-000000-0a0b-r2"
    assert line(found) == "job 8 on n[1-2], 10m left"


@pytest.mark.usefixtures("slurm")
def test_a_job_that_slurm_has_forgotten_has_ended(tmp_path: Path) -> None:
    found = SlurmEngine().allocation(record(tmp_path, "3"))
    assert found is not None
    assert (found.phase, line(found)) == ("ended", "job 3 has ended")


@pytest.mark.usefixtures("slurm")
def test_the_batch_script_has_its_machines_until_the_job_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "8")
    assert SlurmEngine().allocation(record(tmp_path, "8")) is None


@pytest.mark.usefixtures("slurm")
def test_status_of_a_waiting_run_asks_no_host(tmp_path: Path) -> None:
    found = status(record(tmp_path, "12", begun=False), Transports())
    assert (found.verdict.outcome, found.time > 0) == (Outcome.CREATED, True)
    assert {task.state for task in found.tasks.values()} == {TaskState.PENDING}


def test_a_file_that_is_edited_while_its_job_waits_moves_no_node_back_to_ssh(tmp_path: Path) -> None:
    waiting = cluster_of(tmp_path, text=NUMBERED)
    before = record_of(plan_roster(placed(waiting, unknown_nodes(waiting), "12", "python3")), "digits-1", 1.0)
    edited = cluster_of(tmp_path, "grace: 5s\n", text=NUMBERED)
    now = follow_file(before, lambda file: edited).record
    assert now.hosts == before.hosts
    assert now.file_sha256 == edited.file_sha256


@pytest.mark.usefixtures("slurm")
def test_a_job_that_ended_before_its_run_began_names_what_it_has_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    never = record(tmp_path, "3", begun=False)
    assert in_short(status(never, Transports())) == ["job 3 has ended"]
    log_of(RUN).parent.mkdir(parents=True)
    log_of(RUN).write_text("error: Job credential expired\n")
    assert in_short(status(never, Transports())) == ["job 3 has ended", f"see {log_of(RUN)}"]


@pytest.mark.usefixtures("slurm")
def test_a_start_over_ssh_is_refused_while_a_job_of_the_file_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    launch = prepare_launch(cluster_of(tmp_path, text=NUMBERED), lambda settings: settings.target, os.environ)
    cluster = cluster_of(tmp_path, text=NUMBERED)
    waiting = record_of(plan_roster(placed(cluster, unknown_nodes(cluster), "12", "python3")), RUN, 1.0)
    with pytest.raises(PreflightError, match="waits for its machines, in job 12") as refused:
        live_elsewhere(launch, Transports(), waiting)
    assert "dtctl up --replace" in refused.value.hint
    assert is_refusal(refused.value)


def test_a_run_that_was_just_submitted_has_no_machines_even_if_its_job_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = dataclasses.replace(cluster_of(tmp_path), on="slurm")
    launch = prepare_launch(SlurmEngine().place(cluster), lambda settings: settings.target, os.environ)
    engine = Mock(spec=SlurmEngine)
    engine.submit.return_value = Submitted(launch.record, "12", 4)
    queued = submit(engine, cluster, launch, Memory(), Transports(), {})
    assert has_no_machines(queued.record, Allocation("slurm", "12", "RUNNING", "running", run=queued.record.run))


def test_options_that_count_when_the_job_starts_are_kept_for_it(tmp_path: Path) -> None:
    words = words_of(adopt_output=True, check=False, allow_missing=2)
    assert words == ("--adopt-output", "--no-check", "--allow-missing=2")
    kept = dataclasses.replace(SUBMISSION, words=words, overrides=("grace=5s",))
    (tmp_path / "run.json").write_text(kept.to_json())
    assert Submission.load(tmp_path / "run.json") == kept


def test_a_command_is_repeated_with_the_engine_that_was_typed(tmp_path: Path) -> None:
    typed = dataclasses.replace(cluster_of(tmp_path), overrides=("grace=5s", "on=slurm"))
    assert (again(typed), again(cluster_of(tmp_path))) == ("dtctl up --on slurm", "dtctl up")


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", "the job ends; slurm.requeue queues it again"), ("slurm: {requeue: true}\n", "the job is queued again")],
)
def test_a_plan_says_what_the_loss_of_the_first_node_does(more: str, expected: str, tmp_path: Path) -> None:
    cluster = dataclasses.replace(cluster_of(tmp_path, more), on="slurm")
    found = survival_lines(make_plan(SlurmEngine().place(cluster), lambda settings: settings.target))
    assert found[0] == f"if node-1 is lost, {expected}"


def test_a_run_of_the_start_before_has_no_machines_any_more(tmp_path: Path) -> None:
    old = record(tmp_path, "8")
    assert not has_no_machines(old, Allocation("slurm", "8", "RUNNING", "running", run=old.run))
    assert has_no_machines(old, Allocation("slurm", "8", "RUNNING", "running", run=f"{old.run}-r1"))


def test_a_job_that_was_cancelled_before_its_run_began_is_stopped(tmp_path: Path) -> None:
    never = record(tmp_path, "8", begun=False)
    found = status_of_waiting(never, Allocation("slurm", "8", "CANCELLED", "ended"))
    assert (found.verdict.outcome, found.tasks[TaskId("ps", 0)].state) == (Outcome.STOPPED, TaskState.STOPPED)


def test_a_machine_without_slurm_says_where_to_type_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(PreflightError, match="this machine has no squeue") as refused:
        queue.own_jobs()
    assert "login node" in refused.value.hint


def test_a_program_of_slurms_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "squeue"
    program.write_text("#!/bin/sh\necho 'Unable to contact slurm controller' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(TransportError) as failed:
        queue.own_jobs()
    assert "Unable to contact" in failed.value.detail


def test_variables_of_another_job_are_no_options_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_NTASKS_PER_NODE", "4")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    known = queue.environment()
    assert ("SLURM_NTASKS_PER_NODE" in known, known["SLURM_CONF"]) == (False, "/etc/slurm.conf")


def test_a_run_without_nodes_has_numbered_ones(tmp_path: Path) -> None:
    found = SlurmEngine().place(cluster_of(tmp_path))
    assert {name: job.hosts for name, job in found.jobs.items()}["ps"] == ("node-3", "node-2")


@pytest.mark.usefixtures("slurm")
def test_waiting_for_machines_ends_with_the_deadline_and_with_the_job(tmp_path: Path) -> None:
    seen: list[Allocation] = []
    with pytest.raises(TimeoutError):
        await_machines(record(tmp_path, "12", begun=False), lambda *_: None, seen.append, 0.0)
    assert [held.phase for held in seen] == ["pending"]
    with pytest.raises(DtctlError, match="has not started"):
        await_machines(record(tmp_path, "3", begun=False), lambda *_: None, seen.append)


def test_ssh_is_no_engine_and_slurm_is_one() -> None:
    assert (engine_of("ssh"), engine_of("slurm") is not None) == (None, True)
