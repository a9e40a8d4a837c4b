"""known_hosts files: read as by OpenSSH, extended only in allowed places, and never damaged."""

from __future__ import annotations

import base64
import errno
import fcntl
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.config.load import load_cluster
from dtctl.config.names import why_not_written
from dtctl.errors import ConfigError, ExitCode, HostKeyError, TransportError, UsageError
from dtctl.model import Host, SshSettings
from dtctl.transport.ssh import known_hosts
from dtctl.transport.ssh.errors import Destination
from dtctl.transport.ssh.known_hosts import (
    HostKey,
    KnownFile,
    KnownHosts,
    Pinned,
    host_key_name,
    is_known_hosts_line,
    parse_known_hosts,
)
from dtctl.transport.ssh.openssh import ssh_command
from dtctl.transport.ssh.route import HostKeys
from tests.fuzz import cases

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


def test_invalid_lines_are_skipped() -> None:
    bad = ["# comment", "", "gpu-a", "gpu-a ssh-ed25519", "gpu-a ssh-ed25519 !!!", "|1|x ssh-ed25519 AAAA"]
    bad += [f"# {line('gpu-a')}", line("#gpu-a"), line("@cert-authority gpu-a"), "gpu-a ssh-rsa"]
    marked = [f"@cert-authority {line('gpu-a')}", f"@other {line('gpu-a')}"]
    text = "\n".join([*bad, line("gpu-a"), *marked, line("gpu-a", 1) + " a comment"])
    assert matching(text, "gpu-a") == [11, 14]
    assert [pinned.line for pinned in parse_known_hosts(text, Path("f"))] == [6, 11, 14], "6 is a hash of no name"


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


def test_a_plain_name_is_not_compared_with_other_names() -> None:
    """With thousands of hosts and thousands of lines, each line is compared with few names."""

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


def test_a_key_that_looks_like_a_comment_further_on_is_read() -> None:
    assert [found.line for found in parse_known_hosts(line("gpu-a", key_type="#type"), Path("f"))] == [1]
    assert is_known_hosts_line(line("gpu-a", key_type="#type"))
    assert is_known_hosts_line(line("gpu-a", key_type="@revoked"))


def test_a_revoked_line_is_known_as_such() -> None:
    (pinned,) = parse_known_hosts(f"@revoked {line('*')}", Path("f"))
    assert pinned.revoked
    assert pinned.matches("anything")


@needs_keygen
def test_fingerprints_are_those_of_ssh_keygen(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "k")], check=True)
    kind, encoded, *_ = (tmp_path / "k.pub").read_text().split()
    done = subprocess.run(["ssh-keygen", "-lf", str(tmp_path / "k.pub")], check=True, capture_output=True, text=True)
    assert HostKey.parse(kind, encoded).fingerprint == done.stdout.split()[1]


def test_a_key_that_is_not_base64_is_refused() -> None:
    with pytest.raises(ValueError, match="base64"):
        HostKey.parse("ssh-ed25519", "not base64")
    assert HostKey.parse("ssh-ed25519", base64.b64encode(b"x").decode()).blob == b"x"


def test_missing_files_are_empty_and_files_are_searched_in_order(tmp_path: Path) -> None:
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


def test_pinning_keeps_lines_written_meanwhile(tmp_path: Path) -> None:
    file, known = tmp_path / "known_hosts", KnownHosts()
    assert known.of("gpu-a", [file]) == []
    file.write_text(line("gpu-a", 1) + "\n")
    assert [pinned.key for pinned in known.learn("gpu-a", key(2), file)] == [key(1)]
    assert file.read_text() == line("gpu-a", 1) + "\n"


