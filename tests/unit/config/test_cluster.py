"""What a cluster file says, as values."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config.cluster import Cluster, Job, Recovery
from dtctl.config.load import check_cluster, load_cluster
from dtctl.model import Local, SshSettings

HEAD = """\
name: digits
trainer: {command: [python, train.py]}
"""
ONE_WORKER = (
    HEAD
    + """\
hosts: {a: }
jobs: {worker: {hosts: a}}
"""
)


@pytest.fixture
def write(tmp_path: Path) -> Path:
    """The file to write to; the code directory is the one that it is in."""
    return tmp_path / "cluster.yaml"


def load(file: Path, text: str, *overrides: str) -> Cluster:
    file.write_text(text)
    return load_cluster(file, overrides=overrides)


def load_jobs(file: Path, hosts: str, jobs: str) -> dict[str, Job]:
    return dict(load(file, f"{HEAD}hosts: {hosts}\njobs: {jobs}\n").jobs)


def test_the_design_of_a_cluster_is_read_whole(write: Path) -> None:
    cluster = load(
        write,
        """\
name: digits
ssh: {user: train, host_keys: strict}
hosts:
  ps-a: {ssh: 10.0.0.10}
  gpu-[1-4]: {ssh: "10.0.0.2[1-4]", address: "192.168.7.2[1-4]", gpus: 2}
jobs:
  ps:        {hosts: [ps-a, ps-a], port: 2222}
  worker:    {hosts: "gpu-[1-4]", tasks_per_host: 2}
  evaluator: {hosts: [ps-a]}
trainer:
  code: .
  command: [python, train.py]
  args: {batch_size: 128, train_steps: 20000}
  dialect: tensorflow
  python: /opt/venv/bin/python
  setup: pip install -r requirements.txt
  env: {TF_CPP_MIN_LOG_LEVEL: "1"}
  secrets: [WANDB_API_KEY]
dirs: {data: /data/data, output: /data/output, work: /data, log: /data/output}
checkpoint: {dir: /data/output}
recovery: {max_restarts: 10, backoff: 1s..60s}
success: auto
""",
    )
    assert list(cluster.hosts) == ["ps-a", "gpu-1", "gpu-2", "gpu-3", "gpu-4"]
    gpu_3 = cluster.hosts["gpu-3"]
    assert gpu_3.reach == SshSettings(target="10.0.0.23", user="train")
    assert (gpu_3.address, gpu_3.gpus) == ("192.168.7.23", 2)
    assert list(cluster.jobs) == ["ps", "worker", "evaluator"]
    assert cluster.jobs["ps"].hosts == ("ps-a", "ps-a")
    assert cluster.jobs["ps"].ports == (2222, 2223)
    assert cluster.jobs["worker"].hosts == ("gpu-1", "gpu-1", "gpu-2", "gpu-2", "gpu-3", "gpu-3", "gpu-4", "gpu-4")
    assert cluster.jobs["worker"].ports == (2222, 2223) * 4
    assert cluster.jobs["evaluator"].ports == (2224,)
    assert cluster.jobs["ps"].launch.args == ("--batch_size=128", "--train_steps=20000")
    assert cluster.trainer.code == write.parent.resolve()
    assert cluster.trainer.secrets == ("WANDB_API_KEY",)
    assert dict(cluster.dirs) == {
        "data": "/data/data",
        "output": "/data/output",
        "work": "/data",
        "log": "/data/output",
    }
    assert cluster.file == write


def test_omitted_keys_have_defaults(write: Path) -> None:
    cluster = load(write, ONE_WORKER)
    assert cluster.hosts["a"].reach == SshSettings(target="a")
    assert (cluster.recovery, cluster.success, cluster.grace_s) == (Recovery(), "auto", 30.0)
    assert (cluster.checkpoint_dir, dict(cluster.dirs)) == (None, {})
    assert cluster.jobs["worker"].launch.dialect == "tensorflow"
    assert cluster.trainer.code == write.parent.resolve()


@pytest.mark.parametrize(
    ("entry", "settings"),
    [
        ("", SshSettings("gpu", user="train", port=2200)),
        ("10.0.0.1", SshSettings("10.0.0.1", user="train", port=2200)),
        ("bob@10.0.0.1:22", SshSettings("10.0.0.1", user="bob", port=22)),
        ("{ssh: bob@10.0.0.1}", SshSettings("10.0.0.1", user="bob", port=2200)),
        ("{ssh: {port: 22}}", SshSettings("gpu", user="train", port=22)),
        ("{ssh: {target: x, jump: 'me@gate:2022'}}", SshSettings("x", user="train", port=2200, jump="me@gate:2022")),
        ("{ssh: '[fe80::1]:22'}", SshSettings("fe80::1", user="train", port=22)),
        ("{ssh: 'fe80::1'}", SshSettings("fe80::1", user="train", port=2200)),
        ("{ssh: {host_keys: accept-new}}", SshSettings("gpu", user="train", port=2200, host_keys="accept-new")),
        ("{transport: local}", Local()),
    ],
)  # fmt: skip
def test_a_host_overrides_the_defaults_of_ssh(write: Path, entry: str, settings: SshSettings | Local) -> None:
    text = f"{HEAD}ssh: {{user: train, port: 2200}}\nhosts:\n  gpu: {entry}\njobs: {{worker: {{hosts: gpu}}}}\n"
    assert load(write, text).hosts["gpu"].reach == settings


def test_files_of_ssh_start_beside_the_cluster_file_or_at_home(write: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    text = ONE_WORKER + "ssh: {identity_file: ~/.ssh/id, known_hosts: keys/known, connect_timeout: 500ms}\n"
    ssh = load(write, text).hosts["a"].reach
    assert ssh == SshSettings(
        "a",
        identity_file="/home/ann/.ssh/id",
        known_hosts=str(write.parent / "keys/known"),
        project=str(write.parent),
        connect_timeout_s=0.5,
    )


def test_a_value_without_a_range_is_shared_and_one_with_a_range_is_dealt_out(write: Path) -> None:
    text = f"""\
{HEAD}
hosts:
  n[08-10]: {{ssh: {{target: "10.0.0.[1-2,9]", identity_file: "/keys/[1-3]", user: ann}}, env: {{PATTERN: "[0-9]"}}}}
