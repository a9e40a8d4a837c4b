"""Sends one post: a separate process, which gets everything on stdin, and answers on stdout.

Only this process is affected by a name server or receiver that hangs, and by the memory that TLS takes. It ends by
itself when its time is over, even if the agent that started it has ended.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import sys
import urllib.error
import urllib.request

from ..host.secrets import Masks
from ..records.values import brief

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator

    from ..records.hooks import Sent

_MOST_SHOWN = 120
"""The most bytes of an answer that is shown as an error."""
_PATIENT = (408, 425, 429)
"""Answers to a client that mean: later."""
_SHORTEST_PART = 6
"""Parts of an address that are shorter are no tokens."""
_LATE_S = 1.0


def main() -> None:
    given = json.loads(sys.stdin.buffer.read().decode("utf-8"))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, given["timeout_s"] + _LATE_S)
    answer = json.dumps(send(given["url"], given["headers"], given["body"], given["timeout_s"])).encode()
    os.write(1, answer)


def send(url: str, headers: Dict[str, str], body: Dict[str, Any], timeout_s: float) -> Sent:
    """Posts `body` as JSON. Neither the address nor a header is in its answer."""
    masks = Masks(_secrets(url, headers))
    text = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "dtctl", **headers}
    try:
        request = urllib.request.Request(url, json.dumps(body).encode(), text, method="POST")
        with _opener().open(request, timeout=timeout_s):
            return {"problem": None, "text": "", "again": False}
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error, masks)
    except urllib.error.URLError as error:
        return _unreachable(error.reason, masks)
    except Exception as error:  # http.client and others raise various errors for a malformed answer
        return _unreachable(error, masks)


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows no redirects: a token is sent only to the configured address."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _opener() -> urllib.request.OpenerDirector:
    """Certificates are checked by what the host trusts; proxies are those of the environment."""
    return urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=ssl.create_default_context()))


def _refused(error: urllib.error.HTTPError, masks: Masks) -> Sent:
    if 300 <= error.code < 400:
        return {"problem": "redirect", "text": "%d %s" % (error.code, _plain(str(error.reason), masks)), "again": False}
    text = " ".join(filter(None, [str(error.code), _plain(str(error.reason), masks), _body(error, masks)]))
    return {"problem": "answer", "text": text, "again": error.code >= 500 or error.code in _PATIENT}


def _body(error: urllib.error.HTTPError, masks: Masks) -> str:
    """The answer as short plain text, such as Slack's `no_service`; HTML pages are ignored."""
    try:
        data = error.read(_MOST_SHOWN + 1)
    except Exception:  # as above
        return ""
    if not data or len(data) > _MOST_SHOWN or b"<" in data:
        return ""
    text = _plain(data.decode("utf-8", "replace"), masks)
    return "(%s)" % text if text else ""


def _unreachable(reason: object, masks: Masks) -> Sent:
    if isinstance(reason, (socket.timeout, TimeoutError)):
        text = "timed out"
    elif isinstance(reason, ssl.SSLError):
        text = str(getattr(reason, "verify_message", "") or reason.reason or reason)
    elif isinstance(reason, OSError):
        text = reason.strerror or str(reason)
    else:
        text = "%s: %s" % (type(reason).__name__, reason)
    # a certificate is not replaced within minutes
    again = not isinstance(reason, ssl.SSLCertVerificationError)
    return {"problem": "unreachable", "text": _plain(text, masks), "again": again}


def _secrets(url: str, headers: Dict[str, str]) -> Iterator[str]:
    """The secrets, also as a server echoes them: only the path, or a part of it, or the value after `Bearer`."""
    _, _, rest = url.partition("://")
    _, _, path = rest.partition("/")
    words = [url, rest, "/" + path, path, *headers.values()]
    for separator in "/?&= ":
        words += [part for word in words for part in word.split(separator)]
    for word in dict.fromkeys(words):
        if len(word) >= _SHORTEST_PART:
            yield word
            yield urllib.request.unquote(word)  # type: ignore[attr-defined]


def _plain(text: str, masks: Masks) -> str:
    shown = masks.hide_text(text)
    return brief(" ".join("".join(letter if letter.isprintable() else " " for letter in shown).split()))
