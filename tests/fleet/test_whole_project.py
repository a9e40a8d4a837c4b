"""A project as a team has it, from one file: its own environment, pushed data, a bucket; by commands, then in Python.

The hosts have only sshd and Python: the packages of TensorFlow come from an index in their network.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.buckets import Bucket, cloud_storage
from tests.desk import Desk
from tests.environments import root
from tests.google_front import NAMES, google_front
from tests.hosts import private_network
from tests.hosts.fleet import Fleet, module_fleet
from tests.local.test_python_api import examples
from tests.waiting import eventually

pytestmark = [pytest.mark.fleet, pytest.mark.training, pytest.mark.nightly, pytest.mark.timeout(1500)]

ROOT = Path(__file__).parents[2]
PATIENCE_S = 400.0
STEPS = 12_000
fleet = module_fleet(4)

CLUSTER = """\
name: digits
hosts: {gpu-1: , gpu-2: , gpu-3: , gpu-4: }
jobs: {ps: {hosts: gpu-1}, worker: {hosts: "gpu-[2-3]"}}
spares: [gpu-4]
trainer:
  command: [python, train.py]
  environment: {requirements: requirements.txt, python: PYTHON}
  args: {output_dir: "{output_dir}", data_dir: "{data_dir}", train_steps: STEPS, save_secs: 3}
  env: ENV
dirs: {output: "gs://runs/digits", data: ~/digits-data}
data: {from: ../data}
"""
CHANGES = {
    "load_digits(return_X_y=True)": 'np.load(os.path.join(FLAGS.data_dir, "digits.npz")).values()',
    '    add("--save_secs"': '    add("--data_dir", required=True)\n    add("--save_secs"',
}


@contextmanager
def index(address: str) -> Iterator[dict[str, str]]:
    """Serves the template's packages to the hosts' pip; downloads of this machine's pip are kept."""
    directory = root() / f"wheels-{sys.version_info[0]}.{sys.version_info[1]}"
    requirements = ROOT / "templates/ps-async/requirements.txt"
    download = [sys.executable, "-m", "pip", "download", "-q", "-d", str(directory), "-r", str(requirements)]
    with private_network.the_machines():  # a worker of pytest-xdist has a network of its own
        subprocess.run(download, check=True)
    handler = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
    with ThreadingHTTPServer((address, 8080), functools.partial(handler, directory=str(directory))) as server:
        serving = threading.Thread(target=server.serve_forever, args=(0.1,))
        serving.start()
        try:
            url = f"http://{address}:8080/"
            yield {"PIP_FIND_LINKS": url, "PIP_NO_INDEX": "1", "PIP_TRUSTED_HOST": address}
        finally:
            server.shutdown()
            serving.join()


def write(user: Desk, env: dict[str, str], steps: int = STEPS) -> None:
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "2", "TF_ENABLE_ONEDNN_OPTS": "0"}
    for name, value in {"PYTHON": sys.executable, "STEPS": str(steps), "ENV": json.dumps({**env, **quiet})}.items():
        text = CLUSTER if name == "PYTHON" else (user.project / "cluster.yaml").read_text()
        (user.project / "cluster.yaml").write_text(text.replace(name, value, 1))
    user.allow()  # the data lie beside the project


def write_project(user: Desk) -> None:
    import numpy as np
    from sklearn.datasets import load_digits

    (user.project / "stand_in.py").unlink()
    user.dtctl("init", "--template", "ps-async", "--name", "digits")
    trainer = user.project / "train.py"
    text = trainer.read_text()
    for old, new in CHANGES.items():
        assert old in text
        text = text.replace(old, new)
    trainer.write_text(text)
    data = user.home / "data"
    (data / "images").mkdir(parents=True)
    images, labels = load_digits(return_X_y=True)
    np.savez(data / "digits.npz", images=images, labels=labels)
    for number in range(20):
        (data / "images" / f"{number}.rec").write_bytes(np.random.default_rng(number).bytes(1 << 20))


def test_environment_data_and_bucket_of_one_file_survive_a_kill_and_a_stop(user: Desk, fleet: Fleet) -> None:
    gateway = fleet.network.gateway
    for host in fleet.hosts:
        with (host.directory / "hosts").open("a") as names:
            names.writelines(f"{gateway} {name}\n" for name in NAMES)
    with cloud_storage() as bucket, google_front(bucket, gateway, fleet.shared) as google, index(gateway) as pip:
        user.env |= {**bucket.env, "PYTHONWARNINGS": ""}
        write_project(user)
        write(user, {**google, **pip})
        typed(user, fleet, bucket)
        user.dtctl("down", "--yes", timeout_s=120)
        write(user, {**google, **pip}, steps=1_000_000)
        program(user, bucket)


def typed(user: Desk, fleet: Fleet, bucket: Bucket) -> None:
    assert user.dtctl("data", "push").splitlines()[0] == "gpu-[2-4]: ~/digits-data: 21 files sent"
    user.dtctl("up", timeout_s=PATIENCE_S)
    eventually(lambda: "checkpoint: step" in user.dtctl("status", code=None), PATIENCE_S, "a checkpoint")
    fleet["gpu-3"].exec("pkill", "-9", "-f", "job_name=worker")
    eventually(lambda: user.task("worker:1")["attempt"] == 2 and user.task("worker:1")["step"], PATIENCE_S, "a restart")
    user.dtctl("stop", timeout_s=120)
    user.dtctl("up", timeout_s=PATIENCE_S)
    eventually(lambda: user.outcome() == "Succeeded", PATIENCE_S, "the end")
    (began,) = re.findall(r"worker 0 starts at step (\d+)", user.dtctl("logs", "worker:0", "-n", "all"))
    assert int(began) > 0, "from the bucket"
    assert "digits/result.json" in bucket.names()
    assert all(not list(host.home.rglob("gs:")) for host in fleet.hosts), "a URL is no directory"
    assert "gs://runs/digits" in user.dtctl("metrics", "loss")
    user.dtctl("report", "-O", "page.html")
    assert re.search(r"<h3>loss</h3>.*from [\d.e-]+ at step \d+ to ", (user.project / "page.html").read_text(), re.S)


def program(user: Desk, bucket: Bucket) -> None:
    """The page's own program, in Python; between its steps the run trains."""
    env = {**user.env, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", examples(on_hosts=True)],
        cwd=user.project,
        env=env,
        capture_output=True,
        text=True,
        check=False,
        timeout=2 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stderr
    assert "{'gpu-2': 0, 'gpu-3': 0, 'gpu-4': 0}" in done.stdout, "it is there already"
    assert "{'gpu-2': 'complete', 'gpu-3': 'complete'}" in done.stdout
    assert done.stdout.count("('worker:1',)") == 2
    assert list((user.project / "best").glob("model.ckpt-*.index"))
