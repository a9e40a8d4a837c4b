"""What proves to the hosts of a run that they belong to it (docs/agent.md, "The link")."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timezone

_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
"""No well-defined end (RFC 5280, 4.1.2.5)."""


@dataclass(frozen=True)
class Credentials:
    """PEM texts: a private key, and the certificate of it that is its own issuer."""

    key: str = field(repr=False)
    certificate: str


def make_credentials() -> Credentials:
    """New ones for one run, valid whatever the hosts' clocks say.

    The certificate names nothing, not even the run: whoever connects to the coordinator's port is shown it.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(8))])
    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(public)
    certificate = (
        x509.CertificateBuilder()
        .issuer_name(name)
        .subject_name(name)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGINNING)
        .not_valid_after(_END)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Credentials(private.decode("ascii"), certificate.public_bytes(pem).decode("ascii"))
