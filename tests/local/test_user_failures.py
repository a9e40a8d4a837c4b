"""What users cause, met by real programs: all commands recognise it, agree on it, and their first remedy fits.

Words of frameworks, which take long to install or need a GPU, are in tests/unit/ended_logs.txt.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from dtctl.render.failure import brief
from tests.desk import Desk, cluster_text
from tests.nights import at_night
from tests.waiting import eventually

PROGRAMS = Path(__file__).with_name("user_failures.py")

CAUSED: dict[str, tuple[str, str]] = {
    "port_of_another": ("port_taken", "dtctl gc"),
    "disk_without_room": ("disk_full", "dtctl "),
    "limit_of_memory": ("memory_limit", "dtctl exec @node-1 -- sh -c 'ulimit -a'"),
    "limit_of_threads": ("process_limit", "dtctl exec @node-1 -- sh -c 'ulimit -a'"),
    "limit_of_files": ("open_files", "dtctl exec @node-1 -- sh -c 'ulimit -n'"),
    "limit_of_time": ("cpu_limit", "remove `ulimit -t`"),
    "limit_of_size": ("file_limit", "remove `ulimit -f`"),
    "missing_file": ("file_missing", "dtctl exec -- ls -ld data/train.csv"),
    "missing_directory": ("file_missing", "dtctl exec -- ls -ld /nowhere/mnist"),
    "missing_module": ("module_missing", "echo sklearn_that_nobody_has >> requirements.txt"),
    "removed_module": ("standard_module_missing", "trainer.python in cluster.yaml: a Python older than 3.10"),
    "newer_python": ("syntax_unknown", "dtctl exec @node-1 -- "),
    "wrong_flag": ("flag_wrong", "dtctl plan worker:"),
    "flags_not_taken": ("dialect_not_taken", "trainer.dialect: tf_config"),
    "no_permission": ("permission_denied", "dtctl exec @node-1 -- ls -ld /etc/shadow-of-nobody"),
    "cut_file": ("bus_error", "dtctl exec @node-1 -- df -h"),
    "crash": ("crashed", "dtctl logs worker:"),
    "killed": ("killed", "dtctl exec @node-1 -- free -h"),
    "unresolved_name": ("name_unresolved_in_log", ""),
    "own_message": ("ended_itself", "search its source"),
    "not_a_number": ("diverged", "dtctl metrics --plot loss"),
    "expired_token": ("storage_denied", "renew the credentials of node-1"),
    "pip_without_index": ("no_index", "pip download"),
    "torch_without_cudnn": ("cuda_library_missing", "dtctl exec @node-1 -- "),
    "cuda_out_of_memory": ("gpu_memory", "dtctl exec @node-1 -- nvidia-smi"),
    "tf_contrib": ("tensorflow_1_program", ""),
    "tf_app": ("tensorflow_1_program", ""),
    "keras_3": ("keras_3", ""),
    "missing_argument": ("flag_wrong", "dtctl plan worker:"),
    "other_model": ("checkpoint_of_another_model", ""),
    "exit_code_3": ("ended", "dtctl logs worker:"),
}
"""Program -> the problem that it meets, and with what the first remedy begins."""

NAMES = ["trains_on", *CAUSED, "no_peer"]

CLUSTER = cluster_text(
    jobs=f"{{worker: {{hosts: [node-1], tasks_per_host: {len(NAMES)}}}}}",
    trainer="command: [python, user_failures.py], dialect: none",
    recovery="{max_restarts: 0, permanent: [1, 3, 135, 137, 139, 152, 153]}",
    fail_fast="false",
    success="lead",
    grace="100ms",
)


def failed(home: Desk) -> bool:
    return sum(state == "failed" for state in home.states().values()) == len(NAMES) - 1


def problems(home: Desk, command: str) -> dict[str, dict[str, Any]]:
    """By the name of the program."""
    found = json.loads(home.dtctl(command, "-o", "json"))["problems"]
    return {NAMES[int(task.partition(":")[2])]: one for one in found for task in one["tasks"]}


def test_failures_that_users_cause_are_recognised_and_their_first_remedy_fits(home: Desk) -> None:
    shutil.copy(PROGRAMS, home.project)
    (home.project / "names").write_text("\n".join(NAMES))
    home.write_cluster(CLUSTER)
    home.dtctl("up", "--local")
    (home.home / ".dtctl/work/demo/tree/go").touch()
    eventually(lambda: failed(home), what="the ends of all programs")
    for command in ("status", "diagnose"):
        found = problems(home, command)
        said = {name: (one["signature"], one["remedies"][0]) for name, one in found.items() if name in CAUSED}
        assert {name: signature for name, (signature, _) in said.items()} == {
            name: signature for name, (signature, _) in CAUSED.items()
        }
        assert [name for name, (_, first) in said.items() if not first.startswith(CAUSED[name][1])] == []
        assert not any(line.startswith("dtctl diagnose") for one in found.values() for line in one["remedies"]) or (
            command == "status"
        )
        assert "no_peer" not in found, "which follows from the others"


ALONE = cluster_text(
    jobs="{worker: {hosts: [node-1]}}",
    trainer="command: COMMAND, dialect: none",
    recovery="{max_restarts: 0, permanent: [1, 3, 135, 137, 139, 152, 153]}",
    grace="100ms",
)
COMMANDS = {
    "program_missing": ("[no_such_program_of_dtctl]", "cannot_run"),
    "lost_in_a_pipe": ("[bash, -c, 'python3 -c \"raise ValueError(1)\" 2>&1 | tee out.txt']", "ended"),
}
"""Failures of a command, and the problem that it meets."""


def joined(text: str) -> str:
    """Without the line breaks of a narrow terminal."""
    return " ".join(text.split())


BY_DAY = [*[*CAUSED][::4], *COMMANDS]
"""The test of all failures in one run has each of them every day, in `status` and `diagnose`."""


@pytest.mark.parametrize("name", at_night([*CAUSED, *COMMANDS], but=BY_DAY))
def test_every_command_agrees_on_a_failure_that_users_cause(home: Desk, name: str) -> None:
    """The same word for the state, the same cause, and the same first remedy in all that a user may type."""
    shutil.copy(PROGRAMS, home.project)
    command, signature = COMMANDS.get(name, (f"[python, user_failures.py, {name}]", CAUSED.get(name, ("",))[0]))
    home.write_cluster(ALONE.replace("COMMAND", command))
    up = home.run("up", "--local")
    waited = home.run("wait")
    status, diagnosis = (json.loads(home.dtctl(one, "-o", "json")) for one in ("status", "diagnose"))
    [run] = json.loads(home.dtctl("runs", "-o", "json"))["runs"]
    condition = status["conditions"][0]
    shows = [waited.stderr]
    if up.returncode == 0:  # it ran for longer than `up` watches a program without a port
        assert f"run {run['run']} started: 1 task on node-1" in joined(up.stderr)
    else:
        assert "failed to start: worker:0 on node-1: " in joined(up.stderr)
        assert joined(condition["message"].partition(": ")[2]) in joined(up.stderr)
        shows.append(up.stderr)
    assert waited.returncode == 1
    assert (condition["type"], run["result"]) == ("Failed", "Failed")
    assert run["reason"] == condition["message"]
    assert f": Failed, {joined(brief(condition['why']))}" in joined(waited.stderr)
    causes = [one["text"] for one in condition["why"] if one["kind"] == "cause"]
    assert all(joined(cause.partition(": ")[2] or cause) in joined(waited.stderr) for cause in causes)
    first, same = status["problems"][0], diagnosis["problems"][0]
    assert (first["signature"], same["signature"]) == (signature, signature)
    assert first["tasks"] == same["tasks"] == ["worker:0"]
    if signature == "ended":
        return  # nothing is known but the end of its log, which is shown
    asks_more = first["remedies"][0].startswith("dtctl diagnose")
    assert first["remedies"][0] in same["remedies"] or asks_more, "hosts that are asked may know of a better one"
    for shown in shows:
        assert joined(first["remedies"][0]) in joined(shown)


OF_PS = "ps:0 on node-2 was killed by SIGKILL at "
REMEDY = "dtctl exec @node-2 -- free -h"


def of_two(recovery: str) -> str:
    return cluster_text(
        jobs='{ps: {hosts: [node-2]}, worker: {hosts: "node-[1-2]"}}',
        trainer="command: [python, connected.py], dialect: flags",
        recovery=recovery,
        grace="100ms",
    )


def kill_ps(home: Desk) -> None:
    """Once both workers train."""
    eventually(lambda: all(home.task(f"worker:{n}")["step"] for n in range(2)), what="the first steps")
    os.kill(home.task("ps:0")["pid"], signal.SIGKILL)


def test_a_killed_ps_leads_in_every_command(home: Desk) -> None:
    """The workers lose their connection by that at once, and one of them is on the coordinator's own host."""
    shutil.copy(PROGRAMS.with_name("connected.py"), home.project)
    home.write_cluster(of_two("{max_restarts: 3, backoff: 2s..3s}"))
    home.dtctl("up", "--local")
    kill_ps(home)
    eventually(lambda: len(home.status()["incidents"]) > 1, what="the losses")
    assert home.status()["incidents"][0]["task"] == "ps:0"
    for command in ("status", "diagnose"):
        first = json.loads(home.dtctl(command, "-o", "json"))["problems"][0]
        assert (first["signature"], first["tasks"], first["remedies"][0]) == ("killed", ["ps:0"], REMEDY)
    assert f"problem: {OF_PS}" in home.dtctl("status")
    ends = [line for line in home.dtctl("events").splitlines() if " attempt 1 " in line and " ran " in line]
    assert "ps:0 attempt 1 on node-2 ran " in ends[0]
    home.write_cluster(of_two("{max_restarts: 0}"))
    home.dtctl("up", "--local", "--replace")
    kill_ps(home)
    waited = home.run("wait")
    assert "Failed, ps:0 failed: killed by SIGKILL" in waited.stderr + waited.stdout
    assert REMEDY in waited.stderr + waited.stdout
    assert re.search(": Failed after \\d+s \u00b7 ps:0 failed: killed by SIGKILL", home.dtctl("status", code=None))
    assert home.dtctl("diagnose", code=None).startswith(OF_PS)
