"""Cloud Storage at Google's own names, over TLS, in front of the emulator of buckets.py: TensorFlow knows no other."""

from __future__ import annotations

import http.client
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime, timedelta, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.buckets import Bucket

NAMES = ("storage.googleapis.com", "www.googleapis.com")
"""Which the hosts have to resolve to the address of the front."""


@contextmanager
def google_front(bucket: Bucket, address: str, directory: Path) -> Iterator[Mapping[str, str]]:
    """Serves it on port 443 of the address; yields what TensorFlow needs in its environment to use it.

    `directory`: for the certificate, where every host can read it.
    """
    backend = bucket.env["STORAGE_EMULATOR_HOST"].removeprefix("http://")
    with ThreadingHTTPServer((address, 443), type("Front", (_Front,), {"backend": backend})) as server:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(_certificate(directory))
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        serving = threading.Thread(target=server.serve_forever, args=(0.1,))
        serving.start()
        try:
            yield {"CURL_CA_BUNDLE": str(directory / "google.pem"), "GOOGLE_AUTH_TOKEN_FOR_TESTING": "a-token"}
        finally:
            server.shutdown()
            serving.join()


class _Front(BaseHTTPRequestHandler):
    """Passes requests on. The emulator reads no body in chunks and takes no empty one, as TensorFlow sends them."""

    protocol_version = "HTTP/1.1"
    backend = ""

    def do_GET(self) -> None:
        body = self._body()
        if self.command == "POST" and "uploadType=media" in self.path and not body:
            return self._answer(200, [("Content-Type", "application/json")], b"{}")  # a directory: prefixes do for it
        kept = {name: value for name, value in self.headers.items() if name.lower() in _PASSED}
        with closing(http.client.HTTPConnection(self.backend, timeout=60)) as connection:
            connection.request(self.command, self.path, body, kept)
            found = connection.getresponse()
            return self._answer(found.status, found.getheaders(), found.read())

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        parts = []
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _answer(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers:
            if name.lower() not in ("content-length", "server", "date", "connection"):
                self.send_header(name, value.replace("http://", "https://", 1) if name == "Location" else value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 (the name in http.server)
        pass


_PASSED = ("host", "content-type", "content-range", "range", "x-upload-content-type", "x-upload-content-length")


def _certificate(directory: Path) -> Path:
    """Its own authority; the certificate alone is in google.pem."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(timezone.utc)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAMES[0])])
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now - timedelta(1), now + timedelta(1))
    for extension in (x509.SubjectAlternativeName(map(x509.DNSName, NAMES)), x509.BasicConstraints(True, None)):
        builder = builder.add_extension(extension, critical=False)
    pem = builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (directory / "google.pem").write_bytes(pem)
    (directory / "google-key.pem").write_bytes(pem + secret)
    return directory / "google-key.pem"
