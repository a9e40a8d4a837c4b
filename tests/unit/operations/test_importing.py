"""`import` makes a cluster.yaml of what people have: each source below is written as such files are published."""

# ruff: noqa: E501 (sources as they are written)
from __future__ import annotations

import json
from pathlib import Path

import pytest

from dtctl.config.cluster import Cluster
from dtctl.config.load import load_cluster
from dtctl.errors import ConfigError, UsageError
from dtctl.model import SshSettings
from dtctl.operations.up.launch import make_plan
from dtctl.rooms.importing.operation import Imported, make, write

SOURCES = {
    "open-mpi": ("hostfile", "# rack 3\nada slots=2 max_slots=4\nbob slots=2\n", "worker 4: ada ada bob bob"),
    "mpich": ("hostfile", "n01:2\nn02:1  # slow\nn03\n", "worker 4: n01 n01 n02 n03"),
    "names alone": ("hostfile", "10.1.0.4\n10.1.0.5\n", "worker 2: 10.1.0.4 10.1.0.5"),
    "repeated": ("hostfile", "ada\nada\nbob\n", "worker 3: ada ada bob"),
    "with users": ("hostfile", "train@ada slots=1\ntrain@bob slots=1\n", "worker 2: ada bob"),
    "no slots here": ("hostfile", "login slots=0\nada slots=1\n", "worker 1: ada"),
    "horovodrun": ("hosts", "-H ada:4,bob:4", "worker 8: ada ada ada ada bob bob bob bob"),
    "plain": ("hosts", "ada:1,bob:1", "worker 2: ada bob"),
    "mpirun": ("hosts", "mpirun -np 4 --host ada:2,bob:2 -bind-to none python train.py --epochs 3", "worker 4: ada ada bob bob"),
    "addresses": ("addresses", "10.0.0.1:2222\n10.0.0.2:2222\n", "worker 2: 10.0.0.1 10.0.0.2"),
    "with commas": ("addresses", "ada:2222,bob:2223", "worker 2: ada bob"),
    "flags": (
        "addresses",
        "python train.py --ps_hosts=ada:2222 --worker_hosts=bob:2222,cy:2222 --job_name=ps --task_index=0\n",
        "ps 1: ada; worker 2: bob cy",
    ),
    "one machine": ("addresses", "localhost:2221\nlocalhost:2222\n", "worker 2: localhost localhost"),
    "clush": ("clush", "ps: store[1-2]\nworkers: gpu[01-03],gpu[05]\nall: @ps,@workers\n", "ps 2: store1 store2; worker 4: gpu01 gpu02 gpu03 gpu05"),
    "clush of one": ("clush", "all: node-[1-3]\n", "worker 3: node-1 node-2 node-3"),
    "tf_config": (
        "tf_config",
        '{"cluster": {"chief": ["a:2222"], "worker": ["b:2222", "c:2222"], "ps": ["d:3000", "d:3001"]},\n'
        ' "task": {"type": "worker", "index": 0}}',
        "chief 1: a; worker 2: b c; ps 2: d d",
    ),
    "env file": ("tf_config", "A=1\nexport TF_CONFIG='{\"cluster\": {\"worker\": [\"a:1\"]}}'\n", "worker 1: a"),
    "sparse": ("tf_config", '{"cluster": {"worker": {"1": "b:2222"}, "ps": ["a:2222"]}}', "worker 1: b; ps 1: a"),
    "ini": (
        "ansible",
        "[gpu]\nweb[01:03] ansible_user=ubuntu\n\n[ps]\nstore ansible_host=10.0.0.9 ansible_port=2200\n\n"
        "[workers:children]\ngpu\n\n[all:vars]\nansible_user=root\nansible_password=hunter22\n",
        "ps 1: store; worker 3: web01 web02 web03",
    ),
    "ini without groups": ("ansible", "ada ansible_host=10.0.0.1\nbob ansible_host=10.0.0.2\n", "worker 2: ada bob"),
    "ini letters": ("ansible", "[db]\ndb-[a:c].example.com\n", "worker 3: db-a.example.com db-b.example.com db-c.example.com"),
    "ini steps": ("ansible", "[all]\nn[1:5:2] gpus=2\n", "worker 3: n1 n3 n5"),
    "json of ansible": (
        "ansible",
        '{"_meta": {"hostvars": {"ada": {"ansible_host": "10.0.0.1"}}}, "gpu": {"hosts": ["ada", "bob"]}}',
        "worker 2: ada bob",
    ),
}  # fmt: skip
SOURCES["yaml"] = (
    "ansible",
    "all:\n  vars: {ansible_user: train}\n  children:\n    workers:\n      hosts:\n        gpu[1:2]:\n"
    "    ps:\n      hosts:\n        store:\n          ansible_host: 10.0.0.9\n"
    "          api_token: !vault |\n            $ANSIBLE_VAULT;1.1;AES256\n            3331\n",
    "ps 1: store; worker 2: gpu1 gpu2",
)

