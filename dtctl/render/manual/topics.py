"""What `dtctl explain` knows: the keys of cluster.yaml, exit codes, hosts' answers, words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from dtctl.config.reference import ANY, Key, all_keys, section_texts
from dtctl.errors import ExitCode, UsageError, did_you_mean
from dtctl.render.manual.answers import ANSWERS
from dtctl.render.manual.exits import EXITS
from dtctl.render.manual.trouble import Trouble

_CODE = re.compile(r"`([^`]+)`")

_TELLS = 8
"""Letters of a message that hardly belong to another one."""

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


@dataclass(frozen=True)
class Topic:
    """One thing explained, as plain text: its `facts` in a small table, the keys `inside` it, causes and remedies."""

    kind: str
    name: str
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    page: str = ""
    """Of the documentation."""


def find(words: Iterable[str]) -> tuple[Topic, ...]:
    """What is known by this name; raises UsageError if nothing is. A key may stand in several sections."""
    asked = " ".join(words).strip()
    found = tuple(_found(_normal(asked))) or tuple(_by_message(asked))
    if not found:
        near = did_you_mean(asked, sorted(names()))
        raise UsageError(f"there is nothing to explain about {asked!r}", hint=near or "dtctl explain    lists it all")
    return found


def names() -> set[str]:
    """Every word that `find` takes; of keys also the last part alone."""
    paths = [key.path for key in all_keys()]
    keys = {part for path in paths for part in (path, path.rpartition(".")[2])}
    return keys | section_texts().keys() - {""} | troubles().keys() | WORDS.keys() | STATES.keys()


def listed() -> dict[str, dict[str, str]]:
    """All of it by kind, each name with a few words."""
    return {
        "keys of cluster.yaml": {key.path: _plain(_first(key.meaning)) for key in all_keys()},
        "exit codes": {name: _first(one.meaning) for name, one in troubles().items() if _is_exit(one)},
        "answers of hosts": {name: _first(one.meaning) for name, one in troubles().items() if not _is_exit(one)},
        "states of a task": {name: _first(text) for name, text in STATES.items()},
        "words": {name: _plain(_first(text)) for name, text in WORDS.items()},
    }


def troubles() -> dict[str, Trouble]:
    return {trouble.name: trouble for trouble in (*EXITS, *ANSWERS)}


def _normal(asked: str) -> str:
    """`exit code 5` is 5, and PREFLIGHT too."""
    bare = re.sub(r"^(?:exit(?:ed)?|code|error|status|with)[ -]+", "", asked, flags=re.IGNORECASE)
    if bare != asked:
        return _normal(bare)
    by_name = {code.name: str(int(code)) for code in ExitCode}
    return by_name.get(asked, asked)


def _found(asked: str) -> Iterator[Topic]:
    trouble = troubles().get(asked)
    if trouble is not None:
        yield _of_trouble(trouble)
    if asked in STATES:
        yield Topic("state", asked, f"a task is {asked}: {STATES[asked]}", page="concepts.md")
    exact = [key for key in all_keys() if _same(key.path, asked)]
    keys = exact or [key for key in all_keys() if key.path.rpartition(".")[2] == asked]
    yield from (_of_key(key) for key in keys)
    if not exact and (section := next((place for place in section_texts() if place and _same(place, asked)), None)):
        yield _of_section(section)
    if asked in WORDS:
        yield Topic("word", asked, _plain(WORDS[asked]), page="glossary.md")


def _by_message(asked: str) -> Iterator[Topic]:
    """Somebody gives the words of an error."""
    for trouble in troubles().values():
        if any(_is_in(said, asked) for cause in trouble.causes for said in _CODE.findall(cause.sign)):
            yield _of_trouble(trouble)


def _is_in(said: str, asked: str) -> bool:
    """Whether the end of a message is in `asked`, or `asked` in it; `...` stands for what differs."""
    parts = [part.strip(" :") for part in said.split("...") if part.strip(" :")]
    words = asked.lower().split()
    some = len(words) > 1 and set(words) <= set(said.lower().split())
    return parts[-1] in asked or (len(asked) >= _TELLS and (asked in said or some))


def _same(path: str, asked: str) -> bool:
    """jobs.worker.port is jobs.NAME.port. A host's name may have points in it."""
    pattern = r"\.".join(r"[^.]+(?:\.[^.]+)*" if part == ANY else re.escape(part) for part in path.split("."))
    return re.fullmatch(pattern, asked) is not None


def _of_key(key: Key) -> Topic:
    name = key.path.rpartition(".")[2]
    facts = {
        "type": "a mapping" if key.holds and key.type.startswith("[") else _plain(key.type),
        "default": "none; it is required" if key.required else key.default,
        "example": f"{name}: {key.example}" if key.example else "",
    }
    inside = _inside(key.holds) if key.holds else {}
    return Topic("key", key.path, _plain(key.meaning), _filled(facts), inside, page="cluster-yaml.md")


