"""`profile` of live tasks with real TensorFlow: each writes a profile of its own, and training goes on."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.host import AgentHost, Fields, task
from tests.training.test_helper import free_ports
from tests.waiting import eventually

pytestmark = [
    pytest.mark.training,
    pytest.mark.timeout(900),
    pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="needs tensorflow"),
]

DEADLINE_S = 300
SESSION = "2026_11_30_13_49_09"

TRAINER = """\
import os, sys, time
import tensorflow as tf
v1 = tf.compat.v1
v1.disable_eager_execution()
job, ports = sys.argv[1], sys.argv[2].split(",")
cluster = v1.train.ClusterSpec({"ps": ["127.0.0.1:" + ports[0]], "worker": ["127.0.0.1:" + ports[1]]})
server = v1.train.Server(cluster, job_name=job, task_index=0)
if job == "ps":
    print("serves", flush=True)
    server.join()
with tf.device("/job:ps/task:0"):
    weights = v1.get_variable("weights_of_this_test", shape=[200, 200])
step = v1.assign_add(weights, tf.matmul(weights, weights, name="product_of_this_test") * 1e-9)
def train(session):
    number = 0
    while True:
        session.run(step.op)
        number += 1
        if number % 100 == 0:
            print("step", number, flush=True)
with v1.Session(server.target) as session:
    session.run(v1.global_variables_initializer())
    train(session)
"""

KERAS = """\
import sys, time
import tensorflow as tf
tf.profiler.experimental.server.start(int(sys.argv[1]))
print("step 0", flush=True)
def train():
    while True:
        tf.matmul(tf.random.normal((300, 300)), tf.random.normal((300, 300)))
        time.sleep(0.01)
train()
"""

ALONE = "import time\nimport tensorflow as tf\nprint('step 0', flush=True)\ntime.sleep(1000)\n"


@pytest.fixture
def host(tmp_path: Path) -> Iterator[AgentHost]:
    made = AgentHost(tmp_path / "host", sys.executable, "h1", None, is_new=False)
    yield made
    made.clean_up()


def trainer(id_: str, script: Path, *words: str, **fields: Any) -> Fields:
    env = {"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "", "PYTHONFAULTHANDLER": "1"}
    return task(id_, sys.executable, str(script), *words, **{"env": env, **fields})


def profiled(host: AgentHost, seconds: int = 2) -> dict[str, Fields]:
    with host.open() as talk:
        talk.send("profile", **host.about({"tasks": None, "seconds": seconds, "session": SESSION}))
        found = {}
        while (frame := talk.receive())["type"] != "result":
            if frame["type"] == "profile":
                found[frame["task"]] = frame
    return found


def names_in(path: Path) -> set[str]:
    """The names of all events of a profile, as TensorFlow itself reads it."""
    from tensorflow.tsl.profiler.protobuf import xplane_pb2

    space = xplane_pb2.XSpace.FromString(path.read_bytes())
    return {one.name for plane in space.planes for one in plane.event_metadata.values()}


def test_a_ps_and_its_worker_write_profiles_beside_the_event_files_and_train_on(
    host: AgentHost, tmp_path: Path
) -> None:
    script, output = tmp_path / "train.py", tmp_path / "output"
    script.write_text(TRAINER)
    (output / "train").mkdir(parents=True)
    (output / "train" / "events.out.tfevents.1.h1").write_bytes(b"")
    ports = free_ports(2)
    words = ",".join(map(str, ports))
    spec = host.started(
        trainer("ps:0", script, "ps", words, port=ports[0]),
        trainer("worker:0", script, "worker", words, port=ports[1]),
        dirs=[str(output)],
    )
    eventually(lambda: "step 100" in host.log(spec, "worker:0"), DEADLINE_S, "the first steps")
    found = profiled(host)
    place = output / "plugins" / "profile" / SESSION
    assert {one: each["no_file"] for one, each in found.items()} == {"ps:0": None, "worker:0": None}, found
    for one, name in {"ps:0": "h1_ps-0.xplane.pb", "worker:0": "h1_worker-0.xplane.pb"}.items():
        file = place / name
        assert found[one]["file"] == {"path": str(file), "size_bytes": file.stat().st_size}
        assert file.stat().st_mode & 0o777 == 0o600
    assert any("product_of_this_test" in each for each in names_in(place / "h1_worker-0.xplane.pb"))
    assert names_in(place / "h1_ps-0.xplane.pb")
    assert len(list(place.iterdir())) == 2, "nothing temporary is left"
    functions = [frame["function"] for frame in found["worker:0"]["stacks"][0]["frames"]]
    assert functions[-2:] == ["train", "<module>"]
    before = len(host.log(spec, "worker:0"))
    eventually(lambda: len(host.log(spec, "worker:0")) > before + 20, DEADLINE_S, "further steps")
    assert {each["attempt"] for each in host.state(spec)["tasks"].values()} == {1}


@pytest.mark.nightly
def test_a_server_that_the_trainer_has_started_is_found_by_the_ports_of_its_process(
    host: AgentHost, tmp_path: Path
) -> None:
    script, other = tmp_path / "train.py", tmp_path / "alone.py"
    script.write_text(KERAS)
    other.write_text(ALONE)
    (port,) = free_ports(1)
    spec = host.started(
        trainer("worker:0", script, str(port)), trainer("worker:1", other), dirs=[str(tmp_path / "output")]
    )
    for each in ("worker:0", "worker:1"):
        eventually(lambda each=each: "step 0" in host.log(spec, each), DEADLINE_S, "the first step")  # type: ignore[misc]
    found = profiled(host)
    file = tmp_path / "output" / "plugins" / "profile" / SESSION / "h1_worker-0.xplane.pb"
    assert found["worker:0"]["file"] == {"path": str(file), "size_bytes": file.stat().st_size}
    assert any("MatMul" in each for each in names_in(file))
    assert (found["worker:1"]["file"], found["worker:1"]["no_file"]) == (None, "no_port")


@pytest.mark.nightly
def test_a_controller_that_leaves_leaves_nothing_behind(host: AgentHost, tmp_path: Path) -> None:
    script, output = tmp_path / "train.py", tmp_path / "output"
    script.write_text(KERAS)
    (port,) = free_ports(1)
    spec = host.started(trainer("worker:0", script, str(port)), dirs=[str(output)])
    eventually(lambda: "step 0" in host.log(spec, "worker:0"), DEADLINE_S, "the first step")
    with host.open() as talk:
        talk.send("profile", **host.about({"tasks": None, "seconds": 60, "session": SESSION}))
        eventually(lambda: list((output / "plugins" / "profile").glob("*/.*")), 60, "its beginning")
        session = talk.process
        talk.hang_up()
        session.wait(60)
    assert not list((output / "plugins" / "profile").iterdir())
    (pid,) = [each["pid"] for each in host.state(spec)["tasks"].values()]
    os.kill(pid, 0)