TFJOB = """\
apiVersion: v1
kind: Service
metadata: {name: board}
---
apiVersion: kubeflow.org/v1
kind: TFJob
metadata:
  name: digits
spec:
  runPolicy:
    cleanPodPolicy: None
    ttlSecondsAfterFinished: 600
    activeDeadlineSeconds: 7200
  successPolicy: AllWorkers
  tfReplicaSpecs:
    PS:
      replicas: 1
      restartPolicy: Never
      template:
        spec:
          containers:
            - name: tensorflow
              image: registry.example.com/digits:3
              command: [python, /opt/digits/train.py, --steps=100]
    Worker:
      replicas: 2
      restartPolicy: ExitCode
      template:
        spec:
          volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
          containers:
            - name: tensorflow
              image: registry.example.com/digits:3
              command: [python, /opt/digits/train.py, --steps=100]
              env:
                - {name: MODE, value: fast}
                - {name: WANDB_API_KEY, valueFrom: {secretKeyRef: {name: wandb, key: key}}}
                - {name: DB_PASSWORD, value: hunter22}
              resources: {limits: {nvidia.com/gpu: 1, memory: 4Gi}}
"""
SOURCES["tfjob"] = ("tfjob", TFJOB, "ps 1: ps-0; worker 2: worker-0 worker-1")


def imported(text: str, place: Path, **options: object) -> Imported:
    source = place / "source"
    source.write_text(text)
    given = {"kind": None, "name": "made", "jobs": (), **options}
    return make(str(source), place, **given)  # type: ignore[arg-type]


def loaded(made: Imported) -> Cluster:
    write(made, force=True)
    cluster = load_cluster(made.file)
    make_plan(cluster, lambda settings: settings.target)
    return cluster


@pytest.mark.parametrize("name", SOURCES)
def test_a_source_is_recognised_and_becomes_a_file_that_can_be_planned(name: str, tmp_path: Path) -> None:
    kind, text, jobs = SOURCES[name]
    made = imported(text, tmp_path)
    assert made.format == kind
    cluster = loaded(made)
    found = "; ".join(f"{job.name} {len(job.hosts)}: {' '.join(job.hosts)}" for job in cluster.jobs.values())
    assert found == jobs
    for secret in ("hunter22", "ANSIBLE_VAULT"):
        assert secret not in made.text


def test_an_inventory_keeps_how_hosts_are_reached_and_names_its_secrets(tmp_path: Path) -> None:
    made = imported(SOURCES["ini"][1], tmp_path)
    cluster = loaded(made)
    reach = {name: host.reach for name, host in cluster.hosts.items()}
    store, web = reach["store"], reach["web02"]
    assert isinstance(store, SshSettings)
    assert isinstance(web, SshSettings)
    assert (store.target, store.port, store.user) == ("10.0.0.9", 2200, "root")
    assert (web.target, web.user) == ("web02", "ubuntu")
    assert "ansible_password has a secret, which is not copied" in made.text
    assert f"# {tmp_path}/source:5:1" in made.text


def test_a_tfjob_keeps_policies_variables_and_names_of_secrets(tmp_path: Path) -> None:
    cluster = loaded(imported(TFJOB, tmp_path, name=None))
    assert (cluster.name, cluster.ttl_s, cluster.active_deadline_s) == ("digits", 600, 7200)
    assert (cluster.success, cluster.recovery.mode) == ("all-workers", "never")
    assert cluster.trainer.secrets == ("WANDB_API_KEY", "DB_PASSWORD")
    worker = cluster.jobs["worker"].launch
    assert worker.command == ("python", "/opt/digits/train.py", "--steps=100")
    assert worker.env == {"MODE": "fast"}
    assert [host.gpus for host in cluster.hosts.values()] == [0, 1, 1]
    assert cluster.trainer.environment is not None
    assert cluster.trainer.environment.container == "registry.example.com/digits:3"