jobs: {{worker: {{hosts: "n[08-10]"}}}}
"""
    hosts = load(write, text).hosts
    assert [host.reach for host in hosts.values()] == [
        SshSettings("10.0.0.1", user="ann", identity_file="/keys/1"),
        SshSettings("10.0.0.2", user="ann", identity_file="/keys/2"),
        SshSettings("10.0.0.9", user="ann", identity_file="/keys/3"),
    ]
    assert [host.env["PATTERN"] for host in hosts.values()] == ["[0-9]"] * 3


@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("args", "{batch_size: 128}", ["--batch_size=128"]),
        ("args", "{lr: 1e-4, ratio: 1.10, zero: 007}", ["--lr=1e-4", "--ratio=1.10", "--zero=007"]),
        ("args", "{sync: true, log: false, more: null}", ["--sync"]),
        ("args", "{sync: 'true', empty: ''}", ["--sync=true", "--empty="]),
        ("args", "{layers: [64, 1.0, true, x y]}", ["--layers=64,1.0,true,x y"]),
        ("args", "{text: 'a b\"c$d'}", ['--text=a b"c$d']),
        ("args", "[-v, --lr, 1e-4, true]", ["-v", "--lr", "1e-4", "true"]),
        ("args", "{}", []),
        ("args", "", []),
        ("command", "[python, -m, pkg.train]", ["python", "-m", "pkg.train"]),
        ("command", "python -m 'my train'", ["python", "-m", "my train"]),
        ("command", "[./run, 1.10, true]", ["./run", "1.10", "true"]),
        (
            "env",
            "{A: 1.10, B: True, C: 0x10, D: '', E: no}",
            {"A": "1.10", "B": "True", "C": "0x10", "D": "", "E": "no"},
        ),
        ("env", "{F: 'a b', G: 12:30}", {"F": "a b", "G": "12:30"}),
    ],
)
def test_values_of_a_launch_are_kept_as_written(
    write: Path, key: str, text: str, expected: list[str] | dict[str, str]
) -> None:
    trainer = {"command": "[python, train.py]", key: text}
    text = ONE_WORKER.replace("command: [python, train.py]", ", ".join(f"{k}: {v}" for k, v in trainer.items()))
    assert type(expected)(getattr(load(write, text).jobs["worker"].launch, key)) == expected


def test_a_job_stands_over_the_trainer(write: Path) -> None:
    text = """\
