"""The login in one round trip, where paramiko takes two for each key that it offers.

RFC 4253, section 10, has a client wait for the answer to its request for the login service only where nothing else has
proved the server's key. Here a signature has, and known_hosts has been asked about the key, before a login is begun.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from paramiko.auth_handler import AuthHandler
from paramiko.message import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    from paramiko.pkey import PKey
    from paramiko.transport import Transport

SERVICE = "ssh-userauth"


class PromptLogin(AuthHandler):
    """One question of a login. `first`: nobody has asked for the service on this connection yet."""

    private_key: PKey | None
    _get_key_type_and_bits: Callable[[PKey], tuple[str, Any]]

    def __init__(self, transport: Transport, *, first: bool) -> None:
        super().__init__(transport)
        self._first = first
        self._waits = False

    def _request_auth(self) -> None:
        # Decided before the request is sent: the answer may be there, in another thread, before anything else here.
        at_once = not (self._first and self._needs_extensions())
        self._waits = not at_once
        if self._first:
            super()._request_auth()  # type: ignore[misc]
        if at_once:
            self._ask()

    def _needs_extensions(self) -> bool:
        """By which algorithm an RSA key may sign the server says beside its answer for the service (RFC 8308)."""
        return self.private_key is not None and "rsa" in self._get_key_type_and_bits(self.private_key)[0]

    def _ask(self) -> None:
        self._waits = False
        accepted = Message()
        accepted.add_string(SERVICE)
        accepted.rewind()
        super()._parse_service_accept(accepted)  # type: ignore[misc]

    def _parse_service_accept(self, message: Message) -> None:
        """paramiko calls it when the server has granted the service."""
        if self._waits:
            self._ask()
