"""The code of a run, brought back from its hosts; a host may send anything."""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.bundle import Manifest
from dtctl.bundle.scanning import scan
from dtctl.errors import AgentError, DtctlError, UsageError
from dtctl.model import Host, Local, Revision, TaskId
from dtctl.operations.history import CodeRecord, Memory
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.code.operation import restore
from dtctl.rooms.pages.comparing import Between, _between, _code_directory
from dtctl.rooms.pages.comparing_screen import show_code
from tests.unit.fakes import FakeSession, FakeTransport

RUN = "demo-1"
RECORD = RunRecord(
    cluster="demo",
    run=RUN,
    file=None,
    hosts={name: Host(name, Local()) for name in "ab"},
    roster={TaskId("worker", 0): "a", TaskId("worker", 1): "b"},
    lead=TaskId("worker", 0),
    success="lead",
    created=time.time(),
)

Sent = tuple[bytes, list[tuple[int, bytes]], str]
"""The manifest, the parts of its files, and the reported id."""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    place = tmp_path / "code"
    (place / "lib" / "empty").mkdir(parents=True)
    (place / "lib" / "model.py").write_text("layers = 3\n")
    (place / "lib" / "__init__.py").touch()
    (place / "run.sh").write_text("echo\n")
    (place / "run.sh").chmod(0o755)
    (place / "last").touch()
    (place / "link").symlink_to("lib/model.py")
    return place


def sent(code: Path) -> Sent:
    manifest = scan(code, cluster="demo").manifest
    parts = [(number, (code / file.path).read_bytes()) for number, file in enumerate(manifest.files) if file.size]
    return manifest.canonical, parts, manifest.id


def hosts(*answers: Sent | DtctlError) -> FakeTransport:
    """Host a sends the first, and so on."""
    by_name = dict(zip("ab", answers, strict=False))

    def answer(session: FakeSession, fields: Mapping[str, Any]) -> list[dict[str, Any] | DtctlError]:
        assert fields["type"] == "code"
        found = by_name[session.host.name]
        if isinstance(found, DtctlError):
            return [found]
        text, parts, bundle = found
        halves = (text[:100], text[100:])
        frames: list[dict[str, Any] | DtctlError] = [
            {"type": "code_part", "file": number, "payload": data}
            for number, data in (*((None, half) for half in halves if half), *parts)
        ]
        return [*frames, {"type": "result", "run": RUN, "bundle": bundle}]

    return FakeTransport(answer)


def test_the_code_comes_back_as_it_was_sent(code: Path, tmp_path: Path) -> None:
    found = restore(RECORD, hosts(sent(code)), tmp_path / "back")
    assert scan(tmp_path / "back", cluster="demo").manifest == scan(code, cluster="demo").manifest
    assert (found.host, found.files, found.directory) == ("a", 4, tmp_path / "back")
    assert {one.name for one in tmp_path.iterdir()} == {"back", "code"}


def test_an_empty_directory_is_filled_and_any_other_refused(code: Path, tmp_path: Path) -> None:
    (tmp_path / "back").mkdir()
    restore(RECORD, hosts(sent(code)), tmp_path / "back")
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    for name in ("back", "file", "link"):
        with pytest.raises(UsageError, match="not an empty directory"):
            restore(RECORD, hosts(sent(code)), tmp_path / name)
    with pytest.raises(UsageError, match="there is no directory"):
        restore(RECORD, hosts(sent(code)), tmp_path / "none" / "back")


def test_the_next_host_is_asked_where_one_does_not_have_it(code: Path, tmp_path: Path) -> None:
    assert restore(RECORD, hosts(AgentError("no_code", "gone"), sent(code)), tmp_path / "back").host == "b"
    with pytest.raises(AgentError, match="gone"):
        restore(RECORD, hosts(AgentError("no_code", "gone"), DtctlError("away")), tmp_path / "again")


def changed(manifest: Manifest, **fields: Any) -> tuple[bytes, str]:
    text = dataclasses.replace(manifest, **fields).canonical
    return text, hashlib.sha256(text).hexdigest()


def _path(path: str) -> Callable[[Sent, Manifest], Sent]:
    def change(sent: Sent, manifest: Manifest) -> Sent:
        text, bundle = changed(manifest, files=(manifest.files[0]._replace(path=path), *manifest.files[1:]))
        return text, sent[1], bundle

    return change


def _size(size: int) -> Callable[[Sent, Manifest], Sent]:
    def change(sent: Sent, manifest: Manifest) -> Sent:
        last = manifest.files[-1]._replace(size=size)
        text, bundle = changed(manifest, files=(*manifest.files[:-1], last))
        return text, [*sent[1], (len(manifest.files) - 1, b"x")], bundle

    return change


