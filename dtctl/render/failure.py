"""How a program has failed, in words: the one place for the sentence, its circumstances and the excerpt of the log.

The screens that say it once in full (`up -f`, `status`, `top`, the report) take it from here; others, such as a row of
a table, have a few words.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from dtctl.agent.records.reasons import Fact, fact, read, sentence, signal_name
from dtctl.agent.run import traceback
from dtctl.agent.run.policy import fingerprint
from dtctl.operations.failures import Failure
from dtctl.operations.snapshot import how_it_ended
from dtctl.render.format import clock, count, fold
from dtctl.render.terminal.safe import log_lines

EXCERPT_LINES = 20
LINES_WITHOUT_TRACEBACK = 10
_MOST_BRIEF = 60
"""The most characters of a cause in a few words."""

_OF_THE_RUN = ("same_way", "after_restarts", "after_run_restarts", "permanent")

_TOLD = ("exited", "killed", "cause", "same_way", "after_restarts", "after_run_restarts")
"""Facts of an end that the sentence and its circumstances tell in their own words."""


def failure_sentence(failure: Failure) -> str:
    """What has happened, as in `your program raised ValueError: bad shape, train.py:7`."""
    end, lines = failure.end, traceback.lines_of(failure.end.log)
    beside = sentence(one for one in how_it_ended(failure.task) if read(one)["kind"] not in _TOLD)
    if end.signal is None and end.code is None:
        return f"{failure.task.id}: {sentence(how_it_ended(failure.task)) or 'ended in an unknown way'}"
    name, message = traceback.raised(lines, end.cause)
    if name:
        place = traceback.own_place(lines)
        what = f"raised {name}{f': {message}' if message else ''}{f', {place}' if place else ''}"
    elif end.signal is not None:
        what = f"was killed by {signal_name(end.signal)}{f': {end.cause}' if end.cause else ''}"
    else:
        what = f"ended with exit code {end.code}{f': {end.cause}' if end.cause else ''}"
    between = "" if not beside or beside[0] in ",;: " else "; "
    return f"your program {what}{between}{beside}"


def circumstances(failure: Failure) -> str:
    """How often it has happened, where and when: `3 times, worker:[0-1] on gpu-[1-2], the last at 10:02:11`."""
    tasks, hosts = fold(map(str, failure.tasks)), fold(failure.hosts)
    at = clock(failure.end.at) if failure.end.at else ""
    when = f", {'the last ' if failure.times > 1 else ''}at {at}" if at else ""
    often = "once" if failure.times == 1 else f"{failure.times} times"
    return f"{often}, {tasks} on {hosts}{when}"


def excerpt(log: str, most: int = EXCERPT_LINES) -> list[str]:
    """The end of a log, safe for a screen: the last traceback without the frames of libraries, else the last lines.

    What is left out is counted in a line of its own.
    """
    earlier, lines = _parts(log, most)
    if traceback.start_of(lines) is None:
        return [*_left_out(len(earlier)), *lines]
    own = [_with_short_path(line) for line in traceback.folded(lines)]
    return [*_left_out(len(earlier)), *_middle_left_out(own, most)]


def earlier_lines(log: str, most: int = EXCERPT_LINES) -> list[str]:
    """The lines before the excerpt, which it counts in its first line."""
    return _parts(log, most)[0]


def _parts(log: str, most: int) -> tuple[list[str], list[str]]:
    """The lines before the excerpt, and those of which it is made."""
    lines = traceback.lines_of("\n".join(log_lines(log.encode(errors="replace"), color=False)))
    while lines and not lines[-1].strip():
        lines.pop()
    start = traceback.start_of(lines)
    if start is None:
        start = max(0, len(lines) - min(most, LINES_WITHOUT_TRACEBACK))
    return lines[:start], lines[start:]


def next_command(failure: Failure) -> str:
    return f"dtctl logs {failure.task.id} -n all    shows the whole log"


def brief(why: Iterable[Fact], told: Container[str] = ()) -> str:
    """A reason with its cause in a few words: `exit code 1 (ValueError)`.

    `told`: fingerprints of causes that were told in full before, which are `the same ValueError`.
    """
    return sentence(_briefly(one, told) for one in why)


def in_a_cell(why: Iterable[Fact]) -> str:
    """How a task has ended, for a row of a table: other lines say why it was given up."""
    return brief(one for one in why if read(one)["kind"] not in _OF_THE_RUN)


def _briefly(one: Fact, told: Container[str]) -> Fact:
    text = read(one).get("text", "")
    if read(one)["kind"] != "cause" or not text:
        return one
    short = brief_cause(text)
    if fingerprint(text) in told:
        return fact("cause", text=f"the same {short}" if short.isidentifier() else "the same error")
    return fact("cause", text=short)


def brief_cause(text: str) -> str:
    """The class of an exception; of another cause its first words."""
    name, _, _ = text.partition(":")
    if name.isidentifier() and (name.endswith(("Error", "Exception", "Interrupt")) or name[:1].isupper()):
        return name
    if len(text) <= _MOST_BRIEF:
        return text
    return f"{text[:_MOST_BRIEF].rpartition(' ')[0] or text[:_MOST_BRIEF]} ..."


def causes_of(why: Iterable[Fact]) -> list[str]:
    """The fingerprints of the causes in a reason."""
    return [fingerprint(read(one).get("text", "")) for one in why if read(one)["kind"] == "cause"]


def _left_out(lines: int) -> list[str]:
    return [f"[... {count(lines, 'earlier line')}]"] if lines else []


def _middle_left_out(lines: list[str], most: int) -> list[str]:
    """The first and the last lines: those of the user's own code are the first, the message is the last."""
    if len(lines) <= most:
        return lines
    head = most // 2
    tail = most - head - 1
    return [*lines[:head], f"  [... {count(len(lines) - head - tail, 'line')}]", *lines[-tail:]]


def _with_short_path(line: str) -> str:
    """A frame of the user's code with the path in the project."""
    before, quoted, rest = line.partition('File "')
    if not quoted or before.strip():
        return line
    file, closing, after = rest.partition('"')
    return f"{before}{quoted}{traceback.in_project(file) if closing else file}{closing}{after}"
