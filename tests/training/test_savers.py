"""Checkpoints as the real libraries write them: listed, verified, pulled, pushed, set aside if damaged, and continued
from, also after a kill in the middle of a save.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from dtctl.agent.checkpoints import reading
from dtctl.agent.checkpoints.repair import repair_directory
from tests.desk import Desk, desk
from tests.environments import environment
from tests.waiting import eventually

pytestmark = [pytest.mark.training, pytest.mark.timeout(900)]

PROGRAM = Path(__file__).with_name("savers.py")
NAMES = {
    "torch": "model_step_{}.pt",
    "safetensors": "model_step_{}.safetensors",
    "dcp": "step-{}",
    "accelerate": "step_{}",
    "lightning": "epoch=0-step={}.ckpt",
    "huggingface": "checkpoint-{}",
    "tensorflow": "ckpt-{}",
    "orbax": "{}",
    "mxnet": "net-{:04}.params",
    "deepspeed": "global_step{}",
}
ENVIRONMENTS = {"orbax": "jax", "mxnet": "mxnet-1.9", "deepspeed": "deepspeed"}
"""The environments of the libraries; TensorFlow and Keras are in that of the tests, the others in torch-libraries."""

NIGHTLY = [pytest.param(kind, marks=pytest.mark.nightly) for kind in NAMES]
REPAIRED = [one for one in NIGHTLY if one.values[0] not in ("safetensors", "mxnet", "orbax")]
"""What dtctl sets aside when it is damaged: not weights alone, nor what its library ignores itself."""

NAMED_LATER = ("tensorflow", "lightning", "deepspeed")
"""A kill before the file that names the newest one is written (`checkpoint`, `last.ckpt`, `latest`) loses that save."""

WIDE = 16_384
"""The width of a model whose saves take long enough to be killed."""

NO_STEP = ("mxnet",)
"""Their names count epochs."""

CLUSTER = """\
name: savers
hosts: {{node-1: {{transport: local}}}}
jobs: {{worker: {{hosts: [node-1]}}}}
trainer: {{command: [python, train.py], dialect: none}}
dirs: {{output: {output}}}
"""


@dataclass
class Server:
    """A process that has imported a library, and forks for each program."""

    process: subprocess.Popen[str]
    directory: Path
    count: int = 0

    def start(self, *words: object) -> tuple[int, Path]:
        """The process of a program, and the file of its output. `end` has to follow."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.count += 1
        output = self.directory / f"output-{self.count}"
        output.touch()
        self.process.stdin.write(json.dumps([[str(word) for word in words], str(output)]) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline()), output

    def end(self) -> int:
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


SERVERS: dict[str, Server] = {}


@pytest.fixture(scope="module", autouse=True)
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    for one in SERVERS.values():
        with one.process:  # closes its input, with which it ends
            pass
    SERVERS.clear()


