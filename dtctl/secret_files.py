"""Files that usually hold secrets, and are sent only if the user requests it.

By name: files whose only purpose is to hold credentials, as the templates of .gitignore and secret scanners (gitleaks,
gitrob, shhgit) list them, and those of the tools that trainers are used with. By content: private keys, encrypted
vaults, the tokens that the agent masks in logs (agent/host/secrets.py), and files of logins under any name (`_FORMS`).
High entropy alone is no criterion: data sets are full of it.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from dtctl.agent.host.secrets import token_in

BY_NAME = tuple(Path(__file__).with_suffix(".txt").read_text("utf-8").split())
"""Rules in the language of gitignore(5). Each holds at any depth and ignores case."""

UNLESS_PUBLIC = ("*.pem", "*.key")
"""Files that are left out unless they hold only certificates and public keys."""

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
_VALUE = rb"[\"']?\s{0,8}[=:]\s{0,8}[\"']?"
"""Between a name and its value, as JSON, YAML, TOML, INI and shells write it."""
_FORMS: tuple[tuple[str, bytes, tuple[bytes, ...]], ...] = (
    (
        "login to Google Cloud",
        b"_account|authorized_user",
        (
            rb'"type"\s*:\s*"(?:\w{0,20}service_account|authorized_user)"',
            rb'"(?:private_key|refresh_token|client_secret)"\s*:\s*"[^"]',
        ),
    ),
    ("OAuth token", b"refresh", (rb'"refresh_?token"\s*:\s*"[^"\s]{16}',)),
    ("OAuth client", b"client_secret", (rb"client_secret" + _VALUE + rb"[\w-]{10}",)),
    (
        "login to a container registry",
        b'"auths"',
        (rb'"auths"\s*:\s*\{', rb'"(?:auth|identitytoken|registrytoken|password)"\s*:\s*"[^"]{4}'),
    ),
    (
        "login to npm",
        b"_auth|_password",
        (rb"(?m)^\s*(?://\S{1,200}:)?_(?:authtoken|auth|password)\s*=\s*\"?[^\s\"$]{6}",),
    ),
    ("login to npm", b"npmauth", (rb"npmauth(?:token|ident)" + _VALUE + rb"[^\s\"'$]{6}",)),
    ("WireGuard key", b"privatekey|presharedkey", (rb"(?m)^\s*(?:privatekey|presharedkey)\s*=\s*[a-z0-9+/]{42,43}=",)),
    (
        "netrc",
        b"password",
        (rb"\b(?:machine\s+\S{1,200}|default)\s+login\s+\S{1,200}\s+(?:account\s+\S{1,200}\s+)?password\s+\S",),
    ),
    (
        "kubeconfig",
        b"kind: config|\"config\"|'config'",
        (
            rb"kind[\"']?:\s*[\"']?config\b",
            rb"(?:token|password|client-key-data)[\"']?:\s*[\"']?[^\s\"']{4}",
        ),
    ),
    (
        "Kubernetes secret",
        b"secret",
        (rb"(?m)^\s*\"?kind\"?:\s*[\"']?secret\b", rb"(?m)^\s*\"?(?:data|stringdata)\"?:"),
    ),
    ("password hashes", b":$|:{", (rb"(?m)^[\w.@-]{1,64}:(?:\$(?:apr1|[1567]|2[abxy]|g?y)\$|\{s?sha\d{0,3}\})\S{8}",)),
    (
        "pgpass",
        b":*:|:5432:|:6432:|:543",
        (rb"(?m)^[\w.*-]{1,200}:(?:\d{3,5}|\*):[^:\s]{1,80}:[^:\s]{1,80}:[^:\s]{4,200}\s*$",),
    ),
    ("AWS key", b"aws_", (rb"aws_(?:secret_access_key|session_token)" + _VALUE + rb"[a-z0-9/+=]{30}",)),
    (
        "URL with a password",
        b"://",
        (
            rb"\b[a-z][a-z0-9+.-]{1,15}://[^\s/:@\"'<>${}]{0,80}:(?!(?:pass|password|pw|pwd|secret|token|x+|\.+)@)"
            rb"[^\s/@\"'<>${}*]{3,200}@[\w.\[-]",
        ),
    ),
    ("Anaconda token", b"/t/", (rb"/t/[a-z]{2}-[0-9a-f]{8}-[0-9a-f-]{20}",)),
    ("login to MySQL", b"password", (rb"(?m)^\[(?:client|mysql)[^\]\n]{0,40}\]", rb"(?m)^\s*password\s*=\s*\S")),
    ("Terraform state", b"terraform_version", (rb'"lineage"\s*:', rb'"serial"\s*:')),
    ("login to Jupyter", b"argon2:|sha1:|sha256:", (rb"password" + _VALUE + rb"(?:argon2|sha1|sha256):",)),
    ("login to Jupyter", b'"token"', (rb'"token"\s*:\s*"[0-9a-f]{48}"',)),
    ("key of a Jupyter kernel", b"hmac", (rb'"signature_scheme"\s*:\s*"hmac', rb'"key"\s*:\s*"[^"]{8}')),
    ("API key", b"api", (rb"api[_-]?key" + _VALUE + rb"(?=[\w-]{0,80}\d)(?=[\w-]{0,80}[a-z])[\w-]{20}",)),
    ("login to Maven", b"<pass", (rb"<(?:password|passphrase)>(?!\$\{)[^<\s]{3}",)),
    ("login to NuGet", b"cleartextpassword", (rb'key="cleartextpassword"\s+value="[^"%]',)),
    (
        "login to Composer",
        b"http-basic|-oauth|-token",
        (rb'"(?:http-basic|github-oauth|gitlab-(?:oauth|token))"\s*:\s*\{\s*"',),
    ),
    ("login to a server", b'"pass', (rb'"host(?:name)?"\s*:', rb'"pass(?:word|phrase)?"\s*:\s*"[^"]{3}')),
    (
        "login to a remote of rclone",
        b"type",
        (rb"(?m)^type\s*=\s*\w", rb"(?m)^(?:pass|password|secret_access_key|client_secret|token)\s*=\s*\S"),
    ),
    ("key of a wireless network", b"psk=", (rb"network=\{|\[wifi-security\]", rb"psk=\S{8}")),
    ("cookies of a browser", b"cookie file", (rb"\A\s*# (?:netscape )?http cookie file",)),
    (
        "login to a database",
        b"pwd=|password=",
        (rb"(?:server|data source|host)\s*=", rb"(?:password|pwd)\s*=\s*[^;\s\"'$]{3,200};"),
    ),
    ("password of Ansible", b"ansible_", (rb"ansible_\w{0,20}pass(?:word)?\s*[=:]\s*[\"']?(?!\{\{)[^\s\"'{]{3}",)),
    (
        "secret of an environment",
        b"secret|token|passw|key=|key_",
        (
            rb"(?m)^(?:export\s+|-e\s+)?[a-z][a-z0-9_]{0,40}(?:secret|token|passw(?:or)?d|api_?key|access_key)(?:_[a-z0-9_]{0,20})?="
            rb"[\"']?(?=[^\s\"']{0,200}\d)(?=[^\s\"']{0,200}[a-z])[^\s\"'$<{]{16}",
        ),
    ),
)
"""What a file of logins holds, whatever its name: its kind, hints of which it has one, and expressions that all occur.

They are searched for in lower case."""


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


def rule_of_content(path: str, start: bytes, *, data: bool = False) -> str:
    """The kind of secret that a file holds, judged by the `start` of its content; "" for none.

    A program or a text that shows a key among other things is no secret unless it begins with the key. `data`: texts
    are samples of a data set, which may be about anything, and are not searched for logins.
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
    if found := "private key" if re.search(_WRITTEN_PRIVATE, start) else token_in(start):
        return found
    return "" if data and lower.endswith((".txt", ".text", ".log")) else _form_in(start.lower())


def _form_in(text: bytes) -> str:
    """The first form in a text of lower case; "" for none."""
    for kind, hints, expressions in _split_forms():
        for hint in hints:  # plain loops: most files are data, and have no hint
            if hint in text:
                if all(re.search(one, text) for one in expressions):
                    return kind
                break
    return ""


@cache
def _split_forms() -> tuple[tuple[str, tuple[bytes, ...], tuple[bytes, ...]], ...]:
    return tuple((kind, tuple(hints.split(b"|")), expressions) for kind, hints, expressions in _FORMS)


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
