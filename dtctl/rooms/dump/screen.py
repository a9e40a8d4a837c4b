"""The stacks of live trainers, thread by thread, and below them a few lines with the kernel's view of all threads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from dtctl.agent.records.vitals import Frame, Stack, Thread
from dtctl.agent.rooms.dump.records import Missing, ProcessDump
from dtctl.errors import clipped
from dtctl.render.format import count
from dtctl.render.terminal import console
from dtctl.rooms.dump.operation import Dumped, Dumps

MISSING: dict[Missing, str] = {
    "not_python": "it is no Python program",
    "off": "the trainer's env has no PYTHONFAULTHANDLER, so dtctl has installed no handler in it",
    "no_handler": "it has no handler of dtctl's: it runs Python with -I, -E or -S, or sets PYTHONPATH itself, or was"
    " started by an earlier dtctl",
    "replaced": "it has removed or replaced the handler of signal 57 that dtctl had installed",
    "closed": "it has closed the file that its handler would write to",
    "blocked": "each of its threads blocks signal 57, so its handler would not run",
    "stopped": "it is stopped by a signal (SIGSTOP), so no handler would run",
    "young": "it began just now, or is about to run another program",
    "not_delivered": "no thread took the signal within 5 s: they hang in the kernel",
    "no_answer": "its handler has written nothing within 5 s",
    "ended": "it ended meanwhile",
    "no_time": "there was no time left for it: ask for fewer tasks",
}
"""Why there are no Python stacks."""

INSTALL_PY_SPY = "py-spy in the trainer's environment reads stacks from outside: pip install py-spy"
_HELPED_BY_PY_SPY = ("off", "no_handler", "replaced", "closed", "blocked", "stopped", "not_delivered", "no_answer")

_MOST_KINDS = 12
"""The most lines of threads in the same state; JSON has them all."""


def show_dumps(dumps: Dumps) -> None:
    hints = False
    for number, one in enumerate(dumps.tasks):
        if number and (one.answer["processes"] or dumps.tasks[number - 1].answer["processes"]):
            console.say("")
        _show(one)
        hints = hints or any(process["missing"] in _HELPED_BY_PY_SPY for process in one.answer["processes"])
    if hints:
        from dtctl.render.errors import note

        note(INSTALL_PY_SPY)


def _show(dumped: Dumped) -> None:
    answer = dumped.answer
    where = f"{dumped.task} on {dumped.host}, attempt {answer['attempt']}, {answer['state']}"
    if not answer["processes"]:
        console.say(f"{where}: it has no process")
        return
    console.say(where)
    for process in answer["processes"]:
        for line in lines_of_process(process):
            indent = line[: len(line) - len(line.lstrip())]
            console.out().prose(line.strip(), label=indent)
    if answer["omitted"]:
        console.say(f"  and {count(answer['omitted'], 'further process')}")


def lines_of_process(process: ProcessDump) -> Iterator[str]:
    by = f"  (by {process['way']})" if process["way"] else ""
    yield f"  process {process['pid']}: {clipped(process['command'], 100)}{by}"
    if process["missing"] is not None:
        yield f"    no Python stacks: {MISSING[process['missing']]}"
        if process["said"]:
            yield f"    py-spy could not read them either: {process['said']}"
    for stack in process["stacks"]:
        yield f"    {_head(stack)}"
        yield from (f"      {_call(frame)}" for frame in stack["frames"])
        if stack["omitted"]:
            yield "      ... and frames outside of these"
    if process["stacks_omitted"]:
        yield f"    and the stacks of {count(process['stacks_omitted'], 'further thread')}"
    yield from _kernel_lines(process)


def _head(stack: Stack) -> str:
    name = stack["name"] or ("main thread" if stack["main"] else "thread")
    number = str(stack["tid"]) if stack["tid"] else stack["thread"]
    facts = [] if stack["active"] is None else ["at work" if stack["active"] else "waits"]
    facts += ["holds the GIL"] if stack["gil"] else []
    return f"{name} {number}{': ' if facts else ''}{', '.join(facts)}"


def _call(frame: Frame) -> str:
    line = "" if frame["line"] is None else f":{frame['line']}"
    return f"{frame['function']} ({frame['file']}{line})"


def _kernel_lines(process: ProcessDump) -> Iterator[str]:
    """A line for all threads in the same state; each stack in the kernel once, if it can be read."""
    threads = process["threads"]
    kinds = Counter(_kind(thread) for thread in threads)
    if not kinds:
        return
    yield f"    {count(len(threads) + process['threads_omitted'], 'thread')} in the kernel:"
    stacks = {_kind(thread): thread["kernel"] for thread in reversed(threads)}
    for kind, number in kinds.most_common(_MOST_KINDS):
        yield f"      {number} {kind}"
        if process["missing"] is not None:
            yield from (f"          {call}" for call in stacks[kind])
    if len(kinds) > _MOST_KINDS:
        rest = sum(number for _, number in kinds.most_common()[_MOST_KINDS:])
        yield f"      and {rest} others (-o json lists each)"


def _kind(thread: Thread) -> str:
    waits = f" in {thread['wchan']}" if thread["wchan"] else ""
    return f"{thread['name']}: {thread['state']}{waits}"
