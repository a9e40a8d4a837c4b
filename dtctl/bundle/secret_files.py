"""Files that usually hold secrets, and are not sent unless the user says so.

By name: files whose only purpose is to hold credentials, as secret scanners (gitleaks, detect-secrets) and the
templates of .gitignore list them, and those that trainers are used with (Kaggle, Hugging Face, Weights & Biases).
By content: private keys, whatever they are called.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

BY_NAME = (
    # variables
    ".env",
    ".env.*",
    ".env~",
    "*.env",
    ".envrc",
    "!.env.example",
    "!.env.sample",
    "!.env.template",
    "!.env.dist",
    "!example.env",
    "!sample.env",
    "!template.env",
    # SSH and GnuPG
    ".ssh/",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "!id_*.pub",
    "!id_*.py",
    "*.ppk",
    ".gnupg/",
    # stores of keys and passwords
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    ".htpasswd",
    ".vault-token",
    # logins of tools
    ".netrc",
    "_netrc",
    ".git-credentials",
    ".pypirc",
    ".npmrc",
    ".pgpass",
    ".my.cnf",
    ".dockercfg",
    ".docker/config.json",
    ".kube/config",
    ".config/gh/",
    ".config/rclone/",
    "rclone.conf",
    # clouds and data
    ".aws/",
    ".azure/",
    ".config/gcloud/",
    "application_default_credentials.json",
    ".boto",
    ".s3cfg",
    ".databrickscfg",
    "kaggle.json",
    ".huggingface/",
    ".cache/huggingface/token",
    ".streamlit/secrets.toml",
)
"""Rules in the language of gitignore(5), each of which holds at any depth and for capitals too."""

UNLESS_PUBLIC = ("*.pem", "*.key")
"""Left out, too, unless they hold certificates and public keys alone."""

_PRIVATE = rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-"
_BEGINS_PRIVATE = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:" + _PRIVATE + rb")")
_HAS_PRIVATE = re.compile(rb"^[ \t]*(?:" + _PRIVATE + rb")", re.MULTILINE)
_JSON_PRIVATE = re.compile(rb'"private_key"\s*:\s*"-----BEGIN [A-Z0-9 ]*PRIVATE KEY')
_PUBLIC = re.compile(rb"^-----BEGIN (?:[A-Z0-9]+ )*(?:CERTIFICATE|PUBLIC KEY|X509 CRL|PARAMETERS)", re.MULTILINE)


def named_as_secret(path: str, is_directory: bool) -> bool:
    place = path.lower() + "/" * is_directory
    if _LAST.fullmatch(place.rstrip("/").rpartition("/")[2]) is None:
        return False  # as almost every name, and five times as fast
    return _SECRET.fullmatch(place) is not None and _HARMLESS.fullmatch(place) is None


def needs_a_look(path: str) -> bool:
    """Its name leaves open whether it holds a key; `is_private` tells by its content."""
    return _OPEN.fullmatch(path.lower()) is not None


def is_private(path: str, start: bytes) -> bool:
    """Whether a file is a private key, by the `start` of its content.

    A program or a text that shows a key among other things is not one: where the name says nothing, the file has to
    begin with the key.
    """
    if needs_a_look(path):
        return _HAS_PRIVATE.search(start) is not None or _PUBLIC.search(start) is None
    if path.lower().endswith(".json"):
        return _JSON_PRIVATE.search(start) is not None
    return _BEGINS_PRIVATE.match(start) is not None


def _compiled(rules: Sequence[str]) -> re.Pattern[str]:
    """One pattern for all, which paths that end with `/` for directories match as a whole."""
    each = (
        re.escape(rule.rstrip("/")).replace(r"\*", "[^/]*") + ("/" if rule.endswith("/") else "/?") for rule in rules
    )
    return re.compile(rf"(?:.*/)?(?:{'|'.join(each)})", re.DOTALL)


_SECRET = _compiled([rule for rule in BY_NAME if not rule.startswith("!")])
_LAST = _compiled([rule.rstrip("/").rpartition("/")[2] for rule in BY_NAME if not rule.startswith("!")])
_HARMLESS = _compiled([rule[1:] for rule in BY_NAME if rule.startswith("!")])
_OPEN = _compiled(UNLESS_PUBLIC)
