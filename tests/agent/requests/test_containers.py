"""Trainers in a container: started, known, ended and cleared away as others are.

By a stand-in, and every night by the real podman where that works.
"""

from __future__ import annotations

import hashlib
import json
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from tests import engine
from tests.agent.host import AgentHost, AgentRefused, Fields, budget, kill, shell, task
from tests.agent.requests.test_execute import execute
from tests.hosts.sandbox import make_directory
from tests.waiting import eventually


@cache
def image() -> Path:
    """A tar of the system's Python and a shell, as `podman import` takes it."""
    path = make_directory("image") / "rootfs.tar"
    python = Path("/usr/bin/python3").resolve()
    library = Path(f"/usr/lib/{python.name}")
    programs = [python, Path("/bin/sh"), Path("/bin/sleep")]
    listed = subprocess.run(["ldd", *programs, *library.glob("lib-dynload/*.so")], capture_output=True, text=True)
    libraries = {word for word in listed.stdout.split() if word.startswith("/") and not word.endswith(":")}
    with tarfile.open(path, "w", dereference=True) as archive:
        for program in [*programs, *map(Path, sorted(libraries))]:
            archive.add(program, str(program))
        archive.add(python, "/usr/bin/python3")
        for place in ("json", "encodings", "collections", "importlib", "re", "lib-dynload"):
            archive.add(library / place, str(library / place))
        for module in library.glob("*.py"):
            archive.add(module, str(module))
    return path


CANNOT = "podman cannot run containers here"


def real_podman(host: AgentHost) -> str:
    """Sets it up with a store of its own; returns why it cannot be used."""
    if shutil.which("podman") is None:
        return CANNOT
    place = host.directory / "podman"
    place.mkdir()
    runtime = next((name for name in ("runc", "crun") if shutil.which(name)), "")
    files, processes = resource.getrlimit(resource.RLIMIT_NOFILE)[1], 1000
    limits = f'default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]'
    (place / "containers.conf").write_text(f'[containers]\n{limits}\n[engine]\nruntime = "{runtime}"\n')
    paths = f'graphroot = "{place}/store"\nrunroot = "{place}/run"'
    (place / "storage.conf").write_text(f'[storage]\ndriver = "overlay"\n{paths}\n')
    host.env.update(
        CONTAINERS_CONF=str(place / "containers.conf"),
        CONTAINERS_STORAGE_CONF=str(place / "storage.conf"),
        PATH=f"{host.env['PATH']}:/usr/sbin:/sbin",
    )
    podman(host, "import", str(image()), "localhost/python:1")
    words = ("run", "--rm", "--pid=host", "--network=host", "localhost/python:1", "/bin/sh", "-c", "exit 0")
    tried = podman(host, *words)
    podman(host, "save", "--output", str(host.home / "image.tar"), "localhost/python:1")
    podman(host, "image", "rm", "localhost/python:1")
    return "" if tried.returncode == 0 else CANNOT


def podman(host: AgentHost, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["podman", *words], capture_output=True, text=True, env=host.env, check=False)


@pytest.fixture(params=["stand-in", pytest.param("podman", marks=pytest.mark.nightly)])
def boxed(host: AgentHost, request: pytest.FixtureRequest) -> Iterator[AgentHost]:
    """A host with image.tar in its home directory, and what runs it."""
    if request.param == "podman":
        if reason := real_podman(host):
            pytest.skip(reason)
    else:
        stand_in(host)
    yield host
    left = containers(host)
    for name in left:
        podman(host, "rm", "--force", name)
    assert left == []


def stand_in(host: AgentHost, name: str = "podman") -> None:
    program = host.directory / "bin" / name
    program.write_text(Path(engine.__file__).read_text().replace("/usr/bin/env python3", sys.executable))
    program.chmod(0o755)
    (host.home / ".bash_profile").write_text(f"PATH={program.parent}:$PATH\n")  # a machine may have the real one, too
    (host.home / "image.tar").write_text(str(host.directory))


def containers(host: AgentHost) -> list[str]:
    if (host.directory / "podman").exists():
        return podman(host, "ps", "--all", "--format", "{{.Names}}").stdout.split()
    return [path.name for path in (host.directory / "bin" / "engine" / "containers").iterdir()]


