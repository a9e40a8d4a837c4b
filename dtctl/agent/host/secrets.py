"""Replaces secrets in all output: known values, and text in the form of a secret.

The table applies to logs, causes, stacks, events and reports alike, and `token_in` finds by it files of the code that
look like secrets. The forms are also known to gitleaks and detect-secrets. Entropy is not considered.

A form is searched for only if one of its hints is found, and begins with plain letters where possible: all forms in one
expression take forty times as long. Every repetition is bounded, or followed by nothing that could fail, so the time is
proportional to the length of a line.
"""

from __future__ import annotations

import re

from .escapes import forms_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterable, Iterator, List, Tuple

    Form = Tuple[str, Tuple[bytes, ...], bytes]
    """Its name, its hints, and the expression, whose last group is hidden; without a group the whole match."""

MASK = "***"
_SHORTEST_LINE = 8
_LONGEST_VALUE = 4096
_LONGEST_NAME = 100
"""The longest name, with the text between it and its value."""
_CONTINUED = b"a1" * 20 + b"@"
"""A name that ends in it counts as a secret's."""

_TOKENS: Tuple[Form, ...] = (
    (
        "AWS access key",
        (b"AKIA", b"ASIA", b"ABIA", b"ACCA"),
        rb"A(?:KIA|SIA|BIA|CCA)(?<![A-Za-z0-9+/]....)[A-Z0-9]{16}(?![A-Za-z0-9+/])",
    ),
    ("Google API key", (b"AIza",), rb"AIza(?<![A-Za-z0-9]....)[\w-]{35}"),
    ("Google access token", (b"ya.",), rb"ya29\.(?<![A-Za-z0-9].....)[\w-]{20,4096}"),
    (
        "GitHub token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
        rb"gh[pousr]_(?<![A-Za-z0-9]....)[A-Za-z0-9]{16,255}",
    ),
    ("GitHub token", (b"github_pat_",), rb"github_pat_\w{22,255}"),
    ("GitLab token", (b"glpat-",), rb"glpat-[\w-]{20,255}"),
    ("Hugging Face token", (b"hf_",), rb"hf_(?<!\w...)[A-Za-z0-9]{16,255}"),
    ("W&B key", (b"wandb_v_",), rb"wandb_v1_\w{20,255}"),
    ("Slack token", (b"xox", b"xapp-"), rb"x(?:ox[a-z]|app)-(?<![A-Za-z0-9].....)[A-Za-z0-9-]{10,255}"),
    ("OpenAI or Anthropic key", (b"sk-",), rb"sk-(?<![\w-]...)[\w-]{24,255}"),
    ("Stripe key", (b"k_live_", b"k_test_"), rb"[rs]k_(?:live|test)_(?<![A-Za-z0-9].{8})[A-Za-z0-9]{16,255}"),
    ("SendGrid key", (b"SG.",), rb"SG\.(?<![A-Za-z0-9]...)[\w-]{20,24}\.[\w-]{39,50}"),
    ("npm token", (b"npm_",), rb"npm_[A-Za-z0-9]{36}"),
    ("PyPI token", (b"pypi-AgE",), rb"pypi-AgE[\w-]{50,4096}"),
    ("Docker token", (b"dckr_pat_",), rb"dckr_pat_[\w-]{20,255}"),
    ("Databricks token", (b"dapi",), rb"dapi(?<![A-Za-z0-9]....)[0-9a-f]{32}"),
    ("Vault token", (b"hvs.", b"hvb."), rb"hv[sb]\.(?<![A-Za-z0-9]....)[\w-]{20,4096}"),
    ("age key", (b"AGE-SECRET-KEY-",), rb"AGE-SECRET-KEY-1[A-Z0-9]{20,255}"),
    ("JSON web token", (b"eyJ",), rb"eyJ(?<![\w-]...)[\w-]{10,4096}\.eyJ[\w-]{10,4096}\.[\w-]{0,4096}"),
    (
        "Azure key",
        (b"AccountKey=", b"SharedAccessKey="),
        rb"(?:AccountKey|SharedAccessKey)=([A-Za-z0-9+/=]{16,255})",
    ),
    ("key of a kubeconfig", (b"client-key-data",), rb"client-key-data\"?:[ \t]{0,8}\"?([A-Za-z0-9+/=]{16,65536})"),
    (
        "webhook",
        (b"hooks.slack", b"/webhooks/", b"webhook.office.com/", b"/bot"),
        rb"(?:hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/|/api/webhooks/\d{1,30}/"
        rb"|webhook\.office\.com/|/bot\d{5,20}:)([\w/@.-]{6,1024})",
    ),
)
"""Secrets that are recognised only by their own form."""

