"""`dtctl logs` of real runs: searches, errors, JSON, files, and output that attacks a terminal."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.desk import Desk, cluster_text
from tests.unit.agent.poisons import left_in
from tests.waiting import read_until

TRAINER = """\
import os, sys
for step in range(1, 21):
    print("step", step, "loss", 1 / step, flush=True)
if os.environ["DTCTL_ATTEMPT"] == "1":
    raise OSError("the data is away")
"""
CLUSTER = cluster_text(jobs='{worker: {hosts: "node-[1-2]"}}', recovery="{mode: task, backoff: 100ms}", grace="100ms")
ERROR = "OSError: the data is away"


def test_output_of_a_run_is_found_and_saved(home: Desk) -> None:
    home.write_cluster(CLUSTER)
    (home.project / "stand_in.py").write_text(TRAINER)
    done = home.run("up", "--local", "-f", timeout_s=120)
    assert done.returncode == 0, done.stderr

    errors = home.dtctl("logs", "--errors").splitlines()
    assert sorted(line for line in errors if ERROR in line) == [f"worker:0 | {ERROR}", f"worker:1 | {ERROR}"]
    assert not [line for line in errors if "step" in line]
    none = home.run("logs", "--errors", "-n", "1", "--since", "0s")
    assert (none.stdout, "no line of these logs looks like an error" in none.stderr) == ("", True)
    found = home.dtctl("logs", "worker:1", "-g", "step 1[0-1] ", "-C", "1").splitlines()
    assert [line.split()[1] for line in found] == ["9", "10", "11", "12"]

    lines = [json.loads(line) for line in home.dtctl("logs", "-a", "-n", "all", "-o", "jsonl").splitlines()]
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    assert {(line["task"], line["attempt"]) for line in lines} == {(f"worker:{n}", at) for n in (0, 1) for at in (1, 2)}
    assert home.dtctl("logs", "--until", "1h") == ""

    saved = home.dtctl("logs", "--save", "saved").splitlines()
    assert saved == [f"saved/worker-{n}.attempt-{at}.log" for n in (0, 1) for at in (1, 2)]
    assert (home.project / saved[0]).read_text().endswith(f"{ERROR}\n")
    refused = home.run("logs", "--save", "saved")
    assert (refused.returncode, "saved is not empty" in refused.stderr) == (2, True)


ENDLESS = """\
import os, time
while True:
    print("of", os.environ["DTCTL_RUN"], flush=True)
    time.sleep(0.1)
"""


@pytest.mark.nightly
def test_logs_follow_a_replacing_run_until_the_last_one_ends(home: Desk) -> None:
    home.write_cluster(CLUSTER)
    (home.project / "stand_in.py").write_text(ENDLESS)
    home.dtctl("up", "--local", "-q")
    with home.start("logs", "-f", "worker:1") as following, home.start("logs", "-f", "-o", "jsonl") as objects:
        old = read_until(following.stdout, r"of \S+\n")[-1].split()[-1]
        read_until(objects.stdout, f'"text": "of {old}"')
        home.dtctl("up", "--local", "-q", "--replace", "--set", "grace=200ms")
        new = home.status()["run"]
        assert f"{old} was replaced by {new}: its logs follow\n" in "".join(read_until(following.stdout, f"of {new}\n"))
        output = "".join(read_until(objects.stdout, f'"text": "of {new}"'))
        assert f"{old} was replaced by {new}: its logs follow" in output
        home.dtctl("stop")
        assert f"run {new}: Stopped" in following.communicate()[0]
        objects.communicate()
        assert (following.returncode, objects.returncode) == (1, 1)


HOSTILE_LOG = (
    b"\x1b[32mgreen\x1b[0m\n"
    b"\x1b]0;pwned\x07\x1b[2J\x1bc\n"
    b"\x1b]52;c;cm0gLXJm\x07\n"
    b"\xc2\x9b2J \x9b2J \xe2\x80\xae\n"
    b"the end\n"
)
HOSTILE_TRAINER = f"import sys\nsys.stdout.buffer.write({HOSTILE_LOG!r})\nsys.exit(3)\n"
ONE_WORKER = cluster_text(jobs="{worker: {hosts: [node-1]}}", recovery="{max_restarts: 0}")


def test_log_cannot_control_the_terminal_and_raw_passes_its_bytes(home: Desk) -> None:
    home.write_cluster(ONE_WORKER)
    (home.project / "stand_in.py").write_text(HOSTILE_TRAINER)
    done = home.run("up", "--local", "-f", timeout_s=120)
    assert done.returncode == 1, done.stderr
    assert r"worker:0 | \x1b]0;pwned\x07\x1b[2J\x1bc" in done.stdout, done.stderr
    account = home.run("wait").stderr
    assert r"\x1b]52;c;cm0gLXJm\x07" in account
    for written in (done.stdout, done.stderr, account, home.dtctl("logs"), home.dtctl("--color", "always", "logs")):
        assert not left_in(written)
    assert "\x1b[32mgreen\x1b[0m\n" in home.dtctl("--color", "always", "logs")
    home.env["PYTHONIOENCODING"] = "ascii"
    assert r"\x9b2J \ufffd2J \u202e" in home.dtctl("logs")
    raw = subprocess.run(home.argv("logs", "--raw"), cwd=home.project, env=home.env, capture_output=True, check=True)
    assert raw.stdout == HOSTILE_LOG
