"""Where the values of secrets come from: a file that may be anything, and that others may be able to read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.config.cluster import Cluster, Trainer
from dtctl.errors import PreflightError
from dtctl.operations.local import exposure, find_secrets, read_env_file
from tests.fuzz import cases
from tests.unit.clusters import cluster


@pytest.fixture
def env_file(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    file = tmp_path / "prod.env"
    file.write_text("# ours\nexport API_KEY='hunter2'\n\nOTHER=a=b\n")
    file.chmod(0o600)
    return file


def of(env_file: Path) -> Cluster:
    return replace(cluster(), trainer=Trainer(code=env_file.parent, secrets=("API_KEY",), env_file=env_file))


def test_the_file_stands_over_the_environment(env_file: Path) -> None:
    assert find_secrets(of(env_file), {"API_KEY": "old"}) == {"API_KEY": "hunter2"}
    assert read_env_file(env_file) == {"API_KEY": "hunter2", "OTHER": "a=b"}


def missing(file: Path) -> None:
    file.unlink()


def fifo(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def endless(file: Path) -> None:
    file.unlink()
    file.symlink_to("/dev/zero")


def huge(file: Path) -> None:
    os.truncate(file, 1 << 40)


def latin1(file: Path) -> None:
    file.write_bytes(b"API_KEY=gr\xfc\xdfe\n")


def nul(file: Path) -> None:
    file.write_bytes(b"API_KEY=a\0b\n")


def no_line(file: Path) -> None:
    file.write_text("hunter2\n")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("spoil", [missing, fifo, directory, endless, huge, latin1, nul, no_line])
def test_a_file_that_cannot_be_used_is_an_error_that_quotes_nothing_of_it(env_file: Path, spoil: object) -> None:
    spoil(env_file)  # type: ignore[operator]
    with pytest.raises(PreflightError, match=str(env_file)) as error:
        find_secrets(of(env_file), {})
    assert "hunter2" not in f"{error.value.summary} {error.value.detail} {error.value.hint}"


def test_a_file_that_may_not_be_read_is_an_error(env_file: Path) -> None:
    if os.geteuid() == 0:
        env_file.parent.chmod(0o755)
        os.seteuid(65534)
    try:
        env_file.chmod(0) if os.geteuid() != 65534 else None
        with pytest.raises(PreflightError, match="cannot read the env_file"):
            read_env_file(env_file)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_read_is_warned_of(env_file: Path, mode: int) -> None:
    env_file.chmod(mode)
    exposed = exposure(of(env_file))
    assert exposed is not None
    assert f"by other users (mode 0{mode:o})" in exposed.what
    assert exposed.remedy == f"chmod 600 {env_file}"


def test_a_file_that_others_can_exchange_is_warned_of(env_file: Path) -> None:
    env_file.parent.chmod(0o777)
    exposed = exposure(of(env_file))
    assert exposed is not None
    assert exposed.remedy == f"chmod go-w {env_file.parent}"
    env_file.parent.chmod(0o1777)
    assert exposure(of(env_file)) is None


def test_a_file_of_ones_own_is_nothing_to_warn_of(env_file: Path) -> None:
    assert exposure(of(env_file)) is None
    assert exposure(cluster()) is None


@cases
@given(st.binary(max_size=200))
def test_any_file_gives_texts_or_an_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzz.env"
    file.write_bytes(content)
    try:
        values = read_env_file(file)
    except PreflightError:
        return
    assert all(name.isidentifier() and "\0" not in value for name, value in values.items())
