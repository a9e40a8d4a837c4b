"""The keys of a cluster file as they are written, for whoever compares runs: no secret, and no word of how hosts are
reached."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from dtctl.agent.host.secrets import MASK, hide_text, is_secret_name
from dtctl.config.document import Scalar

_LEFT_OUT = ("hosts", "ssh", "hooks")
_LONGEST = 200


def settings_of(data: dict[Any, Any]) -> dict[str, str]:
    """As `trainer.args.rate` -> 0.1, with the text that is written."""
    return {path: text for key, value in data.items() if key not in _LEFT_OUT for path, text in _flat(str(key), value)}


def hides_next(word: str) -> bool:
    """--api_key, whose value is the next word."""
    return word.startswith("-") and "=" not in word and " " not in word and is_secret_name(word)


def _flat(path: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, one in value.items():
            yield from _flat(f"{path}.{key}", one)
    elif is_secret_name(path.rpartition(".")[2]) and path != "trainer.secrets":
        yield path, MASK
    elif isinstance(value, list) and all(isinstance(one, Scalar) for one in value):
        words = [one.text for one in value]
        shown = [MASK if at and hides_next(words[at - 1]) else word for at, word in enumerate(words)]
        yield path, _short(" ".join(shown))
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _flat(f"{path}[{index}]", one)
    elif value is not None:
        yield path, _short(value.text)


def _short(text: str) -> str:
    """A long one with its digest, so that it differs where the texts do."""
    text = hide_text(text)
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"{text[:_LONGEST]}... (sha256 {digest})"
