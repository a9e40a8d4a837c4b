"""The forms in which programs write a text: escaped for JSON, Python, URLs, HTML and shells, in hexadecimal and base64.

`secrets.py` masks the value of a secret in all of them. The number of forms is bounded, and none is more than twelve
times as long as the value. Base64 is found within that of a longer text, too, as in that of `user:VALUE`.
"""

from __future__ import annotations

import binascii
import json
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, List, Set

_SHORTEST_ESCAPED = 4
_SHORTEST_ENCODED = 6
"""The encoded form of a shorter value would be found in other texts, too."""
_ENCODED_LINES = (64, 76)
"""Characters of base64 in a line, as OpenSSL and MIME write it."""
_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-~")
"""RFC 3986, section 2.3."""


def forms_of(value: bytes) -> Set[bytes]:
    """The value, and the forms that differ from it."""
    found = {value}
    if len(value) >= _SHORTEST_ESCAPED:
        found.update(_escaped(value))
    if len(value) >= _SHORTEST_ENCODED:
        found.update(_encoded(value))
    return found


def _escaped(value: bytes) -> Iterator[bytes]:
    text = value.decode("utf-8", "surrogateescape")
    for one in _as_literals(text):
        yield one
        yield from _as_literals(one.decode("utf-8", "surrogateescape"))  # a text in a text
    yield repr(value)[2:-1].encode()
    for safe in (b"", b"/", b"/:?#[]@!$&'()*+,;="):
        for digits in ("%%%02X", "%%%02x"):
            quoted = "".join(chr(one) if one in _UNRESERVED or one in safe else digits % one for one in value).encode()
            yield quoted
            yield quoted.replace(b"%20", b"+")
    html = value.replace(b"&", b"&amp;").replace(b"<", b"&lt;").replace(b">", b"&gt;")
    yield html
    for double in (b'"', b"&quot;", b"&#34;"):
        for single in (b"'", b"&#x27;", b"&#39;", b"&apos;"):
            yield html.replace(b'"', double).replace(b"'", single)
    yield re.sub(rb"([\\\"$`])", rb"\\\1", value)  # sh, in double quotes
    yield re.sub(rb"([^A-Za-z0-9_@%+=:,./\x80-\xff-])", rb"\\\1", value)  # sh, without quotes
    yield value.replace(b"'", b"'\"'\"'")  # sh, in single quotes: shlex.quote
    yield value.replace(b"'", b"'\\''")


def _as_literals(text: str) -> List[bytes]:
    """The text as string literals of JSON, JavaScript and Python, without their quotes."""
    plain = json.dumps(text, ensure_ascii=False)[1:-1]
    wide = json.dumps(text)[1:-1]
    python = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    found = (plain, plain.replace("/", "\\/"), wide, repr(text)[1:-1], python.replace("'", "\\'"))
    return [one.encode("utf-8", "surrogateescape") for one in found]


def _encoded(value: bytes) -> Iterator[bytes]:
    hexadecimal = binascii.hexlify(value)
    yield from (hexadecimal, hexadecimal.upper())
    for before in range(3):
        whole = binascii.b2a_base64(b"\0" * before + value, newline=False)
        # Characters at both ends that hold bits of the neighbours as well are not part of it.
        first, last = (0, 2, 3)[before], (0, 3, 2)[(before + len(value)) % 3]
        core = whole[first : len(whole) - last]
        for one in (core, whole) if before == 0 else (core,):
            yield from (one, one.translate(bytes.maketrans(b"+/", b"-_")))
        if before == 0:
            yield from (
                line
                for width in _ENCODED_LINES
                for at in range(0, len(whole), width)
                if len(whole) > width and len(line := whole[at : at + width]) >= _SHORTEST_ENCODED
            )
