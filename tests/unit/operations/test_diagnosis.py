"""Known ways in which runs go wrong are recognised from the facts, by the words that programs really write."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.reasons import Fact, because, fact, read
from dtctl.agent.records.run_state import Intent
from dtctl.agent.records.whole_run import Alert, Contact, GoneHost, Incident
from dtctl.bundle import LeftOut
from dtctl.errors import DtctlError, TransportError
from dtctl.model import TaskId, TaskState
from dtctl.operations.failed_starts import FailedStart
from dtctl.operations.findings import Facts, Level
from dtctl.operations.snapshot import CoordinatorUnreachable, Outcome, TaskStatus, Verdict
from dtctl.render.findings import FIELD, advice_lines, last_lines, paragraph, remedies
from dtctl.rooms.diagnose.operation import findings, in_short
from dtctl.rooms.diagnose.signatures import SIGNATURES
from tests.unit.coordinated import incident, with_view
from tests.unit.diagnosing import NOW, decided, ended, facts, host, machine, running, says, vitals
from tests.unit.ended_logs import ENDED_LOGS, FRAMES, LOGS, EndedLog
from tests.unit.holds import held
from tests.unit.operations.test_diagnosis_gpus import OF_GPUS, gpu, on
from tests.unit.tasks import changed, changed_attempt, past_attempt

ERRORS = "tensorflow.python.framework.errors_impl."
STILL = "CreateSession still waiting for response from worker: /job:ps/replica:0/task:0"
REFUSED = (
    "UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:10.0.0.9:2222: "
    "Failed to connect to remote host: Connection refused"
)
PYTHON = {"python": "/opt/venv/bin/python"}

NO_GPU = "E0000 00:00:1795715781.222044 43 cuda_platform.cc:52] failed call to cuInit: INTERNAL: CUDA error: Failed\n"

IGNORED = LeftOut("data/", ".gitignore:1 data/")

RECOGNISED = [one for one in ENDED_LOGS if "finding" in one.expected]

MB, GB = 10**6, 10**9


def disk(path: str, free: int, size: int) -> dict[str, Any]:
    return {"path": path, "free_bytes": free, "size_bytes": size}


T4: dict[str, Any] = {"task": None, "name": "T4", "driver": "470.82"}
KNOWN = host(
    {"worker:0": vitals(python=PYTHON["python"], port=2222, packages={"tensorflow": "2.21.0", "keras": "3.15.1"})},
    disks=[disk("/data", GB, 50 * GB)],
    machine=on(
        gpu(0, used_bytes=16 * GB, memory_bytes=80 * GB, **T4),
        gpu(1, used_bytes=15 * GB, memory_bytes=16 * GB, **T4),
        gpu(2, used_bytes=0, memory_bytes=0, **T4),
    ),
)


FULL = host(
    {"worker:0": vitals()},
    disks=[disk("/small", 9 * MB, 10 * MB), disk("/data", 10 * MB, 50 * GB), disk("/none", 1, 0)],
)
FULLEST = {"disk_full": "10.0 MB of 50.0 GB left at /data", "gpu_memory": "GPU 1 has 15.0 GB of 16.0 GB in use"}
"""The least share that is left counts, and the greatest in use."""


def with_incidents(found: Facts, *incidents: Incident) -> Facts:
    assert found.status.coordination is not None
    told_by = with_view(found.status.coordination, incidents=list(incidents))
    return dataclasses.replace(found, status=dataclasses.replace(found.status, coordination=told_by))


def with_alert(found: Facts, topic: str, alert: Fact) -> Facts:
    assert found.status.coordination is not None
    told_by = with_view(
        found.status.coordination, alerts=[made(Alert, topic=topic, host=read(alert).get("host"), **because([alert]))]
    )
    return dataclasses.replace(found, status=dataclasses.replace(found.status, coordination=told_by))


def names(found: Facts) -> list[str]:
    return [one.signature.name for one in findings(found)]


def first_hint(found: Facts) -> str:
    """Of the most important."""
    return "\n".join(paragraph(findings(found)[0]))


@pytest.mark.parametrize("end", RECOGNISED, ids=lambda end: end.name)
def test_the_end_of_a_log_is_recognised(end: EndedLog) -> None:
    name, number = end.expected["finding"], end.expected.get("signal")
    log = end.log
    how: dict[str, Any] = {"code": None, "signal": int(number)} if number else {"code": 1}
    held = fact("port_held", port=2222, text="pid 41 (nginx)") if name == "port_taken" else None
    others = [running("ps:0", "gpu-b")] if name == "checkpoint_in_parts" else []
    hosts = {"gpu-a": FULL if name == "disk_full" else KNOWN}
    found = facts(ended("worker:0", log, beside=held, **how), *others, hosts=hosts)
    assert names(found)[0] == name
    assert end.expected.get("means", "") in first_hint(found)
    assert FULLEST.get(name, "") in first_hint(found)
    assert end.expected.get("remedy", "") in first_hint(found)
    assert remedies(findings(found)[0])[0].startswith(end.expected.get("first", ""))
    assert not FIELD.search(first_hint(found))
    for of_hosts in ({}, {"gpu-a": host()}):
        unknown = facts(ended("worker:0", log, **how), *others, hosts=of_hosts)
        assert names(unknown)[0] == name
        assert not FIELD.search(first_hint(unknown))


@pytest.mark.parametrize(
    ("log", "path"),
    [
        (FRAMES + "FileNotFoundError: [Errno 2] No such file or directory: 'data/x.csv'\n", "data/x.csv"),
        (FRAMES + "FileNotFoundError: [Errno 2] No such file or directory: '/h/.dtctl/work/d/tree/a b'\n", "a b"),
        (FRAMES + f"{ERRORS}NotFoundError: data/x.csv; No such file or directory\n", "data/x.csv"),
        (FRAMES + f"{ERRORS}NotFoundError: {{{{function_node f}}}} ./x.csv; No such file [Op:R]\n", "x.csv"),
        (
            "python3: can't open file '/h/.dtctl/work/d/tree/train.py': [Errno 2] No such file or directory\n",
            "train.py",
        ),
        ("cat: conf/a.yaml: No such file or directory\n", "conf/a.yaml"),
        (FRAMES + "ModuleNotFoundError: No module named 'models.net'\n", "models/net.py"),
    ],
)
def test_a_file_that_was_not_pushed_is_reported_with_its_rule(log: str, path: str) -> None:
    asked = facts(ended("worker:0", log))
    found = dataclasses.replace(asked, left_out=lambda one: IGNORED if one == path else None)
    assert names(found)[0] == "file_missing"
    assert (
        f"{path} is not on gpu-a: it is in the code directory here, but is not pushed, by the rule .gitignore:1"
        in first_hint(found)
    )
    assert "a line !/data/ in .dtctlignore" in first_hint(found)
    assert "!/data/" not in first_hint(asked)


IN_USE = FRAMES + "OSError: [Errno 98] Address already in use%s\n"
NO_MEMORY = FRAMES + "MemoryError\n"
ARRAY = FRAMES + "numpy._core._exceptions._ArrayMemoryError: Unable to allocate %s for an array with shape (9,)\n"
FULL_DISK = FRAMES + "OSError: [Errno 28] No space left on device\n"
KILLED: dict[str, Any] = {"code": None, "signal": 9}
FROZEN = changed(running("ps:0", "gpu-b"), state=TaskState.STALLED, why=(fact("frozen", seconds=61.0),))
HANGS = changed(running("worker:0"), state=TaskState.STALLED, why=(fact("stalled", seconds=300.0),))
WORKERS = [running(f"worker:{n}", f"gpu-{n}", rate=60.0, step=100, step_time=999.0) for n in range(4)]
SLOW = [*WORKERS[:3], changed(WORKERS[3], rate=12.0)]
LATE = [*WORKERS[:3], changed(WORKERS[3], step_time=940.0)]
STILL_ALL = [changed(one, step_time=950.0, cpu=0.0) for one in WORKERS]
HUNG_IN = (fact("stalled", seconds=300.0), fact("hung_in", text="next_batch (input.py:31)"))
FAILED = Verdict(Outcome.FAILED, (fact("task_failed", task="worker:0"), *HUNG_IN), TaskId("worker", 0))
HUNG_TWICE = changed(
    running("worker:0", attempt=3, since=990.0),
    history=tuple(past_attempt(n, 700.0 + n, 800.0 + n, None, 6, asked=False, hung=(fact("hung"),)) for n in (1, 2)),
)
SILENT = [
    running("ps:0", "gpu-b", since=700.0, idle_since=700.0),
    running("worker:0", since=700.0, idle_since=760.0),
    running("worker:1", "gpu-c", since=700.0, idle_since=710.0),
]
NOT_BEGUN = [
    *(running(f"worker:{n}", f"gpu-{n}", step=9, step_time=999.0, first_step_s=20.0) for n in range(3)),
    running("worker:3", "gpu-3", since=700.0),
]
BESIDE_LEAD = [NOT_BEGUN[0], running("worker:1", "gpu-b", since=700.0, idle_since=712.0)]
GONE: GoneHost = {"host": "gpu-a", "seconds": 61.0}
NOT_READY = (fact("not_ready", seconds=600.0), fact("waits_to_listen", task="worker:0"))


def without_coordinator(found: Facts, host: str) -> Facts:
    away = CoordinatorUnreachable(host, TransportError(f"no route to {host}"))
    return dataclasses.replace(found, status=dataclasses.replace(found.status, away=away))


def scaled_down(task: str) -> Facts:
    """The host of the task is lost, and a spare is there."""
    contacts, idle = {"gpu-b": made(Contact, heard=960.0)}, {"s": made(Contact, connected=True)}
    found = facts(running("worker:0"), running(task, "gpu-b"), contacts=contacts, idle=idle)
    intent = made(Intent, **held(fact("scaled_down", task=task, text="worker", count=1, by="ann@desk")))
    assert found.status.coordination is not None
    view = with_view(found.status.coordination, intents={task: intent})
    return dataclasses.replace(found, status=dataclasses.replace(found.status, coordination=view))


WAITS = says(running("worker:0"), STILL)
PS = running("ps:0", "gpu-b")


def unreached(problem: str, text: str) -> dict[str, Any]:
    way = {"task": "ps:0", "address": "gpu-b:2223", "problem": problem, "text": text}
    return {"gpu-a": host({"worker:0": vitals()}, unreached=[way]), "gpu-b": host({"ps:0": vitals(listens=True)})}


NOT_STARTED = DtctlError("node-1: the port 2222 is in use", hint="dtctl up --ports-from 2300")
SIX_HINTS = DtctlError("failed", hint="\n".join(f"hint {number}" for number in range(1, 7)))

BY_FACTS = [
    (
        "not_started",
        Facts(FailedStart(facts(running("worker:0")).status.record, NOT_STARTED, 1000.0).status()),
        "no task was started: node-1: the port 2222 is in use",
    ),
    (
        "not_started",
        Facts(FailedStart(facts(running("worker:0")).status.record, SIX_HINTS, 1000.0).status()),
        "hint 3\nhint 4; hint 5; hint 6",
    ),
    (
        "file_missing",
        dataclasses.replace(
            facts(ended("worker:0", "FileNotFoundError: [Errno 2] No such file or directory: 'data/x'\n")),
            left_out=lambda path: LeftOut("data/x", "private key"),
        ),
        "data/x is not on gpu-a: it is in the code directory here, but is not pushed, by the rule private key",
    ),
    (
        "file_missing",
        facts(ended("worker:0", "FileNotFoundError: [Errno 2] No such file or directory: '/data/a b'\n")),
        "/data/a b is not on gpu-a\ndtctl exec -- ls -ld '/data/a b'    shows which hosts have it",
    ),
    (
        "killed_for_memory",
        facts(ended("worker:0", "", **KILLED, beside=fact("out_of_memory", count=1)), machines={"gpu-a": machine()}),
        "the kernel killed it because gpu-a ran out of memory: 8.6 GB of 17.2 GB are free now",
    ),
    (
        "cannot_run",
        facts(
            changed(
                ended("worker:0", "", code=127),
                why=(fact("cannot_run", what="/nope", text="No such file or directory"),),
            )
        ),
        "gpu-a cannot run /nope: No such file or directory",
    ),
    (
        "host_restarted",
        facts(changed(ended("worker:0", "step 1\n", code=None), why=(fact("host_restarted"),))),
        "gpu-a was restarted while the task ran",
    ),
    (
        "memory_limit",
        facts(ended("worker:0", NO_MEMORY, beside=fact("limit", what="ulimit -v", text="409600 kB"))),
        "the program was refused memory on gpu-a by a limit: ulimit -v is 409600 kB\ndtctl exec @gpu-a -- sh -c",
    ),
    (
        "memory_limit",
        facts(ended("worker:0", NO_MEMORY), machines={"gpu-a": machine(available_bytes=15 << 30)}),
        "the program was refused memory on gpu-a though 16.1 GB of 17.2 GB are free now: it has a limit, or",
    ),
    (
        "host_memory",
        facts(ended("worker:0", NO_MEMORY), machines={"gpu-a": machine(available_bytes=9 << 30)}),
        "gpu-a has too little memory: 9.7 GB of 17.2 GB are free now",
    ),
    (
        "host_memory",
        facts(ended("worker:0", ARRAY % "18.6 TiB"), machines={"gpu-a": machine(available_bytes=15 << 30)}),
        "gpu-a has too little memory for 18.6 TiB at once: 16.1 GB",
    ),
    (
        "memory_limit",
        facts(ended("worker:0", ARRAY % "381. MiB"), machines={"gpu-a": machine(available_bytes=15 << 30)}),
        "the program was refused memory",
    ),
    (
        "process_limit",
        facts(
            ended(
                "worker:0", "RuntimeError: can't start new thread\n", beside=fact("limit", what="ulimit -u", text="9")
            )
        ),
        "from starting another process or thread: ulimit -u is 9",
    ),
    (
        "port_taken",
        facts(
            ended("worker:0", IN_USE % "", beside=fact("port_held", port=2222, text="pid 41 of the run digits-1 (x)"))
        ),
        "port 2222 of gpu-a is taken by pid 41 of the run digits-1 (x)\ndtctl gc    ends leftovers of old runs\n"
        "otherwise choose another port: jobs.NAME.port in cluster.yaml (now 2222)",
    ),
    (
        "port_taken",
        facts(ended("worker:0", IN_USE % " ('', 6006)", beside=fact("port_held", port=6006, text="pid 41 (nginx)"))),
        "port 6006 of gpu-a is taken by pid 41 (nginx)\ndtctl exec @gpu-a -- ps -fp 41    shows what holds it",
    ),
    (
        "port_taken",
        facts(ended("worker:0", IN_USE % " ('', 6006)")),
        "port 6006 of gpu-a is taken\ndtctl gc    ends leftovers of old runs\n"
        "otherwise choose another port than 6006 in trainer.args or the program; then: dtctl up --replace",
    ),
    (
        "port_taken",
        facts(ended("worker:0", IN_USE % "")),
        "a port other than the task's own (2222) of gpu-a is taken\ndtctl gc",
    ),
    (
        "disk_full",
        facts(ended("worker:0", FULL_DISK, beside=fact("disk_full", what="/mnt/out")), hosts={"gpu-a": FULL}),
        "a disk of gpu-a is full: /mnt/out\ndtctl exec @gpu-a -- du -xhd1 /mnt/out    shows what fills it",
    ),
    (
        "disk_full",
        facts(ended("worker:0", FULL_DISK, beside=fact("own_disk_full", what="/")), hosts={"gpu-a": FULL}),
        "a disk of gpu-a is full: /\ndtctl gc    removes old runs",
    ),
    ("killed", facts(ended("worker:0", "step 1\n", **KILLED)), "worker:0 on gpu-a was killed by SIGKILL at "),
    ("killed", facts(ended("worker:0", NO_GPU, **KILLED)), "worker:0 on gpu-a was killed by SIGKILL at "),
    (
        "illegal_instruction",
        facts(ended("worker:0", "", code=None, signal=4)),
        "a different processor than that of gpu-a",
    ),
    ("crashed", facts(ended("worker:0", "", code=139)), "a library of the program crashed"),
    (
        "ended_itself",
        facts(ended("worker:0", "loading\nTensorFlow finds 0 GPUs here, not 2\n")),
        ": TensorFlow finds 0 GPUs here, not 2\nthe program exited by itself",
    ),
    ("ended_itself", facts(ended("worker:0", "error: no GPU\n")), "usually gives the reason"),
    (
        "ended",
        facts(ended("worker:0", "step 3\n")),
        "the error is the program's own; last lines of worker:0:\n  step 3\n",
    ),
    ("ended", facts(ended("worker:0", FRAMES + "ValueError: bad\n")), "dtctl logs worker:0 -n all"),
    (
        "host_away",
        facts(running("worker:0"), PS, contacts={"gpu-b": made(Contact, heard=960.0)}),
        "gpu-b has been unreachable for 40s",
    ),
    (
        "host_away",
        facts(
            running("worker:0"),
            PS,
            contacts={"gpu-b": made(Contact, heard=960.0)},
            idle={"s": made(Contact, connected=True)},
        ),
        "the state of ps:0 is unknown; s takes its place after recovery.replace",
    ),
    ("host_away", scaled_down("worker:1"), "the state of worker:1 is unknown\n"),
    (
        "bad_host",
        with_alert(
            facts(running("worker:0"), PS),
            "bad_host",
            fact("bad_host", host="gpu-a", tasks=["worker:0"], count=3),
        ),
        "worker:0 left out: the last 3 failures of the run were all on gpu-a",
    ),
    (
        "host_timed_out",
        facts(running("worker:0"), verdict=Verdict(Outcome.FAILED, (fact("host_gone", **GONE),), gone=GONE)),
        "gpu-a was unreachable for 1m1s, longer than recovery.host_timeout",
    ),
    (
        "coordinator_away",
        without_coordinator(facts(running("worker:0"), PS), "gpu-a"),
        "the coordinator's host gpu-a is unreachable: the state of worker:0 is unknown; no route to gpu-a",
    ),
    (
        "unconfirmed_claim",
        with_alert(
            facts(running("worker:0"), PS), "claims_coordinator", fact("claims_coordinator", host="gpu-b", count=3000)
        ),
        "gpu-b claims to coordinate in term 3000, which no majority of the voters confirms; no host follows it",
    ),
    (
        "target_missed",
        with_alert(
            facts(running("worker:0"), hosts={"gpu-a": host()}), "target_missed", fact("steps_short", step=4, of=1000)
        ),
        "the last step in the logs is 4, short of the 1000 that were asked for: the program ended by itself, with",
    ),
    (
        "host_silent",
        facts(running("worker:0"), PS, contacts={"gpu-b": made(Contact)}, waits_for="agents dial gpu-a:1"),
        "gpu-b has not connected to the coordinator for 1m40s: agents dial gpu-a:1",
    ),
    ("frozen", facts(running("worker:0"), FROZEN), "kill -CONT 7"),
    (
        "lock_left",
        facts(HANGS, hosts={"gpu-a": host({"worker:0": vitals(left_lock="/home/a b/py311_cpu/utils/lock")})}),
        "dtctl exec @gpu-a -- rm '/home/a b/py311_cpu/utils/lock'    removes the lock",
    ),
    (
        "stalled",
        facts(HANGS),
        "worker:0 on gpu-a made no progress for 5m; dtctl restarts it\ndtctl dump worker:0    shows where it is",
    ),
    (
        "stalled",
        facts(changed(HANGS, state=TaskState.FAILED, why=HUNG_IN), verdict=FAILED),
        "worker:0 on gpu-a made no progress for 5m; it was in next_batch (input.py:31)\n"
        "dtctl logs worker:0 -n 60    ends with the stacks",
    ),
    (
        "ps_ended",
        with_incidents(facts(PS), *[checked(Incident, incident("ps:0", why=[fact("ps_ended")]))] * 2),
        "ps:0 on gpu-b exited with 0 2 times although the run still needed it",
    ),
    (
        "at_barrier",
        with_incidents(facts(*WORKERS), *[checked(Incident, incident("worker:1", loss="at_barrier"))] * 2),
        "2 times all that train waited for each other after worker:1 had been restarted alone",
    ),
    ("hung_before", facts(HUNG_TWICE), "worker:0 on gpu-a hung 2 times, last at "),
    (
        "name_unresolved",
        facts(WAITS, PS, hosts=unreached("unresolved", "Name or service not known")),
        "hosts.gpu-b.address",
    ),
    (
        "firewall",
        facts(WAITS, PS, hosts=unreached("timeout", "Connection timed out")),
        "worker:0 has waited 40s for ps:0 on gpu-b:2223\n"
        "ps:0 listens on gpu-b:2223, but gpu-a cannot connect to it (Connection timed out): a firewall",
    ),
    (
        "firewall",
        facts(running("worker:0"), PS, hosts=unreached("no_route", "No route to host")),
        "open port 2223 of gpu-b",
    ),
    ("refused", facts(WAITS, PS, hosts=unreached("refused", "Connection refused")), "but it refuses gpu-a"),
    (
        "waits_for_one_that_is_over",
        facts(WAITS, dataclasses.replace(PS, state=TaskState.STOPPED)),
        "ps:0 on gpu-b has stopped, but other tasks still need it",
    ),
    (
        "waits_for_start",
        facts(WAITS, changed(PS, ready=False)),
        "is running for 1m40s and does not listen on gpu-b:2223 yet",
    ),
    ("waits", facts(WAITS, PS), "listens on gpu-b:2223, but other tasks still wait for it"),
    (
        "never_listened",
        facts(running("worker:0"), verdict=Verdict(Outcome.FAILED, NOT_READY, unready=(TaskId("worker", 0),))),
        "did not listen on gpu-a:2222",
    ),
    (
        "diverging",
        facts(running("worker:0", loss="nan", step=70)),
        "the loss of worker:0 is nan at step 70: training has diverged",
    ),
    ("diverging", facts(running("worker:0", loss="nan")), "is nan: training has diverged, and continues\n"),
    (
        "diverging",
        facts(
            changed(running("worker:0", loss="nan"), state=TaskState.SUCCEEDED), verdict=Verdict(Outcome.SUCCEEDED, ())
        ),
        "the loss of worker:0 is nan: training has diverged\n",
    ),
    (
        "diverging",
        facts(running("worker:0"), hosts={"gpu-a": host(diverged=[{"path": "/o", "tag": "loss", "step": 7}])}),
        "the loss is not finite (loss in /o) at step 7",
    ),
    ("disk_is_full", facts(running("worker:0"), hosts={"gpu-a": FULL}), "a disk of gpu-a is full: 10.0 MB of 50.0 GB"),
    ("no_steps", facts(*STILL_ALL), "no task has reported a step for 50s; worker:[0-3] are idle"),
    (
        "straggler",
        facts(*SLOW, machines={"gpu-3": machine(load=9.0)}),
        "makes 12 steps/s, its peers 60; load 9 on 4 CPUs",
    ),
    (
        "nobody_begins",
        facts(*SILENT),
        "no task has reported a step in the 1m40s since the start, and all have been idle for 4m; "
        "worker:1 was idle first, 4m50s ago",
    ),
    (
        "not_begun",
        facts(*NOT_BEGUN),
        "worker:3 on gpu-3 has reported no step in the 5m since its start, others did within 20s\n",
    ),
    (
        "not_begun",
        facts(*BESIDE_LEAD),
        "worker:1 on gpu-b has reported no step in the 5m since its start, others did within 20s; "
        "it has been idle for 4m48s",
    ),
    ("behind", facts(*LATE), "worker:3 on gpu-3 has reported no step for 1m, its peers for 1s"),
    (
        "host_slow",
        facts(
            *WORKERS,
            hosts={
                "gpu-1": host(
                    machine=machine(load=9.0, waiting={"cpu": 0.8}),
                    busy=[{"pid": 9, "name": "stress", "user": "eve", "cpu": 3.9}],
                )
            },
            machines={f"gpu-{n}": machine() for n in range(4)},
        ),
        "load 9 on 4 CPUs; stress of eve (pid 9) takes 3.9 of them; waits for processors 80 % of the time",
    ),
    (
        "throttled",
        facts(*WORKERS[:3], changed(WORKERS[3], throttled=0.9, cpu=0.202)),
        "worker:3 on gpu-3 is limited to 0.2 processors by its control group, which throttles it 90 % of",
    ),
    (
        "versions_differ",
        facts(
            *WORKERS[:2],
            hosts={
                "gpu-0": host({"worker:0": vitals(packages={"tensorflow": "2.21.0"})}),
                "gpu-1": host({"worker:1": vitals(packages={"tensorflow": "2.15.1"})}),
            },
        ),
        "tensorflow is not the same everywhere: 2.15.1 on gpu-1, 2.21.0 on gpu-0",
    ),
]


@pytest.mark.parametrize(("name", "found", "text"), BY_FACTS, ids=[f"{n}-{one[0]}" for n, one in enumerate(BY_FACTS)])
def test_states_and_figures_give_their_findings(name: str, found: Facts, text: str) -> None:
    assert names(found)[0] == name
    assert text in first_hint(found)
    assert not FIELD.search(first_hint(found))


def test_a_task_whose_steps_are_seen_is_not_said_to_load() -> None:
    own = host({"ps:0": vitals(listens=False)})
    loads = facts(WAITS, changed(PS, ready=False), hosts={"gpu-b": own})
    assert "waits_for_start" in [one.signature.name for one in findings(loads)]
    trains = facts(WAITS, changed(PS, ready=True, step=70), hosts={"gpu-b": own})
    assert "waits_for_start" not in [one.signature.name for one in findings(trains)]


def test_thirty_failures_that_users_cause_have_a_first_remedy_that_fits() -> None:
    """tests/local/test_user_failures.py has those that a small program can really meet."""
    caused = [one for one in RECOGNISED if "first" in one.expected]
    assert len(caused) >= 30
    assert len({one.expected["finding"] for one in caused}) >= 30


def test_every_row_is_tried() -> None:
    assert {one.name for one in SIGNATURES} == {name for name, *_ in (*BY_FACTS, *OF_GPUS)} | {
        one.expected["finding"] for one in RECOGNISED
    }


def test_task_that_waits_for_an_ended_one_is_reported_with_the_cause() -> None:
    log = FRAMES + "ModuleNotFoundError: No module named 'sklearn'\n"
    found = facts(WAITS, ended("ps:0", log, "gpu-b"))
    first, *rest = findings(found)
    assert rest == []
    head = paragraph(first)[0]
    assert head.startswith("worker:0 has waited 40s for ps:0 on gpu-b:2223, which exited 1 at ")
    assert head.endswith(": ModuleNotFoundError: No module named 'sklearn'")


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/scratch/out", "a disk of gpu-a is full: that of /scratch/out"),
        ("/data/out", "a disk of gpu-a is full: 10.0 MB of 50.0 GB left at /data"),
        ("/small/out", "a disk of gpu-a is full: that of /small/out"),
    ],
)
@pytest.mark.parametrize(
    "message",
    [
        "OSError: [Errno 28] No space left on device: '%s'",
        f"{ERRORS}ResourceExhaustedError: %s; No space left on device",
    ],
)
def test_full_disk_is_the_one_of_the_path_in_the_message(message: str, path: str, shown: str) -> None:
    end = ended("worker:0", f"{FRAMES}{message % path}\n")
    disks = [disk("/small", 5 * MB, 10 * MB), disk("/data", 10 * MB, 50 * GB)]
    found = facts(end, hosts={"gpu-a": host({"worker:0": vitals()}, disks=disks)})
    assert shown in first_hint(found)


def test_pip_is_not_proposed_for_a_python_of_the_system() -> None:
    end = ended("worker:0", f"{FRAMES}ModuleNotFoundError: No module named 'sklearn'\n")
    own = host({"worker:0": vitals(python="/usr/bin/python3", managed=True)})
    assert "pip install" not in first_hint(facts(end, hosts={"gpu-a": own}))
    assert "pip install scikit-learn" in first_hint(facts(end, hosts={"gpu-a": KNOWN}))


PACKAGES = (
    f"{FRAMES}AttributeError: module 'tensorflow' has no attribute 'estimator'\n",
    f"{FRAMES}ImportError: BasicLSTMCell is not available with Keras 3.\n",
    f"{FRAMES}TBNotInstalledError: TensorBoard is not installed\n",
    f"{FRAMES}ImportError: libcudart.so.11.0: cannot open shared object file: No such file or directory\n",
)


@pytest.mark.parametrize("log", PACKAGES)
def test_what_pip_may_not_change_is_replaced_by_an_environment(log: str) -> None:
    own = host({"worker:0": vitals(python="/usr/bin/python3", managed=True, packages={"tensorflow": "2.21.0"})})
    found = first_hint(facts(ended("worker:0", log), hosts={"gpu-a": own}))
    assert "pip install" not in found
    if "libcudart" not in log:
        assert "environment: {requirements: requirements.txt}    in cluster.yaml, below `trainer:`" in found
    assert "pip install" in first_hint(facts(ended("worker:0", log), hosts={"gpu-a": KNOWN}))


@pytest.mark.parametrize(
    ("log", "framework"),
    [
        ("TensorFlow installation not found - running with reduced feature set.\n%s/torch/nn/modules/conv.py", "torch"),
        ("import torch\n%s/tensorflow/python/eager/execute.py", "tensorflow"),
        ("2 of torch\n%s/jaxlib/xla_client.py", "jax"),
    ],
)
def test_libraries_are_installed_for_the_framework_that_the_program_ended_in(log: str, framework: str) -> None:
    every = host({"worker:0": vitals(packages={"torch": "2", "tensorflow": "2", "jax": "1"}, **PYTHON)})
    lacks = "ImportError: libcudnn.so.9: cannot open shared object file"
    text = f"{log % '/opt/venv/lib/python3.11/site-packages'}\n{FRAMES}{lacks}\n"
    installs = {"torch": "install --force-reinstall torch", "tensorflow": "tensorflow[and-cuda]", "jax": "jax[cuda12]"}
    found = first_hint(facts(ended("worker:0", text), hosts={"gpu-a": every}))
    assert [name for name, words in installs.items() if words in found] == [framework]


def test_hosts_that_share_a_full_disk_are_one_finding() -> None:
    full = {f"gpu-{n}": host(disks=[disk("/data", 0, GB)]) for n in range(3)}
    (only,) = findings(facts(*WORKERS[:3], hosts=full))
    assert only.seen.hosts == ("gpu-0", "gpu-1", "gpu-2")


def test_a_failed_run_advises_by_what_is_known_of_its_cause_alone() -> None:
    def advice(log: str) -> list[str]:
        task = ended("ps:0", log)
        cause = Verdict(Outcome.FAILED, (fact("task_failed", task="ps:0"),), task.id)
        return advice_lines(facts(task, verdict=cause).status)

    lacks, *remedies = advice(FRAMES + "ModuleNotFoundError: No module named 'sklearn'\n")
    assert lacks.endswith("lacks the module sklearn")
    assert remedies[0].startswith("echo scikit-learn >> requirements.txt")
    assert remedies[1].startswith("environment: {requirements: requirements.txt}    in cluster.yaml")
    assert advice("late\n") == []
    assert advice("it was late\n")[0].startswith("the program exited by itself")


def test_the_task_that_the_run_failed_of_comes_first() -> None:
    tasks = [ended("ps:0", LOGS["server"]), ended("worker:0", LOGS["argparse"], code=2)]
    for first, expected in ((0, "port_taken"), (1, "flag_wrong")):
        cause = Verdict(Outcome.FAILED, (fact("task_failed", task=str(tasks[first].id)),), tasks[first].id)
        assert names(facts(*tasks, verdict=cause))[0] == expected


def test_tasks_that_ended_alike_are_one_finding() -> None:
    found = facts(*(ended(f"worker:{n}", LOGS["argparse"], f"gpu-{n}", code=2) for n in range(3)))
    (only,) = findings(found)
    assert paragraph(only)[0].startswith("worker:[0-2] on gpu-[0-2] exited 2 at ")


MEMORY = tuple(past_attempt(n, 900.0 + n, 901.0 + n, 1, None, asked=False, cause="MemoryError") for n in (1, 2, 3))
REPEATED = running("worker:0", attempt=4, history=MEMORY, since=990.0)


def now_and_past(found: Facts) -> tuple[list[str], list[str]]:
    """What is wrong now, as `status` shows it, and what was overcome, which only `diagnose` shows."""
    now = [one.signature.name for one in in_short(found.status)]
    return now, [one.signature.name for one in findings(found) if one.seen.over]


@pytest.mark.parametrize("cause", ["MemoryError", "OSError: [Errno 28] No space left on device", "CUDA out of memory."])
@pytest.mark.parametrize("state", [TaskState.RUNNING, TaskState.STARTING, TaskState.PENDING])
def test_a_restart_loop_is_reported_while_the_task_runs(cause: str, state: TaskState) -> None:
    found = facts(changed(after_losses(cause), state=state))
    row = {"M": "host_memory", "O": "disk_full", "C": "gpu_memory"}[cause[0]]
    assert now_and_past(found) == ([row], [])
    assert f", 3 times in a row: {cause}" in first_hint(found)


@pytest.mark.parametrize(
    ("fields", "over"),
    [
        ({}, False),
        ({"step": 1}, True),
        ({"step": 50, "history": tuple(changed_attempt(one, step=100) for one in MEMORY)}, False),
        ({"step": 101, "history": tuple(changed_attempt(one, step=100) for one in MEMORY)}, True),
        ({"since": 939.0}, True),
        ({"since": 941.0}, False),
        ({"since": 800.0, "history": tuple(changed_attempt(one, started=700.0) for one in MEMORY)}, False),
        ({"since": 500.0, "history": tuple(changed_attempt(one, started=700.0) for one in MEMORY)}, True),
        ({"since": 800.0, "state": TaskState.STARTING}, False),
        ({"history": (changed_attempt(MEMORY[0], cause=""),)}, True),
        ({"history": (changed_attempt(MEMORY[0], cause="", code=None, signal=9, short_of_memory=True),)}, False),
    ],
)
def test_a_loss_is_over_when_the_task_gets_further_or_runs_longer(fields: dict[str, Any], over: bool) -> None:
    (only,) = findings(facts(changed(REPEATED, **fields)))
    assert only.seen.over is over
    assert (only.signature.level is Level.NOTE) is over


def test_the_last_lines_of_an_unrecognised_loss_are_shown_while_the_task_runs() -> None:
    task = restarted(cause="ValueError: bad")
    log = "\n".join(f"line {n}" for n in range(20)) + "\nValueError: bad\n"
    (only,) = findings(facts(task, hosts={"gpu-a": host({"worker:0": vitals(lost_log=log)})}))
    assert "the error is the program's own; last lines of worker:0:" in paragraph(only)
    assert [line.strip() for line in last_lines(only)] == [*(f"line {n}" for n in range(11, 20)), "ValueError: bad"]
    assert not any("line 11" in line for line in paragraph(only, most_lines=3))
    assert "the error is the program's own" in paragraph(only, shown=True), "which announces no lines, as none follow"
    assert "the error is the program's own" in paragraph(findings(facts(task))[0])


def test_a_run_that_failed_of_a_hang_advises_what_shows_where_it_was() -> None:
    assert (
        "dtctl logs worker:0 -n 60"
        in advice_lines(facts(changed(HANGS, state=TaskState.FAILED, why=HUNG_IN), verdict=FAILED).status)[1]
    )


def test_a_loop_of_hangs_names_the_frame_in_which_the_task_hung() -> None:
    seen = (fact("stalled", seconds=300.0), fact("hung_in", text="recv (multihost.py:41)"))
    past = past_attempt(1, 900.0, 989.0, None, 6, asked=False, hung=seen)
    again = running("worker:0", attempt=2, history=(past, past), since=990.0)
    assert names(facts(again)) == ["hung_before"]
    assert "recv (multihost.py:41)" in first_hint(facts(again))


def restarted(*hung: Fact, code: int | None = 1, **fields: Any) -> TaskStatus:
    """worker:0 in its second attempt."""
    past = past_attempt(1, 900.0, 989.0, code, **{"hung": hung, **fields})
    return running("worker:0", attempt=2, history=(past,), since=990.0)


def after_losses(cause: str, task: TaskStatus = REPEATED) -> TaskStatus:
    """The same of which each attempt ended so."""
    return changed(task, history=tuple(changed_attempt(one, cause=cause) for one in MEMORY))


def killed_as(kind: str) -> Facts:
    task = ended("worker:0", "", **KILLED)
    return facts(changed(task, state=TaskState.BACKOFF, why=(fact(kind, seconds=61.0),)))


CONNECTION = FRAMES + ERRORS + f"UnavailableError: {REFUSED}\n"
OVERCOME = changed(REPEATED, step=1, step_time=999.0)
PEER_LOST = changed(after_losses("UnavailableError: Socket closed", OVERCOME), id=TaskId("worker", 1))
NO_ROOM = "OSError: [Errno 28] No space left on device"
TERMINATED = changed(
    running("worker:0"), state=TaskState.SUCCEEDED, code=0, tail="Batch 3: Invalid loss, terminating training\n"
)
SUCCEEDED = Verdict(Outcome.SUCCEEDED, (fact("lead_finished", task="worker:0"),))
UNINITIALIZED = "Waiting for model to be ready.  Ready_for_local_init_op:  Variables not initialized: global_step"
REFUSING = unreached("refused", "Connection refused")
YOUNG = says(running("worker:0"), STILL, for_s=10.0)
SERVES_NOBODY = {**REFUSING, "gpu-b": host({"ps:0": vitals(listens=False)})}
NAMED: dict[str, tuple[Facts, list[str]]] = {
    "a program that trains, and listens on no port": (
        facts(running("worker:0", step=5), running("ps:0", "gpu-b", step=5), hosts=SERVES_NOBODY),
        [],
    ),
    "a port that nobody reaches on a host that does not answer": (
        facts(running("worker:0"), PS, hosts={"gpu-a": unreached("timeout", "Connection timed out")["gpu-a"]}),
        [],
    ),
    "a lost connection beside its cause": (
        facts(ended("worker:0", CONNECTION), ended("ps:0", FRAMES + "MemoryError\n", "gpu-b")),
        ["host_memory"],
    ),
    "a lost connection alone": (facts(ended("worker:0", CONNECTION), PS), ["peer_lost"]),
    "an overcome loss beside a present one": (
        facts(OVERCOME, ended("ps:0", CONNECTION, "gpu-b")),
        ["peer_lost", "host_memory"],
    ),
    "an overcome loss and a full disk": (
        facts(after_losses(NO_ROOM, OVERCOME), hosts={"gpu-a": FULL}),
        ["disk_is_full", "disk_full"],
    ),
    "an overcome loss of a connection beside its cause": (facts(OVERCOME, PEER_LOST), ["host_memory"]),
    "an overcome loss of a connection alone": (facts(PEER_LOST), ["peer_lost"]),
    "an overcome loss in a run that has failed": (decided(facts(OVERCOME)), []),
    "killed by dtctl as stalled": (killed_as("stalled"), ["stalled"]),
    "killed by dtctl as frozen": (killed_as("frozen"), ["frozen"]),
    "asked to end": (facts(restarted(code=None, signal=9, asked=True)), []),
    "failed, and the run was stopped": (
        facts(ended("worker:0", LOGS["argparse"]), verdict=Verdict(Outcome.STOPPED, (fact("stopped"),))),
        [],
    ),
    "failed before its peers were ready": (facts(restarted(cause="ConnectionRefusedError: x", early=True)), []),
    "failed later": (facts(restarted(cause="ConnectionRefusedError: x")), ["ended"]),
    "healthy": (facts(*WORKERS, machines={f"gpu-{n}": machine() for n in range(4)}), []),
    "busy everywhere": (facts(*WORKERS, machines={f"gpu-{n}": machine(waiting={"cpu": 0.9}) for n in range(4)}), []),
    "one that serves nobody": (  # is ready as soon as it runs, and not behind a firewall
        facts(running("worker:0"), PS, hosts={**REFUSING, "gpu-b": host({"ps:0": vitals(listens=False)})}),
        [],
    ),
    "Keras has stopped at NaN": (facts(TERMINATED, verdict=SUCCEEDED), ["diverged"]),
    "it says something else than that it waits": (facts(changed(WAITS, progress=1030.0), PS), []),
    "a young start that is waited for": (facts(YOUNG, changed(PS, ready=False)), []),
    "a young start that listens": (facts(YOUNG, PS), []),
    "nobody begins, and its cause": (facts(*SILENT, dataclasses.replace(FROZEN, id=TaskId("ps", 1))), ["frozen"]),
    "a minute for the lead to initialize": (facts(running("chief:0"), says(running("worker:0"), UNINITIALIZED)), []),
}


@pytest.mark.parametrize("case", NAMED)
def test_facts_give_the_expected_findings_or_none(case: str) -> None:
    found, expected = NAMED[case]
    assert names(found) == expected


def test_a_loss_that_was_overcome_is_reported_by_diagnose_alone() -> None:
    found = facts(OVERCOME)
    assert now_and_past(found) == ([], ["host_memory"])
    assert ", 3 times in a row (restarted at " in first_hint(found)
    once = restarted(fact("hung"), code=None, signal=9)
    assert now_and_past(facts(once)) == ([], ["hung_before"])


def test_after_a_minute_workers_wait_for_the_lead_to_initialize() -> None:
    tasks = [running("chief:0"), says(running("worker:0"), UNINITIALIZED, for_s=90.0)]
    (found,) = findings(facts(*tasks))
    assert (found.signature.name, found.seen.tasks) == ("waits", (TaskId("chief", 0),))


def test_a_loop_of_hangs_is_reported_until_the_task_has_trained_for_long() -> None:
    assert now_and_past(facts(HUNG_TWICE)) == (["hung_before"], [])
    assert now_and_past(facts(changed(HUNG_TWICE, step=5))) == (["hung_before"], [])
    old = tuple(changed_attempt(one, ended=one["ended"] - 2000.0) for one in HUNG_TWICE.entry["history"])
    assert now_and_past(facts(changed(HUNG_TWICE, step=5, history=old))) == ([], ["hung_before"])
    assert names(decided(facts(HUNG_TWICE))) == []


def test_hangs_for_which_the_whole_run_was_restarted_are_counted_too() -> None:
    why = [fact("never_began", seconds=600.0)]
    hang = checked(Incident, {**incident("worker:0", why=why), "noticed": 950.0, "recovered": None})
    found = with_incidents(facts(running("worker:0", since=960.0)), hang, {**hang, "noticed": 955.0})
    assert now_and_past(found) == (["hung_before"], [])
    assert "hung 2 times, last at " in first_hint(found)
    assert "no task has reported a step since the start" in first_hint(found)


RESET = "ConnectionResetError: [Errno 104] Connection reset by peer"


def killed_ps(cause_at: float = 988.9, **fields: Any) -> Facts:
    """A ps was killed, and runs again; workers that lost their connection by that have started again, too."""
    workers = [restarted_once(f"worker:{n}", f"gpu-{n}", 989.0, code=1, cause=RESET, **fields) for n in range(2)]
    return facts(*workers, restarted_once("ps:0", "gpu-b", cause_at, code=None, signal=9))


def restarted_once(task: str, host: str, at: float, *, step: int | None = None, **how: Any) -> TaskStatus:
    return running(task, host, attempt=2, since=990.0, step=step, history=(past_attempt(1, 900.0, at, **how),))


def test_a_killed_ps_leads_and_not_those_that_lost_their_connection_by_it() -> None:
    for at in (988.9, 989.3, 970.0):
        assert now_and_past(killed_ps(at)) == (["killed"], [])
        assert first_hint(killed_ps(at)).startswith("ps:0 on gpu-b was killed by SIGKILL at ")
    assert now_and_past(killed_ps(900.0))[0] == ["peer_lost"], "which was long before"
    assert now_and_past(killed_ps(step=5)) == ([], ["killed"]), "which the workers have overcome"


def test_a_killed_ps_leads_where_its_workers_live_and_complain() -> None:
    """As TensorFlow's asynchronous workers do: they wait for the ps in their sessions."""
    lost = "Cleanup partition error: UNAVAILABLE: sendmsg: Broken pipe (32)"

    def killed(seconds_ago: float) -> Facts:
        ps = restarted_once("ps:0", "gpu-b", NOW - seconds_ago, code=None, signal=9)
        workers = [says(running(f"worker:{n}", f"gpu-{n}", step=9), lost, for_s=3.0) for n in range(2)]
        return facts(*workers, ps)

    assert now_and_past(killed(3.2)) == (["killed"], [])
    assert first_hint(killed(20.0)).startswith("ps:0 on gpu-b was killed by SIGKILL at ")
    assert now_and_past(killed(90.0))[0] == ["peer_lost", "peer_lost"], "which was long before"


