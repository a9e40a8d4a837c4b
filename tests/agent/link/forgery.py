"""Credentials that are not in order, each in one way only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from dtctl.operations.credentials import Authority, Credentials


def signed(like: Credentials, *names: str, by: Credentials | Authority | None, end: str = "clientAuth") -> Credentials:
    """As `like`, but with a certificate that has these names, signed by that key; by its own for None."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer, signer = _issuer(by) if by is not None else (x509.Name([]), key)
    oid = {"clientAuth": ExtendedKeyUsageOID.CLIENT_AUTH, "serverAuth": ExtendedKeyUsageOID.SERVER_AUTH}[end]
    known = x509.load_pem_x509_certificate(like.certificate.encode())
    builder = (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(x509.Name([]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(known.not_valid_before_utc)
        .not_valid_after(known.not_valid_after_utc)
        .add_extension(x509.ExtendedKeyUsage([oid]), critical=False)
    )
    if names:
        uris = [x509.UniformResourceIdentifier(name) for name in names]
        builder = builder.add_extension(x509.SubjectAlternativeName(uris), critical=True)
    pem = serialization.Encoding.PEM
    chain = builder.sign(signer, hashes.SHA256()).public_bytes(pem).decode()
    if isinstance(by, Credentials):
        chain += by.certificate
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return replace(like, key=private.decode(), certificate=chain)


def _issuer(by: Credentials | Authority) -> tuple[x509.Name, ec.EllipticCurvePrivateKey]:
    if isinstance(by, Authority):
        return by._name, by._key
    signer = serialization.load_pem_private_key(by.key.encode(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    return x509.load_pem_x509_certificate(by.certificate.encode()).subject, signer


FORGERIES: dict[str, Callable[[Authority, Credentials], Credentials]] = {
    "its own issuer": lambda run, h1: signed(h1, "dtctl:r1/h1", by=None),
    "of another authority": lambda run, h1: replace(
        Authority("r1").issue("h1", coordinates=False), port_token=h1.port_token
    ),
    "of another run": lambda run, h1: replace(Authority("r0").issue("h1", coordinates=False), port_token=h1.port_token),
    "of the run's authority for another run": lambda run, h1: signed(h1, "dtctl:r0/h1", by=run),
    "that names nobody": lambda run, h1: signed(h1, by=run),
    "that names two hosts": lambda run, h1: signed(h1, "dtctl:r1/h1", "dtctl:r1/h2", by=run),
    "that another agent has signed": lambda run, h1: signed(h1, "dtctl:r1/h1", by=run.issue("h2", coordinates=False)),
    "for the other end": lambda run, h1: signed(h1, "dtctl:r1/h1", by=run, end="serverAuth"),
}
"""What a host has, from its run's authority and what it ought to have: a certificate ..."""
