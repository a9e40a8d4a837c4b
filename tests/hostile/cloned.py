"""A directory from elsewhere, with every trick that a cluster file and what lies beside it could try here."""

from __future__ import annotations

import os
from pathlib import Path

from tests.desk import Desk

BENIGN = """\
name: demo
hosts: {trap: {transport: local}}
jobs: {worker: {hosts: trap}}
trainer: {code: code, command: [python, train.py], dialect: none}
ports: auto
grace: 1s
"""
HOSTILE = """\
name: demo
ssh: {known_hosts: known_hosts, identity_file: id_of_the_repo, connect_timeout: 2s}
hosts:
  trap:
    transport: local
    address: 127.0.0.1
    HOST
    env: {PYTHONPATH: "src/repo:repo:PROJECT", PATH: "PROJECT/bin", LD_LIBRARY_PATH: PROJECT, PYTHONHOME: PROJECT}
  far: {ssh: {target: 127.0.0.1, port: 9}}
spares: [far]
jobs: {worker: {hosts: trap}}
trainer:
  code: code
  command: [COMMAND, train.py]
  dialect: none
  setup: "RAN/setup"
  TRAINER
hooks:
  words: {run: [sh, -c, "RAN/hook"], on: [succeeded, failed, stopped]}
  script: {run: [./notify.sh], on: [succeeded, failed, stopped]}
ports: auto
grace: 1s
"""
WAYS_TO_A_PYTHON = {
    "of the host": ("python: ~/project/python", "python", ""),
    "of the trainer": ("", "python", "python: ~/project/python"),
    "of a venv": ("", "python", "venv: ~/project"),
    "as the command": ("", "PROJECT/python", ""),
    "by the PATH": ("", "python3", "python: python3"),
    "by its variables": ("", "python", ""),
}
"""What stands in place of HOST, COMMAND and TRAINER."""

PROGRAMS = (
    *("python", "bin/python", "bin/python3", "bin/nvidia-smi", "bin/ssh", "bin/git", "bin/sshd", "bin/tensorboard"),
    *("notify.sh", "dtctl", ".git/hooks/post-index-change", ".git/hooks/fsmonitor"),
)
MODULES = ("sitecustomize", "usercustomize", "json", "importlib", "yaml", "typing", "site", "dtctl", "nvidia/__init__")

SECRET = "theSecretOfTheUser0123456789"

COMMANDS = (
    *("validate", "plan", "plan worker:0", "up --dry-run", "check", "check --deep", "check --local", "check -o json"),
    *("up", "up -q --replace", "up -f", "up -o json", "push", "trust --yes", "explain hang", "schema"),
    *("status", "status -o json", "diagnose", "logs", "logs -n all", "events", "metrics", "dump", "runs", "wait"),
    *("wait -o json", "logs -f", "report -O -", "checkpoints", "checkpoints verify --all", "tensorboard", "dashboard"),
    *("top", "exec @trap -- true", "ssh far true", "init elsewhere", "replace trap far -y", "restart worker:0"),
    *("report", "tensorboard --copy", "stop", "gc --dry-run", "gc -y", "down -y"),
)
"""As they are typed in the directory, in this order. Not `allow` and `up --local`, by which a user says yes."""
ENDLESS = ("tensorboard", "dashboard")

SECRETS = {
    "site.crt": "Bag Attributes\n    friendlyName: x\n-----BEGIN PRIVATE KEY-----\n"
    "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7%s\n-----END PRIVATE KEY-----\n",
    "terraform.tfstate": '{"password": "%s"}',
    "prod.tfvars": 'password = "%s"\n',
    "secrets.yaml": "token: %s\n",
    "credentials.json": '{"private_key": "%s"}',
    ".cargo/credentials.toml": '[registry]\ntoken = "%s"\n',
    ".hf_token": "hf_%s",
    "kubeconfig": "apiVersion: v1\nkind: Config\nusers: [{user: {token: %s}}]\n",
    ".bash_history": "export AWS_SECRET_ACCESS_KEY=%s\n",
}
HOSTILE_NAMES = ("-rf", "$(touch PWNED)", "a;touch PWNED", "\x1b]0;pwned\x07.py", "x\u202eyp.exe", "line\nbreak.txt")


