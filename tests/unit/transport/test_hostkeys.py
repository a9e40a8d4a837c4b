"""known_hosts files, against OpenSSH's ssh-keygen where there is one."""

from __future__ import annotations

import base64
import shutil
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from dtctl.errors import TransportError
from dtctl.transport.ssh.hostkeys import (
    HostKey,
    KnownFile,
    Pinned,
    host_key_name,
    is_known_hosts_line,
    parse_known_hosts,
)
from dtctl.transport.ssh.known_hosts import KnownHosts

needs_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="ssh-keygen not found")


def key(seed: int = 0, key_type: str = "ssh-ed25519") -> HostKey:
    name = key_type.encode()
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([seed]) * 32
    return HostKey(key_type, blob)


def line(names: str, seed: int = 0, key_type: str = "ssh-ed25519") -> str:
    return f"{names} {key_type} {key(seed, key_type).base64}"


def matching(text: str, name: str) -> list[int]:
    return [pinned.line for pinned in parse_known_hosts(text, Path("f")) if pinned.matches(name)]


@pytest.mark.parametrize(
    ("names", "name", "found"),
    [
        ("gpu-a", "gpu-a", True),
        ("GPU-A", "gpu-a", True),
        ("gpu-a", "gpu-ab", False),
        ("gpu-a,10.0.0.2", "10.0.0.2", True),
        ("gpu-?", "gpu-a", True),
        ("*.lan,!bad.lan", "good.lan", True),
        ("*.lan,!bad.lan", "bad.lan", False),
        ("!bad.lan,*.lan", "bad.lan", False),
        ("[gpu-a]:2222", "[gpu-a]:2222", True),
        ("[gpu-a]:2222", "gpu-a", False),
        ("gpu-a", "[gpu-a]:2222", False),
        ("[*.lan]:2222", "[x.lan]:2222", True),
        ("[127.0.0.1]:2222", "1", False),
        ("*.lan,!b*.lan", "bad.lan", False),
        ("|1|not-a-hash,gpu-a", "gpu-a", True),
        ("|1|AAAA|AAAA", "gpu-a", False),
        ("|1|AAAA", "gpu-a", False),
        ("gpu-a,|1|AAAA|AAAA,gpu-b", "gpu-a", True),
    ],
)
def test_names_match_as_in_openssh(names: str, name: str, found: bool) -> None:
    assert bool(matching(line(names), name)) is found


def test_the_port_is_written_unless_it_is_22() -> None:
    assert host_key_name("gpu-a") == "gpu-a"
    assert host_key_name("gpu-a", 2222) == "[gpu-a]:2222"
    assert host_key_name("::1", 22) == "::1"


def test_lines_that_cannot_be_read_are_passed_over() -> None:
    bad = ["# comment", "", "gpu-a", "gpu-a ssh-ed25519", "gpu-a ssh-ed25519 !!!", "|1|x ssh-ed25519 AAAA"]
    marked = [f"@cert-authority {line('gpu-a')}", f"@other {line('gpu-a')}"]
    text = "\n".join([*bad, line("gpu-a"), *marked, line("gpu-a", 1) + " a comment"])
    assert matching(text, "gpu-a") == [7, 10]


def test_a_file_finds_the_lines_of_a_name_in_their_order() -> None:
    text = [
        line("*.lan", 1),
        line("GPU-A.lan,10.0.0.2", 2),
        line("gpu-a.lan", 3),
        line("other,x?", 4),
        line("!gpu-a", 5),
    ]
    file = KnownFile(parse_known_hosts("\n".join(text), Path("f")))
    for _ in range(2):
        assert [found.line for found in file.of("gpu-a.lan")] == [1, 2, 3]
        assert [found.line for found in file.of("10.0.0.2")] == [2]
        assert [found.line for found in file.of("other")] == [4]
        assert [found.line for found in file.of("xy")] == [4]
        assert file.of("none") == []


def test_a_plain_name_is_not_looked_at_for_other_names() -> None:
    """Thousands of hosts and thousands of lines: each line is compared with few names."""

    class Counted(str):
        __slots__ = ()
        compared = 0

        def startswith(self, *_: object) -> bool:
            Counted.compared += 1
            return False

    [pinned] = parse_known_hosts(line("gpu-a"), Path("f"))
    known = KnownFile([Pinned((Counted("gpu-a"),), pinned.key, pinned.file, pinned.line)])
    assert known.of("gpu-b") == []
    assert len(known.of("gpu-a")) == 1
    assert Counted.compared == 0


