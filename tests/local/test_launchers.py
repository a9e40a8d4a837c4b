"""docs/launchers.md as it is written: its files start the real launchers, where these install, on two hosts."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.desk import Desk
from tests.documents.blocks import ROOT, Written, blocks
from tests.environments import environment

pytestmark = [pytest.mark.training, pytest.mark.timeout(900)]

PAGE = "docs/launchers.md"
FILES = {text.partition("\n")[0]: text for one in blocks(PAGE) if isinstance(one, Written) for text in [one.text]}
SECTIONS = {part.partition("\n")[0].lower(): part for part in (ROOT / PAGE).read_text("utf-8").split("\n## ")}

RANK = """
import os, sys, torch
import torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor(dist.get_rank())
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}, sum {int(total)}", *sys.argv[1:], flush=True)
dist.destroy_process_group()
"""

RAY = """
import ray, time
ray.init()
while len([node for node in ray.nodes() if node["Alive"]]) < 2:
    time.sleep(0.2)

@ray.remote(num_cpus=0)
def square(number):
    return number * number

print("squares", sum(ray.get([square.remote(number) for number in range(4)])), flush=True)
"""


def trained(home: Desk, name: str, python: Path, program: str) -> str:
    """Runs the page's file of this name to its end; what the tasks have printed."""
    text = re.sub(r"venv: \S+", f"venv: {python.parents[1]}", FILES[f"name: {name}"])
    text = text.replace("env: {", "env: {OMP_NUM_THREADS: 1, ")  # two hosts share the processors
    (home.project / "cluster.yaml").write_text(text)
    (home.project / "train.py").write_text(program)
    done = home.run("up", "--local", "-f", timeout_s=600)
    output = home.dtctl("logs", "-n", "all")
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{output}"
    home.dtctl("down", "--yes")
    return output


def code_of(section: str) -> str:
    [found] = re.findall(r"(?ms)^```python\n(.*?)^```", SECTIONS[section])
    return str(found)


def test_files_are_short() -> None:
    assert {name: len(text.splitlines()) for name, text in FILES.items() if len(text.splitlines()) > 12} == {}


@pytest.mark.nightly
def test_torchrun_starts_two_processes_on_each_host(home: Desk) -> None:
    output = trained(home, "torchrun", environment("torch"), RANK)
    assert sorted(re.findall(r"rank (\d) of 4, sum 6", output)) == ["0", "1", "2", "3"]


@pytest.mark.nightly
def test_accelerate_starts_a_process_on_each_host(home: Desk) -> None:
    output = trained(home, "accelerate", environment("torch-libraries"), RANK)
    assert sorted(re.findall(r"rank (\d) of 2, sum 1", output)) == ["0", "1"]


@pytest.mark.nightly
def test_ray_joins_the_hosts_and_ends_with_its_driver(home: Desk) -> None:
    assert "squares 14" in trained(home, "ray", environment("ray"), RAY)


def test_workers_of_xgboost_meet_at_a_tracker(home: Desk) -> None:
    output = trained(home, "xgboost", environment("boosting"), code_of("xgboost"))
    losses = re.findall(r"\[9\]\ttrain-mlogloss:(\S+)", output)
    assert losses
    assert len({*losses}) == 1, "all have trained one model"


def test_workers_of_lightgbm_connect_by_sockets(home: Desk) -> None:
    output = trained(home, "lightgbm", environment("boosting"), code_of("lightgbm"))
    assert len(re.findall(r"Connected to rank \d", output)) == 2
