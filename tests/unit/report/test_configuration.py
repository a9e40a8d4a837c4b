"""The cluster file in a report: whole, less its secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.operations.report.configuration import read_configuration

FILE = """\
name: digits   # a comment
hosts: {a: user@10.0.0.1, b: {gpus: 2, env: {}}}
trainer:
  command: [python, train.py, --api_key, sk-12345, --wandb_key=w5ndb, --steps, 10]
  secrets: [WANDB, DB_PASSWORD]
  env_file: secrets.env
  setup: |
    pip install --index-url https://joe:pw@pypi.example/simple x
    export GH_TOKEN=ghp_abc
  args: {auth_token: t0p, data: "s3://key:pass@bucket/x", author: Ann, note: the w1-value-z9 is in here}
  program: {wandb_key: w4ndb, url: "https://x/?sig=s1g&a=b", header: "Cookie: c00kie"}
  env:
    PASSWORDS: [one, two]
    DB_PASS: d8pass
    EMPTY:
"""


def shown(tmp_path: Path, environ: dict[str, str] | None = None) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text(FILE)
    (tmp_path / "secrets.env").write_text("DB_PASSWORD=w1-value-z9\n")
    return "\n".join(read_configuration(file, environ or {}).lines)


def test_what_is_no_secret_is_told_as_it_was_written(tmp_path: Path) -> None:
    text = shown(tmp_path)
    for line in ("name: digits", "  a: user@10.0.0.1", "    gpus: 2", "  - DB_PASSWORD", "  author: Ann", "  - 10"):
        assert line in text, line
    assert "comment" not in text


@pytest.mark.parametrize("secret", ["sk-12345", "joe", "pw@", "ghp_abc", "t0p", "key:pass", "w1-value-z9", "- one",
                                    "w4ndb", "w5ndb", "s1g", "c00kie", "d8pass"])  # fmt: skip
def test_secrets_are_masked_wherever_they_stand(tmp_path: Path, secret: str) -> None:
    text = shown(tmp_path)
    assert secret not in text
    assert text.count("***") >= 7


def test_the_value_of_a_secret_in_the_environment_is_masked_too(tmp_path: Path) -> None:
    assert "Ann" in shown(tmp_path, {"DB_PASSWORD": "x", "WANDB": "abc"})
    file = tmp_path / "other.yaml"
    file.write_text("trainer: {secrets: [MINE], env: {A: before-mine-after}}\n")
    assert "A: before-***-after" in "\n".join(read_configuration(file, {"MINE": "mine"}).lines)


def test_a_file_that_cannot_be_read_is_said_to_be_so(tmp_path: Path) -> None:
    assert "not known" in read_configuration(None, {}).problem
    assert "No such file" in read_configuration(tmp_path / "none.yaml", {}).problem
    (tmp_path / "odd.yaml").write_text("a: [")
    assert read_configuration(tmp_path / "odd.yaml", {}).problem
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    assert "cannot be read" in read_configuration(tmp_path / "bytes.yaml", {}).problem
    (tmp_path / "list.yaml").write_text("[a, b]")
    assert read_configuration(tmp_path / "list.yaml", {}).lines == ("- a", "- b")
