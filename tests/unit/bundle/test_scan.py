"""Which files belong to a bundle, which cannot be sent, and that unchanged files are not read again."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent.bundles.tree import Manifest as AgentsManifest
from dtctl.bundle import Bundle, FileEntry, Manifest
from dtctl.bundle.entries import Fingerprints, OwnSecrets, check_utf8
from dtctl.bundle.ignore import IgnoreRules
from dtctl.bundle.scanning import _Found, leads_outside, scan
from dtctl.errors import ExitCode, PreflightError
from tests.fuzz import cases
from tests.impostors import fifo, local_socket
from tests.unit.privileges import public_directory, without_privileges


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Path]:
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").write_text("print('training')\n")
    yield code
    for path in [code, *code.rglob("*")]:
        if path.is_dir() and not path.is_symlink():
            path.chmod(0o700)


def paths(bundle: Bundle) -> list[str]:
    return [file.path for file in bundle.manifest.files]


def test_the_id_of_a_bundle_depends_on_content_and_modes_alone(code: Path, tmp_path: Path) -> None:
    first = scan(code)
    copy = tmp_path / "copy"
    copy.mkdir()
    (copy / "train.py").write_text("print('training')\n")
    assert scan(copy).id == first.id
    (copy / "train.py").chmod(0o755)
    assert scan(copy).id != first.id


def test_the_id_is_the_hash_of_the_canonical_manifest_that_agents_accept(code: Path) -> None:
    (code / "ä").mkdir(mode=0o750)
    (code / "ä" / "b\nc").write_text("x")
    (code / "link").symlink_to("ä")
    manifest = scan(code).manifest
    value = json.loads(manifest.canonical)
    assert json.dumps(value, sort_keys=True, separators=(",", ":")).encode() == manifest.canonical
    assert manifest.id == hashlib.sha256(manifest.canonical).hexdigest()
    assert value["files"][1][:3] == ["ä/b\nc", (code / "ä" / "b\nc").stat().st_mode & 0o777, 1]
    assert value["links"] == [["link", "ä"]]
    assert value["dirs"] == [["ä", 0o750]]
    assert [tuple(file) for file in manifest.files] == AgentsManifest.parse(manifest.canonical, manifest.id).files


def test_directories_and_sizes_are_known(code: Path) -> None:
    (code / "a" / "b").mkdir(parents=True)
    (code / "a-b").mkdir()
    (code / "a" / "b" / "ten").write_bytes(bytes(10))
    bundle = scan(code)
    assert [path for path, _ in bundle.manifest.dirs] == ["a", "a-b", "a/b"]
    assert bundle.total_bytes == 10 + len("print('training')\n")
    assert bundle.root == code


def test_setuid_and_sticky_bits_are_not_sent(code: Path) -> None:
    (code / "train.py").chmod(0o4755)
    assert scan(code).manifest.files[0].mode == 0o755


def test_links_that_stay_inside_are_kept_as_links(code: Path) -> None:
    (code / "models").mkdir()
    (code / "models" / "up").symlink_to("../train.py")
    (code / "later").symlink_to("not/yet/there")
    (code / "loop").symlink_to("loop")
    (code / "itself").symlink_to(".")
    links = dict(scan(code).manifest.links)
    assert links == {"models/up": "../train.py", "later": "not/yet/there", "loop": "loop", "itself": "."}


def not_utf8(path: Path) -> None:
    (path.parent / os.fsdecode(b"thing-\xff")).write_text("x")


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


@pytest.mark.parametrize(
    ("make", "summary"),
    [
        (fifo, "thing is a FIFO and cannot be sent"),
        (local_socket, "thing is a socket and cannot be sent"),
        (not_utf8, r"thing-\\xff is not UTF-8"),
        (link_to("/etc/hostname"), "thing is a link to a target outside the code directory"),
        (link_to("../outside"), "thing is a link to a target outside the code directory"),
        (link_to("models/../../outside"), "thing is a link to a target outside the code directory"),
        (link_to(os.fsdecode(b"\xff")), "thing leads to is not UTF-8"),
    ],
)
def test_unsendable_file_is_reported_with_a_remedy(code: Path, make: Callable[[Path], None], summary: str) -> None:
    make(code / "thing")
    with pytest.raises(PreflightError, match=summary) as refused:
        scan(code)
    assert ".dtctlignore" in refused.value.hint
    assert refused.value.exit_code == ExitCode.PREFLIGHT
    (code / ".dtctlignore").write_text("thing*\n")
    assert "thing" not in str(scan(code).manifest)


@pytest.mark.parametrize(("encoding", "errors"), [("latin-1", "strict"), ("ascii", "surrogateescape")])
def test_a_name_is_reported_as_invalid_or_as_unreadable_in_this_locale(
    encoding: str, errors: str, code: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = "grün".encode().decode(encoding, errors)
    monkeypatch.setattr("dtctl.bundle.entries.os.fsencode", lambda text: text.encode(encoding, errors))
    check_utf8("train.py", "train.py")
    with pytest.raises(PreflightError, match="cannot be read as UTF-8 here") as refused:
        check_utf8(read, "the name of a file")
    assert "PYTHONUTF8=1" in refused.value.hint
    with pytest.raises(PreflightError, match="is not UTF-8"):
        check_utf8("gr\xfcn" if encoding == "latin-1" else "gr\udcfcn", "the name of a file")


def test_unreadable_file_is_reported() -> None:
    with public_directory() as code:
        (code / "secret.key").write_text("x")
        (code / "secret.key").chmod(0)
        with without_privileges(), pytest.raises(PreflightError, match=r"cannot read .*secret.key") as refused:
            scan(code)
        assert refused.value.hint.startswith("chmod u+r")
        (code / "secret.key").unlink()
        (code / "closed").mkdir(mode=0)
        with without_privileges(), pytest.raises(PreflightError, match=r"cannot list .*closed"):
            scan(code)
        (code / ".dtctlignore").write_text("closed\n")
        with without_privileges():
            assert paths(scan(code)) == [".dtctlignore"]
        (code / "closed").chmod(0o700)


def test_a_code_directory_without_any_file_is_refused(code: Path) -> None:
    (code / "only" / "directories").mkdir(parents=True)
    (code / "train.py").rename(code / ".dtctlignore")
    (code / ".dtctlignore").write_text("*\n")
    with pytest.raises(PreflightError, match="no file to send") as refused:
        scan(code)
    assert refused.value.detail == "everything in it is ignored"


@pytest.mark.parametrize(("name", "summary"), [("nowhere", "there is no directory"), ("code/train.py", "is not a dir")])
def test_a_code_directory_that_is_a_file_is_refused(code: Path, name: str, summary: str) -> None:
    with pytest.raises(PreflightError, match=summary):
        scan(code.parent / name)


def test_dtctl_directories_in_a_home_directory_are_not_sent(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "DTCTL_ROOT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(code))
    for own in (".cache/dtctl", ".local/state/dtctl", ".dtctl"):
        (code / own).mkdir(parents=True)
        (code / own / "file").write_text("x")
    (code / ".cache" / "other").write_text("the user's")
    first = scan(code)
    assert paths(first) == [".cache/other", "train.py"]
    assert scan(code).id == first.id


def test_a_file_that_changes_while_it_is_read_is_refused(code: Path) -> None:
    (code / "log").write_bytes(bytes(3_000_000))
    (code / "zzz").write_text("")

    def grow(files: int, read: int) -> None:
        with (code / "log").open("ab") as file:
            file.write(b"more")

    found = _Found(code, grow, OwnSecrets((), ()))
    found._next_report = 0
    with pytest.raises(PreflightError, match="log changed while it was read"):
        found.add_all(IgnoreRules.own(), "trainer.code")


def test_values_can_be_compared() -> None:
    file = FileEntry("a", 0o644, 0, hashlib.sha256().hexdigest())
    assert Manifest((file,), (), ()) == Manifest((file,), (), ())


@pytest.mark.parametrize(
    ("target", "outside"),
    [
        ("b", False),
        ("./b/../c", False),
        ("sub/../../x", True),
        ("..", True),
        ("/etc", True),
        ("deep/link/x", False),
        ("deep/link/..", False),
        ("deep/link/../..", True),
        ("loop/x", False),
        ("abroad/x", True),
        ("none/../x", False),
    ],
)
def test_links_are_followed_as_the_kernel_does(target: str, outside: bool) -> None:
    links = {"a": target, "deep/link": "../top", "loop": "loop", "abroad": "/srv"}
    assert leads_outside("a", links) is outside


def test_a_link_below_may_use_the_directories_above_it() -> None:
    assert not leads_outside("x/y/a", {"x/y/a": "../../b"})
    assert leads_outside("x/y/a", {"x/y/a": "../../../b"})


def test_link_that_leads_out_of_the_code_is_detected() -> None:
    links = {"a/b/l": "../../top", "m": "a/b/l/../../secret"}
    assert leads_outside("m", links), "a/b/l is top, and above top's directory is the outside"


@pytest.fixture
def cache(own_cache: Path) -> Path:
    return own_cache / "dtctl"


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


@pytest.mark.usefixtures("later")
def test_an_unchanged_file_is_read_once(code: Path, read: list[str]) -> None:
    assert scan(code) == scan(code)
    assert read == ["train.py"]
    (code / "model.py").write_text("")
    scan(code)
    assert read == ["train.py", "model.py"]


def test_a_file_that_was_just_written_is_not_trusted(code: Path, read: list[str]) -> None:
    scan(code)
    scan(code)
    assert read == ["train.py", "train.py"]


@pytest.mark.usefixtures("later")
def test_a_change_that_keeps_size_and_modification_time_is_detected(code: Path) -> None:
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
def test_a_damaged_cache_is_ignored_and_replaced(code: Path, cache: Path, read: list[str], text: str) -> None:
    bundle = scan(code)
    [file] = cache.iterdir()
    file.write_text(text)
    assert scan(code) == bundle
    assert scan(code) == bundle
    assert read == ["train.py", "train.py"]
    assert [path.name for path in cache.iterdir()] == [file.name]


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("sha256", ["short", "0" * 64, "Z" * 64])
def test_damaged_cache_entries_are_ignored(code: Path, cache: Path, read: list[str], sha256: str) -> None:
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
def test_fifo_in_place_of_the_cache_does_not_block(code: Path, cache: Path) -> None:
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


def test_cache_drops_removed_files(code: Path) -> None:
    fingerprints = Fingerprints(code, now_ns=time.time_ns() + 10**10)
    fingerprints.put("gone", (code / "train.py").stat(), "0" * 64)
    fingerprints.save()
    found = (code / "train.py").stat()
    second = Fingerprints(code)
    assert second.get("gone", found) == "0" * 64
    Fingerprints(code).save()
    assert Fingerprints(code).get("gone", found) is None
