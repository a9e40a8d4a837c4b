"""`dtctl checkpoints` and `up` of a run that saves as TensorFlow does; no command writes through a project's link."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.desk import Desk, cluster_text
from tests.waiting import eventually

DATA = Path(__file__).parents[1] / "agent/data/checkpoints/tf1_plain"

TRAINER = """\
import os, pathlib, shutil, sys, time

data, place = pathlib.Path("DATA"), pathlib.Path(sys.argv[1])
name = "model.ckpt-200"
if os.environ["DTCTL_TASK"] == "worker:0":
    place.mkdir(parents=True, exist_ok=True)
    if (place / (name + ".index")).exists():
        content = (place / (name + ".data-00000-of-00001")).read_bytes()
        if content != (data / (name + ".data-00000-of-00001")).read_bytes():
            sys.exit("tensorflow.python.framework.errors_impl.DataLossError: Checksum does not match: stored 1")
    else:
        for file in sorted(data.iterdir()):
            shutil.copy(file, place / file.name)
        (place / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\\n')
    print("trains", flush=True)
time.sleep(1000)
"""

CLUSTER = cluster_text(
    jobs='{worker: {hosts: "node-[1-2]"}}',
    strategy="mirrored",
    trainer="command: [python, train.py, OUT], dialect: none",
    recovery="{backoff: 100ms..200ms}",
    grace="100ms",
)


def write(home: Desk, out: str, more: str = "") -> None:
    (home.project / "train.py").write_text(TRAINER.replace("DATA", str(DATA)))
    home.write_cluster(CLUSTER.replace("OUT", out) + more)


def trains(home: Desk) -> None:
    eventually(lambda: "trains" in home.dtctl("logs", "worker:0"), 60, "a trainer")


def test_checkpoints_from_the_first_to_the_damaged_one(home: Desk) -> None:
    write(home, "first")
    home.dtctl("up", "--local", "-q")
    trains(home)
    [document] = json.loads(home.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    assert (document["host"], document["others"]) == ("node-1", [])
    assert [one["prefix"] for one in document["all"]] == ["first/model.ckpt-200", "first/model.ckpt-100"]
    assert home.dtctl("checkpoints", "verify", "200").count(": sound, 120 B") == 1
    home.dtctl("checkpoints", "pull", "100", "here")
    assert {path.name for path in (home.project / "here").iterdir()} == {
        "checkpoint",
        "model.ckpt-100.data-00000-of-00001",
        "model.ckpt-100.index",
    }
    refused = home.run("checkpoints", "prune", "--keep", "1", "-y")
    assert (refused.returncode, "is not named in the cluster file" in refused.stderr) == (1, True)
    home.dtctl("stop")

    write(home, "second")
    begun = home.run("up", "--local", "-q")
    assert "warning: this run begins at step 0" in begun.stderr
    assert "first/model.ckpt-200 on node-1, and this run does not use that directory" in begun.stderr
    home.dtctl("stop")

    write(home, "'{{output_dir}}'", "dirs: {{output: third}}\n")
    begun = home.run("up", "--local", "-q")
    assert "this run begins at step 0" in begun.stderr
    trains(home)
    assert "1 removed" in home.dtctl("checkpoints", "prune", "--keep", "1", "-y")
    output = home.home / "dtctl/demo/third"
    assert sorted(path.name for path in output.glob("*.index")) == ["model.ckpt-200.index"]

    shard = output / "model.ckpt-200.data-00000-of-00001"
    shard.write_bytes(b"x" + shard.read_bytes()[1:])
    assert "does not match its checksum" in home.dtctl("checkpoints", "verify", code=1)
    assert home.run("checkpoints", "pull", "there").returncode == 1
    assert not (home.project / "there").exists() or not list((home.project / "there").iterdir())
    home.dtctl("stop")
    home.run("up", "--local", "-q")
    ended = home.run("wait")
    assert ended.returncode == 1
    assert "third/model.ckpt-200 is damaged" in ended.stderr
    assert "recovery.allow_scratch: true" in ended.stderr


def test_every_action_on_checkpoints_works_before_the_first_run(home: Desk) -> None:
    hosts = "hosts:\n  node-1: {transport: local}\n  node-2: {transport: local}\n"
    home.write_cluster(CLUSTER.replace("OUT", "out") + "dirs: {{output: saved}}\n", hosts=hosts)
    empty = home.run("checkpoints")
    assert (empty.returncode, "no checkpoint directory" in empty.stderr) == (0, False), empty.stderr
    assert f"{home.home}/dtctl/{home.name}/saved" in empty.stdout
    shutil.copytree(DATA, home.home / "dtctl" / home.name / "saved")
    document = json.loads(home.dtctl("checkpoints", "-o", "json"))
    assert document["run"] is None
    [place] = document["checkpoints"]
    assert (place["host"], place["others"]) == ("node-1", ["node-2"])
    assert [one["prefix"] for one in place["all"]] == ["model.ckpt-200", "model.ckpt-100"]
    assert home.dtctl("checkpoints", "verify", "200").count(": sound, 120 B") == 1
    home.dtctl("checkpoints", "pull", "100", "here")
    assert (home.project / "here" / "model.ckpt-100.index").exists()
    assert "1 would be removed" in home.dtctl("checkpoints", "prune", "--keep", "1", "--dry-run")
    assert "1 removed" in home.dtctl("checkpoints", "prune", "--keep", "1", "-y")
    output = home.home / "dtctl" / home.name / "saved"
    assert sorted(path.name for path in output.glob("*.index")) == ["model.ckpt-200.index"]
    home.write_cluster(CLUSTER.replace("OUT", "out"), hosts=hosts)
    assert "no checkpoint directory: set dirs.output" in home.run("checkpoints").stderr


def test_the_next_run_finds_a_checkpoint_pushed_from_this_machine(home: Desk) -> None:
    write(home, "'{{output_dir}}'", "dirs: {{output: third}}\n")
    output = home.home / "dtctl/demo/third"
    pushed = json.loads(home.dtctl("checkpoints", "push", f"{DATA}/model.ckpt-100", "--local", "-o", "json"))
    assert [(one["host"], one["directory"], one["prefix"]) for one in pushed["placed"]] == [
        ("node-1", str(output), "model.ckpt-100")
    ]
    assert (output / "checkpoint").read_text().startswith('model_checkpoint_path: "model.ckpt-100"')
    begun = home.run("up", "--local", "-q")
    assert "found a checkpoint of an earlier run" in begun.stderr
    assert "model.ckpt-100 on node-1" in begun.stderr
    trains(home)

    live = home.run("checkpoints", "push", str(DATA), "--local")
    assert (live.returncode, "is live" in live.stderr, "dtctl stop" in live.stderr) == (5, True, True)
    home.dtctl("stop")
    before = {path.name: path.read_bytes() for path in output.iterdir()}
    (home.project / "other").mkdir()
    for path in DATA.glob("model.ckpt-100.*"):  # the same name, saved by another training
        (home.project / "other" / path.name.replace("100", "200")).write_bytes(path.read_bytes())
    other = home.run("checkpoints", "push", "other", "--local")
    assert (other.returncode, f"another checkpoint is called model.ckpt-200 in {output}" in other.stderr) == (5, True)
    assert {path.name: path.read_bytes() for path in output.iterdir()} == before
    assert "it was all there already" in home.dtctl("checkpoints", "push", str(DATA / "model.ckpt-200"), "--local")


KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA mine\n"


def planted(home: Desk, run: str) -> Path:
    """The directory of all targets of links."""
    victim = home.home / ".ssh"
    victim.mkdir(mode=0o700)
    (victim / "authorized_keys").write_text(KEY)
    project = home.project
    (project / "fresh").mkdir()
    for name in (f"{run}.html", f"{run}.md", "page.html"):
        (project / name).symlink_to(victim / "authorized_keys")
    for name in ("dangling.html", "fresh/train.py", "fresh/cluster.yaml", "dangling"):
        (project / name).symlink_to(victim / "authorized_keys2")
    for name in ("keys", "fresh/keys"):
        (project / name).symlink_to(victim)
    (project / "there").mkdir()
    (project / "there" / ".model.ckpt-100.part").symlink_to(victim)
    return victim


def test_no_command_writes_through_a_link_of_a_cloned_project(home: Desk) -> None:
    write(home, "first")
    home.dtctl("up", "--local", "-q")
    trains(home)
    run = home.status()["run"]
    victim = planted(home, run)
    for command in (
        "report",
        "report --force",
        "report -O page.html --force",
        "report -O dangling.html --force",
        "report -O keys/new.html",
        f"report -O {home.project}/keys/new.html",
        "checkpoints pull 100 keys",
        "checkpoints pull 100 there",
        "checkpoints pull 100 dangling",
        "logs --save keys/logs",
        "init fresh",
        "init keys/new",
        "init --helper keys",
    ):
        done = home.run(*command.split())
        shown = f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode != 0, shown
        assert "Traceback" not in done.stderr, shown
        assert "link" in done.stderr or "already exists" in done.stderr, shown
        assert [path.name for path in victim.iterdir()] == ["authorized_keys"], shown
        assert (victim / "authorized_keys").read_text() == KEY, shown
    elsewhere = home.home / "elsewhere"
    elsewhere.mkdir()
    file = str(home.project / "cluster.yaml")
    for command in (f"report -O {home.project}/keys/new.html", f"checkpoints pull 100 {home.project}/keys"):
        done = home.run(*command.split(), "-c", file, cwd=elsewhere)
        assert (done.returncode != 0, "which is not followed" in done.stderr) == (True, True), done.stderr
    assert [path.name for path in victim.iterdir()] == ["authorized_keys"]
