"""dtctl's idea of ssh_config against `ssh -G`, and logins with configurations as people have them."""

from __future__ import annotations

import random
import re
import shlex
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from dtctl.errors import TransportError, UsageError
from dtctl.model import Host, SshSettings
from dtctl.transport.seam import answering
from dtctl.transport.ssh import config as config_module
from dtctl.transport.ssh.config import ConfigFiles, known_hosts_files
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import Client

HOSTS = ("gpu", "old-1", "build-2", "gate", "gpu.cluster.lan")
REAL = [
    part.partition("\n")[::2] for part in Path(__file__).with_name("ssh_configs.txt").read_text().split("\n---- ")[1:]
]
GENERATED = 300
SINGLE = ("hostname", "user", "port", "proxyjump", "hostkeyalias", "connecttimeout", "identitiesonly", "identityagent")


def written(home: Path, text: str) -> ConfigFiles:
    file = home / "ssh config"
    file.write_text(text)
    return ConfigFiles(file)


def answer(file: Path, host: str) -> Mapping[str, list[str]] | None:
    """What `ssh -G` prints; None if it refuses the file for this host."""
    words = ["ssh", "-F", str(file), "-G", host]
    done = subprocess.run(words, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        return None
    found: dict[str, list[str]] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key, []).append(value)
    return found


def differences(files: ConfigFiles, host: str) -> dict[str, tuple[Any, Any]]:
    """Each option in which dtctl's idea differs from ssh's."""
    assert files.path is not None
    truth, defaults = answer(files.path, host), answer(Path("/dev/null"), host)
    assert defaults is not None
    if truth is None:  # such as a jump host that is reached through itself
        with pytest.raises(TransportError):
            files.lookup(SshSettings(host))
        return {}
    ours = files.lookup(SshSettings(host))
    found: dict[str, tuple[Any, Any]] = {}
    for key in SINGLE:
        theirs = truth.get(key, [""])[0]
        mine = ours.get(key, defaults.get(key, [""])[0])
        if mine != re.sub("^~", str(Path.home()), theirs) and mine != theirs:
            found[key] = (mine, theirs)
    keys = [] if truth["identityfile"] == defaults["identityfile"] else truth["identityfile"]
    if len(keys) != len(ours.get("identityfile", [])):
        found["identityfile"] = (ours.get("identityfile"), keys)
    if ("proxycommand" in truth) != ("proxycommand" in ours):
        found["proxycommand"] = (ours.get("proxycommand"), truth.get("proxycommand"))
    return found


@pytest.mark.parametrize(("name", "text"), REAL, ids=[name for name, _ in REAL])
def test_a_configuration_is_read_as_ssh_reads_it(home: Path, name: str, text: str) -> None:
    files = written(home, text)
    assert {host: differences(files, host) for host in HOSTS} == {host: {} for host in HOSTS}


CONDITIONS = [
    *("Host gpu", "Host old-*", "Host *", "Host * !gate", "Host gpu old-1", "Host *.lan", "Host GPU", "Host nothing"),
    *(
        "Match all",
        "Match host gpu",
        "Match Host old-*",
        "Match originalhost gate",
        "Match user git",
        "Match !host gpu",
    ),
    *('Match exec "false"', 'Match exec "true"', "Match host gpu,old-* user nobody", "Match final all"),
]
OPTIONS: list[Callable[[random.Random], str]] = [
    lambda rng: f"Port {rng.randint(1, 9999)}",
    lambda rng: f"User u{rng.randint(1, 9)}",
    lambda rng: f"HostName {rng.choice(['10.0.0.1', '%h.lan', 'gpu.cluster.lan'])}",
    lambda rng: f"ProxyJump {rng.choice(['gate', 'none', 'me@gate:22,other'])}",
    lambda rng: f"ProxyCommand {rng.choice(['nc %h %p', 'none'])}",
    lambda rng: f"IdentityFile {rng.choice(['~/.ssh/a', '%d/b', '/k/%r'])}",
    lambda rng: "IdentitiesOnly yes",
    lambda rng: f"HostKeyAlias {rng.choice(['a', 'b'])}",
    lambda rng: f"ConnectTimeout {rng.randint(1, 99)}",
    lambda rng: "ServerAliveInterval 15",
    lambda rng: "SendEnv LANG",
    lambda rng: "# Host gpu",
    lambda rng: "",
]


