"""Names that are handed to SSH: what passes is a name to a shell as well, and to OpenSSH."""

from __future__ import annotations

import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.config.names import check_host, check_own_host, check_user, split_place
from dtctl.errors import DtctlError, UsageError
from dtctl.model import Host, SshSettings
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.openssh import ssh_command
from tests.fuzz import cases

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh not found")

HOSTS = [
    "gpu-1",
    "GPU_1.lan",
    "_gateway",
    "10.0.0.2",
    "::1",
    "fe80::1%eth0",
    "fe80::1%br-1.2",
    "::ffff:10.0.0.1",
    "xn--bcher-kva.de",
]
USERS = ["train", "ann.b_c-d", "ann@example.com", "DOMAIN\\ann", "DOM+ann", "42"]
NO_NAMES = [
    *("$(touch${IFS}x)", "`touch x`", "$HOME", "${IFS}", "a;b", "a|b", "a&b", "a<b", "a>b", "a'b", 'a"b'),
    *("a b", "a\tb", "a\u2028b", "a\u00a0b", "a\ufeff"),
    *("a\nb", "a\n", "\n", "a\rb", "a\0b", "a\x1bb", "-oProxyCommand=x", "-", "", "a{b,c}", "a(b)", "a#b", "a!b", "a*"),
    *("a?", "~", "~root", "a=b", "a/b", "a\\", "gpu‐1", "ɡpu", "ｇpu", "bücher", "a" * 256),
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTS)
def test_names_and_addresses_of_hosts_pass(name: str) -> None:
    assert check_host(name) == name


@pytest.mark.parametrize("name", USERS)
def test_names_of_users_pass(name: str) -> None:
    assert check_user(name) == name


@pytest.mark.parametrize(
    "name", [*NO_NAMES, "a,b", "a%h", "%h", "a:b", "[::1]", "a@b", "fe80::1%", "fe80::1%a;b", "a\\b"]
)
def test_what_is_more_than_a_host_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a host"):
        check_host(name)


@pytest.mark.parametrize("name", [*NO_NAMES, "a,b", "a%h", "%r", "a:b", "+a%u", "a$"])
def test_what_is_more_than_a_user_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot be the name of a user"):
        check_user(name)


@pytest.mark.parametrize("place", ["{}", "{}@host", "{}:22", "[{}]:22", "ok,{}", "{},ok"])
def test_no_way_to_a_host_is_looked_up_with_more_than_names(place: str, tmp_path: Path) -> None:
    """Neither as target nor as jump, neither by paramiko's configuration nor on OpenSSH's command line."""
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand nc %h %p %r\n")
    files = ConfigFiles(config)
    for name in NO_NAMES:
        text = place.format(name)
        for settings in (SshSettings(text), SshSettings("gpu-a", user=name or "-"), SshSettings("gpu-a", jump=text)):
            if settings.jump == "":
                continue  # says nothing
            with pytest.raises(DtctlError):
                files.lookup(settings)
            with pytest.raises(DtctlError):
                ssh_command(Host("gpu-a", settings), ssh_config=config)


@pytest.mark.parametrize("name", [name for name in NO_NAMES if name])
def test_fabric_never_looks_up_an_invalid_name(name: str, tmp_path: Path) -> None:
    """It asks paramiko's configuration by itself."""
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand nc %h %p %r\n")
    with pytest.raises(UsageError):
        ConfigFiles(config).parsed().lookup(name)
    with pytest.raises(UsageError):
        ConfigFiles(config).parsed(user=name)


def test_a_host_name_of_ones_own_is_checked_as_openssh_does(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  HostName $(x)\nHost b\n  HostName %h~1\n")
    with pytest.raises(UsageError, match="cannot be the name of a host"):
        ConfigFiles(config).lookup(SshSettings("a"))
    assert ConfigFiles(config).lookup(SshSettings("b"))["hostname"] == "b~1"
    assert check_own_host("bücher") == "bücher"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("bastion", (None, "bastion", None)),
        ("ops@bastion:2200", ("ops", "bastion", 2200)),
        ("ops@team@bastion", ("ops@team", "bastion", None)),
        ("[fe80::1%eth0]:22", (None, "fe80::1%eth0", 22)),
        ("fe80::1%eth0", (None, "fe80::1%eth0", None)),
        ("u@::1", ("u", "::1", None)),
    ],
)
def test_a_place_is_split(text: str, parts: tuple[str | None, str, int | None]) -> None:
    assert split_place(text) == parts


@pytest.mark.parametrize(
    "text", ["host:0", "host:65536", "host:" + "9" * 5000, "host:", "[::1]:x", "@host", "a:b:22x@"]
)
def test_a_place_with_half_a_user_or_port_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        split_place(text)


NEAR_NAMES = st.text(st.sampled_from(string.printable + "ü‐\0\u2028"), max_size=12) | st.text(max_size=12)


@cases
@given(st.lists(NEAR_NAMES, min_size=20, max_size=60))
def test_a_shell_takes_every_name_that_passes_for_one_word_and_itself(texts: list[str]) -> None:
    hosts = [text for text in texts if _passes(check_host, text)]
    users = [text for text in texts if _passes(check_user, text)]
    # A shell takes the backslash of DOMAIN\user away, for OpenSSH's %r as for ours.
    told = subprocess.run(
        ["sh", "-c", "".join(f"printf '%s\\n' {name}\n" for name in [*hosts, *users])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.split("\n")[:-1] == [
        *hosts,
        *(user.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\") for user in users),
    ]
    assert told.stderr == ""


def _passes(check: Callable[[str], str], text: str) -> bool:
    try:
        return check(text) == text
    except UsageError:
        return False


@needs_ssh
@pytest.mark.parametrize("host", HOSTS)
def test_openssh_takes_what_passes(host: str) -> None:
    for user in USERS:
        done = subprocess.run(
            ["ssh", "-F", "none", "-G", "-l", user, host], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"user {user}" in done.stdout.splitlines()


@needs_ssh
@pytest.mark.parametrize("name", [name for name in NO_NAMES if name and "\0" not in name])
def test_what_openssh_refuses_never_passes(name: str) -> None:
    done = subprocess.run(["ssh", "-F", "none", "-G", "--", name], capture_output=True, check=False)
    if done.returncode != 0:
        assert not _passes(check_host, name)
