"""Keys, agents and users: which logins succeed, and the errors of the others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dtctl.agent.records import PROTOCOL
from dtctl.errors import TransportError
from dtctl.model import Host, SshSettings
from dtctl.transport.fanout import fan_out
from dtctl.transport.seam import answering
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.transport import SshTransport
from tests.hosts.keys import KINDS, PASSPHRASE, add_to_agent, make_key, public_text, ssh_agent
from tests.hosts.sshd import Sshd
from tests.ssh.conftest import direct

pytestmark = pytest.mark.usefixtures("tiny_agent")

OLD_FORMAT = ("ecdsa", "rsa")


def plain(kind: str) -> Path:
    return make_key(f"plain-{kind}", kind)


def locked(kind: str) -> Path:
    return make_key(f"locked-{kind}", kind, PASSPHRASE)


def stranger() -> Path:
    return make_key("stranger")


def old_format(kind: str) -> Path:
    """The key in the old format, with the same passphrase."""
    return make_key(f"pem-{kind}", kind, PASSPHRASE, form="PEM")


@pytest.fixture(scope="module")
def sshd() -> Iterator[Sshd]:
    keys = [make_key("login"), *map(plain, KINDS), *map(locked, KINDS), *map(old_format, OLD_FORMAT)]
    with Sshd(authorized=keys) as server:
        yield server


def log_in(host: Host, transport: SshTransport | None = None) -> None:
    session = answering(transport or SshTransport(), host)
    assert session.facts["protocol"] == PROTOCOL
    session.close()


def refusal(host: Host, transport: SshTransport | None = None) -> TransportError:
    with pytest.raises(TransportError) as caught:
        log_in(host, transport)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_login_with_a_key_without_passphrase(sshd: Sshd, kind: str) -> None:
    log_in(direct(sshd, identity_file=str(plain(kind))))


@pytest.mark.parametrize(
    ("make", "kind"), [*((locked, kind) for kind in KINDS), *((old_format, kind) for kind in OLD_FORMAT)]
)
def test_login_with_a_key_requests_its_passphrase_once(sshd: Sshd, make: Callable[[str], Path], kind: str) -> None:
    key = make(kind)
    asked: list[str] = []

    def passphrase(path: str) -> str:
        asked.append(path)
        return PASSPHRASE

    transport = SshTransport(passphrase=passphrase)
    host = direct(sshd, identity_file=str(key))
    outcomes = fan_out(range(4), lambda _: log_in(host, transport), name=str)
    assert outcomes.errors == {}
    assert asked == [str(key)]


def test_a_wrong_passphrase_may_be_corrected(sshd: Sshd) -> None:
    answers = iter(["wrong", PASSPHRASE])
    log_in(direct(sshd, identity_file=str(locked("ed25519"))), SshTransport(passphrase=lambda _: next(answers)))


def test_no_prompt_after_three_wrong_passphrases(sshd: Sshd) -> None:
    asked: list[str] = []

    def passphrase(path: str) -> str:
        asked.append(path)
        return "wrong"

    transport = SshTransport(passphrase=passphrase)
    host = direct(sshd, identity_file=str(locked("ed25519")))
    assert "the passphrase was wrong" in refusal(host, transport).detail
    assert "the passphrase was wrong" in refusal(host, transport).detail
    assert len(asked) == 3


def test_without_a_terminal_the_locked_key_is_reported(sshd: Sshd) -> None:
    error = refusal(direct(sshd, identity_file=str(locked("rsa"))))
    assert f"{locked('rsa')} needs a passphrase" in error.detail
    assert error.hint == f"ssh-add {locked('rsa')}"


def test_no_passphrase_is_requested_if_another_key_is_accepted(sshd: Sshd, home: Path) -> None:
    config = home / "config"
    config.write_text(
        f"Host a\n  HostName {sshd.address}\n  Port {sshd.port}\n  User {sshd.user}\n"
        f"  UserKnownHostsFile {sshd.known_hosts}\n"
        f"  IdentityFile {locked('rsa')}\n  IdentityFile {make_key('stranger')}\n  IdentityFile {plain('rsa')}\n"
    )
    transport = SshTransport(ConfigFiles(config), passphrase=lambda path: pytest.fail(f"asked for {path}"))
    log_in(Host("a", SshSettings("a")), transport)


def test_the_default_keys_of_the_home_are_used(sshd: Sshd, home: Path) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh" / "id_ed25519").write_bytes(plain("ed25519").read_bytes())
    log_in(direct(sshd, identity_file=None))


@pytest.mark.parametrize("kind", KINDS)
def test_login_with_a_key_of_an_agent(sshd: Sshd, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with ssh_agent(stranger(), plain(kind)) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        transport = SshTransport()
        outcomes = fan_out(range(4), lambda _: log_in(direct(sshd, identity_file=None), transport), name=str)
    assert outcomes.errors == {}


def test_no_passphrase_is_requested_for_a_key_of_the_agent(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    unlocked = home / "key"
    unlocked.write_bytes(plain("ed25519").read_bytes())
    unlocked.chmod(0o600)
    public = home / "only.pub"
    public.write_text(public_text(plain("ed25519")))
    with ssh_agent() as socket:
        add_to_agent(socket, unlocked)
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        transport = SshTransport(passphrase=lambda path: pytest.fail(f"asked for {path}"))
        log_in(direct(sshd, identity_file=str(public)), transport)


def test_identities_only_excludes_other_keys_of_the_agent(
    sshd: Sshd, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    with ssh_agent(plain("rsa")) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        config = home / "config"
        config.write_text(f"Host *\n  IdentityFile {make_key('stranger')}\n  IdentitiesOnly yes\n")
        transport = SshTransport(ConfigFiles(config))
        error = refusal(direct(sshd, identity_file=None), transport)
        config.write_text(f"Host *\n  IdentityFile {make_key('stranger')}\n")
        log_in(direct(sshd, identity_file=None), SshTransport(ConfigFiles(config)))
        config.write_text("Host *\n  IdentityAgent none\n")
        assert "no key to offer" in refusal(direct(sshd, identity_file=None), SshTransport(ConfigFiles(config))).detail
    assert error.detail == f"offered {make_key('stranger')}; the host accepts publickey"


def test_a_refused_key_is_reported_with_user_and_accepted_methods(sshd: Sshd) -> None:
    error = refusal(direct(sshd, identity_file=str(stranger())))
    assert error.summary == f"cannot log in to gpu-a ({sshd.address}:{sshd.port}) as {sshd.user}"
    assert error.detail == f"offered {make_key('stranger')}; the host accepts publickey"
    assert error.hint.startswith(f"ssh -i {make_key('stranger')} -p {sshd.port} {sshd.user}@{sshd.address} true    ")


def test_a_missing_key_file_is_reported(sshd: Sshd, home: Path) -> None:
    error = refusal(direct(sshd, identity_file="~/.ssh/typo"))
    assert error.detail.splitlines() == [
        "no key to offer; the host accepts publickey",
        "~/.ssh/typo: there is no such file",
    ]


def test_a_file_that_is_no_key_is_reported(sshd: Sshd, home: Path) -> None:
    (home / "notes").write_text("buy milk\n")
    assert "~/notes: not a private key" in refusal(direct(sshd, identity_file="~/notes")).detail


def test_too_many_keys_are_reported_with_the_setting_for_one(sshd: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    strangers = [make_key(f"stranger-{number}") for number in range(8)]
    with ssh_agent(*strangers) as socket:
        monkeypatch.setenv("SSH_AUTH_SOCK", str(socket))
        error = refusal(direct(sshd, identity_file=None))
    assert "the host ended the connection" in error.detail
    assert "stranger-0@dtctl-tests (agent)" in error.detail
    assert "IdentitiesOnly" in error.hint


def test_a_host_that_also_requires_a_password_fails_at_once(home: Path) -> None:
    with Sshd(
        options={"AuthenticationMethods": "publickey,keyboard-interactive", "KbdInteractiveAuthentication": "yes"}
    ) as server:
        error = refusal(direct(server))
    assert (
        "the key was accepted, but the host also wants keyboard-interactive\n`ssh: {client: openssh}`" in error.detail
    )


def test_accepted_methods_are_reported_if_keys_are_not() -> None:
    options = {"PubkeyAuthentication": "no", "PasswordAuthentication": "yes"}
    with Sshd(options=options) as server:
        error = refusal(direct(server))
    assert "the host accepts password\n`ssh: {client: openssh}` asks" in error.detail


def test_connections_do_not_modify_their_shared_configuration(sshd: Sshd) -> None:
    transport = SshTransport()
    host = direct(sshd)
    assert isinstance(host.reach, SshSettings)
    login = transport.logins.log_in(host.name, host.reach)
    shared = login.connection.config
    assert shared._modifications == {}
    login.close()


def test_nothing_hangs_when_all_hosts_refuse(sshd: Sshd) -> None:
    host = direct(sshd, identity_file=str(stranger()))
    transport = SshTransport()
    threads = threading.active_count()
    outcomes = fan_out(range(6), lambda _: log_in(host, transport), name=str)
    assert len(outcomes.errors) == 6
    assert threading.active_count() <= threads + 6