def _links(*links: tuple[str, str]) -> Callable[[Sent, Manifest], Sent]:
    def change(sent: Sent, manifest: Manifest) -> Sent:
        text, bundle = changed(manifest, links=links)
        return text, sent[1], bundle

    return change


LIES: dict[str, Callable[[Sent, Manifest], Sent]] = {
    "another file": lambda sent, _: (sent[0], [(sent[1][0][0], b"x" * len(sent[1][0][1])), *sent[1][1:]], sent[2]),
    "a file that is too long": lambda sent, _: (sent[0], [(number, data + b"x") for number, data in sent[1]], sent[2]),
    "a file that is cut off": lambda sent, _: (sent[0], [(number, data[:-1]) for number, data in sent[1]], sent[2]),
    "no files": lambda sent, _: (sent[0], [], sent[2]),
    "files in another order": lambda sent, _: (sent[0], sent[1][::-1], sent[2]),
    "a file of no number": lambda sent, _: (sent[0], [*sent[1], (99, b"x")], sent[2]),
    "another id": lambda sent, _: (sent[0], sent[1], "0" * 64),
    "no manifest": lambda sent, _: (b"", sent[1], sent[2]),
    "a manifest of nothing": lambda sent, _: (b"[]", sent[1], hashlib.sha256(b"[]").hexdigest()),
    "a path that leads up": _path("../evil"),
    "an absolute path": _path("/tmp/evil"),
    "a path through a link": _path("link/evil"),
    "a link that leads up": _links(("link", "../../etc/passwd")),
    "a link that is absolute": _links(("link", "/etc/passwd")),
    "parts of no bytes": lambda sent, _: (sent[0], [sent[1][0], (sent[1][0][0], b""), *sent[1][1:]], sent[2]),
    "a file larger than the disk": _size(1 << 60),
    "a link over a file": _links(("run.sh", "last")),
}


def test_a_file_larger_than_the_disk_is_refused_before_anything_is_written(code: Path, tmp_path: Path) -> None:
    false = LIES["a file larger than the disk"](sent(code), scan(code, cluster="demo").manifest)
    with pytest.raises(DtctlError, match="cannot write") as refused:
        restore(RECORD, hosts(false), tmp_path / "back")
    assert refused.value.detail == os.strerror(errno.ENOSPC)


def test_other_code_than_this_machine_has_sent_is_refused(code: Path, tmp_path: Path) -> None:
    known = CodeRecord.of(scan(code, cluster="demo").manifest, "")
    true = sent(code)
    (code / "run.sh").chmod(0o644)
    with pytest.raises(DtctlError, match="refused") as refused:
        restore(RECORD, hosts(sent(code), sent(code)), tmp_path / "back", known)
    assert "not the code with which this machine started the run" in str(refused.value.detail)
    assert not (tmp_path / "back").exists()
    (code / "run.sh").chmod(0o755)
    found = restore(RECORD, hosts(DtctlError("away"), true), tmp_path / "back", known)
    assert (found.host, found.is_as_sent) == ("b", True)


def test_the_working_directory_is_refused_and_paths_may_have_dots(
    code: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "inner").mkdir(parents=True)
    monkeypatch.chdir(here / "inner")
    for name in (".", "../inner", str(here / "inner")):
        with pytest.raises(UsageError, match="working directory"):
            restore(RECORD, hosts(sent(code)), Path(name))
    found = restore(RECORD, hosts(sent(code)), Path("../inner/back/."))
    assert (found.directory, found.is_as_sent) == (here / "inner" / "back", False)
    assert scan(here / "inner" / "back", cluster="demo").manifest == scan(code, cluster="demo").manifest


@pytest.mark.parametrize("lie", LIES)
def test_a_lying_host_is_refused_and_nothing_is_left(lie: str, code: Path, tmp_path: Path) -> None:
    false = LIES[lie](sent(code), scan(code, cluster="demo").manifest)
    with pytest.raises(DtctlError):
        restore(RECORD, hosts(false, false), tmp_path / "back")
    assert [one.name for one in tmp_path.iterdir()] == ["code"]


