"""Both ends of TLS without a socket between them, and the credentials that the controller makes for them."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dtctl.agent.coordination.lines import Lost
from dtctl.agent.coordination.tls import Channel, Identity
from dtctl.operations.credentials import Credentials, make_credentials


def identity(directory: Path, credentials: Credentials) -> Identity:
    directory.mkdir()
    key, certificate = directory / "link.key", directory / "link.crt"
    key.write_text(credentials.key)
    certificate.write_text(credentials.certificate)
    return Identity(str(key), str(certificate))


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


@pytest.fixture
def own(tmp_path: Path) -> Identity:
    return identity(tmp_path / "own", make_credentials())


def test_two_ends_with_the_runs_credentials_understand_each_other(own: Identity) -> None:
    client, server = channel(own, server=False), channel(own, server=True)
    assert shake_hands(client, server) == [client, server]
    client.write(b"hello\n" * 50_000)
    server.feed(client.to_send())
    assert server.read() == b"hello\n" * 50_000
    assert server.read() == b""


def test_nobody_gets_through_with_other_credentials(own: Identity, tmp_path: Path) -> None:
    other = identity(tmp_path / "other", make_credentials())
    for client, server in ((other, own), (own, other)):
        with pytest.raises(Lost, match="its certificate is not the run's"):
            shake_hands(channel(client, server=False), channel(server, server=True))


def test_nobody_gets_through_without_a_certificate(own: Identity) -> None:
    anybody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anybody.check_hostname = False
    anybody.verify_mode = ssl.CERT_NONE
    server = channel(own, server=True)
    with pytest.raises(Lost, match="peer did not return a certificate"):
        shake_hands(channel(own, server=False, context=anybody), server)


def test_a_certificate_that_the_runs_key_has_signed_for_another_is_not_the_runs(tmp_path: Path) -> None:
    credentials = make_credentials()
    own = identity(tmp_path / "own", credentials)
    issued = identity(tmp_path / "issued", issued_by(credentials))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=credentials.certificate)
    context.load_cert_chain(tmp_path / "issued" / "link.crt", tmp_path / "issued" / "link.key")
    client = Channel(own, context, server=False)
    with pytest.raises(Lost, match="its certificate is not the run's"):
        shake_hands(client, channel(own, server=True))
    assert issued.certificate != own.certificate


def issued_by(issuer: Credentials) -> Credentials:
    """Of another key, with the issuer's certificate behind it."""
    authority = x509.load_pem_x509_certificate(issuer.certificate.encode())
    signing = serialization.load_pem_private_key(issuer.key.encode(), None)
    assert isinstance(signing, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "another")])
    certificate = (
        x509.CertificateBuilder()
        .issuer_name(authority.subject)
        .subject_name(name)
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(authority.not_valid_before_utc)
        .not_valid_after(authority.not_valid_after_utc)
        .sign(signing, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Credentials(private.decode(), certificate.public_bytes(pem).decode())


def test_tls_is_not_older_than_1_2(own: Identity) -> None:
    for server in (True, False):
        context = own.context(server)
        assert context.minimum_version == ssl.TLSVersion.TLSv1_2
        assert context.verify_mode == ssl.CERT_REQUIRED


def test_the_ends_understand_each_other_in_tls_1_2_as_well(own: Identity) -> None:
    context = own.context(server=False)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client, server = channel(own, server=False, context=context), channel(own, server=True)
    assert shake_hands(client, server) == [server, client]


def test_garbage_is_the_end_of_the_handshake(own: Identity) -> None:
    server = channel(own, server=True)
    server.feed(b"GET / HTTP/1.1\r\n\r\n")
    with pytest.raises(Lost, match="TLS failed"):
        server.advance()


def test_a_damaged_record_is_the_end(own: Identity) -> None:
    client, server = channel(own, server=False), channel(own, server=True)
    shake_hands(client, server)
    client.write(b"hello")
    record = bytearray(client.to_send())
    record[-1] ^= 1
    server.feed(bytes(record))
    with pytest.raises(Lost, match="TLS failed"):
        server.read()


def test_the_knock_tells_runs_apart_and_is_the_same_for_all_of_one(own: Identity, tmp_path: Path) -> None:
    again = Identity(str(tmp_path / "own" / "link.key"), str(tmp_path / "own" / "link.crt"))
    other = identity(tmp_path / "other", make_credentials())
    assert own.knock == again.knock != other.knock
    assert len(own.knock) == 32


def test_the_certificate_names_nothing_and_has_no_end(own: Identity) -> None:
    certificate = x509.load_der_x509_certificate(own.certificate)
    assert certificate.not_valid_before_utc.timestamp() == 0  # where a clock without a battery begins
    assert certificate.not_valid_after_utc.year == 9999
    assert len(certificate.subject.rdns) == 1


def test_openssl_finds_nothing_to_object_to(tmp_path: Path) -> None:
    """As strict as Python 3.13 is by default."""
    own = identity(tmp_path / "own", make_credentials())
    contexts = [own.context(server) for server in (False, True)]
    for context in contexts:
        context.verify_flags |= ssl.VERIFY_X509_STRICT
    client, server = (channel(own, server=bool(at), context=context) for at, context in enumerate(contexts))
    assert shake_hands(client, server) == [client, server]


def test_credentials_do_not_show_their_key() -> None:
    credentials = make_credentials()
    assert "PRIVATE KEY" in credentials.key
    assert "PRIVATE KEY" not in repr(credentials)
    assert "PRIVATE KEY" not in credentials.certificate
    assert make_credentials() != credentials
