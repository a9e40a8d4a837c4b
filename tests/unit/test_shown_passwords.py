"""Passwords that a cluster file holds are in the output of no command that shows what would run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.conftest import Typed

PASSWORDS = ("hunter2a", "hunter2b", "hunter2c", "hunter2d", "hunter2e", "hunter2f", "hunter2g", "hunter2h", "hunter2i")
FILE = """\
name: demo
ssh: {port: 1, connect_timeout: 5s, identity_file: key}
hosts:
  node-1: {ssh: 127.0.0.1, env: {NODE_TOKEN: hunter2a, PIP_INDEX_URL: "https://me:hunter2b@pypi.example.com/"}}
  node-2: {TRANSPORT, address: 127.0.0.1}
jobs:
  ps: {hosts: [node-1], args: [--wandb_api_key, hunter2c, --dsn, "postgres://me:hunter2d@db/x"]}
  worker: {hosts: [node-2], env: {DB_PASSWORD: hunter2e, URL: "redis://:hunter2f@cache:6379/0", SEED: "7"}}
trainer:
  command: [python, train.py]
  args: {password: hunter2g, steps: 5}
  setup: "export API_KEY=hunter2h; make"
hooks: {x: {run: [notify, --token, hunter2i]}}
"""
SHOWS = (
    *("plan", "plan worker:0", "plan ps:0", "plan --all", "plan -o json", "up --dry-run", "up --dry-run -o json"),
    *(
        "plan --local",
        "plan --local -o json",
        "allow",
        "allow --yes",
        "allow -o json",
        "allow --local",
        "validate",
        "validate -o json",
    ),
    *("up", "up -o json"),
)


def written(transport: str) -> None:
    Path("key").touch()
    Path("cluster.yaml").write_text(FILE.replace("TRANSPORT", transport))


@pytest.mark.parametrize("transport", ["ssh: 127.0.0.1", "transport: local"])
@pytest.mark.parametrize("command", SHOWS)
def test_no_password_of_the_file_is_shown(typed: Typed, command: str, transport: str) -> None:
    written(transport)
    code, out, err = typed(command)
    assert [one for one in PASSWORDS if one in out + err] == []
    assert command.startswith("up") or code == 0, err


def test_what_is_no_secret_is_shown_beside_them(typed: Typed) -> None:
    written("ssh: 127.0.0.1")
    shown = typed("plan worker:0")[1]
    for text in ("SEED=7", "DB_PASSWORD='***'", "URL='redis://***@cache:6379/0'", "'--password=***'", "--steps=5"):
        assert text in shown
    assert "--wandb_api_key '***'" in typed("plan ps:0")[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("DB_PASSWORD: hunter2e", "DB_PASSWORD: {a: hunter2e}"),
        ("DB_PASSWORD: hunter2e", '"DB-PASSWORD=": hunter2e'),
        ('SEED: "7"}}', "SEED: [7]}}"),
        ("password: hunter2g", "password: {x: hunter2g}"),
        ("steps: 5", "steps: 5, bad: {x: 1}"),
        ("setup: ", "setupp: "),
    ],
)
def test_an_error_shows_its_line_without_passwords(typed: Typed, old: str, new: str) -> None:
    written("ssh: 127.0.0.1")
    file = Path("cluster.yaml")
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    code, out, err = typed("validate")
    assert code == 3
    assert [one for one in PASSWORDS if one in out + err] == []
