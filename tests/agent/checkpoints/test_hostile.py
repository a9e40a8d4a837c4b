"""What another user may put beside a run's checkpoints: nobody waits, nothing is accepted, nothing else is touched."""

from __future__ import annotations

import os
import resource
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.checkpoints import reading, repair, tensor_bundle
from dtctl.agent.checkpoints.repair import repair_directory
from dtctl.agent.host import budget
from dtctl.agent.link import peer
from dtctl.agent.records.answers import CheckpointReport
from tests import impostors
from tests.agent.checkpoints import tables
from tests.agent.checkpoints.test_checkpoints import DATA, complete, look
from tests.agent.link.ends import agent_process
from tests.waiting import PATIENCE_S, eventually

pytestmark = pytest.mark.timeout(120)

LOOK_S, LIMIT_S = reading.LOOK_S, repair.LIMIT_S
"""As they are; the tests of this folder have others (conftest.py)."""

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is another user's")
NOBODY = 65534


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """model.ckpt-100, which is complete and old."""
    made = tmp_path / "output"
    made.mkdir()
    for path in (DATA / "tf1_plain").glob("model.ckpt-100.*"):
        shutil.copy(path, made)
        os.utime(made / path.name, (1e9, 1e9))
    return made


def newest(found: CheckpointReport) -> tuple[str, str | None]:
    """The newest complete one, and what is wrong with the newest of all."""
    return complete(found)["prefix"], found["all"][0]["problem"]


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_invalid_index_is_reported_and_the_previous_checkpoint_counts(output: Path, what: str) -> None:
    impostors.NO_FILES[what](output / "model.ckpt-999.index")
    assert newest(look(output)) == ("model.ckpt-100", f"the index {impostors.said(what)}")
    assert reading.newest([str(output)]) == look(output)["newest_complete"]


@pytest.mark.parametrize("what", impostors.NO_FILES)
def test_invalid_shard_is_reported(output: Path, what: str) -> None:
    shutil.copy(output / "model.ckpt-100.index", output / "model.ckpt-999.index")
    impostors.NO_FILES[what](output / "model.ckpt-999.data-00000-of-00001")
    problem = f"model.ckpt-999.data-00000-of-00001 {impostors.said(what)}"
    assert newest(look(output)) == ("model.ckpt-100", problem)


def amplified() -> bytes:
    """Half a megabyte in which each key repeats the long one before it."""
    head = [tables.entry(b"", tables.message({1: 1})), tables.entry(b"a" * 60_000, b"")]
    return tables.table(tables.block([*head, *(tables.entry(b"b%c" % n, b"", 60_000) for n in range(200))]))


CRAFTED: dict[str, tuple[bytes, str]] = {
    "99,999 shards": (tables.index(99_999), "model.ckpt-999.data-00000-of-99999 is missing"),
    "more restarts than room": (
        tables.table(tables.block([], restarts=1 << 31)),
        "the index has a block with more restarts than it has room for",
    ),
    "a header of fields without end": (
        tables.table(tables.block([tables.entry(b"", b"\x10\x00" * 200_001)])),
        "an entry of the index has too many fields",
    ),
    "keys that grow by sharing": (amplified(), "model.ckpt-999.data-00000-of-00001 is missing"),
}
"""What would cost memory or time; test_tensor_bundle.py has what is only wrong."""


@pytest.mark.parametrize("name", CRAFTED)
def test_index_with_impossible_claims_is_damaged(output: Path, name: str) -> None:
    content, problem = CRAFTED[name]
    (output / "model.ckpt-999.index").write_bytes(content)
    before = time.process_time()
    assert newest(look(output)) == ("model.ckpt-100", problem)
    assert time.process_time() - before < 2


def test_an_index_of_a_terabyte_is_not_read(output: Path) -> None:
    impostors.sparse(output / "model.ckpt-999.index")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    [name, problem] = newest(look(output))
    assert name == "model.ckpt-100"
    assert problem == "the index is too large: it has 1099511627776 bytes, and 16777216 are the most"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 32 * 1024


