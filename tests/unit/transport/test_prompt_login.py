"""What a login says before it has heard anything, and what it waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from paramiko.ecdsakey import ECDSAKey
from paramiko.message import Message
from paramiko.pkey import PKey
from paramiko.rsakey import RSAKey

from dtctl.transport.ssh.protocol import PromptLogin

SERVICE_REQUEST, USERAUTH_REQUEST = 5, 50


class Line:
    """As much of a paramiko Transport as a login needs; `sent` has the messages' numbers."""

    session_id = b"the exchange hash"
    preferred_pubkeys = ("rsa-sha2-512", "rsa-sha2-256")

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.server_extensions: dict[str, bytes] = {}
        self.sent: list[int] = []
        self.last = b""
        self.at_once: Callable[[], None] = lambda: None
        """What the server's answer for the service does, before its request has been sent for long."""

    def _send_message(self, message: Any) -> None:
        self.last = message.asbytes()
        self.sent.append(self.last[0])
        if self.sent == [SERVICE_REQUEST]:
            self.at_once()

    def _log(self, *words: object) -> None:
        pass


def key_of(kind: str) -> PKey:
    return RSAKey.generate(2048) if kind == "rsa" else ECDSAKey.generate()


def granted() -> Message:
    message = Message()
    message.add_string("ssh-userauth")
    message.rewind()
    return message


def test_the_service_is_asked_for_and_the_key_is_offered_in_one_go() -> None:
    line: Any = Line()
    login = PromptLogin(line, first=True)
    login.auth_publickey("train", key_of("ecdsa"), threading.Event())
    assert line.sent == [SERVICE_REQUEST, USERAUTH_REQUEST]
    login._parse_service_accept(granted())
    assert line.sent == [SERVICE_REQUEST, USERAUTH_REQUEST], "the key is not offered twice"


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_a_server_that_answers_before_anything_else_happens_is_offered_the_key_once(kind: str) -> None:
    line: Any = Line()
    login = PromptLogin(line, first=True)
    line.at_once = lambda: login._parse_service_accept(granted())
    login.auth_publickey("train", key_of(kind), threading.Event())
    assert line.sent == [SERVICE_REQUEST, USERAUTH_REQUEST]


def test_an_rsa_key_waits_until_the_server_has_said_how_it_may_sign() -> None:
    line: Any = Line()
    login = PromptLogin(line, first=True)
    login.auth_publickey("train", key_of("rsa"), threading.Event())
    assert line.sent == [SERVICE_REQUEST]
    line.server_extensions = {"server-sig-algs": b"rsa-sha2-256"}
    login._parse_service_accept(granted())
    assert line.sent == [SERVICE_REQUEST, USERAUTH_REQUEST]
    assert b"rsa-sha2-256" in line.last


@pytest.mark.parametrize("kind", ["ecdsa", "rsa"])
def test_the_service_is_asked_for_once_on_a_connection(kind: str) -> None:
    line: Any = Line()
    PromptLogin(line, first=False).auth_publickey("train", key_of(kind), threading.Event())
    assert line.sent == [USERAUTH_REQUEST]


def test_a_login_without_a_key_waits_for_nothing_either() -> None:
    line: Any = Line()
    PromptLogin(line, first=True).auth_none("train", threading.Event())
    assert line.sent == [SERVICE_REQUEST, USERAUTH_REQUEST]
