"""What a cluster file may name as a private key: anything at all."""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dtctl.transport.ssh.keyring import Keyring, read_key_file
from tests.hosts import keys


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def sparse(path: Path) -> None:
    with path.open("wb") as stream:
        stream.truncate(1 << 40)


def directory(path: Path) -> None:
    path.mkdir()


NO_KEYS: list[Callable[[Path], None]] = [fifo, endless, sparse, directory]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", NO_KEYS)
def test_what_is_no_file_of_a_key_is_said_to_be_none_and_holds_nobody_up(
    tmp_path: Path, make: Callable[[Path], None]
) -> None:
    """/dev/zero has no end, and took all memory of the machine."""
    make(tmp_path / "id")
    assert Keyring().file(tmp_path / "id").problem


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", NO_KEYS)
@pytest.mark.parametrize("beside", [".pub", "-cert.pub"])
def test_what_lies_beside_a_key_holds_nobody_up(tmp_path: Path, make: Callable[[Path], None], beside: str) -> None:
    key = tmp_path / "id"
    key.write_bytes(keys.make_key("login").read_bytes())
    make(key.with_name(key.name + beside))
    file = read_key_file(key)
    assert file.type == "ssh-ed25519"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    assert read_key_file(key).problem


def test_a_key_whose_type_is_no_text_is_none(tmp_path: Path) -> None:
    key = tmp_path / "id"
    parts = (b"none", b"none", b"")
    raw = b"openssh-key-v1\0" + b"".join(len(part).to_bytes(4, "big") + part for part in parts) + b"\0\0\0\1"
    blob = b"\0\0\0\2\xff\xfe"
    body = base64.b64encode(raw + len(blob).to_bytes(4, "big") + blob).decode()
    key.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
    assert read_key_file(key).problem == "not a key in a known format"