@pytest.mark.parametrize("text", [f"# {line('gpu-a')}", line("#gpu-a"), line("@cert-authority gpu-a"), "gpu-a ssh-rsa"])
def test_comments_authorities_and_halves_of_lines_pin_nothing(text: str) -> None:
    assert parse_known_hosts(text, Path("f")) == []


def test_a_key_that_looks_like_a_comment_further_on_is_read() -> None:
    assert [found.line for found in parse_known_hosts(line("gpu-a", key_type="#type"), Path("f"))] == [1]
    assert is_known_hosts_line(line("gpu-a", key_type="#type"))
    assert is_known_hosts_line(line("gpu-a", key_type="@revoked"))


def test_a_revoked_line_is_known_as_such() -> None:
    (pinned,) = parse_known_hosts(f"@revoked {line('*')}", Path("f"))
    assert pinned.revoked
    assert pinned.matches("anything")


@needs_keygen
def test_hashed_names_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line("gpu-a") + "\n" + line("[gpu-b]:2222", 1) + "\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    text = file.read_text()
    assert "gpu-" not in text
    assert matching(text, "gpu-a") == [1]
    assert matching(text, "[gpu-b]:2222") == [2]
    assert matching(text, "gpu-b") == []


@needs_keygen
def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    kind, encoded, *_ = (tmp_path / "k.pub").read_text().split()
    told = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "k.pub")], check=True, capture_output=True, text=True)
    assert HostKey.parse(kind, encoded).fingerprint == told.stdout.split()[1]


def test_a_key_that_is_not_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="base64"):
        HostKey.parse("ssh-ed25519", "not base64")
    assert HostKey.parse("ssh-ed25519", base64.b64encode(b"x").decode()).blob == b"x"


def test_missing_files_are_empty_and_files_are_looked_at_in_order(tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(line("gpu-a", 1) + "\n")
    second.write_text(line("gpu-a", 2) + "\n")
    found = KnownHosts().of("gpu-a", [tmp_path / "missing", second, first])
    assert [str(pinned) for pinned in found] == [f"{second}:1", f"{first}:1"]


def test_pinning_makes_a_private_file_in_a_private_directory(tmp_path: Path) -> None:
    file = tmp_path / "new" / "known_hosts"
    known = KnownHosts()
    known.pin("[gpu-a]:2222", [key(1), key(2, "ssh-rsa")], file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert file.read_text().splitlines() == [line("[gpu-a]:2222", 1), line("[gpu-a]:2222", 2, "ssh-rsa")]
    assert [pinned.key for pinned in known.of("[gpu-a]:2222", [file])] == [key(1), key(2, "ssh-rsa")]


def test_pinning_twice_adds_one_line(tmp_path: Path) -> None:
    file, known = tmp_path / "known_hosts", KnownHosts()
    known.pin("gpu-a", [key(1)], file)
    known.pin("gpu-a", [key(1), key(2)], file)
    assert file.read_text().splitlines() == [line("gpu-a", 1), line("gpu-a", 2)]


def test_pinning_starts_a_new_line_after_one_that_has_no_end(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    file.write_text(line("gpu-a", 1))
    KnownHosts().pin("gpu-b", [key(2)], file)
    assert file.read_text().splitlines() == [line("gpu-a", 1), line("gpu-b", 2)]


def test_learning_never_replaces_what_somebody_else_wrote_meanwhile(tmp_path: Path) -> None:
    file, known = tmp_path / "known_hosts", KnownHosts()
    assert known.of("gpu-a", [file]) == []
    file.write_text(line("gpu-a", 1) + "\n")
    assert [pinned.key for pinned in known.learn("gpu-a", key(2), file)] == [key(1)]
    assert file.read_text() == line("gpu-a", 1) + "\n"


def test_many_threads_learn_whole_lines_and_each_host_once(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    stores = [KnownHosts() for _ in range(4)]  # as if they were four processes

    def learn(store: KnownHosts) -> None:
        for number in range(20):
            store.learn(f"gpu-{number}", key(number), file)

    threads = [threading.Thread(target=learn, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read_text().splitlines()) == sorted(line(f"gpu-{number}", number) for number in range(20))


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="cannot write"):
        KnownHosts().pin("gpu-a", [key()], tmp_path)