def test_the_code_of_a_run_is_remembered_beside_its_record(code: Path, memory: Memory) -> None:
    record = dataclasses.replace(RECORD, revision=Revision("12ab" * 10, "main", "", 1, 1))
    memory.begin(record)
    memory.keep_code(RUN, CodeRecord.of(scan(code).manifest, "+layers\n"))
    found, known = memory.load(RUN), memory.code_of(RUN)
    assert found is not None
    assert found.revision == record.revision
    assert known is not None
    assert known.diff == "+layers\n"
    assert known.differing(scan(code).manifest) == ()
    (code / "run.sh").write_text("true\n")
    (code / "last").unlink()
    assert known.differing(scan(code).manifest) == ("last", "run.sh")
    memory.take_back(record)
    assert memory.code_of(RUN) is None


def test_old_code_of_ended_runs_is_removed_and_that_of_live_ones_stays(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dtctl.operations.history._MOST_CODES", 1)
    for number, name in enumerate(("ended", "live", "unknown", "newest")):
        outcome = "succeeded" if name == "ended" else ""
        if name != "unknown":
            memory.begin(dataclasses.replace(RECORD, run=name, outcome=outcome))
        memory.keep_code(name, CodeRecord("", {}, ""))
        os.utime(memory._code_file(name), (number, number))
    memory.keep_code("newest", CodeRecord("", {}, ""))
    assert [name for name in ("ended", "live", "unknown", "newest") if memory.code_of(name)] == ["live", "newest"]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"diff": 1}', '{"diff": "", "files": {"a": 1}, "id": ""}'])
def test_a_damaged_record_of_code_is_none(text: str, memory: Memory) -> None:
    memory.begin(RECORD)
    memory._code_file(RUN).write_text(text)
    assert memory.code_of(RUN) is None


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return Memory()


@pytest.mark.parametrize(
    ("digests", "known", "expected"),
    [
        (("12ab", "12ab"), (), None),
        (("12ab", "34cd"), (), Between("old", "new", (), (), None)),
        (("12ab", "34cd"), ("old", "new"), Between("old", "new", (), (), ("a",))),
        (("12ab", "12ab"), ("old", "new"), None),
        ((), (), None),
        ((), ("old", "new"), Between("old", "new", (), (), ("a",))),
    ],
)
def test_two_runs_of_one_commit_differ_by_their_digests_and_files(
    digests: tuple[str, ...], known: tuple[str, ...], expected: Between | None
) -> None:
    settings = [{"trainer.code": digest} for digest in digests] or [{}, {}]
    revision = Revision("12ab" * 10, "main", "", 1, 1)
    old, new = (dataclasses.replace(RECORD, settings=each, revision=revision) for each in settings)
    codes = {name: CodeRecord("", {"a": name}, name) for name in known}
    if digests == ("12ab", "12ab"):
        codes = {name: CodeRecord("", {"a": ""}, "") for name in known}
    assert _between("old", old, "new", new, codes.get) == expected


OWN_CHANGES = "--- a/train.py\n+++ b/train.py\n@@ -1,2 +1,2 @@\n import os\n-rate = 1\n+rate = %d\n"


def test_the_uncommitted_changes_of_two_runs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    revision = Revision("12ab" * 10, "main", "", 1, 1)
    old, new = (
        dataclasses.replace(RECORD, settings={"trainer.code": digest}, revision=revision) for digest in ("12ab", "34cd")
    )
    codes = {name: CodeRecord(OWN_CHANGES % rate, {"train.py": name}, name) for name, rate in (("old", 2), ("new", 3))}
    found = _between("old", old, "new", new, codes.get)
    assert found is not None
    assert [line for line in found.difference or () if line[0] in "-+"] == ["-+rate = 2", "++rate = 3"]
    show_code([found])
    assert "  -+rate = 2\n  ++rate = 3\n" in capsys.readouterr().out


def test_code_that_differs_in_unknown_files_is_shown_as_such(capsys: pytest.CaptureFixture[str]) -> None:
    show_code([Between("old", "new", None, None, None)])
    assert capsys.readouterr().out.splitlines() == [
        "code of new, compared with old:",
        "  commits between them: unknown (this repository lacks one of them)",
        "  files that differ: unknown (this machine did not start both runs, or they have very many)",
    ]


def test_commits_are_looked_up_where_the_cluster_file_has_its_code(tmp_path: Path) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text("""
name: demo
hosts: {a: {transport: local}}
jobs: {worker: {hosts: a, command: python train.py}}
trainer: {code: ../model}
""")
    (tmp_path.parent / "model").mkdir(exist_ok=True)
    record = dataclasses.replace(RECORD, file=file)
    assert _code_directory(record, tmp_path) == tmp_path.parent / "model"
    file.write_text("{")
    assert _code_directory(record, tmp_path) == tmp_path
