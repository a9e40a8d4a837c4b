"""The JobSet of `export jobset --with-agent` on separate hosts: its command, environment and names of services.

There is no Kubernetes: each host is the pod of a task, a stand-in for `kubectl` enters it, and /run/pod stands for the
places where a kubelet mounts the plan, the keys and the image's code.
"""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from dtctl.rooms.kubectl.holder import FAILED
from tests.desk import Desk, cluster_text, desk
from tests.hosts.fleet import Fleet, FleetHost
from tests.local.test_pods import states
from tests.waiting import eventually, read_until

pytestmark = pytest.mark.fleet

CLUSTER = cluster_text(jobs="{ps: {hosts: gpu-1}, worker: {hosts: [gpu-2, gpu-3]}}")
INSIDE = "/run/pod"
KUBECTL = """\
#!{python}
import json, os, sys
words = sys.argv[1:]
at = words.index("--")
job = next(word for word in words[:at] if word.startswith("job/"))[4:]
pods = json.load(open(os.environ["PODS"]))
if words[0] != "exec" or "--stdin" not in words or "--container=trainer" not in words or job not in pods:
    sys.exit(f'Error from server (NotFound): jobs.batch "{{job}}" not found')
os.execvp("nsenter", [*pods[job], *words[at + 1 :]])
"""


@dataclass
class Pod:
    """A pod of the exported JobSet, on a host of the fleet."""

    job: str
    host: FleetHost
    enter: list[str]
    """What runs a command in its container."""
    command: list[str]

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*self.enter, *self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


def pods_of(file: Path, fleet: Fleet, code: Path) -> list[Pod]:
    """The pods, with their files, as the controllers of JobSet and Job and a kubelet would make them."""
    config, keys, jobset = yaml.safe_load_all(file.read_text())
    name, found = jobset["metadata"]["name"], list[Pod]()
    for row in jobset["spec"]["replicatedJobs"]:
        (container,) = row["template"]["spec"]["template"]["spec"]["containers"]
        for index in range(row["replicas"]):
            host = fleet.hosts[len(found)]
            variables = {one["name"]: one.get("value", str(index)) for one in container["env"]}
            places = {one["name"]: one for one in container["volumeMounts"]}
            own = places["keys"]["subPathExpr"].replace("$(TASK_INDEX)", str(index))
            mounted = {f"plan/{key}": text.encode() for key, text in config["data"].items()}
            mounted |= {f"plan/{key}": base64.b64decode(text) for key, text in config["binaryData"].items()}
            mounted["keys.json"] = base64.b64decode(keys["data"][own])
            _mount(host, mounted, code)
            words = [word.replace("$(TASK_INDEX)", str(index)) for word in container["command"]]
            words = [word.replace("/etc/dtctl", INSIDE).replace("/workspace", f"{INSIDE}/code") for word in words]
            become = ["setpriv", f"--reuid={host.login.uid}", f"--regid={host.login.uid}", "--clear-groups"]
            environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", **variables}
            settings = [f"{key}={value}" for key, value in environ.items()]
            place = ["env", "--ignore-environment", f"--chdir={INSIDE}/code", *settings]
            enter = ["nsenter", f"--target={host.box.init}", "--all", *become, *place]
            found.append(Pod(f"{name}-{row['name']}-{index}", host, enter, words))
    services = "".join(f"{pod.host.address} {pod.job}-0.{name}\n" for pod in found)
    for pod in found:
        hosts = pod.host.directory / "hosts"
        hosts.write_text(hosts.read_text() + services)
    return found


def _mount(host: FleetHost, files: dict[str, bytes], code: Path) -> None:
    here = host.directory / "pod"
    shutil.rmtree(here, ignore_errors=True)
    shutil.copytree(code, here / "code")
    for path, content in files.items():
        (here / path).parent.mkdir(exist_ok=True)
        (here / path).write_bytes(content)
    host.exec("sh", "-c", f"rm -rf {INSIDE} && cp -r {here} {INSIDE} && chmod -R a+rX {INSIDE}", root=True)


@pytest.fixture
def user(fleet: Fleet, tmp_path: Path) -> Iterator[Desk]:
    """A desk without SSH, whose `kubectl` is the stand-in. At the end nothing of it runs on any host."""
    before = {host.name: (host.directory / "hosts").read_text() for host in fleet.hosts}
    with desk(tmp_path / "home") as made:
        program = tmp_path / "bin" / "kubectl"
        program.parent.mkdir()
        program.write_text(KUBECTL.format(python=sys.executable))
        program.chmod(0o755)
        made.env |= {"PATH": f"{program.parent}:{made.env['PATH']}", "PODS": str(tmp_path / "pods.json")}
        (tmp_path / "pods.json").write_text("{}")
        yield made
    for host in fleet.hosts:
        (host.directory / "hosts").write_text(before[host.name])
        eventually(lambda: not host.processes(), what=f"nothing to be left on {host.name}")  # noqa: B023


def exported(user: Desk, fleet: Fleet, **args: Any) -> list[Pod]:
    user.write_cluster(CLUSTER, hosts="hosts:\n  gpu-[1-3]:\n", **args)
    file = user.project.parent / "pods.yaml"
    user.dtctl("export", "jobset", "--with-agent", "--to", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    pods = pods_of(file, fleet, user.project)
    Path(user.env["PODS"]).write_text(json.dumps({pod.job: pod.enter for pod in pods}))
    return pods


@contextmanager
def started(pods: list[Pod]) -> Iterator[list[subprocess.Popen[str]]]:
    with ExitStack() as stack:
        running = [stack.enter_context(pod.start()) for pod in pods]
        try:
            yield running
        finally:
            for pod in pods:
                pod.host.exec("sh", "-c", "pkill -TERM -f holder[.]py || true", root=True)


def test_agents_in_pods_recover_a_task_and_are_stopped_over_kubectl(user: Desk, fleet: Fleet) -> None:
    pods = exported(user, fleet)
    with started(pods) as running:
        for one in running:
            read_until(one.stdout, "runs its part of run")
        eventually(lambda: set(states(user).values()) == {"running"}, what="all tasks to run")
        assert "worker:1 step" in user.dtctl("logs", "worker:1")
        pods[2].host.exec("pkill", "-9", "-f", "--", "job_name=worker", root=True)
        eventually(lambda: states(user) and user.task("worker:1")["attempt"] == 2, what="worker:1 to come back")
        eventually(lambda: set(states(user).values()) == {"running"}, what="all tasks to run again")
        assert user.dtctl("stop") == "3 tasks stopped, 0 left\n"
        ended = {pod.job: one.wait(60) for pod, one in zip(pods, running, strict=True)}
    assert ended == {"demo-ps-0": 0, "demo-worker-0": FAILED, "demo-worker-1": 0}


def test_pods_end_well_with_their_run(user: Desk, fleet: Fleet) -> None:
    pods = exported(user, fleet, seconds=2)
    with started(pods) as running:
        assert {one.wait(120) for one in running} == {0}
        (lead,) = [one for pod, one in zip(pods, running, strict=True) if pod.job == "demo-worker-0"]
        assert lead.stdout is not None
        assert "the run has ended: Succeeded" in lead.stdout.read()


def test_a_pod_that_is_not_there_is_reported_with_what_kubectl_says(user: Desk, fleet: Fleet) -> None:
    exported(user, fleet)
    Path(user.env["PODS"]).write_text("{}")
    done = user.run("logs", "worker:1")
    assert done.returncode == 4
    assert "no agent answers in the pod of worker-1" in done.stderr
    assert 'jobs.batch "demo-worker-1" not found' in done.stderr
