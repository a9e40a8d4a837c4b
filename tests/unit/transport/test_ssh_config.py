"""Settings from ssh_config, allowed key files, and the requests of a login before any answer."""

from __future__ import annotations

import base64
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from paramiko.ecdsakey import ECDSAKey
from paramiko.message import Message
from paramiko.pkey import PKey
from paramiko.rsakey import RSAKey

from dtctl.errors import UsageError
from dtctl.model import Host, SshSettings
from dtctl.transport.ssh.config import ConfigFiles, LoginTarget, known_hosts_files, split_target
from dtctl.transport.ssh.keyring import Keyring, read_key_file
from dtctl.transport.ssh.mentions import Mentions
from dtctl.transport.ssh.openssh import ssh_command
from dtctl.transport.ssh.protocol import PromptLogin
from tests.hosts import keys
from tests.impostors import directory, fifo, link_without_end, sparse


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    return tmp_path


def write(home: Path, text: str) -> ConfigFiles:
    (home / ".ssh" / "config").write_text(text)
    return ConfigFiles()


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("bastion", LoginTarget("bastion")),
        ("ops@bastion:2200", LoginTarget("bastion", "ops", 2200)),
        ("ops@team@bastion", LoginTarget("bastion", "ops@team")),
        ("[fe80::1%eth0]:22", LoginTarget("fe80::1%eth0", None, 22)),
        ("fe80::1%eth0", LoginTarget("fe80::1%eth0")),
        ("u@::1", LoginTarget("::1", "u")),
        ("ssh://ops@bastion:2200", LoginTarget("bastion", "ops", 2200)),
    ],
)
def test_a_place_is_read_and_written(text: str, place: LoginTarget) -> None:
    assert LoginTarget.parse(text) == place
    assert LoginTarget.parse(str(place)) == place


@pytest.mark.parametrize(
    "text",
    ["", "a b", "host:port", "host:0", "host:65536", "host:" + "9" * 5000, "host:", "[::1]:x", "@host", "a:b:22x@"],
)
def test_invalid_login_target_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        LoginTarget.parse(text)


def test_a_target_may_hold_user_and_port_and_settings_win() -> None:
    assert split_target(SshSettings("u@h:9")) == SshSettings("h", user="u", port=9)
    assert split_target(SshSettings("u@h:9", user="me", port=1)) == SshSettings("h", user="me", port=1)


MENTIONED = {
    "Host gpu-*\n  Port 7\n": {"gpu-1"},
    "Host gpu-* !gpu-1\n  Port=7\n": {"gpu-1"},
    "host GPU-1\n  'Port' 7\n": set(),
    'HOST GPU-1\n  "Port" 7\n': {"gpu-1"},
    "Host gpu-1\n  SendEnv LANG\n": set(),
    "Host *\n  SendEnv LANG\nHost gate\n  Port 7\n": {"gate"},
    "# Host *\n# Port 7\n": set(),
    "Port 7\n": {"gpu-1", "gate"},
    'Match exec "false"\n  User x\n': {"gpu-1", "gate"},
    'Match exec "false"\n  Compression yes\n': set(),
    "CanonicalizeHostname yes\n": {"gpu-1", "gate"},
    'Host "gpu 1"\n  Port 7\n': {"gpu-1", "gate"},
    "Include ${NOWHERE}\n": {"gpu-1", "gate"},
    "Include /absent/*\n": set(),
    "Include '{other}'\n": {"gpu-1", "gate"},
    "Host nobody\n  Include {other}\n": {"gate"},
    "Include {file}\n": {"gpu-1", "gate"},
}


@pytest.mark.parametrize("text", MENTIONED)
def test_host_counts_as_mentioned_where_a_block_may_apply_to_it(tmp_path: Path, text: str) -> None:
    file, other = tmp_path / "config", tmp_path / "other"
    other.write_text("Host gate\n  Port 7\n")
    file.write_text(text.replace("{other}", str(other)).replace("{file}", str(file)))
    mentions = Mentions([file])
    assert {host for host in ("gpu-1", "gate") if host in mentions} == MENTIONED[text]


