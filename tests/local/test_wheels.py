"""Wheels that pip of this machine gets for hosts without an index, and packages for which it gets none."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import InvalidValue, checked
from dtctl.agent.records.starting import PYTHON_FACTS, PythonFacts
from dtctl.config.cluster import Environment
from dtctl.errors import PreflightError
from dtctl.operations.up.wheels import Wheels
from tests.wheels import make_wheel

OWN = json.loads(subprocess.check_output([sys.executable, "-c", PYTHON_FACTS]))
OTHER: Any = {
    "abi": "cp39",
    "libc": "glibc 2.28",
    "markers": {**OWN["markers"], "python_version": "3.9", "platform_machine": "aarch64"},
}
BUILT = "Metadata-Version: 2.1\nName: built\nVersion: 1.0\n"
BACKEND = """\
import zipfile
def get_requires_for_build_wheel(config_settings=None): return []
def build_wheel(directory, config_settings=None, metadata_directory=None):
    name = "built-1.0-py3-none-any.whl"
    about = "built-1.0.dist-info/"
    with zipfile.ZipFile(directory + "/" + name, "w") as made:
        made.writestr("built.py", "")
        made.writestr(about + "METADATA", "Metadata-Version: 2.1\\nName: built\\nVersion: 1.0\\n")
        made.writestr(about + "WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        made.writestr(about + "RECORD", "")
    return name
"""


def source_package(index: Path) -> None:
    """A package that builds itself, without any tool."""
    top = index / "built-1.0"
    top.mkdir(parents=True)
    (top / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "made"\nbackend-path = ["."]\n')
    (top / "PKG-INFO").write_text(BUILT)
    (top / "made.py").write_text(BACKEND)
    with tarfile.open(index / "built-1.0.tar.gz", "w:gz") as archive:
        archive.add(top, "built-1.0")


def for_platform(index: Path, name: str, tag: str) -> None:
    make_wheel(index, name).rename(index / f"{name}-1.0-{tag}.whl")


Get = Callable[..., list[str]]


@pytest.fixture
def get(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Get:
    """Wheels by their file names, for hosts with such a Python, from an index of this machine."""
    index, code = tmp_path / "index", tmp_path / "code"
    code.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    make_wheel(index, "plain")
    make_wheel(index, "old")
    for_platform(index, "fast", "cp39-cp39-manylinux2014_aarch64")
    for_platform(index, "modern", "cp39-abi3-manylinux_2_34_aarch64")
    source_package(index)
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}

    def got(lines: str, facts: Any, **changed: Any) -> list[str]:
        (code / "requirements.txt").write_text(lines)
        (code / "json.py").write_text("raise SystemExit('the code is no module of pip')")
        said = dataclasses.replace(Environment(), requirements="requirements.txt", wheels=True)
        wanted = Wheels(said, code, {"requirements.txt": lines}, env, ("gpu-1", "gpu-2"), facts)
        return [file.path for file in dataclasses.replace(wanted, **changed).get().manifest.files]

    return got


@pytest.mark.parametrize(
    ("lines", "facts", "wheels"),
    [
        ("plain\nbuilt\n", OWN, ["built-1.0-py3-none-any.whl", "plain-1.0-py3-none-any.whl"]),
        ("plain\nfast\n", OTHER, ["fast-1.0-cp39-cp39-manylinux2014_aarch64.whl", "plain-1.0-py3-none-any.whl"]),
        (
            'plain; python_version < "3.10" and platform_machine == "aarch64"\nold; python_version >= "3.10"\n',
            OTHER,
            ["plain-1.0-py3-none-any.whl"],
        ),
        ("# nothing\n", OWN, []),
    ],
)
def test_wheels_fit_the_python_of_the_hosts(get: Get, lines: str, facts: Any, wheels: list[str]) -> None:
    assert get(lines, facts) == wheels


def test_wheels_are_fetched_once(get: Get) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("pip runs again")

    assert get("plain\n", OWN) == get("plain\n", OWN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wheels, "_run_pip", refuse)
        assert get("plain\n", OWN)
        with pytest.raises(AssertionError, match="pip runs again"):
            get("plain\n", OTHER)


@pytest.mark.parametrize(
    ("lines", "facts", "named", "hint"),
    [
        ("missing\n", OWN, "No matching distribution found for missing", "PIP_FIND_LINKS"),
        ("built\n", OTHER, "No matching distribution found for built", "source packages are built only for"),
        ("modern\n", OTHER, "No matching distribution found for modern", "source packages are built only for"),
        ("plain", {**OTHER, "markers": {**OTHER["markers"], "sys_platform": "darwin"}}, "", "without wheels: true"),
    ],
)
def test_a_package_without_a_wheel_is_reported_by_pip(get: Get, lines: str, facts: Any, named: str, hint: str) -> None:
    with pytest.raises(PreflightError) as refused:
        get(lines, facts)
    assert named in refused.value.detail
    assert hint in refused.value.hint
    assert "the hosts" in refused.value.hint or "gpu-[1-2]" in refused.value.summary


def test_a_password_of_an_index_is_masked_in_the_log_and_the_error(get: Get, tmp_path: Path) -> None:
    secret = {"PIP_INDEX_URL": "http://127.0.0.1:1/hunter2hunter2/simple"}
    with pytest.raises(PreflightError) as refused:
        get("plain\n", OWN, env={"PIP_RETRIES": "0"}, secrets=secret)
    (log,) = (tmp_path / "cache").rglob("*.log")
    assert "hunter2hunter2" not in refused.value.detail + log.read_text()
    assert "Looking in indexes: ***" in log.read_text()


@pytest.mark.parametrize("lie", ["../evil", "3.11 ", "", None, "-c"])
def test_a_host_cannot_name_a_program_of_this_machine(lie: Any) -> None:
    with pytest.raises(InvalidValue, match="a version of Python"):
        checked(PythonFacts, {**OWN, "markers": {**OWN["markers"], "python_version": lie}})


def test_a_wheel_of_the_code_is_sent(get: Get, tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path / "code", "mine")
    assert zipfile.is_zipfile(wheel)
    assert get(f"./{wheel.name}\n", OTHER) == [wheel.name]
