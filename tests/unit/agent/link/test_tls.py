"""Both ends of TLS without a socket between them, and the credentials that the controller makes for them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from dtctl.agent.link.tls import Channel, Identity, Lost
from dtctl.operations.credentials import Authority, Credentials
from tests.agent.link.links import issued, write_credentials


def identity(directory: Path, credentials: Credentials, run: str = "r1") -> Identity:
    return Identity(str(write_credentials(directory, credentials, run)), run)


def channel(of: Identity, *, server: bool, context: ssl.SSLContext | None = None) -> Channel:
    return Channel(of, context or of.context(server), server)


def shake_hands(client: Channel, server: Channel) -> list[Channel]:
    """Those who are through with it, in order."""
    through: list[Channel] = []
    for _ in range(4):
        for here, there in ((client, server), (server, client)):
            if here not in through and here.advance():
                through.append(here)
            there.feed(here.to_send())
    return through


class Pair(NamedTuple):
    """A host that dials and the coordinator's."""

    agent: Identity
    coordinator: Identity


def pair(directory: Path, run: str = "r1", host: str = "h1") -> Pair:
    authority = Authority(run)
    made = (authority.issue(host, coordinates=False), authority.issue("c", coordinates=True))
    return Pair(*(identity(directory / str(number), each, run) for number, each in enumerate(made)))


@pytest.fixture
def own(tmp_path: Path) -> Pair:
    return pair(tmp_path / "own")


def test_credentials_of_a_run_connect_and_identify_both_ends(own: Pair) -> None:
    client, server = channel(own.agent, server=False), channel(own.coordinator, server=True)
    assert shake_hands(client, server) == [client, server]
    assert (client.host, server.host) == ("c", "h1")
    client.write(b"hello\n" * 50_000)
    server.feed(client.to_send())
    assert server.read() == b"hello\n" * 50_000
    assert server.read() == b""


def test_a_host_is_known_by_a_name_of_any_length(tmp_path: Path) -> None:
    long = "gpu-1.rack_2." + "x" * 240
    own = pair(tmp_path, "a.run-1_" + "y" * 190, long)
    client, server = channel(own.agent, server=False), channel(own.coordinator, server=True)
    shake_hands(client, server)
    assert server.host == long


def test_certificates_of_other_runs_and_of_hosts_that_do_not_coordinate_are_refused(own: Pair, tmp_path: Path) -> None:
    other = pair(tmp_path / "other")
    ends = [(other.agent, own.coordinator), (own.agent, other.coordinator)]
    for client, server in [*ends, (own.agent, own.agent)]:
        with pytest.raises(Lost, match="its certificate is not the run's"):
            shake_hands(channel(client, server=False), channel(server, server=True))


def test_an_agent_accepts_its_coordinators_host_only(own: Pair) -> None:
    client = Channel(own.agent, own.agent.context(server=False), False, wanted="c2")
    with pytest.raises(Lost, match="its certificate is that of c, and c2 is wanted"):
        shake_hands(client, channel(own.coordinator, server=True))


class Careless(Channel):
    """Does not look whose the other end is."""

    def _named(self) -> str:
        return ""


def test_connections_without_a_certificate_are_refused(own: Pair) -> None:
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    server = channel(own.coordinator, server=True)
    with pytest.raises(Lost, match="peer did not return a certificate"):
        shake_hands(Careless(own.agent, anybody, False), server)


def test_tls_is_not_older_than_1_2(own: Pair) -> None:
    for server in (True, False):
        context = own.agent.context(server)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_tls_1_2_connects(own: Pair) -> None:
    context = own.agent.context(server=False)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = channel(own.agent, server=False, context=context), channel(own.coordinator, server=True)
    assert shake_hands(client, server) == [server, client]
    assert (client.host, server.host) == ("c", "h1")