def test_what_the_run_failed_of_is_reported_though_it_had_been_restarted() -> None:
    worker = ended("worker:0", FRAMES + RESET + "\n")
    ps = restarted_once("ps:0", "gpu-b", 959.9, code=None, signal=9)
    for state in (TaskState.STOPPED, TaskState.RUNNING):
        why = (fact("task_failed", task="ps:0"), fact("killed", signal=9))
        verdict = Verdict(Outcome.FAILED, why, TaskId("ps", 0))
        found = facts(worker, changed(ps, state=state), verdict=verdict)
        assert [(one.signature.name, one.first) for one in findings(found)] == [("killed", True)]
        assert advice_lines(found.status)[0].startswith("a user killed it")


def test_diagnose_does_not_propose_to_diagnose() -> None:
    for one in (findings(facts(ended("worker:0", CONNECTION), PS))[0], findings(facts(WAITS, PS))[0]):
        assert not any(line.startswith("dtctl diagnose") for line in paragraph(one, typed="diagnose"))
        assert paragraph(one, typed="diagnose")[-1].startswith("dtctl ")
    assert paragraph(findings(facts(ended("worker:0", CONNECTION), PS))[0])[2].startswith("dtctl diagnose")


def test_a_thousand_tasks_that_all_wait_are_reported_at_once() -> None:
    tasks = [running("ps:0", "gpu-b"), *(says(running(f"worker:{n}", f"gpu-{n}"), STILL) for n in range(1000))]
    (found,) = findings(facts(*tasks))
    assert len(found.seen.waiting) == 1000
    assert paragraph(found)[0].startswith("worker:[0-999] have waited 40s for ps:0 on gpu-b:2222")