def server(kind: str, directory: Path) -> Server:
    name = kind.partition("-")[0]
    if name not in SERVERS:
        own = name in ("keras", "tensorflow")
        python = sys.executable if own else str(environment(ENVIRONMENTS.get(name, "torch-libraries")))
        variables = {**os.environ, "OMP_NUM_THREADS": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "JAX_PLATFORMS": "cpu"}
        # DeepSpeed compiles an extension; if it is killed meanwhile, its lock holds up all that come later.
        variables["TORCH_EXTENSIONS_DIR"] = str(directory / "extensions")
        process = subprocess.Popen(
            [python, str(PROGRAM), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=variables
        )
        SERVERS[name] = Server(process, directory)
    SERVERS[name].directory = directory
    return SERVERS[name]


def outputs(directory: Path) -> Path:
    """Where the outputs of the programs go: beside the directory of the checkpoints."""
    place = directory.with_name(f"{directory.name}-logs")
    place.mkdir(exist_ok=True)
    return place


def continued(kind: str, directory: Path, steps: int, width: int = 64) -> int:
    """Trains up to so many steps, and returns the one from which it continued."""
    one = server(kind, outputs(directory))
    _, output = one.start(kind, directory, steps, width)
    status = one.end()
    text = output.read_text()
    assert status == 0, text[-3000:]
    [step] = [line.split()[-1] for line in text.splitlines() if line.startswith("continues from ")]
    return int(step)


def killed_in_a_save(kind: str, directory: Path, after: int) -> int:
    """Begins a training, and kills it as soon as a save after the first `after` ones has changed a file. Returns the
    number of saves that have ended.
    """
    one = server(kind, outputs(directory))
    pid, output = one.start(kind, directory, 100_000, WIDE)
    try:
        eventually(lambda: output.read_text().count("saved ") >= after, what="the first saves", timeout_s=300.0)
        before = state(directory)
        until = time.monotonic() + 60.0
        while state(directory) == before and time.monotonic() < until:
            pass
    finally:
        os.kill(pid, signal.SIGKILL)
    assert one.end() == signal.SIGKILL, output.read_text()[-3000:]
    return output.read_text().count("saved ")


def state(directory: Path) -> dict[Path, tuple[int, int]]:
    found = {}
    for path in directory.rglob("*"):
        with suppress(FileNotFoundError):
            status = path.stat()
            found[path] = (status.st_size, status.st_mtime_ns)
    return found


def damage(path: Path) -> None:
    """Cuts the largest file short, as a full disk does."""
    files = list(path.parent.glob(f"{path.name}.data-*")) or [path]
    files = [one for each in files for one in ([each] if each.is_file() else each.rglob("*")) if one.is_file()]
    largest = max(files, key=lambda one: one.stat().st_size)
    os.truncate(largest, largest.stat().st_size // 2)


@contextmanager
def at_desk(home: Path, output: Path) -> Iterator[Desk]:
    with desk(home, name="savers") as user:
        (user.project / "train.py").touch()
        (user.project / "cluster.yaml").write_text(CLUSTER.format(output=output))
        yield user


def listed(user: Desk) -> dict[str, tuple[str, int | None, bool]]:
    [place] = json.loads(user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    return {one["prefix"]: (one["kind"], one["step"], one["complete"]) for one in place["all"]}


@pytest.mark.parametrize("kind", NIGHTLY)
def test_what_a_library_saves_is_listed_verified_pulled_and_pushed(kind: str, tmp_path: Path) -> None:
    output, name = tmp_path / "output", NAMES[kind].format(2)
    assert continued(kind, output, 2) == 0
    with at_desk(tmp_path / "home", output) as user:
        found = listed(user)
        assert found[name] == (kind, None if kind in NO_STEP else 2, True)
        assert found[NAMES[kind].format(1)] == (kind, None if kind in NO_STEP else 1, True)
        user.dtctl("checkpoints", "verify", "--all")
        user.dtctl("checkpoints", "pull", name, "here")
        pulled = user.project / "here"
        if kind == "lightning":  # it continues from a file of this name alone
            shutil.copy(pulled / name, pulled / "last.ckpt")
        assert continued(kind, pulled, 3) == 2
        damage(output / name)
        assert "damaged" in user.dtctl("checkpoints", "verify", name, code=1)
        user.dtctl("checkpoints", "push", f"here/{NAMES[kind].format(3)}", "--local", "--into", "pushed")
        pushed = output / "pushed"
        if kind == "lightning":
            shutil.copy(pushed / NAMES[kind].format(3), pushed / "last.ckpt")
        assert continued(kind, pushed, 4) == 3


@pytest.mark.nightly
@pytest.mark.parametrize("kind", NAMES)
def test_after_a_kill_in_a_save_the_newest_whole_one_is_pulled_and_continued_from(kind: str, tmp_path: Path) -> None:
    output = tmp_path / "output"
    killed_in_a_save(kind, output, 2)
    names = {NAMES[kind].format(step): step for step in range(1, 1000)}
    with at_desk(tmp_path / "home", output) as user:
        newest = max(names[name] for name, (_, _, complete) in listed(user).items() if complete and name in names)
        user.dtctl("checkpoints", "verify", NAMES[kind].format(newest))
        user.dtctl("checkpoints", "pull", NAMES[kind].format(newest), "here")
        pulled = user.project / "here"
        if kind == "lightning":
            shutil.copy(pulled / NAMES[kind].format(newest), pulled / "last.ckpt")
        assert continued(kind, pulled, newest + 1, WIDE) == newest
    if kind in ("safetensors", "mxnet"):
        return  # nothing is set aside
    repair_directory(str(output))
    begun = continued(kind, output, newest + 1, WIDE)
    assert begun == newest or (kind in NAMED_LATER and begun == newest - 1)


DEFAULTS = {
    "lightning-default": ("lightning", "lightning_logs/version_{version}/checkpoints/epoch=0-step={step}.ckpt"),
    "accelerate-default": ("accelerate", "checkpoints/checkpoint_{index}"),
    "huggingface-default": ("huggingface", "trainer_output/checkpoint-{step}"),
}
"""What each library chooses itself where a program names only a directory, or none."""


@pytest.mark.nightly
@pytest.mark.parametrize("kind", DEFAULTS)
def test_where_a_library_saves_by_default_dtctl_does_its_work(kind: str, tmp_path: Path) -> None:
    output, (row, name) = tmp_path / "output", DEFAULTS[kind]
    output.mkdir()
    assert continued(kind, output, 2) == 0
    assert continued(kind, output, 4) == 2  # Lightning saves it elsewhere than the first two
    names = [name.format(version=(step - 1) // 2, step=step, index=step - 1) for step in (1, 2, 3, 4)]
    with at_desk(tmp_path / "home", output) as user:
        [place] = json.loads(user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
        found = {one["prefix"]: (one["kind"], one["complete"]) for one in place["all"]}
        assert {one: found.get(one) for one in names} == dict.fromkeys(names, (row, True))
        assert place["newestComplete"]["prefix"] == names[-1]
        user.dtctl("checkpoints", "verify", "--all")
        user.dtctl("checkpoints", "pull", "here")
        assert (user.project / "here" / Path(names[-1]).name).exists()
        damage(output / names[-1])
        assert "damaged" in user.dtctl("checkpoints", "verify", names[-1], code=1)
        assert repair_directory(str(output))
        aside = "damaged-0" if row == "accelerate" else "damaged"
        assert (output / names[-1]).parent.joinpath(aside, Path(names[-1]).name).exists()
        assert continued(kind, output, 5) == 3
        user.dtctl("checkpoints", "prune", "--keep", "1", "-y")
        assert not (output / names[0]).exists()


@pytest.mark.parametrize("kind", REPAIRED)
def test_training_continues_from_the_older_one_when_the_newest_was_cut_off(kind: str, tmp_path: Path) -> None:
    output = tmp_path / "output"
    continued(kind, output, 3)
    damage(output / NAMES[kind].format(3))
    if kind == "lightning":
        damage(output / "last.ckpt")
    assert repair_directory(str(output))
    assert continued(kind, output, 4) == 2


def test_the_backup_of_keras_and_the_second_one_are_found_and_read_by_keras(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert continued("keras", output, 3) == 0
    (report,) = reading.report([str(output)])
    assert {one["prefix"] for one in report["all"]} == {"latest.weights.h5", "latest.weights.h5.bkp"}
    assert all(one["complete"] for one in report["all"])
    damage(output / "latest.weights.h5")
    (report,) = reading.report([str(output)])
    assert {one["prefix"]: one["complete"] for one in report["all"]} == {
        "latest.weights.h5": False,
        "latest.weights.h5.bkp": True,
    }
    assert repair_directory(str(output)) == []
    assert continued("keras", output, 4) == 2


@pytest.mark.nightly
def test_backups_of_keras_are_listed_verified_pulled_and_continued_from(tmp_path: Path) -> None:
    output = tmp_path / "output"
    assert continued("keras", output, 2) == 0
    with at_desk(tmp_path / "home", output) as user:
        found = listed(user)
        assert found == dict.fromkeys(("latest.weights.h5", "latest.weights.h5.bkp"), ("keras", None, True))
        user.dtctl("checkpoints", "verify", "--all")
        user.dtctl("checkpoints", "pull", "latest.weights.h5", "here")
        assert continued("keras", user.project / "here", 3) == 2
        damage(output / "latest.weights.h5")
        assert "damaged" in user.dtctl("checkpoints", "verify", "latest.weights.h5", code=1)
        refused = user.run("checkpoints", "push", "here/latest.weights.h5", "--local")
        assert "no trainer restores it by default" in refused.stderr


@pytest.mark.nightly
def test_after_a_kill_in_a_save_keras_continues_from_one_of_its_backups(tmp_path: Path) -> None:
    output = tmp_path / "output"
    saved = killed_in_a_save("keras", output, 3)
    with at_desk(tmp_path / "home", output) as user:
        whole = [name for name, (_, _, complete) in listed(user).items() if complete]
        assert whole
        user.dtctl("checkpoints", "pull", whole[0], "here")
    assert saved - 1 <= continued("keras", output, saved + 2, WIDE) <= saved + 1
