"""Every command on a cluster.yaml from a stranger: nothing of it is executed here, and no file of the user changes."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main

from dtctl.cli.app import app
from dtctl.errors import ExitCode
from tests.desk import Desk, desk
from tests.nights import at_night

COMMANDS = sorted(set(typer.main.get_command(app).commands) - {"init", "import", "explain", "schema"})  # type: ignore[attr-defined]
WORDS = {
    "down": ["--yes"],
    "exec": ["--", "true"],
    "export": ["jobset"],
    "replace": ["bad", "spare"],
    "restart": ["worker:0"],
    "scale": ["worker=1"],
    "ssh": ["bad"],
    "trust": ["--yes"],
}

PROXY = "Host *\n  ProxyCommand nc %h %p %r\n"
BAD = "$(touch${IFS}$HOME/hit)"


@pytest.fixture
def user(tmp_path: Path) -> Iterator[Desk]:
    with desk(tmp_path / "home") as made:
        made.write_ssh_config(PROXY)
        (made.home / ".bashrc").touch()
        made.env |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        yield made


def write(user: Desk, ssh: str, hosts: str = "bad: ") -> None:
    text = (
        f"name: demo\nssh: {ssh}\nhosts: {{{hosts}}}\njobs: {{worker: {{hosts: bad}}}}\ntrainer: {{command: 'true'}}\n"
    )
    (user.project / "cluster.yaml").write_text(text)


def arguments(command: str) -> list[str]:
    return [command, *WORDS.get(command, [])]


@pytest.mark.parametrize("command", at_night(COMMANDS, but=COMMANDS[::6]))
def test_no_command_executes_a_host_name(user: Desk, command: str) -> None:
    write(user, f"{{user: '{BAD}', jump: 'ok,{BAD}'}}", f"bad: '{BAD}', spare: 'x@{BAD}:22'")
    done = user.run(*arguments(command))
    assert done.returncode == ExitCode.CONFIG, done.stdout + done.stderr
    assert "cluster.yaml:2:13" in done.stderr
    assert "cluster.yaml:3:14" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (user.home / "hit").exists()


@pytest.mark.parametrize("command", at_night(COMMANDS, but=("up", "exec", "ssh", "trust")))
def test_no_command_executes_an_option(user: Desk, command: str) -> None:
    write(user, "{connect_timeout: 1s}")
    first, *rest = arguments(command)
    done = user.run(first, "-u" if COMMANDS.index(command) % 2 else "-J", BAD, *rest)
    assert done.returncode == ExitCode.USAGE, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert not (user.home / "hit").exists()


@pytest.mark.parametrize("command", ["status", "trust", "plan", "validate"])
def test_no_command_executes_a_host_name_of_a_run_record(user: Desk, command: str) -> None:
    """The record is as an earlier version may have left it."""
    write(user, "{connect_timeout: 1s}")
    file = user.project / "cluster.yaml"
    host = {"name": "bad", "ssh": {"target": BAD, "user": BAD}, "address": None, "gpus": 0, "python": None}
    record = {"version": 1, "cluster": "demo", "run": "demo-1", "file": str(file), "hosts": [host], "lead": "worker:0"}
    record |= {"roster": [["worker:0", "bad"]], "success": "lead", "created": 1.0}
    state = user.home / ".local" / "state" / "dtctl"
    (state / "runs").mkdir(parents=True, mode=0o700)
    (state / "runs" / "demo-1.json").write_text(json.dumps(record))
    (state / "current").write_text("demo-1\n")
    done = user.run(command)
    assert "Traceback" not in done.stderr
    assert not (user.home / "hit").exists()


RECORDING_SSH = """\
#!/bin/sh
printf '%s\\n' "$@" >> ~/words
for word; do [ "$word" != -G ] || exec {ssh} "$@"; done
exit 255
"""
OPTION = "-oProxyCommand=touch $HOME/hit"


@pytest.mark.parametrize("key", ["target", "user", "jump", "identity_file", "known_hosts"])
@pytest.mark.parametrize("text", at_night([OPTION, f'key" {OPTION} "', f"key\n{OPTION}"], but=[OPTION]))
def test_no_setting_becomes_an_option_of_openssh(user: Desk, key: str, text: str) -> None:
    program = user.home / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(RECORDING_SSH.format(ssh=shutil.which("ssh")))
    program.chmod(0o755)
    user.env["PATH"] = f"{program.parent}:{user.env['PATH']}"
    (user.home / "words").touch()
    ssh, host = {"client": "openssh", "user": "train", key: text}, {"target": "127.0.0.1"}
    host |= {key: ssh.pop(key)} if key == "target" else {}
    write(user, json.dumps(ssh), f"bad: {json.dumps({'ssh': host})}")
    for command in ("status", "trust", "ssh"):
        done = user.run(*arguments(command))
        assert "Traceback" not in done.stderr
        assert done.returncode
    assert not any(line.startswith(OPTION[:4]) for line in (user.home / "words").read_text().splitlines())
    assert not (user.home / "hit").exists()