def test_many_tensors_are_not_kept_in_memory(tmp_path: Path) -> None:
    body = """
import resource
from dtctl.agent.checkpoints import reading
reading.LOOK_S = 60.0
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = reading.report(args)
return [found[0]["all"][0]["problem"], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before]
"""
    entries = (tables.entry(b"%06d/iter" % number, tables.message({3: 0, 5: 1})) for number in range(60_000))
    (tmp_path / "model.ckpt-1.index").write_bytes(tables.index(1, *entries))
    with agent_process(sys.executable, body, str(tmp_path)) as (session, _):
        problem, kilobytes = session.receive(PATIENCE_S)["value"]
    assert problem == "model.ckpt-1.data-00000-of-00001 is missing"
    assert kilobytes < 20 * 1024


def test_a_hundred_damaged_ones_that_are_newer_do_not_hide_the_complete_one(output: Path) -> None:
    for number in range(100):
        (output / f"model.ckpt-{1000 + number}.index").write_bytes(b"rubbish")
    found = look(output)
    assert complete(found)["prefix"] == "model.ckpt-100"
    assert len(found["incomplete"]) == 20
    assert found["problem"] is None


def test_when_not_everything_can_be_read_the_newest_is_not_known(output: Path) -> None:
    for number in range(3):
        (output / f"model.ckpt-{1000 + number}.index").write_bytes(bytes(8 * 1024 * 1024) + tables.MAGIC)
    [found] = reading.report([str(output)])
    assert found["problem"] == f"{output}: only part of it was searched: the newest indexes are too large"
    assert reading.newest([str(output)]) is reading.NOT_KNOWN