def test_garbage_ends_the_handshake(own: Pair) -> None:
    server = channel(own.coordinator, server=True)
    server.feed(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(Lost, match="TLS failed"):
        server.advance()


def test_a_damaged_tls_record_ends_the_connection(own: Pair) -> None:
    client, server = channel(own.agent, server=False), channel(own.coordinator, server=True)
    shake_hands(client, server)
    client.write(b"hello")
    record = bytearray(client.to_send())
    record[-1] ^= 1
    server.feed(bytes(record))
    with pytest.raises(Lost, match="TLS failed"):
        server.read()


def test_a_token_proof_is_of_one_run_and_for_one_nonce(own: Pair, tmp_path: Path) -> None:
    nonce, another = bytes(16), b"x" * 16
    assert own.agent.token_proof(nonce) == own.coordinator.token_proof(nonce) != own.agent.token_proof(another)
    assert own.agent.token_proof(nonce) != pair(tmp_path / "other").agent.token_proof(nonce)
    assert len(own.agent.token_proof(nonce)) == 32


DAMAGES = ["", "x", "-----BEGIN CERTIFICATE-----\n", "half"]


@pytest.mark.parametrize("damage", DAMAGES, ids=["empty", "garbage", "begun", "half"])
@pytest.mark.parametrize("name", ["link.key", "link.crt", "link.ca", "link.port_token"])
def test_credentials_that_are_damaged_or_missing_are_an_error_that_can_be_reported(
    tmp_path: Path, name: str, damage: str
) -> None:
    file = issued(tmp_path, "c") / name
    text = file.read_text()
    file.write_text(text[: len(text) // 2] if damage == "half" else damage)
    with pytest.raises((OSError, ValueError)):
        Identity(str(tmp_path), "r1").context(server=True)
    file.unlink()
    with pytest.raises(FileNotFoundError):
        Identity(str(tmp_path), "r1").context(server=True)


def test_port_token_of_a_run_of_an_older_version_is_read(tmp_path: Path) -> None:
    own = identity(tmp_path, Authority("r1").issue("h1", coordinates=True))
    (tmp_path / "link.port_token").rename(tmp_path / "link.knock")
    assert Identity(str(tmp_path), "r1").token_proof(b"n") == own.token_proof(b"n")


def test_certificates_say_what_they_are_for_and_hold_whatever_a_clock_says(tmp_path: Path) -> None:
    made = Authority("r1").issue("h1", coordinates=False)
    own, authority = (x509.load_pem_x509_certificate(pem.encode()) for pem in (made.certificate, made.authority))
    for certificate in (own, authority):
        assert certificate.not_valid_before_utc.timestamp() == 0  # where a clock without a battery begins
        assert certificate.not_valid_after_utc.year == 9999
    basic = {each: each.extensions.get_extension_for_class(x509.BasicConstraints).value for each in (own, authority)}
    assert (basic[own].ca, basic[authority].ca, basic[authority].path_length) == (False, True, 0)
    usage = {each: each.extensions.get_extension_for_class(x509.KeyUsage).value for each in (own, authority)}
    assert (usage[own].digital_signature, usage[own].key_cert_sign) == (True, False)
    assert (usage[authority].digital_signature, usage[authority].key_cert_sign) == (False, True)
    end = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(end) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    names = own.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    assert [name.value for name in names.value] == ["dtctl:r1/h1"]
    assert names.critical  # as the subject is empty (RFC 5280, 4.2.1.6)


def test_openssl_accepts_the_certificates(own: Pair) -> None:
    """As strict as Python 3.13 is by default."""
    contexts = own.agent.context(server=False), own.coordinator.context(server=True)
    for context in contexts:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    client = channel(own.agent, server=False, context=contexts[0])
    server = channel(own.coordinator, server=True, context=contexts[1])
    assert shake_hands(client, server) == [client, server]


def test_credentials_do_not_show_what_is_secret_in_them() -> None:
    made = Authority("r1").issue("h1", coordinates=False)
    assert "PRIVATE KEY" in made.key
    assert "PRIVATE KEY" not in repr(made) + made.certificate + made.authority
    assert made.port_token not in repr(made)


def test_no_two_hosts_and_no_two_runs_have_the_same_key() -> None:
    authority = Authority("r1")
    made = [authority.issue(host, coordinates=False) for host in ("h1", "h2")]
    made.append(Authority("r1").issue("h1", coordinates=False))
    assert len({each.key for each in made}) == 3
    assert made[0].port_token == made[1].port_token != made[2].port_token
    assert made[0].authority == made[1].authority != made[2].authority