def benign(home: Desk) -> None:
    """The directory before the tricks came, with which its user has worked."""
    (home.project / "cluster.yaml").write_text(BENIGN)
    _place(home, "code/train.py").write_text("print('step 1')\n")
    home.allow()


def plant(home: Desk) -> None:
    """What a later `git pull` brings."""
    for name in PROGRAMS:
        file = _place(home, name)
        file.write_text(f"#!/bin/sh\n{_ran(home, name)}\n")
        file.chmod(0o755)
    for module in MODULES:
        text = f"import os\nos.system({_ran(home, module)!r})\n"
        for below in ("", "repo/", "src/repo/", "code/", "lib/python3.11/site-packages/"):
            _place(home, f"{below}{module}.py").write_text(text)
    _place(home, "pyvenv.cfg").write_text("home = /usr/bin\n")
    _place(home, "lib/python3.11/site-packages/x.pth").write_text(f"import os; os.system({_ran(home, 'pth')!r})\n")
    _place(home, ".git/config").write_text(
        f"[core]\n\trepositoryformatversion = 0\n\tfsmonitor = {home.project}/.git/hooks/fsmonitor\n"
        f"\tsshCommand = {home.project}/bin/ssh\n\tpager = {home.project}/bin/git\n"
    )
    _place(home, ".git/HEAD").write_text("ref: refs/heads/main\n")
    for folder in ("objects", "refs"):
        (home.project / ".git" / folder).mkdir(exist_ok=True)
    (home.project / "known_hosts").symlink_to(home.home / ".ssh/authorized_keys")
    for name in HOSTILE_NAMES:
        _place(home, f"code/{name}").write_text("x")
    for name, text in SECRETS.items():
        _place(home, f"code/{name}").write_text(text % SECRET)
    write_file(home, "of the host")


def write_file(home: Desk, way: str) -> None:
    host, command, trainer = WAYS_TO_A_PYTHON[way]
    text = HOSTILE.replace("HOST", host).replace("COMMAND", command).replace("TRAINER", trainer)
    text = text.replace("PROJECT", str(home.project)).replace("RAN/", f": > {home.home}/ran/")
    (home.project / "cluster.yaml").write_text(text)


def furnish(home: Desk) -> None:
    """What is the user's, and nobody else's to change."""
    (home.home / "ran").mkdir()
    for name in (".ssh/authorized_keys", ".ssh/id_ed25519", ".ssh/config", ".bashrc", ".profile", "letters/one.txt"):
        (home.home / name).parent.mkdir(exist_ok=True, mode=0o700)
        (home.home / name).write_text("" if name == ".ssh/config" else f"{name} of the user\n")


OWN = (".dtctl", ".cache", ".local/state/dtctl", "dtctl", "project")
"""Where dtctl keeps things of its own, and the directory itself."""


def snapshot(home: Path) -> dict[str, str]:
    """Everything of the home that is the user's: contents, modes and links; what a program of the directory touches."""
    found = {}
    for folder, folders, files in os.walk(home):
        below = Path(folder).relative_to(home)
        folders[:] = [name for name in folders if str(below / name) not in OWN]
        for name in (*folders, *files):
            path = Path(folder, name)
            what = path.readlink() if path.is_symlink() else path.read_text() if path.is_file() else "a directory"
            found[str(below / name)] = f"{path.lstat().st_mode:o} {what}"
    return found


def _place(home: Desk, name: str) -> Path:
    file = home.project / name
    file.parent.mkdir(parents=True, exist_ok=True)
    return file


def _ran(home: Desk, name: str) -> str:
    return f": > {home.home}/ran/{name.replace('/', '_')}"  # without a program of the PATH