def test_of_names_without_end_only_so_many_are_looked_at(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_NAMES", 2000)
    for number in range(3000):
        (output / f"any{number}").touch()
    [found] = reading.report([str(output)])
    assert found["problem"] == f"{output}: only part of it was searched: there are more than 2000 names"


def test_an_inspection_ends_at_its_deadline(output: Path) -> None:
    found = reading.read_checkpoints(str(output), time.monotonic() - 1)
    assert found["problem"] == f"{output}: only part of it was searched: it took too long"
    assert found["newest_complete"] is None


def test_costly_directories_of_orbax_are_inspected_until_the_deadline_only(tmp_path: Path) -> None:
    """They were read to their end before: the look seemed to hang, and so did the file system."""
    for number in range(60):
        (tmp_path / f"{number}").mkdir()
        (tmp_path / f"{number}/_CHECKPOINT_METADATA").write_text('{"a": [%s[]]}' % ("[], " * 200_000))
    before = time.process_time()
    found = reading.read_checkpoints(str(tmp_path), time.monotonic() + 0.1)
    assert found["problem"] == f"{tmp_path}: only part of it was searched: it took too long"
    assert len(found["all"]) < 20
    assert time.process_time() - before < 1


class Hung:
    """A file system that does not answer until it is asked to."""

    LONGEST_S = 60.0

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked = 0
        self._answers, self._scandir, self._monkeypatch = threading.Event(), os.scandir, monkeypatch
        monkeypatch.setattr(os, "scandir", self._hangs)
        monkeypatch.setattr(reading, "LOOK_S", 0.2)
        monkeypatch.setattr(repair, "LIMIT_S", 0.5)

    def _hangs(self, *arguments: Any) -> Any:
        self.asked += 1
        self._answers.wait(self.LONGEST_S)
        return self._scandir(*arguments)

    def answer(self) -> None:
        """Returns when who waited for it has ended."""
        self._answers.set()
        eventually(lambda: not budget._unanswered, what="the end of all that hung")
        self._monkeypatch.setattr(reading, "LOOK_S", PATIENCE_S)


@pytest.fixture
def hung(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hung]:
    made = Hung(monkeypatch)
    yield made
    made.answer()


def test_a_file_system_that_hangs_is_waited_for_once_and_not_for_long(output: Path, hung: Hung) -> None:
    before = time.monotonic()
    problem = f"{output}: the file system does not answer"
    assert [each["problem"] for each in reading.report([str(output)])] == [problem]
    assert reading.newest([str(output)]) is reading.NOT_KNOWN
    assert repair_directory(str(output)) == [
        f"checkpoints were not inspected: the file system of {output} does not answer"
    ]
    assert time.monotonic() - before < hung.LONGEST_S / 2
    assert hung.asked == 1
    hung.answer()
    assert complete(look(output))["step"] == 100


def test_a_reader_that_resumes_too_late_changes_nothing(output: Path, hung: Hung) -> None:
    (output / "model.ckpt-200.index").write_bytes(b"a save that was cut off")
    assert len(repair_directory(str(output))) == 1
    time.sleep(0.5)
    hung.answer()
    assert (output / "model.ckpt-200.index").exists()


@ROOT
def test_links_of_other_users_lead_nowhere_and_their_directories_hide_nothing(output: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(output, other)
    (output / "aaa").symlink_to(other)
    os.lchown(output / "aaa", NOBODY, NOBODY)
    (output / "own").symlink_to(other)
    assert [each["prefix"] for each in look(output)["all"]] == ["own/model.ckpt-100", "model.ckpt-100"]


def test_a_directory_that_may_not_be_read_does_not_hide_the_others(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (output / "aaa").mkdir()
    (output / "chief").mkdir()
    for path in output.glob("model.*"):
        path.rename(output / "chief" / path.name)
    scandir = os.scandir

    def refuses(path: str) -> Any:
        if path.endswith("aaa/"):
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuses)
    found = look(output)
    assert complete(found)["prefix"] == "chief/model.ckpt-100"
    assert found["problem"] == f"{output}/aaa/: Permission denied"


# repair, which writes there


@pytest.fixture
def damaged(output: Path) -> Path:
    """Also model.ckpt-200, newer and cut off, and a `checkpoint` that names it."""
    (output / "model.ckpt-200.index").write_bytes(b"cut off")
    (output / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-200"\n')
    return output


@pytest.mark.parametrize("what", [*impostors.NO_FILES, "sparse"])
def test_a_state_file_that_is_none_is_left_alone(damaged: Path, what: str) -> None:
    (damaged / "checkpoint").unlink()
    ({**impostors.NO_FILES, "sparse": impostors.sparse}[what])(damaged / "checkpoint")
    before = (damaged / "checkpoint").lstat()
    assert len(repair_directory(str(damaged))) == 1
    assert (damaged / "checkpoint").lstat().st_ino == before.st_ino
    assert impostors.unharmed(damaged / "checkpoint")
    assert look(damaged)["incomplete"] == []


def test_state_file_keeps_its_permissions(damaged: Path) -> None:
    (damaged / "checkpoint").chmod(0o644)
    repair_directory(str(damaged))
    assert (damaged / "checkpoint").read_text() == 'model_checkpoint_path: "model.ckpt-100"\n'
    assert (damaged / "checkpoint").stat().st_mode & 0o777 == 0o644


def test_no_link_in_the_place_of_what_is_written_next_is_followed(damaged: Path) -> None:
    impostors.link_to_a_file(damaged / f"checkpoint.{os.getpid()}.new")
    repair_directory(str(damaged))
    assert impostors.unharmed(damaged / "any")


def of_nobody(path: Path) -> None:
    os.lchown(path, NOBODY, NOBODY)


def aside_is_a_link(path: Path) -> None:
    path.symlink_to(path.parent.parent)
    of_nobody(path)


def aside_is_anothers(path: Path) -> None:
    path.mkdir()
    of_nobody(path)


@ROOT
@pytest.mark.parametrize(
    ("make", "why"),
    [
        (aside_is_a_link, "is a link that another user has made"),
        (aside_is_anothers, "belongs to another user"),
        (impostors.fifo, "Not a directory"),
    ],
)
def test_nothing_is_moved_into_a_place_that_others_have_made(
    damaged: Path, tmp_path: Path, make: Callable[[Path], None], why: str
) -> None:
    make(damaged / "damaged")
    [text] = repair_directory(str(damaged))
    assert text.endswith(f"it cannot be set aside: damaged: {why}")
    assert (damaged / "model.ckpt-200.index").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["output"]
    assert "model.ckpt-100" in (damaged / "checkpoint").read_text()


def test_the_limits_leave_room_for_large_models_and_for_the_coordinators_connections() -> None:
    assert tensor_bundle.MOST_BYTES >= 16 * 1024 * 1024
    assert LOOK_S + 2 * reading.LEAST_S + LIMIT_S < peer.SILENCE_S
