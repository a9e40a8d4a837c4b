"""Host keys: unknown, changed, revoked, of another type; and pinning them."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import pytest

from dtctl.errors import HostKeyError, TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport.connect import Transports
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import answering
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts.keys import fingerprint, make_key, public_text
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import Client, direct

pytestmark = pytest.mark.usefixtures("tiny_agent")


LogIn = Callable[..., None]
Refusal = Callable[..., HostKeyError]


@pytest.fixture
def log_in(client: Client) -> LogIn:
    return lambda host, config=None: answering(client(ConfigFiles(config)), host).close()


@pytest.fixture
def refusal(log_in: LogIn) -> Refusal:
    def refused(host: Host, config: Path | None = None) -> HostKeyError:
        with pytest.raises(HostKeyError) as caught:
            log_in(host, config)
        return caught.value

    return refused


def name(server: Sshd) -> str:
    return f"[{server.address}]:{server.port}"


def public(key: Path) -> str:
    return " ".join(public_text(key).split()[:2])


def test_an_unknown_key_is_refused_with_its_fingerprint_and_the_next_step(
    sshd: Sshd, home: Path, refusal: Refusal
) -> None:
    before = sshd.logins()
    error = refusal(direct(sshd, known_hosts=str(home / "none")))
    assert sshd.logins() == before
    assert error.summary == f"the host key of gpu-a ({sshd.address}:{sshd.port}) is not known"
    assert f"ssh-ed25519 {fingerprint(sshd.host_keys['ed25519'])}" in error.detail
    assert str(home / "none") in error.detail
    assert error.hint == "dtctl trust"
    assert not (home / "none").exists()


@pytest.mark.parametrize("policy", ["strict", "accept-new"])
def test_a_changed_key_is_refused_with_both_fingerprints_and_the_line_of_the_old_one(
    sshd: Sshd, home: Path, policy: str, refusal: Refusal
) -> None:
    old = make_key("old-host")
    file = home / "known_hosts 1"
    file.write_text(f"# mine\n{name(sshd)} {public(old)}\n")
    error = refusal(direct(sshd, known_hosts=str(file), host_keys=policy))
    assert error.summary.endswith("has changed")
    assert fingerprint(sshd.host_keys["ed25519"]) in error.detail
    assert f"{fingerprint(old)} ({file}:2)" in error.detail
    assert "IDENTIFICATION HAS CHANGED" not in error.detail, "`ssh` says the same at length"
    assert f"ssh-keygen -f {file} -R '{name(sshd)}'" in error.hint
    assert file.read_text() == f"# mine\n{name(sshd)} {public(old)}\n"


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
def test_the_pinned_key_type_is_requested(sshd: Sshd, home: Path, kind: str, log_in: LogIn) -> None:
    file = home / "known_hosts"
    file.write_text(f"{name(sshd)} {public(sshd.host_keys[kind])}\n")
    log_in(direct(sshd, known_hosts=str(file)))


@pytest.mark.parametrize("policy", ["strict", "accept-new"])
def test_a_key_of_another_type_than_the_pinned_one_is_refused(home: Path, policy: str, refusal: Refusal) -> None:
    with Sshd(host_keys=["ed25519"]) as server:
        file = home / "known_hosts"
        file.write_text(f"{name(server)} {public(make_key('host-rsa', 'rsa'))}\n")
        error = refusal(direct(server, known_hosts=str(file), host_keys=policy))
    assert error.summary.endswith("is of another type than the one that is known")


def test_a_revoked_key_is_refused_though_it_is_also_pinned(sshd: Sshd, home: Path, refusal: Refusal) -> None:
    file = home / "known_hosts"
    lines = [f"{name(sshd)} {public(key)}" for key in sshd.host_keys.values()]
    file.write_text("\n".join([*lines, *(f"@revoked * {public(key)}" for key in sshd.host_keys.values())]))
    assert refusal(direct(sshd, known_hosts=str(file))).summary.endswith("is revoked")


def test_hashed_names_are_found(sshd: Sshd, home: Path, log_in: LogIn) -> None:
    file = home / "known_hosts"
    file.write_text(sshd.known_hosts_text())
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", str(file)], check=True, capture_output=True)
    log_in(direct(sshd, known_hosts=str(file)))


@pytest.mark.parametrize("client", [SshTransport])  # `ssh` itself uses only the home in /etc/passwd
def test_the_users_own_known_hosts_is_trusted(sshd: Sshd, home: Path, log_in: LogIn) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "known_hosts").write_text(sshd.known_hosts_text())
    log_in(direct(sshd, known_hosts=None))


def test_host_key_is_looked_up_by_its_alias(sshd: Sshd, home: Path, log_in: LogIn) -> None:
    (home.parent / "known").write_text(sshd.known_hosts_text("the-alias"))
    config = home / "config"
    config.write_text(
        sshd.ssh_config_text(extra="  HostKeyAlias the-alias\n").replace(
            str(sshd.known_hosts), str(home.parent / "known")
        )
    )
    log_in(Host("gpu-a", SshSettings("testhost")), config)


def test_accept_new_pins_the_first_key_once_for_all_threads(sshd: Sshd, home: Path, log_in: LogIn) -> None:
    file = home / ".ssh" / "known_hosts.d" / "new"
    transport = SshTransport()
    host = direct(sshd, known_hosts=str(file), host_keys="accept-new")
    outcomes = fan_out(range(6), lambda _: answering(transport, host).close(), name=str)
    assert outcomes.errors == {}
    assert file.read_text() == f"{name(sshd)} {public(sshd.host_keys['ed25519'])}\n"
    log_in(direct(sshd, known_hosts=str(file)))


def test_all_keys_of_a_host_are_found_without_a_login_and_pinned(sshd: Sshd, home: Path, log_in: LogIn) -> None:
    host = direct(sshd, known_hosts=str(home / "known_hosts.own"), identity_file=None)
    before = sshd.logins()
    (station,) = Transports().stations(host)
    assert (station.name, station.keys.pinned()) == ("gpu-a", [])
    keys = station.scan()
    assert {key.fingerprint for key in keys} == {fingerprint(key) for key in sshd.host_keys.values()}
    assert {key.type for key in keys} == {"ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa"}
    assert sshd.logins() == before
    assert station.pin(keys) == home / "known_hosts.own"
    assert station.keys.pinned() == keys
    log_in(direct(sshd, known_hosts=str(home / "known_hosts.own")))


def test_openssh_finds_the_pinned_keys(sshd: Sshd, home: Path) -> None:
    (station,) = Transports().stations(direct(sshd, known_hosts=str(home / "known_hosts.own")))
    station.pin(station.scan())
    found = subprocess.run(
        ["ssh-keygen", "-F", name(sshd), "-f", str(home / "known_hosts.own")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.count(name(sshd)) >= len(sshd.host_keys)


def test_a_certificate_of_a_trusted_authority_is_accepted(home: Path, tmp_path: Path, client: Client) -> None:
    authority = make_key("authority")
    with Sshd(trusted=False, host_keys=["ed25519"]) as server:
        public = tmp_path / "host.pub"
        public.write_text(public_text(server.host_keys["ed25519"]))
        sign = ["ssh-keygen", "-q", "-s", str(authority), "-I", "gpu", "-h", "-n", server.address, str(public)]
        subprocess.run(sign, check=True, capture_output=True)
        certificate = server.directory / "host-cert.pub"
        certificate.write_bytes((tmp_path / "host-cert.pub").read_bytes())
        server.options["HostCertificate"] = str(certificate)
        server.stop()
        server.start()
        for trusted in (authority, make_key("stranger")):
            known = home / trusted.name
            known.write_text(f"@cert-authority {name(server)} {' '.join(public_text(trusted).split()[:2])}\n")
            host = direct(server, known_hosts=str(known), keep_s=0)
            with nullcontext() if trusted == authority else pytest.raises(TransportError, match="host key"):
                answering(client(ConfigFiles()), host).close()
