"""Files of keys that are none: nobody waits for them, and nobody reads them without end."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dtctl.transport.ssh_keyring import MOST_BYTES, read_key_file


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


def directory(path: Path) -> None:
    path.mkdir()


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (fifo, "not a regular file"),
        (endless, "not a regular file"),
        (sparse, f"more than {MOST_BYTES} bytes"),
        (directory, "is a directory"),
    ],
)
@pytest.mark.parametrize("suffix", ["", ".pub", "-cert.pub"])
def test_a_key_file_that_is_none_is_a_problem_and_no_wait(make: object, said: str, suffix: str, tmp_path: Path) -> None:
    key = tmp_path / "id_ed25519"
    make(tmp_path / f"id_ed25519{suffix}")  # type: ignore[operator]
    if suffix:
        key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n-----END OPENSSH PRIVATE KEY-----\n")
    found = read_key_file(key)
    assert found.key is None
    assert said in found.problem or suffix
