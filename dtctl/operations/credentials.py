"""Keys and certificates by which agents authenticate each other; the controller makes them and distributes them over
SSH. It keeps the key that signs them, for hosts that join the run later.
"""

from __future__ import annotations

import secrets
from dataclasses import field
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from dtctl.dataclass import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

_BEGINNING = datetime(1970, 1, 1, tzinfo=timezone.utc)
_END = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)
"""The date of a certificate without an expiry (RFC 5280, 4.1.2.5). With _BEGINNING, certificates are valid whatever the
hosts' clocks say.
"""


@dataclass(frozen=True)
class Credentials:
    """The credentials of one host: its private key, the certificate that names it, and the authority's certificate, as
    PEM texts.

    `port_token` is the same for all hosts of the run; before TLS they prove that they have it.
    """

    key: str = field(repr=False)
    certificate: str
    authority: str
    port_token: str = field(repr=False)


class Authority:
    """Issues the certificates of a run's hosts.

    `issue` may be called by several threads at once; it takes a fraction of a millisecond.
    """

    def __init__(self, run: str) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self._run = run
        self._port_token = secrets.token_hex(32)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, secrets.token_hex(8))])
        builder = _builder(self._name, self._name, self._key.public_key(), self._key.public_key())
        self._certificate = _sealed(
            builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).add_extension(
                _usage(key_cert_sign=True), critical=True
            ),
            self._key,
        )

    def to_json(self) -> dict[str, str]:
        """Everything that `restored` needs. It is secret."""
        return {"key": _private(self._key), "certificate": self._certificate, "port_token": self._port_token}

    @classmethod
    def restored(cls, run: str, data: Mapping[str, str]) -> Authority:
        """The authority of a run, from what `to_json` has returned. Raises ValueError, KeyError and TypeError."""
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import load_pem_private_key

        key = load_pem_private_key(data["key"].encode("ascii"), None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("it is not the key of an authority")
        found = cls.__new__(cls)
        found._run, found._key = run, key
        found._certificate, found._port_token = str(data["certificate"]), str(data["port_token"])
        found._name = x509.load_pem_x509_certificate(found._certificate.encode("ascii")).subject
        return found

    def issue(self, host: str, *, coordinates: bool) -> Credentials:
        """Issues new credentials for one host, with which it can dial; a host that coordinates, or may, can be
        dialled.
        """
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        ends = [ExtendedKeyUsageOID.CLIENT_AUTH, *[ExtendedKeyUsageOID.SERVER_AUTH] * coordinates]
        # A common name holds 64 characters, a host name up to 253.
        names = x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"dtctl:{self._run}/{host}")])
        builder = (
            _builder(self._name, x509.Name([]), key.public_key(), self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage(ends), critical=False)
            .add_extension(names, critical=True)
        )
        return Credentials(_private(key), _sealed(builder, self._key), self._certificate, self._port_token)


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import serialization

    form = serialization.PrivateFormat.PKCS8
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode("ascii")


def _builder(
    issuer: x509.Name, subject: x509.Name, public: ec.EllipticCurvePublicKey, signer: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .issuer_name(issuer)
        .subject_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_BEGINNING)
        .not_valid_after(_END)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    from cryptography import x509

    others = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign")
    unused = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=digital_signature, key_cert_sign=key_cert_sign, **unused)


def _sealed(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> str:
    from cryptography.hazmat.primitives import hashes, serialization

    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode("ascii")