name: n
hosts: {a: }
trainer: {command: [python, a.py], args: {x: 1, y: 2}, env: {A: 1, B: 2}}
jobs:
  w: {hosts: a, command: b.py, args: {y: false, z: 3}, env: {B: 3}, dialect: flags}
  v: {hosts: a}
"""
    jobs = load(write, text).jobs
    assert jobs["w"].launch.command == ("b.py",)
    assert jobs["w"].launch.args == ("--x=1", "--z=3")
    assert dict(jobs["w"].launch.env) == {"A": "1", "B": "3"}
    assert jobs["w"].launch.dialect == "flags"
    assert jobs["v"].launch.args == ("--x=1", "--y=2")
    assert jobs["v"].launch.dialect == "tensorflow"


def test_a_list_of_args_replaces_those_of_the_trainer(write: Path) -> None:
    trainer = "trainer: {command: a, args: {x: 1}}"
    jobs = load(write, f"name: n\nhosts: {{a: }}\n{trainer}\njobs: {{w: {{hosts: a, args: [-v]}}}}").jobs
    assert jobs["w"].launch.args == ("-v",)


@pytest.mark.parametrize(
    ("trainer", "job", "dialect", "template"),
    [
        ("template: '--s={w_hosts} --i={task_index}'", "", "template", ("--s={w_hosts}", "--i={task_index}")),
        ("template: '--s {w_hosts| space} --x'", "", "template", ("--s", "{w_hosts|space}", "--x")),
        ("template: ['{task}']", "dialect: none", "none", ()),
        ("dialect: flags", "template: ['{job_name}']", "template", ("{job_name}",)),
        ("dialect: tf_config", "", "tf_config", ()),
    ],
)
def test_a_template_is_a_dialect_of_its_own(
    write: Path, trainer: str, job: str, dialect: str, template: tuple[str, ...]
) -> None:
    text = f"name: n\nhosts: {{a: }}\ntrainer: {{command: a, {trainer}}}\njobs: {{w: {{hosts: a, {job}}}}}"
    launch = load(write, text).jobs["w"].launch
    assert (launch.dialect, launch.template) == (dialect, template)


@pytest.mark.parametrize(
    ("recovery", "expected"),
    [
        ("{backoff: 1s..60s}", {"backoff_min_s": 1.0, "backoff_max_s": 60.0}),
        ("{backoff: 5s, max_restarts: 0}", {"backoff_min_s": 5.0, "backoff_max_s": 5.0, "max_restarts": 0}),
        ("{backoff: 500ms..2m}", {"backoff_min_s": 0.5, "backoff_max_s": 120.0}),
        ("{mode: never}", {"max_restarts": 0, "max_run_restarts": 0}),
        ("{retry: [2, 1, 1]}", {"retry": (1, 2), "permanent": ()}),
        ("{permanent: [137, 9]}", {"retry": (42, 139, 143), "permanent": (9, 137)}),
    ],
)
def test_recovery_is_read(write: Path, recovery: str, expected: dict[str, object]) -> None:
    found = load(write, ONE_WORKER + f"recovery: {recovery}\n").recovery
    assert {name: getattr(found, name) for name in expected} == expected


def test_durations_accept_none_auto_and_off(write: Path) -> None:
    text = "active_deadline: none\nttl: none\nsettle: auto\nrecovery: {stall: off, host_timeout: never}\n"
    cluster = load(write, ONE_WORKER + text)
    assert (cluster.active_deadline_s, cluster.ttl_s, cluster.settle_s) == (None, None, None)
    assert (cluster.recovery.stall_s, cluster.recovery.host_timeout_s) == (0.0, None)
    assert load(write, ONE_WORKER + "recovery: {stall: auto}\n").recovery.stall_s is None
    text = "active_deadline: 12h\nttl: 7d\nsettle: 0\nrecovery: {stall: 90s, host_timeout: 5m}\n"
    cluster = load(write, ONE_WORKER + text)
    assert (cluster.active_deadline_s, cluster.ttl_s, cluster.settle_s) == (43200.0, 604800.0, 0.0)
    assert (cluster.recovery.stall_s, cluster.recovery.host_timeout_s) == (90.0, 300.0)


def test_depends_on_is_read_as_given_empty_or_absent(write: Path) -> None:
    jobs = load_jobs(
        write, "{a: }", "{x: {hosts: a, depends_on: [y, y]}, y: {hosts: a, depends_on: []}, z: {hosts: a}}"
    )
    assert [job.depends_on for job in jobs.values()] == [("y",), (), None]


def test_code_and_env_file_start_beside_the_cluster_file(write: Path) -> None:
    (write.parent / "src").mkdir()
    (write.parent / ".env").write_text("KEY=1\n")
    trainer = load(write, ONE_WORKER.replace("train.py]", "train.py], code: src, env_file: .env")).trainer
    assert (trainer.code, trainer.env_file) == (write.parent.resolve() / "src", write.parent.resolve() / ".env")


def test_a_key_without_a_value_is_not_written(write: Path) -> None:
    cluster = load(write, ONE_WORKER + "dirs:\ngrace:\nssh: {user: , port: null}\n")
    assert (cluster.grace_s, dict(cluster.dirs), cluster.hosts["a"].reach) == (30.0, {}, SshSettings("a"))


CLUSTER = "name: demo\nhosts: {a: }\njobs: {worker: {hosts: a}}\ntrainer: {command: python train.py}\nhooks:\n"


def write_hooks(tmp_path: Path, hooks: str) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER + hooks)
    return file


def test_hooks_are_read_with_their_events(tmp_path: Path) -> None:
    file = write_hooks(
        tmp_path, "  web: {post: '${URL}', on: failed stalled}\n  here: {run: ./tell.sh now, timeout: 3s}\n"
    )
    found = load_cluster(file).hooks
    assert (found["web"].post, found["web"].on, found["web"].variables) == ("${URL}", ("failed", "stalled"), ("URL",))
    assert (found["here"].run, found["here"].timeout_s) == (("./tell.sh", "now"), 3.0)
    assert found["here"].on == ("succeeded", "failed")


@pytest.mark.parametrize(
    ("hooks", "doubted"),
    [
        ("  web: {post: 'https://hooks.slack.com/services/T0/B0/x'}\n", "hooks.web.post looks as if it held a secret"),
        ("  web: {post: 'https://x.example.com/?token=abcdefgh'}\n", "hooks.web.post looks as if it held a secret"),
        ("  web: {post: 'https://x/', headers: {Authorization: Bearer x}}\n", "hooks.web.headers.Authorization looks"),
        ("  web: {post: 'http://x.example.com/${TOKEN}'}\n", "hooks.web.post sends secrets unencrypted"),
        ("  web: {post: 'http://127.0.0.1:8000/${TOKEN}'}\n", ""),
        ("  web: {post: 'https://hooks.slack.com/services/${TOKEN}'}\n", ""),
        ("  web: {post: '${URL}', headers: {Authorization: 'Bearer ${TOKEN}'}}\n", ""),
    ],
)
def test_a_secret_in_the_file_is_doubted(tmp_path: Path, hooks: str, doubted: str) -> None:
    doubts = [doubt.summary for doubt in check_cluster(write_hooks(tmp_path, hooks), overrides=[]).findings.doubts]
    assert [doubted in doubt for doubt in doubts] == ([True] if doubted else [])


def test_settings_are_the_keys_as_they_are_written_without_secrets_and_routes(write: Path) -> None:
    text = (
        "name: digits\nssh: {user: me}\nhosts: {a: 10.0.0.1}\njobs: {worker: {hosts: a, port: 0x900}}\ngrace: 1m\n"
        "hooks: {end: {on: [failed], post: 'https://example.org/T0KEN'}}\n"
        "trainer:\n  command: [python, train.py, --api_key, sk-1]\n  secrets: [WANDB_API_KEY]\n"
        f"  args: {{rate: 1e-4, token: abc, long: {'x' * 300}}}\n  env: {{PASSWORD: p}}\n"
    )
    settings = dict(load(write, text, "trainer.args.rate=1e-3").settings)
    assert settings.pop("trainer.args.long").startswith("x" * 200 + "... (sha256 ")
    assert settings == {
        "name": "digits",
        "jobs.worker.hosts": "a",
        "jobs.worker.port": "0x900",
        "grace": "1m",
        "trainer.command": "python train.py --api_key ***",
        "trainer.secrets": "WANDB_API_KEY",
        "trainer.args.rate": "1e-3",
        "trainer.args.token": "***",
        "trainer.env.PASSWORD": "***",
    }
