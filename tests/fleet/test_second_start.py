"""A second `up` of a program whose parameter servers have saved their parts on disks of their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.agent.checkpoints.test_checkpoints import DATA
from tests.desk import Desk, cluster_text
from tests.fleet.test_check import SAVES_ITS_PARTS
from tests.hosts.fleet import Fleet, FleetHost

pytestmark = pytest.mark.fleet

NAME = "model.ckpt-300"


def save(host: FleetHost, directory: str, *ends: str) -> None:
    """What one process of a sharded save leaves on its host."""
    place = host.home / Path(directory).relative_to("/home/train")
    host.exec("mkdir", "-p", directory)
    for end in ends:
        (place / f"{NAME}.{end}").write_bytes((DATA / "tf1_sharded" / f"{NAME}.{end}").read_bytes())


def test_up_and_check_name_the_missing_parts_before_the_second_start(user: Desk, fleet: Fleet) -> None:
    keys = {
        "jobs": "{ps: {hosts: [gpu-2]}, worker: {hosts: [gpu-1]}}",
        "trainer": "command: [python3, train.py]",
        "dirs": "{output: saved}",
        "recovery": "{allow_scratch: true}",
    }
    user.write_cluster(cluster_text(**keys), hosts="hosts:\n  gpu-[1-2]:\n")
    Path(user.project / "train.py").write_text(SAVES_ITS_PARTS)
    user.dtctl("up")
    user.dtctl("stop")
    [first, _] = json.loads(user.dtctl("checkpoints", "-o", "json"))["checkpoints"]
    save(fleet["gpu-1"], first["directory"], "index", "data-00000-of-00003")
    save(fleet["gpu-2"], first["directory"], "data-00001-of-00003", "data-00002-of-00003")
    assert f"{NAME}, is not complete: {NAME}.data-00001-of-00003 is missing" in user.dtctl("status")
    assert "2 shards of 3 on gpu-2 alone, which a restore here does not see" in user.dtctl("checkpoints")
    checked = " ".join(user.run("check").stdout.split())
    started = " ".join(user.run("up").stderr.split())
    said = "~/dtctl/demo/saved is not one directory: what gpu-1 writes there is not seen on gpu-2"
    assert f"problem: {said}" in checked
    assert f"warning: {said}" in started
    warned = f"{NAME}, is not complete: {NAME}.data-00001-of-00003 is missing"
    assert 0 < started.index(warned) < started.index("started: 2 tasks")
    assert "dtctl checkpoints pull" in started
    user.dtctl("checkpoints", "pull", "300", "here")
    assert len([*(user.project / "here").glob(f"{NAME}.data-*")]) == 3
    user.dtctl("down", "--yes")
