"""The request `check`, by a real agent: what it finds out of its host, and what it leaves."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.agent.host import AgentHost, Conversation, python_task, shell, task
from tests.hosts.gpus import GB, Gpus, gpu

PYTHON = {"program": "python3", "modules": ["json", "no_such_module"]}


def ask(host: AgentHost, talk: Conversation, **questions: Any) -> Any:
    return talk.ask("check", **host.about({"ask": questions}))["facts"]


def add_package(host: AgentHost, name: str, version: str) -> None:
    """Where PYTHONPATH leads; it must not be imported."""
    package = host.home / "lib" / name
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('it was imported')\n")
    info = host.home / "lib" / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def test_versions_are_read_without_importing_the_packages(host: AgentHost) -> None:
    add_package(host, "tensorflow", "2.19.0")
    add_package(host, "nvidia", "12.5")
    (host.home / "lib" / "nvidia" / "__init__.py").unlink()
    (host.home / "lib" / "nvidia" / "cudnn").mkdir()
    asked = {**PYTHON, "cuda": True, "python_path": "\0HOME/lib", "modules": ["json", "tensorflow", "no_such_module"]}
    with host.open() as talk:
        (python_facts,) = ask(host, talk, software={"pythons": [asked], "started": True})["software"]["pythons"]
        assert python_facts["packages"]["tensorflow"] == "2.19.0"
        assert python_facts["cuda"] == "packages of pip"
        assert python_facts["missing"] == ["no_such_module"]
        assert python_facts["version"] == talk.greeting["python"]
        assert python_facts["path"].startswith("/")
        assert not python_facts["problem"]
        imported = ask(host, talk, software={"pythons": [asked], "started": True, "imported": True})
        assert imported["software"]["pythons"][0]["imported"] == {
            "json": {"seconds": 0, "problem": "", "gpus": None},
            "tensorflow": {"seconds": 0, "problem": "SystemExit: it was imported", "gpus": None},
        }


def test_an_interpreter_that_is_not_python_is_reported(host: AgentHost) -> None:
    broken = host.home / "python"
    broken.write_text("#!/bin/sh\necho it is broken >&2\nexit 3\n")
    broken.chmod(0o755)
    pythons = [{**PYTHON, "program": "\0HOME/nowhere"}, {**PYTHON, "program": "\0HOME/python"}]
    with host.open() as talk:
        nowhere, answer = ask(host, talk, software={"pythons": pythons, "started": True})["software"]["pythons"]
    assert (nowhere["path"], nowhere["problem"]) == ("", "")
    assert (answer["path"], answer["problem"]) == (str(broken), "it is broken")


def left(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.rglob(".dtctl-check-*"))


def test_what_is_written_is_seen_by_others_until_the_conversation_ends(host: AgentHost) -> None:
    there, to_come = host.home / "there", host.home / "to" / "come"
    there.mkdir()
    old = there / ".dtctl-check-77-old"
    old.touch()
    os.utime(old, (1, 1))
    asked = {"token": "ab", "host": "h1", "write": [str(there), str(to_come), str(there)]}
    with host.open() as talk:
        answer = ask(host, talk, storage=asked)["storage"]["written"]
        assert [(one["at"], one["up"], one["problem"]) for one in answer] == [
            (str(there), 0, ""),
            (str(host.home), 2, ""),
            (str(there), 0, ""),
        ]
        assert left(host.home) == [".dtctl-check-ab-h1"] * 2
        look = [{"path": str(to_come), "up": 2, "hosts": ["h1", "h2"]}, {"path": "/nowhere", "hosts": ["h1"]}]
        seen = ask(host, talk, storage={"token": "ab", "host": "h2", "look": look})["storage"]["looked"]
        assert [one["seen"] for one in seen] == [["h1"], []]
    assert left(host.home) == []
    assert not to_come.exists()


def test_a_directory_that_takes_nothing_is_reported_in_the_systems_message(host: AgentHost) -> None:
    with host.open() as talk:
        answer = ask(host, talk, storage={"token": "ab", "host": "h1", "write": ["/proc/self/none"]})
    (one,) = answer["storage"]["written"]
    assert one["at"] == "/proc/self"
    assert one["problem"]


def test_data_is_the_same_where_names_sizes_and_pieces_are(host: AgentHost) -> None:
    for name, text in (("one", "abc"), ("two", "abc"), ("three", "abd")):
        (host.home / name / "deep").mkdir(parents=True)
        (host.home / name / "deep" / "train.tfrecord").write_text(text)
        (host.home / name / ".hidden").write_text(name)
    asked = {"token": "ab", "host": "h1", "data": ["\0HOME/one", "\0HOME/two", "\0HOME/three", "\0HOME/none"]}
    with host.open() as talk:
        one, two, three, none = ask(host, talk, storage=asked)["storage"]["data"]
    assert (one["files"], one["size_bytes"], one["whole"]) == (1, 3, True)
    assert one["digest"] == two["digest"] != three["digest"]
    assert none["there"] is False


@pytest.mark.nightly
def test_the_memory_that_tasks_took_is_remembered(host: AgentHost) -> None:
    script = "import time; held = bytearray(50 << 20)\nwhile True: print('at work', flush=True); time.sleep(0.2)"
    spec = host.started(python_task("worker:0", script), shell("worker:1", "exec sleep 1000"), run="c-20260101-1")
    host.wait_entry(spec, "worker:0", lambda entry: entry["most_memory_bytes"] > 50 << 20)
    with host.open() as talk:
        answer = ask(host, talk, machine={"places": ["\0HOME/out"], "cluster": "c", "rights": True})["machine"]
    assert answer["took"]["worker:0"] > 50 << 20
    assert answer["disks"][0]["free_bytes"] > 0
    assert answer["rights"]["open_files"] is None or answer["rights"]["open_files"] > 0
    assert host.ask("check", ask={"machine": {}})["facts"]["machine"]["took"] == {}


TORCH = """\
import os, time
class cuda:
    @staticmethod
    def device_count():
        return 2
    @staticmethod
    def synchronize(number):
        time.sleep(0.05 * (number + 1))