_COLOUR = rb"(?:\x1b\[[\d;]{0,20}m)?"
_OPEN = (
    rb"\\{0,3}[\"']?\]?" + _COLOUR + rb"[ \t]{0,40}" + _COLOUR + rb"(?:=>|[:=])" + _COLOUR + rb"[ \t]{0,40}" + _COLOUR
    + rb"(?:b(?=[\"']))?\\{0,3}"
)  # fmt: skip
_NO_VALUE = rb"(?!(?:none|null|true|false|\d{1,3}|\*\*\*)(?![^\s\"',;)}\]\\]))"
_ASSIGNED = (
    rb"[\w.-]{0,40}" + _OPEN + rb"(?:\"([^\"\n\\]{1,4096})|'([^'\n\\]{1,4096})|" + _NO_VALUE
    + rb"([^\s\"',;)}\]\[{(<\\][^\s\"',;)}\]\\]{0,4095}))"
)  # fmt: skip
_NEXT_WORD = rb"[\"']?(?:=|,?[ \t]{1,4}|,)(?:\"([^\"\n]{1,4096})|'([^'\n]{1,4096})|(?!-)([^\s\"',;]{1,4096}))"
_REST_OF_LINE = rb"(?:\"([^\"\n]{1,4096})|'([^'\n]{1,4096})|([^\s\"'][^\r\n]{0,4095}))"
_MADE = rb"(?=[^\s\"',;]{0,80}?\d)(?=[^\s\"',;]{0,80}?[a-z])"
"""A letter and a digit: no word of a language, and no number."""

_NAMED: Tuple[Form, ...] = (
    ("", (b"authorization",), rb"authorization" + _OPEN + _REST_OF_LINE),
    ("", (b"cookie",), rb"cookie" + _OPEN + _REST_OF_LINE),
    ("", (b"bearer",), rb"bearer[ \t]{1,4}(?=[\w.~+/=-]{0,80}?\d)([\w.~+/=-]{8,4096})"),
    ("", (b"passw", b"passphrase"), rb"pass(?:w(?:or)?d|phrase)" + _ASSIGNED),
    ("", (b"secret",), rb"secret" + _ASSIGNED),
    ("", (b"credential",), rb"credential" + _ASSIGNED),
    ("", (b"api_key", b"api-key", b"apikey"), rb"api[_-]?key" + _ASSIGNED),
    ("", (b"access_key", b"accesskey"), rb"access_?key" + _ASSIGNED),
    ("", (b"_key",), rb"_key(?:(?<=wandb_key)|(?<=(?:account|private|signing)_key))" + _ASSIGNED),
    (
        "",
        (b"token",),
        rb"token(?:(?<![a-z]token)|(?<=authtoken)|(?<=(?:access|bearer)token)|(?<=(?:refresh|session)token))"
        + _OPEN
        + rb"[\"']?"
        + _MADE
        + rb"([^\s\"',;)}\]\\]{4,4096})",
    ),
    (
        "",
        (b"--",),
        rb"--(?<![\w-]--)(?:[a-z0-9][\w.-]{0,60}?[_.-]key|(?:[a-z0-9][\w.-]{0,60}?[_.-])?"
        rb"(?:pass|pwd|auth|token|creds?))" + _NEXT_WORD,
    ),
    (
        "",
        (b"secret", b"passw", b"passphrase", b"credential", b"apikey"),
        rb"-(?<![\w-]-)-?(?:[a-z0-9][\w.-]{0,60}?[_.-])?(?:secret|passw(?:or)?d|passphrase|credential|apikey)[\w.-]{0,40}"
        + _NEXT_WORD,
    ),
    (
        "",
        (b"sig=", b"signature=", b"token=", b"key=", b"secret=", b"auth=", b"pwd=", b"credential="),
        rb"[?&](?:[\w-]{0,30}[_-])?(?:sig|signature|token|key|secret|auth|pwd|credential)=([^&\s\"'<>]{1,4096})",
    ),
    ("", (b"sig=",), rb"sig=(?<!\wsig=)([\w%+/=-]{20,4096})"),
)
"""Secrets that are recognised by the text before them, in lower case."""

