"""The topics of `dtctl explain` (keys of cluster.yaml, exit codes, answers of hosts, terms), and their display.

manual.yaml is the single source for it, docs/exit-codes.md, docs/troubleshooting.md and docs/glossary.md.
"""

from __future__ import annotations

import itertools
import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import yaml

from dtctl.config.habits import meant_anywhere, meant_key
from dtctl.config.reference import ANY, Key, all_keys, section_texts
from dtctl.dataclass import dataclass
from dtctl.errors import ExitCode, UsageError, did_you_mean
from dtctl.render.terminal import console

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Ten times faster, if PyYAML was built with it."""
_TEXTS: dict[str, Any] = yaml.load(Path(__file__).with_suffix(".yaml").read_text("utf-8"), _LOADER)
WORDS: dict[str, str] = _TEXTS["words"]
STATES: dict[str, str] = _TEXTS["states"]
PROGRAMS: dict[str, str] = _TEXTS["programs"]
"""Exit codes of trainers that dtctl does not use itself."""

_CODE = re.compile(r"`([^`]+)`")

_LEAST_PART = 8
"""The fewest letters of a message that identify it."""

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Trouble:
    """The meaning of one error, and its causes: a part of the message, or a condition -> the remedy.

    `code` is an exit code, or the name of a host's answer (`error.code` with `-o json`). Markdown.
    """

    code: ExitCode | str
    meaning: str
    causes: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(int(self.code)) if isinstance(self.code, ExitCode) else self.code


EXITS = tuple(Trouble(ExitCode(code), **each) for code, each in _TEXTS["exits"].items())
ANSWERS = tuple(Trouble(code, **each) for code, each in _TEXTS["answers"].items())
TROUBLES = {trouble.name: trouble for trouble in (*EXITS, *ANSWERS)}


@dataclass(frozen=True)
class Topic:
    """An explanation as plain text: `facts` for a small table, the keys `inside` it, causes and remedies."""

    kind: str
    name: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    page: str = ""
    """The page of the documentation."""


def find(words: Iterable[str]) -> tuple[Topic, ...]:
    """The topics of this name. Raises UsageError if there is none. A key may be in several sections."""
    asked = " ".join(words).strip()
    found = tuple(_found(_normal(asked))) or tuple(_by_message(asked)) or tuple(_by_signature(asked))
    if not found:
        near = _meant(asked) or did_you_mean(asked, sorted(names()))
        raise UsageError(f"there is nothing to explain about {asked!r}", hint=near or "dtctl explain    lists it all")
    return found


def _meant(asked: str) -> str:
    """A hint for a key of other programs, as ssh.password; empty if none is known."""
    section, _, key = asked.rpartition(".")
    return (
        meant_key(("ssh" if section == "hosts" else section, key)) if section else next(iter(meant_anywhere(key)), "")
    )


def names() -> set[str]:
    """Every word that `find` accepts; of keys also the last part alone."""
    paths = [key.path for key in all_keys()]
    keys = {part for path in paths for part in (path, path.rpartition(".")[2])}
    return keys | section_texts().keys() - {""} | TROUBLES.keys() | WORDS.keys() | STATES.keys() | PROGRAMS.keys()


def listed() -> dict[str, dict[str, str]]:
    """All topics by kind, each name with a few words."""
    return {
        "keys of cluster.yaml": {key.path: _plain(_first(key.meaning)) for key in all_keys()},
        "exit codes": {name: _first(one.meaning) for name, one in TROUBLES.items() if _is_exit(one)},
        "exit codes of trainers": {name: _first(text) for name, text in PROGRAMS.items()},
        "answers of hosts": {name: _first(one.meaning) for name, one in TROUBLES.items() if not _is_exit(one)},
        "states of a task": {name: _first(text) for name, text in STATES.items()},
        "words": {name: _plain(_first(text)) for name, text in WORDS.items()},
    }


def _normal(asked: str) -> str:
    """The name of the topic: `exit code 5` is 5, and so is PREFLIGHT."""
    bare = re.sub(r"^(?:exit(?:ed)?|code|error|status|with)[ -]+", "", asked, flags=re.IGNORECASE)
    if bare != asked:
        return _normal(bare)
    by_name = {code.name: str(int(code)) for code in ExitCode}
    return by_name.get(asked, asked)


def _found(asked: str) -> Iterator[Topic]:
    trouble = TROUBLES.get(asked)
    if trouble is not None:
        yield _of_trouble(trouble)
    if asked in PROGRAMS:
        yield Topic("exit code of a trainer", asked, _plain(PROGRAMS[asked]), page="recovery.md")
    if asked in STATES:
        yield Topic("state", asked, f"a task is {asked}: {STATES[asked]}", page="concepts.md")
    exact = [key for key in all_keys() if _same(key.path, asked)]
    keys = exact or [key for key in all_keys() if key.path.rpartition(".")[2] == asked]
    yield from (_of_key(key) for key in keys)
    if not exact and (section := next((place for place in section_texts() if place and _same(place, asked)), None)):
        text = _plain(section_texts()[section])
        yield Topic("section", section, text, inside=_inside(section), page="cluster-yaml.md")
    if asked in WORDS:
        yield Topic("word", asked, _plain(WORDS[asked]), page="glossary.md")


def _by_message(asked: str) -> Iterator[Topic]:
    """The topics whose messages match the words of an error."""
    for trouble in TROUBLES.values():
        if any(_is_in(message, asked) for sign in trouble.causes for message in _CODE.findall(sign)):
            yield _of_trouble(trouble)


def _by_signature(asked: str) -> Iterator[Topic]:
    """What `dtctl diagnose` says of an error of a trainer, by the signature's name or title, or the words of a log."""
    from dtctl.operations.diagnosis.signatures import SIGNATURES  # needed for this kind of question only
    from dtctl.render.diagnosis import pattern_of

    name = asked.lower().replace(" ", "_")
    named = (one for one in SIGNATURES if name in (one.name, one.family))
    written = (one for one in SIGNATURES if one.pattern and re.search(one.pattern, asked))
    words = set(re.findall(r"\w+", asked.lower()))
    titled = (one for one in SIGNATURES if len(words) > 1 and words <= set(re.findall(r"\w+", one.title.lower())))
    for one in itertools.islice(itertools.chain(named, written, titled), 1):
        remedies = [pattern_of(remedy).partition("    ") for remedy in one.remedy]
        causes = {words: about.strip() for words, _, about in remedies}
        text, facts = pattern_of(one.means), {"seen": one.seen}
        yield Topic("error of a trainer", one.name, text, facts, causes=causes, page="troubleshooting.md")