def images(host: AgentHost) -> Sequence[str | Path]:
    if (host.directory / "podman").exists():
        return podman(host, "images", "--quiet").stdout.split()
    return list((host.directory / "bin" / "engine" / "images").iterdir())


def wanted(host: AgentHost, **fields: object) -> Fields:
    path = host.home / "image.tar"
    files = {"image.tar": hashlib.sha256(path.read_bytes()).hexdigest()} if path.exists() else {}
    return {"kind": "container", "what": "image.tar", "files": files, **fields}


PYTHON = "\0PYTHON"
HEEDS = """
import os, signal, sys, time
def ask(*_):
    print("asked", flush=True)
    time.sleep(0.3)
    sys.exit(7)
signal.signal(signal.SIGTERM, ask)
print(os.environ["TOKEN"], os.getcwd(), os.environ["HOME"], "SESSION" in os.environ, flush=True)
time.sleep(1000)
"""


def heeding(host: AgentHost, **fields: object) -> Fields:
    return host.spec(task("worker:0", PYTHON, "-c", HEEDS, secrets=["TOKEN"]), environment=wanted(host), **fields)


def up(host: AgentHost, spec: Fields) -> int:
    host.env["SESSION"] = "of the host"
    host.up(spec, secrets={"TOKEN": "s3cret"})
    eventually(lambda: "s3cret" in host.log(spec, "worker:0"))
    return int(host.state(spec)["tasks"]["worker:0"]["pid"])


def test_a_trainer_is_asked_once_and_its_exit_is_its_own(boxed: AgentHost) -> None:
    spec = heeding(boxed)
    pid = up(boxed, spec)
    [directory] = boxed.root.glob("environments/container-*/environment.json")
    [printed] = boxed.log(spec, "worker:0").splitlines()
    assert printed == f"s3cret {boxed.home} {directory.parent}/home False"
    assert Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[1] == b"-c"
    assert "s3cret" not in json.dumps(boxed.start_record(spec, "worker:0"))
    assert containers(boxed) == [f"dtctl-{spec['run']}-worker-0-1"]
    boxed.ask("stop", by="ada", grace_s=20)
    eventually(lambda: boxed.state(spec)["finished"])
    assert boxed.log(spec, "worker:0").splitlines()[1:] == ["asked"]
    assert boxed.state(spec)["tasks"]["worker:0"]["exit"]["code"] == 7
    eventually(lambda: not containers(boxed))


IGNORES = "trap '' TERM; sleep 1000 & trap '' TERM; echo s3cret; wait; wait"


def test_one_that_ignores_the_request_is_killed_with_all_its_processes(boxed: AgentHost) -> None:
    spec = boxed.spec(shell("worker:0", IGNORES), environment=wanted(boxed))
    pid = up(boxed, spec)
    boxed.ask("stop", by="ada", grace_s=0.3)
    eventually(lambda: boxed.state(spec)["finished"])
    assert boxed.state(spec)["tasks"]["worker:0"]["exit"]["signal"] == signal.SIGKILL
    assert not Path(f"/proc/{pid}").exists()
    eventually(lambda: not containers(boxed))


def test_what_is_killed_alone_takes_the_rest_with_it_and_is_started_again(boxed: AgentHost) -> None:
    spec = heeding(boxed, recovery=budget(3))
    inside = up(boxed, spec)
    kill(inside)
    boxed.wait_state(spec, "worker:0", "running", attempt=2)
    kill(boxed.start_record(spec, "worker:0", 2)["pid"])  # what runs the container
    boxed.wait_state(spec, "worker:0", "running", attempt=3)
    history = boxed.state(spec)["tasks"]["worker:0"]["history"]
    assert [past["signal"] for past in history] == [signal.SIGKILL] * 2
    eventually(lambda: containers(boxed) == [f"dtctl-{spec['run']}-worker-0-3"])
    boxed.ask("stop", by="ada", grace_s=0)
    eventually(lambda: not containers(boxed))


