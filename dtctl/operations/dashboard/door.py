"""Who may look at a dashboard: whoever opens an address that was printed; the first who does, and nobody after."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie

COOKIE = "dtctl"


class Door:
    """Everything that a page shows is below `place`, whose name only its viewers know.

    Browsers do not tell the ports of a machine apart: they show the cookies of one to all servers of the other ports.
    A path they do tell apart.
    """

    def __init__(self) -> None:
        self.place = f"/{secrets.token_urlsafe(12)}/"
        self._key = secrets.token_urlsafe(32)
        self._token = secrets.token_urlsafe(32)
        self._lock = threading.Lock()
        self.on_entry: Callable[[str], None] = lambda token: None
        """Called with the next token when one was used, from the thread that serves."""

    @property
    def token(self) -> str:
        """Good for one browser, once."""
        return self._token

    def enter(self, token: str) -> str | None:
        """The cookie's header for who shows the token; then another one is needed."""
        with self._lock:
            if not secrets.compare_digest(token.encode("utf-8", "replace"), self._token.encode()):
                return None
            self._token = secrets.token_urlsafe(32)
        self.on_entry(self._token)
        return f"{COOKIE}={self._key}; Path={self.place}; HttpOnly; SameSite=Strict"

    def knows(self, cookies: str) -> bool:
        """`cookies`: the header of a request."""
        try:
            found = SimpleCookie(cookies).get(COOKIE)
        except CookieError:
            return False
        return found is not None and secrets.compare_digest(found.value.encode("utf-8", "replace"), self._key.encode())