def _of_section(place: str) -> Topic:
    return Topic("section", place, _plain(section_texts()[place]), inside=_inside(place), page="cluster-yaml.md")


def _inside(place: str) -> dict[str, str]:
    keys = [key for key in all_keys() if key.path.rpartition(".")[0] == place]
    return {key.path: _plain(_first(key.meaning)) for key in keys}


def _of_trouble(trouble: Trouble) -> Topic:
    kind = "exit code" if _is_exit(trouble) else "answer of a host"
    causes = {_plain(cause.sign): _plain(cause.remedy) for cause in trouble.causes}
    return Topic(kind, trouble.name, _plain(trouble.meaning), causes=causes, page="troubleshooting.md")


def _is_exit(trouble: Trouble) -> bool:
    return isinstance(trouble.code, ExitCode)


def _first(text: str) -> str:
    """The part before the first semicolon or full stop."""
    return re.split(r"; |\. ", text, maxsplit=1)[0]


def _plain(markdown: str) -> str:
    """Without links and marks of code, as a terminal shows it."""
    return _LINK.sub(r"\1", markdown).replace("`", "")


def _filled(facts: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in facts.items() if text}


WORDS = {
    "address": "`host:port` where a task's server listens, as the other tasks reach it; `--ps_hosts` holds such",
    "agent": "the supervisor that dtctl leaves on each host for a run: it keeps the trainers, with nobody logged in",
    "attempt": "one start of a task's process within a run; its log is never overwritten",
    "bundle": "the pushed training code, named by its content; never changed once it is there",
    "checkpoint": "what a trainer saves so that the next one continues: variables, optimizer, step",
    "cluster": "all the jobs of one `cluster.yaml`: what trains one model together",
    "controller": "the machine where `dtctl` is typed; a run does not need it once it has started",
    "coordinator": "the agent that decides for the whole run: the one on the lead's host. The agents of the other "
    "hosts connect to its port, 2221 unless `coordinator.port` says otherwise",
    "dialect": "how a trainer learns its place: TensorFlow's flags, `TF_CONFIG`, the variables of another framework, "
    "or a template of words",
    "gang": "tasks that cannot train without each other: when one is lost, all are started again",
    "goodput": "the share of the elapsed time in which steps were made that were kept (docs/report.md)",
    "hang": "a task that runs and gets no further. Where it reported steps before, it is `stalled` and restarted "
    "after the time that `recovery.stall` allows; `dtctl dump` shows where it stands, `dtctl diagnose` why "
    "(docs/recovery.md)",
    "host": "a machine of the file, as reached by SSH",
    "job": "a named group of tasks: `ps`, `worker`, `chief`, `evaluator`, or a name of your own",
    "lead": "the task whose end is the end of the run: `chief:0` or `master:0`; without one, `worker:0`. It writes the "
    "checkpoints. Without parameter servers every worker's end counts",
    "ps": "parameter server: a task that holds variables and updates them; it never exits by itself",
    "ready": "said of a task that others need: its port listens, or it has reported a step (with the dialects "
    "`template` and `none`: it runs). `dtctl up` returns when every such task is ready",
    "run": "one `dtctl up`, with an id; what it was started with never changes",
    "spare": "a host that no job uses, for `dtctl replace` to put in the place of one that is lost",
    "step": "one update of the model; the global step counts those of all workers together",
    "task": "one trainer process: a job and an index, written `worker:1`",
    "template": "a trainer with its cluster.yaml, written by `dtctl init`; also: words with {fields} for a trainer "
    "with flags of its own",
    "transport": "how a host is reached: `ssh`, or `local` for this machine",
    "way": "how the tasks train together (`strategy`): asynchronous or synchronous with parameter servers, in-graph, "
    "`ParameterServerStrategy`, mirrored, ...; it decides who needs whom at the start and what a loss restarts",
    "worker": "a task that computes gradients on batches of its own",
}
"""In the order of the alphabet."""

STATES = {
    "pending": "waits for the coordinator's word: until all hosts are heard, or the jobs ready that it `depends_on`",
    "starting": "its process is being made",
    "running": "its process runs",
    "backoff": "it has failed and is started again, after a delay or when those that it needs are ready",
    "stalled": "alive, but without a sign of progress",
    "succeeded": "it has ended with exit code 0",
    "failed": "it has ended with an error, and is not tried again",
    "stopped": "ended by dtctl",
    "lost": "nobody can tell, because its host is away; never guessed to be failed",
}
"""Of a task, in the order of its life."""