def _is_in(message: str, asked: str) -> bool:
    """Whether the end of a message is in `asked`, or `asked` in it; `...` replaces the variable parts."""
    parts = [part.strip(" :") for part in message.split("...") if part.strip(" :")]
    words = asked.lower().split()
    some = len(words) > 1 and set(words) <= set(message.lower().split())
    return parts[-1] in asked or (len(asked) >= _LEAST_PART and (asked in message or some))


def _same(path: str, asked: str) -> bool:
    """Whether the key is of this path: jobs.worker.port is jobs.NAME.port. A host's name may contain dots."""
    pattern = r"\.".join(r"[^.]+(?:\.[^.]+)*" if part == ANY else re.escape(part) for part in path.split("."))
    return re.fullmatch(pattern, asked) is not None


def _of_key(key: Key) -> Topic:
    name = key.path.rpartition(".")[2]
    facts = {
        "type": "a mapping" if key.holds and key.type.startswith("[") else _plain(key.type),
        "default": "none; it is required" if key.required else key.default,
        "example": f"{name}: {key.example}" if key.example else "",
    }
    known = {name: text for name, text in facts.items() if text}
    inside = _inside(key.holds) if key.holds else {}
    return Topic("key", key.path, _plain(key.meaning), known, inside, page="cluster-yaml.md")


def _inside(place: str) -> dict[str, str]:
    keys = [key for key in all_keys() if key.path.rpartition(".")[0] == place]
    return {key.path: _plain(_first(key.meaning)) for key in keys}


def _of_trouble(trouble: Trouble) -> Topic:
    kind = "exit code" if _is_exit(trouble) else "answer of a host"
    causes = {_plain(sign): _plain(remedy) for sign, remedy in trouble.causes.items()}
    return Topic(kind, trouble.name, _plain(trouble.meaning), causes=causes, page="troubleshooting.md")


def _is_exit(trouble: Trouble) -> bool:
    return isinstance(trouble.code, ExitCode)


def _first(text: str) -> str:
    """The part before the first semicolon or full stop."""
    return re.split(r"; |\. ", text, maxsplit=1)[0]


def _plain(markdown: str) -> str:
    """Text for a terminal, without links and marks of code."""
    return _LINK.sub(r"\1", markdown).replace("`", "")


_WIDTH = 100
_MARGIN = 4


def show(topics: Iterable[Topic]) -> None:
    for number, topic in enumerate(topics):
        if number:
            console.say("")
        console.say(f"{topic.name} ({topic.kind})")
        _paragraph(topic.text, _MARGIN)
        _table(topic.facts)
        _table(topic.inside, "")
        for sign, remedy in topic.causes.items():
            _paragraph(f"- {sign}", _MARGIN, hang=2)
            if remedy:
                _paragraph(remedy, _MARGIN + 4)
        if topic.page:
            console.say(f"    more: {topic.page} of the documentation")


def show_list(groups: Mapping[str, Mapping[str, str]]) -> None:
    for number, (title, names) in enumerate(groups.items()):
        if number:
            console.say("")
        console.say(f"{title}:")
        width = max(map(len, names))
        for name, text in names.items():
            _paragraph(f"{name:<{width}}  {text}", 2, hang=width + 2)


def _table(facts: Mapping[str, str], mark: str = ":") -> None:
    width = max((len(name + mark) for name in facts), default=0)
    for name, text in facts.items():
        _paragraph(f"{name + mark:<{width}} {text}", _MARGIN, hang=width + 1)


def _paragraph(text: str, indent: int, hang: int = 0) -> None:
    width = min(_WIDTH, shutil.get_terminal_size().columns)
    first, later = " " * indent, " " * (indent + hang)
    lines = textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=later, break_long_words=False, break_on_hyphens=False
    )
    for line in lines:
        console.say(line)