_WRITTEN: Tuple[Form, ...] = (
    (
        "",
        (b"_KEY", b"_PASS", b"_PWD", b"_TOKEN", b"_PAT", b"_AUTH", b"_CRED"),
        rb"_(?<=[A-Z0-9]_)(?:KEY|PASS|PWD|TOKEN|PAT|AUTH|CREDS?)(?![A-Za-z])" + _ASSIGNED,
    ),
    ("", (b"://",), rb"://([^/\s\"'<>]{1,400})@"),
    (
        "",
        (b"PRIVATE KEY",),
        rb"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        rb"(?:(?:\\[nr]|\s){1,8}(?:[A-Za-z0-9+/=]{20,4096}|(?:Proc-Type|DEK-Info|Comment|Version):[^\n\\]{0,200}))*"
        rb"(?:(?:(?:\\[nr]|\s){1,8}[A-Za-z0-9+/=]{1,19})?(?:\\[nr]|\s){1,8}-----END [A-Z0-9 ]{0,40}PRIVATE KEY"
        rb"(?: BLOCK)?-----)?",
    ),
)
"""The same, as it is written."""

_ANY_HINT = b"|".join(re.escape(hint.lower()) for form in (*_TOKENS, *_WRITTEN, *_NAMED) for hint in form[1])
_SHORT = 1000
"""Bytes, for which one expression is faster than each hint by itself."""

_KEY_LINES = rb"(?m)^[ \t]*([A-Za-z0-9+/]{60,76}={0,2})[ \t\r]*$"
"""The lines of a private key, if they appear separately."""

_SECRET_NAME = (
    r"(?i)secret|passw|passphrase|credential|(?:api|access|account|private|signing|encryption)[_-]?key|auth(?!or)"
    r"|token(?!s\b|iz)|[a-z0-9][_-](?:key|pass|pwd|pat|creds?)$"
)