def test_many_threads_learn_whole_lines_and_each_host_once(tmp_path: Path) -> None:
    file = tmp_path / "known_hosts"
    stores = [KnownHosts() for _ in range(4)]  # like four processes

    def learn(store: KnownHosts) -> None:
        for number in range(20):
            store.learn(f"gpu-{number}", key(number), file)

    threads = [threading.Thread(target=learn, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(file.read_text().splitlines()) == sorted(line(f"gpu-{number}", number) for number in range(20))


def test_a_file_that_cannot_be_written_is_reported(tmp_path: Path) -> None:
    with pytest.raises(TransportError, match="cannot write"):
        KnownHosts().pin("gpu-a", [key()], tmp_path)


TO = Destination("gpu-a", "gpu-a", 22, "gpu-a")
RSA = key(7, "ssh-rsa")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "home"
    (directory / ".ssh").mkdir(parents=True, mode=0o700)
    monkeypatch.setenv("HOME", str(directory))
    return directory


@pytest.fixture
def project(home: Path) -> Path:
    directory = home / "project"
    directory.mkdir()
    return directory


def judge(file: Path, project: Path | None, name: str = "gpu-a", *, accept_new: bool = True) -> HostKeys:
    return HostKeys(TO, host_key_name(name), KnownHosts(), [file], accept_new, said=file, project=project, users=[file])


def accept(file: Path, project: Path | None, shown: HostKey | None = None, name: str = "gpu-a") -> None:
    judge(file, project, name).check(shown or key(1), None)  # type: ignore[arg-type]


AUTHORIZED_KEYS = [
    line("restrict"),
    line("no-pty,no-agent-forwarding"),
    line("cert-authority"),
    line('from="10.0.0.1"'),
    line('command="sh"'),
    line("environment=A"),
    line("").strip(),
    line("").strip() + " gpu-a",
    line("").strip() + f" {key().base64}",
]
OTHERS = [
    *("alias ls=ls", "export PATH=$PATH:~/bin", "[ -z x ] && return", "Host gpu-z", "  HostName x"),
    *("-----BEGIN KEY-----", "gpu-z", "gpu-z ssh-ed25519", "gpu-z ssh-ed25519 !!!", "gpu-z ssh-ed25519 AAAA"),
    *(f"gpu-z ssh-rsa {key().base64}", line("@other gpu-z"), line("gpu$(x)"), line("PATH=x"), line("gpu-z,a=b")),
    *(line("a=b,gpu-z"), line("@revoked"), line("@revoked @revoked")),
]
KNOWN_HOSTS = [
    *("", "  ", "#", "# a comment", "  # $(another)", line("gpu-a"), line("gpu-a,10.0.0.2"), "\t" + line("gpu_1")),
    *(line("[gpu-a]:2222") + " comment", line("*.lan,!bad.lan"), line("fe80::1%eth0"), line("restrict,gpu-1")),
    *(f"@revoked {line('*')}", f"@cert-authority {line('*.lan')}", line("|1|AAAA|AAAA")),
    line("|1|F1E1KeoE/eEWhi10WpGv4OdiO6Y=|3988QV0VE8wmZL7suNrYQLITLCg="),
]


@pytest.mark.parametrize("text", KNOWN_HOSTS)
def test_lines_of_known_hosts_are_known(text: str) -> None:
    assert is_known_hosts_line(text)


@pytest.mark.parametrize("text", [*AUTHORIZED_KEYS, *OTHERS])
@pytest.mark.parametrize("around", ["{}", "# keys\n{}\n", line("gpu-b") + "\n{}\n"])
def test_no_key_is_added_to_another_kind_of_file(project: Path, text: str, around: str) -> None:
    file = project / "known_hosts"
    before = around.format(text.replace("{", "(").replace("}", ")"))
    file.write_text(before)
    with pytest.raises(TransportError, match=r"cannot write .*known_hosts: line \d is not a line of known host keys"):
        accept(file, project)
    with pytest.raises(TransportError, match="cannot write"):
        KnownHosts().pin("gpu-a", [key(1)], file)
    assert file.read_text() == before


def test_a_file_of_known_hosts_lines_is_added_to(project: Path) -> None:
    file = project / "known_hosts"
    before = "\n".join(text for text in KNOWN_HOSTS if "*" not in text and "gpu-a" not in text) + "\n"
    file.write_text(before)
    accept(file, project)
    assert file.read_text() == before + line("gpu-a", 1) + "\n"


@pytest.mark.parametrize("target", ["known_hosts", "known_hosts2"])
def test_a_link_of_the_project_is_refused_even_if_it_leads_to_known_hosts(
    home: Path, project: Path, target: str
) -> None:
    (home / ".ssh" / "known_hosts").write_text(line("gpu-b") + "\n")
    (project / "known_hosts").symlink_to(home / ".ssh" / target)
    (project / "keys").symlink_to(home / ".ssh")
    for file in (project / "known_hosts", project / "keys" / target):
        with pytest.raises(TransportError, match=r"is a link .* which is not followed"):
            accept(file, project)
    assert (home / ".ssh" / "known_hosts").read_text() == line("gpu-b") + "\n"
    assert not (home / ".ssh" / "known_hosts2").exists()


def test_known_hosts_of_the_user_may_be_a_link_of_their_own(home: Path) -> None:
    (home / "dotfiles").mkdir()
    (home / ".ssh" / "known_hosts").symlink_to("../dotfiles/known_hosts")
    KnownHosts().pin("gpu-a", [key(1)], home / ".ssh" / "known_hosts")
    assert (home / "dotfiles" / "known_hosts").read_text() == line("gpu-a", 1) + "\n"


def outside(home: Path, project: Path) -> list[Path]:
    (project / "link").symlink_to(home / ".bashrc")
    (project / "up").symlink_to(home)
    (home / ".ssh" / "known_hosts_link").symlink_to(home / ".bashrc")
    return [
        *(home / ".bashrc", home / "known_hosts", home / ".config" / "new" / "known_hosts", Path("/etc/known_hosts")),
        *(project / "link", project / "up" / ".profile", project / ".." / ".profile", project / ".git" / "config"),
        *(home / ".ssh" / "known_hosts_link", home / ".ssh" / ".." / ".profile", home / ".ssh" / "authorized_keys"),
        *(
            home / ".ssh" / name
            for name in ("authorized_keys2", "rc", "config", "environment", "id_rsa", "x/known_hosts")
        ),
    ]


@pytest.mark.parametrize("index", range(17))
def test_a_cluster_file_cannot_choose_a_file_elsewhere(home: Path, project: Path, index: int) -> None:
    """Missing or empty, they would pass for known_hosts files."""
    file = outside(home, project)[index]
    with pytest.raises(TransportError, match="cannot write"):
        accept(file, project)
    with pytest.raises(TransportError, match="cannot write"):
        ssh_command(Host("a", SshSettings("a", known_hosts=str(file), project=str(project), host_keys="accept-new")))
    assert not file.exists()
    assert not (home / ".config").exists()
    text = "name: n\nhosts: {a: }\njobs: {worker: {hosts: a}}\n"
    text += f"ssh: {{known_hosts: {file}, host_keys: accept-new}}\ntrainer: {{command: x}}\n"
    (project / "cluster.yaml").write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_cluster(project / "cluster.yaml")
    (problem,) = caught.value.problems
    assert (problem.place.line, problem.place.column) == (4, 20)
    assert "new host keys are not written to" in problem.summary


def test_a_known_hosts_file_of_several_hosts_is_reported_once(home: Path, project: Path) -> None:
    text = "name: n\nhosts:\n  a-[1-3]: {ssh: {known_hosts: ~/.bashrc}}\njobs: {worker: {hosts: 'a-[1-3]'}}\n"
    (project / "cluster.yaml").write_text(text + "ssh: {host_keys: accept-new}\ntrainer: {command: x}\n")
    with pytest.raises(ConfigError) as caught:
        load_cluster(project / "cluster.yaml")
    assert [str(problem.place).rpartition("yaml")[2] for problem in caught.value.problems] == [":3:32"]


@pytest.mark.parametrize("name", ["authorized_keys", "authorized_keys2", "rc", "environment", "config", "config.d/x"])
@pytest.mark.parametrize("before", ["# mine\n", line("restrict,gpu-b") + "\n"])
def test_other_files_of_ssh_are_never_written(home: Path, name: str, before: str) -> None:
    """All of them may contain comments, and sshd skips lines that it does not understand."""
    file = home / ".ssh" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(before)
    with pytest.raises(TransportError, match="is read by SSH for something else"):
        accept(file, None)
    assert file.read_text() == before


def test_a_file_in_ssh_is_refused_unless_it_contains_a_host_key(home: Path) -> None:
    """AuthorizedKeysFile of an sshd may be any file there."""
    file = home / ".ssh" / "keys"
    file.write_text("# of my machines\n")
    with pytest.raises(TransportError, match="it holds no host key"):
        accept(file, None)
    file.write_text("# of my machines\n" + line("gpu-b") + "\n")
    accept(file, None)
    assert line("gpu-a", 1) in file.read_text()


@pytest.mark.parametrize("name", [".bash_profile", ".config/systemd/user/x.service", "bin/known_hosts", "hosts"])
@pytest.mark.parametrize("around", ["", ".."])
def test_a_cluster_file_in_a_home_directory_cannot_choose_a_file_there(home: Path, name: str, around: str) -> None:
    """Shells and sessions read new files of a home automatically."""
    project = home / around
    with pytest.raises(TransportError, match="cannot write"):
        accept(project / name, project)
    assert not (project / name).exists()
    accept(project / "known_hosts", project)
    assert (project / "known_hosts").read_text() == line("gpu-a", 1) + "\n"


@pytest.mark.parametrize("name", ["no-pty", "restrict", "Cert-Authority"])
def test_a_host_with_the_name_of_an_option_of_authorized_keys_is_not_pinned(project: Path, name: str) -> None:
    file = project / "keys"
    with pytest.raises(TransportError, match="is not kept"):
        accept(file, project, name=name)
    assert file.read_text() == ""


@pytest.mark.parametrize(
    "name",
    [
        *("project/known_hosts", "project/keys/lab"),
        *(".ssh/known_hosts", ".ssh/known_hosts_lab", ".ssh/known_hosts.d/lab"),
    ],
)
def test_a_cluster_file_may_choose_a_file_beside_itself_or_one_for_host_keys(
    home: Path, project: Path, name: str
) -> None:
    accept(home / name, project)
    assert (home / name).read_text() == line("gpu-a", 1) + "\n"


def test_known_hosts_of_the_users_own_configuration_may_be_anywhere(home: Path) -> None:
    file = home / "elsewhere" / "hosts"
    HostKeys(TO, "gpu-a", KnownHosts(), [file], accept_new=True, users=[file]).check(key(1), None)  # type: ignore[arg-type]
    assert file.read_text() == line("gpu-a", 1) + "\n"
    (home / ".bashrc").write_text("alias ls=ls\n")
    other = [home / ".bashrc"]
    with pytest.raises(TransportError, match="line 1 is not a line of known host keys"):
        HostKeys(TO, "gpu-a", KnownHosts(), other, accept_new=True, users=other).check(key(1), None)  # type: ignore[arg-type]


def test_any_file_may_be_read(home: Path, project: Path) -> None:
    file = home / "elsewhere"
    file.write_text("alias ls=ls\n" + line("gpu-a", 1) + "\n")
    judge(file, project).check(key(1), None)  # type: ignore[arg-type]
    with pytest.raises(HostKeyError, match="has changed"):
        judge(file, project).check(key(2), None)  # type: ignore[arg-type]


@pytest.mark.timeout(120)
def test_non_regular_file_is_neither_read_nor_written(project: Path) -> None:
    os.mkfifo(project / "fifo")
    (project / "zero").symlink_to("/dev/zero")
    with (project / "sparse").open("wb") as stream:
        stream.truncate(1 << 40)
    for name in ("fifo", "zero", "sparse", "."):
        with pytest.raises(TransportError, match=r"not a regular file|more than 16000000 bytes|directory|neither"):
            accept(project / name, project)
    assert known_hosts.read(Path("/dev/null")) == ""


@pytest.mark.parametrize(
    ("mode", "owner", "why"),
    [
        pytest.param(0o666, -1, "every user may write to it", id="written by every user"),
        pytest.param(
            0o600,
            12345,
            "it belongs to another user",
            id="of another user",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away"),
        ),
    ],
)
def test_a_file_that_others_may_write_to_is_not_added_to(project: Path, mode: int, owner: int, why: str) -> None:
    file = project / "known_hosts"
    file.touch()
    file.chmod(mode)
    os.chown(file, owner, -1)
    with pytest.raises(TransportError, match=why):
        accept(file, project)
    assert file.read_text() == ""


def test_a_file_locked_by_another_process_times_out(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_hosts, "LOCK_PATIENCE_S", 0.2)
    file = project / "known_hosts"
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        with pytest.raises(TransportError, match="another program has locked it"):
            accept(file, project)


FULL_DISK = """\
import resource, sys
from pathlib import Path
from dtctl.errors import TransportError
from dtctl.transport.ssh.known_hosts import KnownHosts
from tests.unit.transport.test_known_hosts import key
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), int(sys.argv[2])))
try:
    KnownHosts().pin("gpu-a", [key(1)], Path(sys.argv[1]))
except TransportError as error:
    print(error.summary)
"""


@pytest.mark.parametrize("call", ["write", "fsync", "open"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_reported_with_a_remedy(
    project: Path, call: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = project / "known_hosts"
    file.write_text(line("gpu-b") + "\n")
    before = file.read_bytes()
    pinned = KnownHosts()
    if call == "open":
        (project / "known_hosts").unlink()
        before = b""
    monkeypatch.setattr(
        f"dtctl.transport.ssh.known_hosts.os.{call}", Mock(side_effect=OSError(number, os.strerror(number)))
    )
    for learn in (lambda: pinned.pin("gpu-a", [key(1)], file), lambda: pinned.learn("gpu-a", key(1), file)):
        with pytest.raises(TransportError, match=r"host keys cannot be kept: the disk of .* is full") as error:
            learn()
        assert error.value.exit_code == ExitCode.PREFLIGHT
        assert error.value.hint.startswith(f"df {project}")
    monkeypatch.undo()
    assert (file.read_bytes() if file.exists() else b"") == before


@pytest.mark.parametrize("room", [0, 1, 50])
def test_a_full_disk_leaves_no_half_line(project: Path, room: int) -> None:
    """Only `room` bytes of the data fit, so that the kernel writes a part of it."""
    file = project / "known_hosts"
    file.write_text(line("gpu-b") + "\n")
    before = file.read_bytes()
    script = [sys.executable, "-c", FULL_DISK, str(file), str(len(before) + room)]
    done = subprocess.run(script, capture_output=True, text=True, check=True)
    expected = f"host keys cannot be kept: the disk of {file} is full" if room else f"cannot write {file}: "
    assert done.stdout.startswith(expected), done.stderr
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["GPU-A", "Gpu-A.LAN", "FE80::1%Eth0"])
@pytest.mark.parametrize("port", [22, 2222])
@needs_keygen
def test_a_changed_key_is_seen_in_a_hashed_file_whatever_the_case_of_the_name(
    project: Path, name: str, port: int
) -> None:
    written = name.lower() if port == 22 else f"[{name.lower()}]:{port}"
    file = project / "known_hosts"
    file.write_text(line(written, 1) + "\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    before = file.read_text()
    assert name.lower() not in before
    keys = HostKeys(TO, host_key_name(name, port), KnownHosts(), [file], True, file, project, users=[file])
    keys.check(key(1), None)  # type: ignore[arg-type]
    with pytest.raises(HostKeyError, match="has changed"):
        keys.check(key(2), None)  # type: ignore[arg-type]
    assert file.read_text() == before


@needs_keygen
def test_openssh_finds_what_was_pinned_under_a_name_in_capitals(project: Path) -> None:
    file = project / "known_hosts"
    for name, port in (("GPU-A.Lan", 22), ("GPU-B", 2222)):
        KnownHosts().pin(host_key_name(name, port), [key(1)], file)
    for hashed in (False, True):
        if hashed:
            subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
        for name in ("gpu-a.lan", "[gpu-b]:2222"):
            subprocess.run(["ssh-keygen", "-F", name, "-f", str(file)], capture_output=True, check=True)
            assert [pinned.key for pinned in KnownHosts().of(name, [file])] == [key(1)]


def test_a_key_of_another_type_is_a_changed_key_also_where_new_ones_are_accepted(project: Path) -> None:
    """As in OpenSSH (`check_key_in_hostkeys`, hostfile.c): any other key of the host makes it a changed one."""
    file = project / "known_hosts"
    file.write_text(line("gpu-a", 7, "ssh-rsa") + "\n")
    with pytest.raises(HostKeyError, match="is of another type than the one that is known"):
        accept(file, project)
    assert [pinned.key for pinned in parse_known_hosts(file.read_text(), file)] == [RSA]


def test_revoked_keys_alone_leave_a_host_unknown(project: Path) -> None:
    file = project / "known_hosts"
    file.write_text(f"@revoked {line('*', 9)}\n")
    with pytest.raises(HostKeyError, match="is revoked"):
        accept(file, project, key(9))
    accept(file, project, key(1))
    with pytest.raises(HostKeyError, match="has changed"):
        accept(file, project, key(2))
    with pytest.raises(HostKeyError, match="is revoked"):
        accept(file, project, key(9))


def test_a_file_for_authorities_alone_leaves_a_host_unknown(project: Path) -> None:
    file = project / "known_hosts"
    file.write_text(f"@cert-authority {line('*', 9)}\n")
    with pytest.raises(HostKeyError, match="is not known"):
        judge(file, project, accept_new=False).check(key(9), None)  # type: ignore[arg-type]


def test_a_line_ends_only_where_it_ends_for_openssh(project: Path) -> None:
    hidden = f"# comment\x0c{line('gpu-a', 1)}\u2028{line('gpu-a', 1)}\x1d{line('gpu-a', 1)}\n"
    assert parse_known_hosts(hidden, project / "known_hosts") == []


@cases
@given(st.text(max_size=200))
def test_any_path_is_refused_or_in_an_allowed_place(text: str) -> None:
    project = Path(os.path.realpath("."))
    if "\0" in text:
        return
    path = project / text
    if not why_not_written(path, project):
        real = os.path.realpath(path)
        assert real.startswith((f"{project}/", os.path.realpath(Path("~/.ssh").expanduser()) + "/known_hosts"))


@pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh not found")
@pytest.mark.parametrize("name", ["a b", "100%", "%h %d", "it's", "$HOME", "$(touch x)", "a;b", "#a", "-a"])
def test_openssh_gets_paths_unchanged(project: Path, name: str) -> None:
    """`ssh -G` shows the paths as it understood them; it has not expanded tokens in the name of a key's file yet."""
    settings = SshSettings("gpu-a", identity_file=str(project / name), known_hosts=str(project / name))
    command = ssh_command(Host("gpu-a", settings))
    done = subprocess.run([*command[:1], "-F", "none", "-G", *command[1:]], capture_output=True, text=True, check=True)
    settings_shown = dict(text.split(" ", 1) for text in done.stdout.splitlines())
    assert settings_shown["identityfile"] == str(project / name).replace("%", "%%")
    assert settings_shown["userknownhostsfile"].startswith(f"{project / name} ")


@pytest.mark.parametrize("name", ["${HOME}", 'a"b', "a\\b", "a\nb", "${PATH}/../x"])
def test_a_path_that_openssh_would_misread_is_refused(project: Path, name: str) -> None:
    for settings in (
        SshSettings("a", identity_file=str(project / name)),
        SshSettings("a", known_hosts=str(project / name)),
        SshSettings("a", jump="b", known_hosts=str(project / name)),
    ):
        with pytest.raises(UsageError, match="cannot be given the path"):
            ssh_command(Host("a", settings))