def test_a_tf_config_comes_back_from_the_plan(tmp_path: Path) -> None:
    text = '{"cluster": {"chief": ["a:2221"], "worker": ["b:2222", "c:2222"], "ps": ["d:3000", "d:3001"]}}'
    cluster = loaded(imported(text, tmp_path))
    plan = make_plan(cluster, lambda settings: settings.target)
    assert json.loads(plan.tasks[0].env["TF_CONFIG"])["cluster"] == json.loads(text)["cluster"]


def test_a_command_is_taken_where_its_program_is(tmp_path: Path) -> None:
    text = SOURCES["mpirun"][1]
    assert imported(text, tmp_path).needs_command
    (tmp_path / "train.py").touch()
    made = imported(text, tmp_path)
    assert loaded(made).jobs["worker"].launch.command == ("python", "train.py", "--epochs", "3")


def test_groups_are_given_to_jobs_by_hand(tmp_path: Path) -> None:
    text = "[cpu]\na\nb\n[gpu]\nc\nd\ne\n"
    cluster = loaded(imported(text, tmp_path, jobs=("ps=a", "worker=gpu")))
    assert {name: job.hosts for name, job in cluster.jobs.items()} == {"ps": ("a",), "worker": ("c", "d", "e")}
    with pytest.raises(UsageError, match="no group and no host"):
        imported(text, tmp_path, jobs=("ps=nosuch",))


def test_slots_of_deepspeed_are_gpus(tmp_path: Path) -> None:
    made = imported("worker-1 slots=4\nworker-2 slots=4\n", tmp_path, kind="deepspeed")
    cluster = loaded(made)
    assert [host.gpus for host in cluster.hosts.values()] == [4, 4]
    assert cluster.jobs["worker"].launch.dialect == "pytorch"


MISTAKES = {
    "hostfile": ("ada slots=x\n", 1, "has no number of slots"),
    "hosts": ("-H ada:,bob", 1, "is not a host"),
    "addresses": ("ada:2222\nbob\n", 2, "is no address"),
    "clush": ("a: @b\nb: @a\n", 1, "contains itself"),
    "ansible": ("[gpu\nada\n", 1, "is no section"),
    "tf_config": ('{"cluster": {"worker": [1, [2]]}}', 1, "is no list"),
    "tfjob": ("kind: TFJob\nspec:\n  tfReplicaSpecs: {Boss: {}}\n", 3, "is no role"),
}


@pytest.mark.parametrize("kind", MISTAKES)
def test_a_mistake_has_its_place_and_a_hint(kind: str, tmp_path: Path) -> None:
    text, line, words = MISTAKES[kind]
    with pytest.raises(ConfigError) as raised:
        imported(text, tmp_path, kind=kind)
    (*_, problem) = raised.value.problems[:1]
    assert problem.place.line == line
    assert words in problem.summary
    assert problem.hint


@pytest.mark.parametrize("text", ["", "# nothing\n", "a b c = d ?\n", "\0", "ada:80\nbob:9000\n"])
def test_what_is_not_recognised_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        imported(text, tmp_path)


def test_a_source_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="more than"):
        imported("a\n" * 600_000, tmp_path)
    with pytest.raises(ConfigError):
        imported("n[1:99999999]\n", tmp_path, kind="ansible")
    with pytest.raises(ConfigError):
        imported("a slots=999999\n", tmp_path)


def test_a_file_is_overwritten_only_by_force(tmp_path: Path) -> None:
    made = imported("ada\nbob\n", tmp_path)
    write(made, force=False)
    with pytest.raises(UsageError, match="already exists"):
        write(made, force=False)
    write(made, force=True)


def test_text_of_a_source_stays_in_its_comment(tmp_path: Path) -> None:
    made = imported("ada slots=1 xy\x1b=1\n", tmp_path, kind="hostfile")
    assert not any(ord(one) < 32 and one != "\n" for one in made.text)
    assert loaded(made).name == "made"


@pytest.mark.parametrize("force", [False, True])
def test_a_directory_that_is_missing_is_made(force: bool, tmp_path: Path) -> None:
    (tmp_path / "source").write_text("ada\nbob\n")
    made = make(str(tmp_path / "source"), tmp_path / "new", kind=None, name=None, jobs=())
    write(made, force=force)
    assert load_cluster(tmp_path / "new/cluster.yaml").name == "new"