def test_a_command_of_a_task_runs_in_a_container_of_its_own(boxed: AgentHost) -> None:
    spec = heeding(boxed)
    up(boxed, spec)
    script = "import os; print(os.environ['TOKEN'], os.environ['DTCTL_TASK'], 'SESSION' in os.environ)"
    out, err, result = execute(boxed, "python3", "-c", script, task="worker:0")
    assert (out, err, result["exit_code"]) == (b"*** worker:0 False\n", b"", 0)
    with boxed.open() as talk:
        talk.send("exec", **boxed.about({"argv": ["sleep", "1000"], "task": "worker:0", "cwd": "home", "tty": False}))
        eventually(lambda: len(containers(boxed)) == 2)
        talk.hang_up()
        eventually(lambda: len(containers(boxed)) == 1)
    boxed.ask("stop", by="ada", grace_s=0)
    eventually(lambda: not containers(boxed))


def test_gc_removes_the_image_that_came_with_the_environment(boxed: AgentHost) -> None:
    spec = boxed.spec(task("worker:0", PYTHON, "-c", ""), environment=wanted(boxed), ttl_s=0)
    boxed.up(spec)
    eventually(lambda: boxed.state(spec)["finished"])
    assert len(images(boxed)) == 1
    eventually(lambda: not containers(boxed))
    assert len(boxed.ask("gc", dry_run=False, all=True)["environments"]) == 1
    assert images(boxed) == []


def test_an_image_that_was_removed_is_fetched_again(boxed: AgentHost) -> None:
    spec = boxed.spec(task("worker:0", PYTHON, "-c", ""), environment=wanted(boxed))
    boxed.up(spec)
    eventually(lambda: not containers(boxed) and boxed.state(spec)["finished"])
    for one in images(boxed):
        if isinstance(one, Path):
            one.unlink()
        else:
            podman(boxed, "image", "rm", one)
    again = {**spec, "run": "r-again", "digest": "r-again"}
    boxed.up(again)
    eventually(lambda: boxed.state(again)["finished"])
    assert boxed.state(again)["tasks"]["worker:0"]["exit"]["code"] == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"what": "example.com/no/such:1"}, "no registry in reach"),
        ({"what": "no-such.tar", "files": {}}, "no-such.tar"),
        ({"python": "python9.9"}, "the image has no python9.9"),
        ({"engine": "apptainer"}, "no program that runs containers works on this host; tried: apptainer singularity"),
        ({"engine": "docker"}, "/bin/docker is installed, but does not work for this user"),
        ({"options": ["--nosuch", "x"]}, "Error: unknown flag: --nosuch"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_what_is_in_the_way_is_reported_before_anything_starts(host: AgentHost, fields: Fields, said: str) -> None:
    stand_in(host)
    broken = host.directory / "bin" / "docker"
    broken.write_text("#!/bin/sh\necho cannot connect to the daemon >&2; exit 1\n")
    broken.chmod(0o755)
    with pytest.raises(AgentRefused) as refused:
        host.up(host.spec(shell("worker:0", "exit 0"), environment=wanted(host, **fields)))
    assert refused.value.code == "setup_failed"
    assert said in refused.value.frame["detail"]


APPTAINER = """#!/bin/sh
while [ "$1" != exec ]; do shift; done
while [ "$1" != "$TEST_IMAGE" ]; do case $1 in --pwd) cd "$2" ;; esac; shift; done
shift
eval "$(env | sed -n "s/^APPTAINERENV_\\\\([A-Z_]*\\\\)=\\\\(.*\\\\)/export \\\\1='\\\\2'/p")"
"$@"
"""


def test_apptainer_runs_a_sif_file_with_the_variables_of_the_trainer_alone(host: AgentHost) -> None:
    """By a stand-in, which knows the words that it takes. What it starts is its child, in its own session."""
    sif = host.home / "image.sif"
    sif.write_bytes(b"sif")
    program = host.directory / "bin" / "apptainer"
    program.write_text(APPTAINER)
    program.chmod(0o755)
    host.env["TEST_IMAGE"] = str(sif)
    environment = {"kind": "container", "what": str(sif), "engine": "apptainer"}
    spec = host.spec(task("worker:0", PYTHON, "-c", HEEDS, secrets=["TOKEN"]), environment=environment)
    pid = up(host, spec)
    assert pid != host.start_record(spec, "worker:0")["pid"]
    host.ask("stop", by="ada", grace_s=20)
    eventually(lambda: host.state(spec)["finished"])
    assert host.log(spec, "worker:0").splitlines()[1:] == ["asked"]
    assert host.state(spec)["tasks"]["worker:0"]["exit"]["code"] == 7