@pytest.mark.parametrize(
    "text",
    [
        STILL,
        "UNAVAILABLE: ipv4:10.0.0.9:2223: Failed to connect to remote host: Connection refused",
        "last error: Unavailable: connect to gpu-b:2223 failed: Socket closed",
    ],
)
def test_whom_a_line_is_about_is_known_by_device_or_address(text: str) -> None:
    (found,) = findings(facts(says(running("worker:0"), text), PS))
    assert found.seen.tasks == (TaskId("ps", 0),)


def test_end_is_that_of_the_failed_attempt_if_a_later_one_was_stopped() -> None:
    lost = past_attempt(1, 900.0, 950.0, 1, asked=False, cause="ValueError: no data")
    stopped = past_attempt(2, 951.0, 960.0, None, 15, asked=True)
    task = changed(ended("worker:0", "ValueError: no data\n"), attempt=2, history=[lost, stopped])
    assert facts(task).end_of(task) is None, "it was stopped"
    failed = changed(task, failed_attempt=1)
    end = facts(failed).end_of(failed)
    assert end is not None
    assert (end.code, end.at, end.cause, end.log) == (1, 950.0, "ValueError: no data", "ValueError: no data\n")


def test_up_is_proposed_only_once_the_run_has_ended() -> None:
    """A run that goes on restarts its tasks by itself."""
    going_on = facts(ended("worker:0", LOGS["disk_full"], code=1), hosts={"gpu-a": FULL})
    assert "dtctl up    continues" not in first_hint(going_on)
    assert "dtctl up    continues from the newest checkpoint" in first_hint(decided(going_on))