def rand(*shape, device):
    assert os.environ["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    return device
def mm(one, other):
    return one
"""


def test_each_gpu_multiplies_by_the_framework_and_its_state_is_looked_at_meanwhile(
    host: AgentHost, tmp_path: Path
) -> None:
    """What NVML and torch would say; no GPU was ever seen by this test."""
    (host.home / "lib").mkdir()
    (host.home / "lib" / "torch.py").write_text(TORCH)
    fake = Gpus(tmp_path, gpu(degrees=61), gpu(clock=705, degrees=90, lanes=4))
    python = {**PYTHON, "python_path": "\0HOME/lib"}
    with host.open(**fake.env) as talk:
        answer = ask(host, talk, speed={"python": python, "seconds": 2.5, "framework": "torch"})["speed"]
    first, second = answer["gpus"]
    assert answer["gpu_problem"] == ""
    assert 0 < second["flops"] < first["flops"]
    assert [first[name] for name in ("gpu", "name", "clock_mhz", "degrees", "lanes")] == [0, "A100", 1410, 61, 16]
    assert [second[name] for name in ("gpu", "name", "clock_mhz", "degrees", "lanes")] == [1, "A100", 705, 90, 4]


def test_gpus_that_live_runs_have_taken_are_named_with_their_tasks_and_users(host: AgentHost, tmp_path: Path) -> None:
    fake = Gpus(tmp_path, gpu(), gpu(users={os.getpid(): GB}))
    done = task("worker:1", "true", env={"CUDA_VISIBLE_DEVICES": "0"})
    lives = task("worker:0", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "1,2"})
    spec = host.started(lives, done, task("ps:0", "sleep", "1000", env={"CUDA_VISIBLE_DEVICES": "-1"}))
    host.wait_state(spec, "worker:1", "succeeded")
    with host.open(**fake.env) as talk:
        answer = ask(host, talk, machine={"gpus": True})["machine"]
        undeclared = ask(host, talk, machine={"gpus": False})["machine"]
    own = {"cluster": "c", "run": spec["run"], "task": "worker:0"}
    assert answer["gpus_taken"] == undeclared["gpus_taken"] == [{"gpu": 1, **own}, {"gpu": 2, **own}]
    assert [len(one["users"]) for one in answer["machine"]["gpus"]["each"]] == [0, 1]


def test_the_gpus_that_a_framework_sees_are_counted_where_trainers_are_given_some(host: AgentHost) -> None:
    (host.home / "lib").mkdir()
    (host.home / "lib" / "torch.py").write_text(TORCH)
    asked = {**PYTHON, "modules": ["json", "torch"], "python_path": "\0HOME/lib"}
    with host.open() as talk:
        for cuda, seen in ((True, 2), (False, None)):
            question = {"pythons": [{**asked, "cuda": cuda}], "started": True, "imported": True}
            (python,) = ask(host, talk, software=question)["software"]["pythons"]
            assert {name: one["gpus"] for name, one in python["imported"].items()} == {"json": None, "torch": seen}
