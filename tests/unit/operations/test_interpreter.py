"""Which Python trains on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.operations.local import Runtime, local_python


def environment(directory: Path, *marks: str) -> str:
    (directory / "bin").mkdir(parents=True)
    for name in ("python", "python3"):
        (directory / "bin" / name).touch(mode=0o755)
    for mark in marks:
        (directory / mark).touch()
    return str(directory)


def runtime(prefix: str, *, in_environment: bool = True) -> Runtime:
    return Runtime(f"{prefix}/bin/python", prefix, in_environment)


@pytest.mark.parametrize("mark", ["uv-receipt.toml", "pipx_metadata.json"])
def test_under_uv_tool_and_pipx_the_active_environment_trains(tmp_path: Path, mark: str) -> None:
    own = runtime(environment(tmp_path / "tools" / "dtctl", mark))
    active, conda = environment(tmp_path / "active"), environment(tmp_path / "conda")
    path = f"{environment(tmp_path / 'usual')}/bin"
    assert local_python({"VIRTUAL_ENV": active, "CONDA_PREFIX": conda, "PATH": path}, own) == f"{active}/bin/python"
    assert local_python({"CONDA_PREFIX": conda, "PATH": path}, own) == f"{conda}/bin/python"
    assert local_python({"PATH": path}, own) == f"{path}/python3"
    assert local_python({"PATH": "/nowhere"}, own) == own.executable


def test_a_dtctl_in_an_environment_of_the_users_own_trains_with_its_python(tmp_path: Path) -> None:
    own = runtime(environment(tmp_path / ".venv"))
    conda, active = environment(tmp_path / "conda"), environment(tmp_path / "active")
    assert local_python({"PATH": "/usr/bin"}, own) == own.executable
    assert local_python({"CONDA_PREFIX": conda}, own) == own.executable
    assert local_python({"VIRTUAL_ENV": active}, own) == f"{active}/bin/python"


def test_a_dtctl_of_the_system_gives_way_to_any_active_environment(tmp_path: Path) -> None:
    own = runtime("/usr", in_environment=False)
    conda = environment(tmp_path / "conda")
    assert local_python({"CONDA_PREFIX": conda}, own) == f"{conda}/bin/python"
    assert local_python({}, own) == "/usr/bin/python"


def test_an_environment_that_was_removed_does_not_count(tmp_path: Path) -> None:
    own = runtime("/usr", in_environment=False)
    assert local_python({"VIRTUAL_ENV": str(tmp_path / "gone")}, own) == "/usr/bin/python"
