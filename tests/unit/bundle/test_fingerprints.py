"""Unchanged files are not read again, and no changed one is missed."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.bundle import scan
from dtctl.bundle.entries import Fingerprints
from dtctl.bundle.scanning import _Found
from dtctl.errors import PreflightError
from tests.fuzz import cases


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "dtctl"


@pytest.fixture
def code(tmp_path: Path) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('training')\n")
    return code


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that scans read."""
    names: list[str] = []
    really = _Found._read

    def noted(self: _Found, parent: int, path: str) -> tuple[os.stat_result, str, bytes]:
        names.append(Path(path).name)
        return really(self, parent, path)

    monkeypatch.setattr(_Found, "_read", noted)
    return names


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scans happen an hour after the files were written."""
    now = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)


@pytest.mark.usefixtures("cache", "later")
def test_an_unchanged_file_is_read_once(code: Path, read: list[str]) -> None:
    assert scan(code) == scan(code)
    assert read == ["train.py"]
    (code / "model.py").write_text("")
    scan(code)
    assert read == ["train.py", "model.py"]


@pytest.mark.usefixtures("cache")
def test_a_file_that_was_just_written_is_not_trusted(code: Path, read: list[str]) -> None:
    scan(code)
    scan(code)
    assert read == ["train.py", "train.py"]


@pytest.mark.usefixtures("cache", "later")
def test_a_change_that_keeps_size_and_modification_time_is_seen(code: Path) -> None:
    first = scan(code)
    times = (code / "train.py").stat()
    (code / "train.py").write_text("print('TRAINING')\n")
    os.utime(code / "train.py", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert scan(code).id != first.id


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", '{"version": 1}', '{"version": 99, "code": "x", "files": {}}', "\0\xff", "[" * 100_000],
)
def test_a_damaged_cache_is_passed_over_and_replaced(code: Path, cache: Path, read: list[str], text: str) -> None:
    bundle = scan(code)
    [file] = cache.iterdir()
    file.write_text(text)
    assert scan(code) == bundle
    assert scan(code) == bundle
    assert read == ["train.py", "train.py"]
    assert [path.name for path in cache.iterdir()] == [file.name]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("sha256", ["short", "0" * 64, "Z" * 64])
def test_damaged_entries_are_passed_over(code: Path, cache: Path, read: list[str], sha256: str) -> None:
    bundle = scan(code)
    [file] = cache.iterdir()
    file.write_text(file.read_text().replace(bundle.manifest.files[0].sha256, sha256))
    assert scan(code) == bundle
    assert read == ["train.py", "train.py"]


@cases
@given(place=st.integers(0, 10**6), byte=st.integers(0, 255), cut=st.booleans())
def test_no_damage_changes_what_is_sent(place: int, byte: int, cut: bool) -> None:
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", directory + "/cache")
        now = time.time_ns
        patch.setattr(time, "time_ns", lambda: now() + 3600 * 10**9)
        code = Path(directory, "code")
        code.mkdir()
        (code / "train.py").write_text("print('training')\n")
        bundle = scan(code)
        [file] = Path(directory, "cache", "dtctl").iterdir()
        content = bytearray(file.read_bytes())
        content[place % len(content)] = byte
        file.write_bytes(content[: place % len(content)] if cut else content)
        assert scan(code) == bundle


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o702])
def test_a_cache_that_others_may_write_to_is_refused(code: Path, cache: Path, mode: int) -> None:
    scan(code)
    cache.chmod(mode)
    with pytest.raises(PreflightError, match="can be written to by other users") as refused:
        scan(code)
    assert refused.value.hint.endswith(f"chmod 700 {cache}")


@pytest.mark.usefixtures("later")
@pytest.mark.timeout(120)
def test_nobody_waits_for_a_cache_that_is_a_fifo(code: Path, cache: Path) -> None:
    bundle = scan(code)
    [file] = cache.iterdir()
    file.unlink()
    os.mkfifo(file)
    assert scan(code) == bundle


@pytest.mark.usefixtures("later")
def test_a_cache_that_cannot_be_written_does_no_harm(code: Path, cache: Path) -> None:
    cache.parent.write_text("a file where the cache directory should be")
    assert scan(code) == scan(code)


@pytest.mark.usefixtures("later")
def test_code_directories_do_not_share_a_cache(code: Path, cache: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "train.py").write_text("other")
    assert scan(code).id != scan(other).id
    assert len(list(cache.iterdir())) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in cache.iterdir())


@pytest.mark.usefixtures("cache")
def test_what_is_gone_is_forgotten(code: Path) -> None:
    fingerprints = Fingerprints(code, now_ns=time.time_ns() + 10**10)
    fingerprints.put("gone", (code / "train.py").stat(), "0" * 64)
    fingerprints.save()
    found = (code / "train.py").stat()
    second = Fingerprints(code)
    assert second.get("gone", found) == "0" * 64
    Fingerprints(code).save()
    assert Fingerprints(code).get("gone", found) is None