def generated(rng: random.Random, more: Path) -> str:
    lines = []
    for _ in range(rng.randint(0, 5)):
        block = [rng.choice(CONDITIONS)] if rng.random() < 0.9 else []
        block += ["  " + rng.choice(OPTIONS)(rng) for _ in range(rng.randint(0, 3))]
        if rng.random() < 0.15:
            more.write_text("\n".join([rng.choice(CONDITIONS), rng.choice(OPTIONS)(rng), ""]))
            block.append(f"Include {more}")
        lines += block
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(10))
def test_generated_configurations_are_read_as_ssh_reads_them(home: Path, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(GENERATED // 10):
        text = generated(rng, tmp_path / "more")
        files, host = written(home, text), rng.choice(HOSTS)
        assert differences(files, host) == {}, f"seed {seed}, {host}:\n{text}"


PIECES = (
    '"',
    '""',
    "=",
    " ",
    "\t",
    "\r",
    "\f",
    "'",
    "#",
    "\\",
    "\0",
    "Ho",
    "st",
    "host",
    "Host",
    "Match",
    "all",
    "gpu",
    "Port",
)
WRITTEN = (
    *('"Host"gpu', 'Ho"st" gpu', '""Host gpu', "=Host gpu", " = Host gpu", "Host==gpu", "Host = = gpu", '"Host"=gpu'),
    *("'Host' gpu", 'Host"gpu"', "Host\fgpu", "Host gpu\0x", '"Ho st" gpu', '"Match"all', "=Match all", '"Host'),
)


def test_no_setting_is_missed_however_its_line_is_written(home: Path) -> None:
    rng = random.Random(7)
    lines = ["".join(rng.choice(PIECES) for _ in range(rng.randint(2, 6))) for _ in range(GENERATED // 6)]
    for line in (*WRITTEN, *lines):
        text = f"Host *\n{line} 7\n" if "Port" in line else f"Host other\n{line}\n  Port 7\nHost *\n"
        files = written(home, text)
        assert files.path is not None
        truth = answer(files.path, "gpu")
        if truth is not None:
            assert files.lookup(SshSettings("gpu"))["port"] == truth["port"][0], repr(text)


def test_ssh_is_not_started_for_a_host_without_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "run", lambda *_: pytest.fail("ssh was started"))
    files = written(home, "Host *\n  SendEnv LANG\n  ControlMaster auto\nHost github.com\n  User git\n")
    assert files.lookup(SshSettings("gpu-1", port=7))["port"] == "7"


def test_a_host_is_looked_up_once(home: Path, tmp_path: Path) -> None:
    files = written(home, f'Match exec "echo x >>{tmp_path}/ran"\n  Port 7\n')
    assert {str(files.lookup(SshSettings("gpu"))["port"]) for _ in range(5)} == {"7"}
    assert (tmp_path / "ran").read_text() == "x\n"


GPU = (
    "Host gpu\n  HostName {address}\n  Port {port}\n  User {user}\n  IdentityFile {key}\n  UserKnownHostsFile {known}\n"
)
FIRST = {
    "match host=": "Match host=build-*\n  User builder\n",
    "Match All": "Match All\n  ServerAliveInterval 30\n",
    "an unmet Match with all at its end": 'Match originalhost old exec "true"\n  User nobody\n',
    "an apostrophe in a comment": "Match host old-* # Bob's old boxes\n  User bob\n",
    "a capital in Match Host": "Match Host old-cluster-*\n  User olduser\n  Port 9\n",
    "Match User": "Match User git\n  IdentityFile ~/.ssh/git_only\n  IdentitiesOnly yes\n",
    "canonical names": "CanonicalizeHostname yes\nCanonicalDomains example.invalid\nCanonicalizeFallbackLocal yes\n",
    "canonical names without domains": "CanonicalizeHostname yes\n",
}


def gpu(server: Sshd) -> str:
    key, known = shlex.quote(str(server.key)), shlex.quote(str(server.known_hosts))
    return GPU.format(address=server.address, port=server.port, user=server.user, key=key, known=known)


@pytest.mark.usefixtures("tiny_agent")
@pytest.mark.parametrize("first", FIRST.values(), ids=FIRST)
def test_login_with_blocks_that_apply_to_other_hosts(home: Path, sshd: Sshd, client: Client, first: str) -> None:
    files = written(home, first + gpu(sshd))
    answering(client(files), Host("gpu-a", SshSettings("gpu"))).close()


@pytest.mark.usefixtures("tiny_agent")
def test_include_in_a_block_that_does_not_match_is_passed_over(home: Path, sshd: Sshd, client: Client) -> None:
    (home / "vpn.conf").write_text("Host gpu\n  Port 9\n  ProxyJump vpn-gate\n")
    text = f'Match exec "test -e {home}/absent"\n  Include "{home}/vpn.conf"\n'
    answering(client(written(home, text + gpu(sshd))), Host("gpu-a", SshSettings("gpu"))).close()


def test_what_ssh_refuses_is_reported_in_its_words(home: Path) -> None:
    with pytest.raises(TransportError, match="cannot read its configuration for gpu") as caught:
        written(home, "Host gpu\n  Port 22\n  Prot 22\n").lookup(SshSettings("gpu"))
    assert "Bad configuration option: prot" in caught.value.detail


def test_a_file_that_includes_itself_is_refused(home: Path) -> None:
    with pytest.raises(TransportError, match="cannot read its configuration"):
        written(home, f'Include "{home}/ssh config"\nPort 9\n').lookup(SshSettings("gpu"))


def test_settings_win_and_replace_their_tokens(home: Path) -> None:
    files = written(home, "Host *\n  User nobody\n  Port 2200\n  ProxyCommand nc -X %r %h %p\n")
    assert files.lookup(SshSettings("a"))["proxycommand"] == "nc -X nobody a 2200"
    options = files.lookup(SshSettings("a", user="train", port=22))
    assert (options["user"], options["port"], options["proxycommand"]) == ("train", "22", "nc -X train a 22")


def test_known_hosts_and_keys_are_found_with_their_tokens(home: Path) -> None:
    text = 'Host gpu\n  User train\n  IdentityFile %d/k-%r\n  IdentityFile /k/%n\n  UserKnownHostsFile "/a b" /%n/c\n'
    options = written(home, text).lookup(SshSettings("gpu"))
    assert options["identityfile"] == [f"{home}/k-train", "/k/gpu"]
    assert known_hosts_files(SshSettings("gpu"), options)[:2] == (Path("/a b"), Path("/gpu/c"))


def test_another_file_replaces_both(home: Path, tmp_path: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "config").write_text("Host *\n  HostName wrong\n")
    (tmp_path / "other").write_text("Host gpu-a\n  HostName right\n")
    assert ConfigFiles().hostname(SshSettings("gpu-a")) == "wrong"
    assert ConfigFiles(tmp_path / "other").hostname(SshSettings("gpu-a")) == "right"
    with pytest.raises(UsageError, match="there is no SSH configuration"):
        ConfigFiles(tmp_path / "missing").hostname(SshSettings("gpu-a"))


def test_without_ssh_only_a_host_with_settings_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    files = written(home, "Host gpu\n  Port 7\n")
    assert files.hostname(SshSettings("other")) == "other"
    with pytest.raises(TransportError, match="has settings for gpu, and there is no `ssh`"):
        files.hostname(SshSettings("gpu"))


def test_keys_are_never_added_to_files_of_everyone(home: Path, client: Client) -> None:
    logins = client(written(home, "Host *\n  UserKnownHostsFile /dev/null\n")).logins
    keys = logins.host_keys("gpu-a", SshSettings("gpu"))
    assert Path("/etc/ssh/ssh_known_hosts") in keys.files
    with pytest.raises(TransportError, match="there is no file to keep the host key"):
        _ = keys.own_file
