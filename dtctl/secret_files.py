"""Files that usually hold secrets, and are sent only if the user requests it.

By name: files whose only purpose is to hold credentials, as the templates of .gitignore and secret scanners list them,
and those of the tools that trainers are used with. By content: private keys, encrypted vaults, and the tokens that the
agent masks in logs (agent/host/secrets.py). High entropy alone is no criterion: data sets are full of it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from dtctl.agent.host.secrets import token_in

BY_NAME = tuple(Path(__file__).with_suffix(".txt").read_text("utf-8").split())
"""Rules in the language of gitignore(5). Each holds at any depth and ignores case."""

UNLESS_PUBLIC = ("*.pem", "*.key")
"""Also left out, unless they hold only certificates and public keys."""

# Not compiled here: that would take longer than all else that most commands do with this module.
_PRIVATE = rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-"
_BEGINS_PRIVATE = rb"(?:\xef\xbb\xbf)?\s*(?:" + _PRIVATE + rb")"
_HAS_PRIVATE = rb"(?m)^[ \t]*(?:" + _PRIVATE + rb")"
_HAS_WHOLE_PRIVATE = (
    rb"(?m)^[ \t]*(?:(?:" + _PRIVATE + rb")[ \t\r]*\n\s*(?:[A-Za-z0-9+/=]{16}|[A-Z][\w-]+:)|PuTTY-User-Key-File-)"
)
"""Requires what follows the line: a text that only mentions such a line holds no key."""
_WRITTEN_PRIVATE = rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY-----(?:\\[nr])+[A-Za-z0-9+/=]{16}"
"""The key in one line, as a variable or JSON holds it."""
_JSON_PRIVATE = rb'"private_key"\s*:\s*"-----BEGIN [A-Z0-9 ]*PRIVATE KEY'
_PUBLIC = rb"(?m)^-----BEGIN (?:[A-Z0-9]+ )*(?:CERTIFICATE|PUBLIC KEY|X509 CRL|PARAMETERS)"
_SHOWS = (
    r".*\.(?:py|pyi|ipynb|c|cc|cpp|h|hpp|cu|cuh|proto|rs|go|java|js|mjs|ts|tsx|rb|pl|php|r|jl|scala|sh|bash|patch|diff"
    r"|md|rst|tex|html?|css|svg|csv|tsv|jsonl|ndjson)"
)
"""Programs, documents and tables. They may show a key among other things, and must arrive complete."""
_MOST_TOKENS_BYTES = 1 << 15
"""A larger file is not searched for tokens: it is data."""


def rule_of_name(path: str, is_directory: bool) -> str:
    """The rule by which a path, which may be absolute, is secret; "" if it is not."""
    place = path.lower() + "/" * is_directory
    if _last().fullmatch(place.rstrip("/").rpartition("/")[2]) is None:
        return ""  # as for almost every name; five times as fast
    if _harmless().fullmatch(place) is not None:
        return ""
    return next((rule for rule in _NAMES if _compiled(rule).fullmatch(place)), "")


def rule_of_directory(path: str) -> str:
    """The rule by which a directory, or a parent of it, is secret as a whole; "" for any other."""
    place = f"{path.rstrip('/')}/".lower()
    return next((rule for rule in _NAMES if rule.endswith("/") and f"/{rule}" in place), "")


def rule_of_parent(path: str) -> str:
    """The rule of secrets that lie below such a directory, as .config/gcloud/ does below ~/.config; "" for none."""
    place = f"/{path.strip('/')}".lower()
    return next((rule for rule in _NAMES if any(place.endswith(f"/{above}") for above in _parents(rule))), "")


def _parents(rule: str) -> list[str]:
    words = rule.rstrip("/").split("/")
    return ["/".join(words[:count]) for count in range(1, len(words))]


def needs_a_look(path: str) -> bool:
    """Whether its name leaves open if it holds a key; `rule_of_content` decides."""
    return _compiled(*UNLESS_PUBLIC).fullmatch(path.lower()) is not None


def rule_of_content(path: str, start: bytes) -> str:
    """The kind of secret that a file holds, judged by the `start` of its content; "" for none.

    A program or a text that shows a key among other things is no secret unless it begins with the key.
    """
    lower = path.lower()
    if needs_a_look(path):
        return "private key" if re.search(_HAS_PRIVATE, start) or not re.search(_PUBLIC, start) else ""
    if re.match(_BEGINS_PRIVATE, start) or (lower.endswith(".json") and re.search(_JSON_PRIVATE, start)):
        return "private key"
    if re.fullmatch(_SHOWS, lower) or b"\0" in start[:8192]:
        return ""
    if b"PRIVATE KEY" in start and re.search(_HAS_WHOLE_PRIVATE, start):
        return "private key"
    if start.startswith(b"$ANSIBLE_VAULT;"):
        return "Ansible vault"
    if len(start) > _MOST_TOKENS_BYTES:
        return ""
    return "private key" if re.search(_WRITTEN_PRIVATE, start) else token_in(start)


@cache
def _compiled(*rules: str) -> re.Pattern[str]:
    """One pattern for all rules. It matches whole paths, where a directory's ends with `/`."""
    each = (
        re.escape(rule.rstrip("/")).replace(r"\*", "[^/]*") + ("/" if rule.endswith("/") else "/?") for rule in rules
    )
    return re.compile(rf"(?:.*/)?(?:{'|'.join(each)})", re.DOTALL)


_NAMES = [rule for rule in BY_NAME if not rule.startswith("!")]


@cache
def _last() -> re.Pattern[str]:
    return _compiled(*(rule.rstrip("/").rpartition("/")[2] for rule in _NAMES))


@cache
def _harmless() -> re.Pattern[str]:
    return _compiled(*(rule[1:] for rule in BY_NAME if rule.startswith("!")))