class Masks:
    """Replaces values by `***`, longer ones first; of a value of several lines also each longer line.

    Each is hidden in all forms in which programs write a text (escapes.py). A value that is split by a line break
    of whatever shows it is not found. `forms` False: only values, as for data that may not be text.
    """

    def __init__(self, values: Iterable[str], forms: bool = True) -> None:
        shown = {form for value in values for part in _parts(value) for form in forms_of(part)}
        self._values = sorted(shown, key=lambda part: (-len(part), part))
        self._forms = forms
        self._shows_keys = False

    def hide(self, data: bytes) -> bytes:
        return self._hide_forms(self._hide_values(data))

    def hide_lines(self, data: bytes) -> bytes:
        """Hides secrets as `hide` does, but values line by line, so that the number of lines stays the same."""
        return self._hide_forms(self._hide_values(data, lines=True))

    def _hide_values(self, data: bytes, *, lines: bool = False) -> bytes:
        """One search for each value is faster than an expression of all, as few values are found at all.

        `lines`: only values within a line.
        """
        found = [value for value in self._values if value in data and not (lines and b"\n" in value)]
        return re.sub(b"|".join(map(re.escape, found)), b"***", data) if found else data

    def hide_text(self, text: str) -> str:
        return self.hide(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def cut(self, data: bytes, least: int = 1) -> int:
        """The position where the end of `data` may be cut without cutting a secret that continues after it.

        The part after it also contains the name of such a secret. `least`: the least position.
        """
        cut = min((one for value in self._values for one in _begins(value, data) if one >= least), default=len(data))
        first = max(0, len(data) - 2 * _LONGEST_VALUE)
        spans = _spans(data[first:] + _CONTINUED) if self._forms else ()
        open_ends = [first + start for start, end in spans if first + end > len(data)]
        if open_ends:
            cut = min(cut, data.rfind(b" ", first, max(first, min(open_ends) - _LONGEST_NAME)) + 1 or first)
        return max(cut, least)

    def _hide_forms(self, data: bytes) -> bytes:
        if not (self._forms and data):
            return data
        self._shows_keys = self._shows_keys or b"PRIVATE KEY" in data
        spans = list(_spans(data))
        if self._shows_keys:
            spans += [found.span(1) for found in re.finditer(_KEY_LINES, data)]
        shown, done = bytearray(), 0
        for start, end in _joined(spans):
            shown += data[done:start] + b"\n".join([b"***"] * (data.count(b"\n", start, end) + 1))
            done = end
        return bytes(shown + data[done:]) if spans else data


def hide_text(text: str) -> str:
    """Hides text in the form of a secret, in a text of any origin."""
    return Masks(()).hide_text(text)


def hide_variable(name: str, value: str) -> str:
    """The value of a variable or key as it may be shown."""
    return MASK if value and is_secret_name(name) else hide_text(value)


def hide_words(words: Iterable[str]) -> List[str]:
    """The words of a command as they may be shown, also those that follow a flag such as --api_key."""
    shown: List[str] = []
    hidden = False
    for word in words:
        shown.append(MASK if hidden else hide_text(word))
        hidden = hides_next(word)
    return shown


def hides_next(word: str) -> bool:
    """--api_key, whose value is the next word."""
    return word.startswith("-") and "=" not in word and " " not in word and is_secret_name(word)


def token_in(data: bytes) -> str:
    """The name of the first token that is known by its own form; "" for none."""
    return next((name for name, _ in _found(_hinted(_TOKENS, _sample(data)), data)), "")


def is_secret_name(name: str) -> bool:
    """Whether a name is that of a secret."""
    return re.search(_SECRET_NAME, name) is not None


def _spans(data: bytes) -> Iterator[Tuple[int, int]]:
    sample = _sample(data)
    if len(sample) < _SHORT and not re.search(_ANY_HINT, sample.lower()):
        return
    for forms, text in (((*_TOKENS, *_WRITTEN), bytes), (_NAMED, bytes.lower)):
        hinted = _hinted(forms, text(sample))
        if hinted:
            yield from (span for _, span in _found(hinted, text(data)))


def _joined(spans: Iterable[Tuple[int, int]]) -> List[Tuple[int, int]]:
    """The spans, with overlapping ones joined."""
    joined: List[Tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start < joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


def _hinted(forms: Iterable[Form], sample: bytes) -> List[Form]:
    return [form for form in forms if any(hint in sample for hint in form[1])]


def _found(forms: Iterable[Form], data: bytes) -> Iterator[Tuple[str, Tuple[int, int]]]:
    for name, _, expression in forms:
        for found in re.finditer(expression, data):
            yield name, found.span(found.lastindex or 0)


def _sample(data: bytes) -> bytes:
    """The data to search for hints: lines that differ only in numbers have the same, and logs have many of them."""
    return b"\n".join(set(data.translate(None, b"0123456789").split(b"\n")))


def _begins(value: bytes, data: bytes) -> Iterator[int]:
    """Where the end of `data` is the beginning of the value, and not all of it."""
    size = min(len(value) - 1, len(data))
    tail = data[len(data) - size :]
    for length in range(size, 0, -1):
        if value[length - 1] == tail[-1] and tail.endswith(value[:length]):
            yield len(data) - length


def _parts(value: str) -> List[bytes]:
    whole = value.encode("utf-8", "surrogateescape")
    lines = [line.strip() for line in whole.splitlines()]
    return [part for part in {whole, *(line for line in lines if len(line) >= _SHORTEST_LINE)} if part]
