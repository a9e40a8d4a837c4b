"""Who comes to the coordinator's port without a Dialer."""

from __future__ import annotations

import json
import socket
import ssl
from pathlib import Path
from typing import Any

from dtctl.agent.link.tls import NONCE_BYTES, Identity

PATIENCE_S = 60.0


class Intruder:
    """A connection made by hand: of somebody who holds `credentials`, or has none and may not even speak TLS."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(source, 0))

    def prove_token(self, credentials: Path) -> bytes:
        """As one who holds them; returns what whoever can read the network has seen."""
        nonce = self._socket.recv(NONCE_BYTES, socket.MSG_WAITALL)
        proof = Identity(str(credentials), "").token_proof(nonce)
        self.send(proof)
        return proof

    def start_tls(self, credentials: Path | None) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        if credentials:
            context.load_cert_chain(credentials / "link.crt", credentials / "link.key")
        self._socket = context.wrap_socket(self._socket)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def say(self, message: dict[str, Any]) -> None:
        self.send(json.dumps(message).encode() + b"\n")

    def receive(self) -> bytes:
        """Everything until the other end closes; empty when it resets the connection."""
        pieces = []
        try:
            while piece := self._socket.recv(65536):
                pieces.append(piece)
        except (ConnectionError, ssl.SSLError):
            pass
        return b"".join(pieces)

    def close(self) -> None:
        self._socket.close()
