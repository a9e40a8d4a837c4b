"""The words that run a trainer in a container, for each program that does."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Container, Environment
from dtctl.agent.run import containers

INSIDE = {"TOKEN": "s3cret", "PATH": "/opt/bin", "DTCTL_KEY": "/r/attempt-1", "TF_CONFIG": '{"a": 1}'}
COMMON = "--network host --pid host --ipc host"


def words(engine: str, **inside: str) -> tuple[str, dict[str, str]]:
    box = containers.Box(
        "/",
        "/environments/k",
        made(Container, program=f"/bin/{engine}", engine=engine, image="IMAGE"),
        made(Environment, kind="container", what="x", options=["--own"]),
        ["/tmp", "/not/there"],
    )
    argv, env = box.words("name", ["python3", "t.py"], {**INSIDE, **inside}, {"HOME": "/h"}, "/tmp", ["TOKEN", "PATH"])
    return " ".join(argv), env


@pytest.mark.parametrize("engine", ["podman", "docker"])
def test_values_are_on_no_command_line_but_those_that_the_program_would_heed(engine: str) -> None:
    text, env = words(engine, HOME="/own", LD_PRELOAD="/a.so")
    assert text.startswith(f"/bin/{engine} run --rm --name name --label dtctl.environment=k ")
    assert COMMON in text
    assert " --env DTCTL_KEY=/r/attempt-1 --env HOME=/own --env LD_PRELOAD=/a.so --env PATH --env TF_CONFIG " in text
    assert text.endswith(" --env TOKEN --own --entrypoint python3 IMAGE t.py")
    assert "--volume /tmp:/tmp" in text
    assert "/not/there" not in text
    assert env == {"HOME": "/h", "TOKEN": "s3cret", "PATH": "/opt/bin", "TF_CONFIG": '{"a": 1}'}


def test_apptainer_gets_all_variables_by_its_own() -> None:
    text, env = words("apptainer")
    assert text == "/bin/apptainer exec --cleanenv --no-home --pwd /tmp --bind / --bind /tmp --own IMAGE python3 t.py"
    assert env == {"HOME": "/h", **{f"APPTAINERENV_{name}": value for name, value in INSIDE.items()}}


@pytest.mark.parametrize(
    ("driver", "engine", "gpus"),
    [
        ("/dev/nvidiactl", "podman", "--device nvidia.com/gpu=all"),
        ("/dev/nvidiactl", "docker", "--gpus all"),
        ("/dev/nvidiactl", "apptainer", "--nv"),
        ("/dev/kfd", "podman", "--device /dev/kfd --device /dev/dri"),
        ("/dev/kfd", "apptainer", "--rocm"),
    ],
)
def test_gpus_are_given_unless_the_task_has_none(
    driver: str, engine: str, gpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "exists", lambda path: path == driver)
    assert f" {gpus} " in words(engine)[0]
    assert gpus not in words(engine, CUDA_VISIBLE_DEVICES="-1")[0]


@pytest.mark.parametrize(
    ("engine", "facts", "options"),
    [
        ("podman", "false crun", ""),
        ("podman", "true crun", "--userns keep-id --group-add keep-groups"),
        ("podman", "true runc", "--userns keep-id"),
        ("docker", "[name=seccomp]", "--user 7:8 --group-add 9"),
        ("docker", "[name=rootless]", ""),
        ("singularity", "", ""),
    ],
)
def test_a_trainer_is_the_user_of_the_host(
    engine: str, facts: str, options: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers: dict[str, Callable[[], object]] = {"getuid": lambda: 7, "getgid": lambda: 8, "getgroups": lambda: [8, 9]}
    for name, answer in answers.items():
        monkeypatch.setattr(os, name, answer)
    found = containers.found({"PROGRAM": "/p", "ENGINE": engine, "IMAGE": "i", "PULLED": "1", "OPTIONS": facts})
    assert " ".join(found["options"]) == options
    assert (found["engine"] == "apptainer") == (engine == "singularity")
