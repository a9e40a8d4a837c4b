"""TLS between the two ends of a link, as bytes in and bytes out: each proves that it holds the run's key.

The run's certificate is its own issuer and the only one that is trusted. Names are not checked: hosts have several.
"""

from __future__ import annotations

import hashlib
import ssl

from .lines import Lost

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

KNOCK_BYTES = 32
_PIECE = 65536


class Identity:
    """The run's key and certificate, loaded. Raises OSError.

    `knock` is what an agent sends before TLS. It keeps strangers out and proves nothing: whoever can read the
    network can repeat it.
    """

    def __init__(self, key_file: str, certificate_file: str) -> None:
        self._files = (certificate_file, key_file)
        with open(certificate_file, encoding="ascii") as file:
            self.certificate = ssl.PEM_cert_to_DER_cert(file.read())
        with open(key_file, "rb") as file:
            self.knock = hashlib.sha256(b"dtctl link\n" + file.read()).digest()

    def context(self, server: bool) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_COMPRESSION
        if server:
            context.num_tickets = 0  # every connection is proved anew
        context.load_cert_chain(*self._files)
        context.load_verify_locations(self._files[0])
        return context


class Channel:
    """One end of a TLS connection, without the socket. Methods raise Lost."""

    def __init__(self, identity: Identity, context: ssl.SSLContext, server: bool) -> None:
        self._expected = identity.certificate
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server)

    def feed(self, received: bytes) -> None:
        self._incoming.write(received)

    def to_send(self) -> bytes:
        """What has to go to the other end by now, even after Lost: then it is an alert."""
        return self._outgoing.read()

    def advance(self) -> bool:
        """Goes on with the handshake; True when it is done and the other end is proved to be one of the run."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        except ssl.SSLError as error:
            raise Lost(_explain(error)) from None
        if self._tls.getpeercert(binary_form=True) != self._expected:
            raise Lost("its certificate is not the run's")
        return True

    def read(self) -> bytes:
        """All that the other end has said in what was fed."""
        pieces: List[bytes] = []
        try:
            while True:
                piece = self._tls.read(_PIECE)
                if not piece:
                    raise Lost("the other end has closed the connection")
                pieces.append(piece)
        except ssl.SSLWantReadError:
            return b"".join(pieces)
        except ssl.SSLError as error:
            raise Lost(_explain(error)) from None

    def write(self, data: bytes) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise Lost(_explain(error)) from None


def _explain(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "its certificate is not the run's"
    return "TLS failed (%s)" % (error.reason or "no reason given").lower().replace("_", " ")