def test_unreadable_file_leaves_every_host_to_ssh(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    assert "gpu-1" in Mentions([tmp_path / "config"])


def test_without_a_host_name_in_the_files_nothing_is_imported(home: Path) -> None:
    write(home, "Host gpu-a\n  User train\n")
    script = (
        "import sys; from dtctl.model import SshSettings; from dtctl.transport.connect import Transports\n"
        "print(Transports().hostname(SshSettings('gpu-a')), {'paramiko', 'fabric'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gpu-a", "set()"]


def test_a_user_cannot_smuggle_in_other_options(home: Path) -> None:
    with pytest.raises(UsageError):
        write(home, "").lookup(SshSettings("a", user="me\n  ProxyCommand touch /tmp/x"))


def test_known_hosts_files_are_the_configured_then_the_users_then_the_global_ones(home: Path) -> None:
    ours = SshSettings("a", known_hosts="~/pinned")
    everyones = [Path("/etc/ssh/ssh_known_hosts"), Path("/etc/ssh/ssh_known_hosts2")]
    default = [home / ".ssh" / "known_hosts", home / ".ssh" / "known_hosts2"]
    assert list(known_hosts_files(ours, {})) == [home / "pinned", *default, *everyones]
    options = {"userknownhostsfile": '"~/a b" ~/c', "globalknownhostsfile": "none"}
    assert list(known_hosts_files(SshSettings("a"), options)) == [home / "a b", home / "c"]


def test_openssh_is_called_with_the_same_settings(home: Path) -> None:
    settings = SshSettings("gpu-a", user="train", port=2222, identity_file="k", jump="b", connect_timeout_s=7)
    command = ssh_command(Host("gpu-a", settings), ssh_config=home / "f")
    common = ["-F", str(home / "f")]
    strict = ["-o", "StrictHostKeyChecking=yes", "-o", "ConnectTimeout=7"]
    key = ["-o", 'IdentityFile="k"']
    inner = " ".join(["ssh", *common, "-o", """'IdentityFile="k"'""", *strict])
    assert command == [
        *["ssh", *common, "-l", "train", "-p", "2222", *key, *strict],
        *["-o", f"ProxyCommand={inner} -W [%h]:%p b", "gpu-a"],
    ]


def test_openssh_keeps_its_defaults_without_settings(home: Path) -> None:
    command = ssh_command(Host("gpu-a", SshSettings("gpu-a", jump="a,b", host_keys="accept-new")))
    options = ["-J", "a,b", "-o", "StrictHostKeyChecking=accept-new", "-o", "ConnectTimeout=15"]
    assert command == ["ssh", *options, "gpu-a"]


NO_KEYS: list[Callable[[Path], None]] = [fifo, link_without_end, sparse, directory]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", NO_KEYS)
def test_non_key_file_is_refused_without_blocking(tmp_path: Path, make: Callable[[Path], None]) -> None:
    """/dev/zero has no end, and took all memory of the machine."""
    make(tmp_path / "id")
    assert Keyring().file(tmp_path / "id").problem


@pytest.mark.timeout(120)
@pytest.mark.parametrize("make", NO_KEYS)
@pytest.mark.parametrize("beside", [".pub", "-cert.pub"])
def test_special_file_beside_a_key_does_not_block(tmp_path: Path, make: Callable[[Path], None], beside: str) -> None:
    key = tmp_path / "id"
    key.write_bytes(keys.make_key("login").read_bytes())
    make(key.with_name(key.name + beside))
    file = read_key_file(key)
    assert file.type == "ssh-ed25519"
    key.write_text("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n")
    assert read_key_file(key).problem


def test_a_key_whose_type_is_no_text_is_refused(tmp_path: Path) -> None:
    key = tmp_path / "id"
    parts = (b"none", b"none", b"")
    raw = b"openssh-key-v1\0" + b"".join(len(part).to_bytes(4, "big") + part for part in parts) + b"\0\0\0\1"
    blob = b"\0\0\0\2\xff\xfe"
    body = base64.b64encode(raw + len(blob).to_bytes(4, "big") + blob).decode()
    key.write_text(f"-----BEGIN OPENSSH PRIVATE KEY-----\n{body}\n-----END OPENSSH PRIVATE KEY-----\n")
    assert read_key_file(key).problem == "not a key in a known format"


SERVICE_REQUEST, USERAUTH_REQUEST = 5, 50


class Line:
    """The part of a paramiko Transport that a login needs; `sent` has the messages' numbers."""

    session_id = b"the exchange hash"
    preferred_pubkeys = ("rsa-sha2-512", "rsa-sha2-256")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server_extensions: dict[str, bytes] = {}
        self.sent: list[int] = []
        self.last = b""
        self.at_once: Callable[[], None] = lambda: None
        """The effect of the server's answer for the service, before its request has been sent for long."""

    def _send_message(self, message: Any) -> None:
        self.last = message.asbytes()
        self.sent.append(self.last[0])
        if self.sent == [SERVICE_REQUEST]:
            self.at_once()

    def _log(self, *args: object) -> None:
        pass


def key_of(kind: str) -> PKey:
    return RSAKey.generate(2048) if kind == "rsa" else ECDSAKey.generate()


def granted() -> Message:
    message = Message()
    message.add_string("ssh-userauth")
    message.rewind()
    return message


BOTH = [SERVICE_REQUEST, USERAUTH_REQUEST]


@pytest.mark.parametrize(
    ("kind", "first", "at_once", "sent"),
    [
        pytest.param("ecdsa", True, False, BOTH, id="service and key in one go"),
        pytest.param("ecdsa", True, True, BOTH, id="ecdsa key offered once after a prompt answer"),
        pytest.param("rsa", True, True, BOTH, id="rsa key offered once after a prompt answer"),
        pytest.param("none", True, False, BOTH, id="login without a key in one go"),
        pytest.param("ecdsa", False, False, [USERAUTH_REQUEST], id="service not requested again"),
        pytest.param("rsa", False, False, [USERAUTH_REQUEST], id="service not requested again for rsa"),
    ],
)
def test_login_requests_the_service_once_and_offers_the_key_once(
    kind: str, first: bool, at_once: bool, sent: list[int]
) -> None:
    line: Any = Line()
    login = PromptLogin(line, first=first)
    if at_once:
        line.at_once = lambda: login._parse_service_accept(granted())
    if kind == "none":
        login.auth_none("train", threading.Event())
    else:
        login.auth_publickey("train", key_of(kind), threading.Event())
    assert line.sent == sent
    if first and not at_once:
        login._parse_service_accept(granted())
        assert line.sent == sent, "the key is not offered twice"


def test_an_rsa_key_waits_for_the_signature_algorithms_of_the_server() -> None:
    line: Any = Line()
    login = PromptLogin(line, first=True)
    login.auth_publickey("train", key_of("rsa"), threading.Event())
    assert line.sent == [SERVICE_REQUEST]
    line.server_extensions = {"server-sig-algs": b"rsa-sha2-256"}
    login._parse_service_accept(granted())
    assert line.sent == [SERVICE_REQUEST, USERAUTH_REQUEST]
    assert b"rsa-sha2-256" in line.last
