"""Which hosts the files of ssh_config may have settings for that dtctl uses: for all others `ssh` need not be asked.

What the settings are, `ssh -G` says. This errs on the side of asking: a host counts as mentioned whenever a block might
apply to it, whatever its conditions are.
"""

from __future__ import annotations

import fnmatch
import glob
import os
import pwd
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dtctl.dataclass import dataclass
from dtctl.folder import read_regular

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
MOST_BYTES = 16_000_000
DEEPEST_INCLUDE = 16
"""OpenSSH refuses deeper ones (READCONF_MAX_DEPTH in readconf.c)."""

USED = {
    *("hostname", "user", "port", "proxyjump", "proxycommand", "connecttimeout", "hostkeyalias"),
    *("identityfile", "identitiesonly", "identityagent", "userknownhostsfile", "globalknownhostsfile"),
}
"""The options that dtctl reads."""

RENAMING = ("canonicalizehostname", "canonicaldomains", "canonicalizefallbacklocal", "canonicalizemaxdots")
"""Options that let blocks apply to a host by another name than the one that is typed."""

_BLANKS = " \t\r\n"
"""What separates words for `ssh` (WHITESPACE in misc.c); others, such as a form feed, belong to a word."""


@dataclass
class Block:
    """The lines below a `Host` or `Match`. `patterns` None: it may apply to every host."""

    patterns: Sequence[str] | None
    is_used: bool = False


class Mentions:
    """The blocks of some files that have options of USED, in includes too."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._everything = False
        blocks = [block for file in files for block in self._blocks(file, file.parent, 0)]
        self._patterns = [block.patterns for block in blocks if block.is_used]

    def __contains__(self, host: object) -> bool:
        return self._everything or any(
            patterns is None or any(_matches(pattern, str(host)) for pattern in patterns) for patterns in self._patterns
        )

    def _blocks(self, file: Path, base: Path, depth: int) -> Iterator[Block]:
        """The blocks of a file. What cannot be read is left to `ssh`, which then says so."""
        try:
            text = read_regular(file, MOST_BYTES).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            return
        except (OSError, ValueError):
            self._everything = True
            return
        block = Block(None)
        for line in text.split("\n"):
            keyword, rest = keyword_of(line)
            if keyword in ("host", "match"):
                yield block
                block = Block(_words(rest) if keyword == "host" else None)
            elif keyword == "include":
                yield from self._included(_words(rest), base, depth)
            elif keyword in RENAMING:
                self._everything = True
            block.is_used = block.is_used or keyword in USED
        yield block

    def _included(self, patterns: Sequence[str] | None, base: Path, depth: int) -> Iterator[Block]:
        """The blocks of included files, as if they stood alone."""
        if patterns is None or depth == DEEPEST_INCLUDE or any(set(pattern) & set("$%") for pattern in patterns):
            self._everything = True  # how a name is expanded, and that this is too deep, is OpenSSH's to say
            return
        for pattern in patterns:
            for name in glob.glob(str(base / _expanded(pattern))):  # noqa: PTH207 (may be absolute)
                yield from self._blocks(Path(name), base, depth + 1)


def keyword_of(line: str) -> tuple[str, str]:
    """The keyword of a line in lower case, as `ssh` takes it, and the rest; empty for a comment and a blank line.

    `ssh` takes quotes out of a keyword (Ho"st"), needs no blank after a closing one ("Host"gpu-1), and passes over an
    equals sign before it (=Host gpu-1): `strdelim` in OpenSSH's misc.c. A test compares this with `ssh -G`.
    """
    word, rest = _delimited(line.partition("\0")[0])
    if not word:
        word, rest = _delimited(rest)
    return ("", "") if word.startswith("#") else (word.lower(), rest)


def _delimited(text: str) -> tuple[str, str]:
    match = re.search(f'[{_BLANKS}"=]', text)
    if match is None:
        return text, ""
    word, rest = text[: match.start()], text[match.end() :]
    if match[0] == '"':
        inside, closing, rest = rest.partition('"')
        return (word + inside, rest.lstrip(_BLANKS)) if closing else ("", "")
    rest = rest.lstrip(_BLANKS)
    return word, rest[1:].lstrip(_BLANKS) if match[0] != "=" and rest.startswith("=") else rest


def account_home() -> Path:
    """The home directory that `ssh` takes for `~`, whatever $HOME says."""
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path.home()


def _expanded(pattern: str) -> Path:
    return account_home() / pattern[2:] if pattern.startswith("~/") else Path(pattern).expanduser()


def _words(text: str) -> list[str] | None:
    """The words of a line without `!`; None if a quote or backslash leaves that to OpenSSH."""
    return None if set(text) & set("'\"\\") else [word.lstrip("!") for word in re.split(r"[ \t\r\n,]+", text) if word]


def _matches(pattern: str, host: str) -> bool:
    """Whether a pattern with * and ? matches; ssh compares names in lower case."""
    return fnmatch.fnmatchcase(host.lower(), pattern.lower().replace("[", "[[]"))
