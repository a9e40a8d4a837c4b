"""Where the time of each task goes: its most frequent places, the most frequent stack, and TensorFlow's profile."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from dtctl.agent.records.vitals import Frame
from dtctl.agent.rooms.profile.records import NoFile, Profile
from dtctl.agent.run.traceback import in_project, is_users, left_out
from dtctl.render.format import count, size
from dtctl.render.terminal import console
from dtctl.render.terminal.moving import LastLine, moving
from dtctl.rooms.dump.screen import INSTALL_PY_SPY, MISSING
from dtctl.rooms.profile.operation import Profiled, Profiles

MOST_PLACES = 8
MOST_CALLS = 12
"""The most calls of the most frequent stack; JSON has more."""

PLUGIN = "tensorboard-plugin-profile"

NO_FILE: dict[NoFile, str] = {
    "no_tensorflow": "",
    "contained": "the trainer runs in a container",
    "no_port": "no port of the trainer answers as TensorFlow's profiler does: tf.distribute.Server has it, and"
    " tf.profiler.experimental.server.start(PORT) begins one",
    "no_service": "the trainer's ports have no profiler, or it is in use",
    "no_python": "the Python of the trainer was not found",
    "failed": "the program that requests it has failed",
    "not_written": "it could not be written",
}
"""Why there is no profile of TensorFlow's; empty: nobody expects one."""

_HELPED_BY_PY_SPY = ("off", "no_handler", "replaced", "closed", "blocked", "stopped", "not_delivered", "no_answer")


@contextmanager
def waiting(tasks: int, seconds: int, clock: Callable[[], float] = time.monotonic) -> Iterator[None]:
    """Shows on a terminal that it observes, and for how long."""
    began = clock()

    def line() -> str:
        passed = clock() - began
        if passed <= seconds:
            return f"observing {count(tasks, 'task')} for {seconds} s ({passed:.0f} s)"
        return f"waiting for the profiles of {count(tasks, 'task')} ({passed:.0f} s)"

    with ExitStack() as stack:
        if console.interactive():
            stack.enter_context(moving(LastLine(line)))
        yield


def show_profiles(profiles: Profiles) -> None:
    for number, one in enumerate(profiles.tasks):
        if number:
            console.say("")
        for line in lines_of(one, profiles.seconds):
            indent = line[: len(line) - len(line.lstrip())]
            console.out().prose(line.strip(), label=indent)
    _show_next_steps(profiles)


def lines_of(one: Profiled, seconds: int) -> Iterator[str]:
    answer = one.answer
    where = f"{one.task} on {one.host}, attempt {answer['attempt']}, {answer['state']}"
    if answer["pid"] is None and answer["missing"] is None and answer["file"] is None:
        yield f"{where}: no process of it is there"
        return
    yield where
    yield from _stacks(one)
    if answer["file"] is not None:
        yield f"  TensorFlow's profile of {seconds} s, {size(answer['file']['size_bytes'])}:"
        yield f"    {one.host}:{answer['file']['path']}"
    elif answer["no_file"] is not None and NO_FILE[answer["no_file"]]:
        said = f": {answer['file_said']}" if answer["file_said"] else ""
        yield f"  no profile of TensorFlow's: {NO_FILE[answer['no_file']]}{said}"


def _stacks(one: Profiled) -> Iterator[str]:
    answer = one.answer
    if not answer["stacks"]:
        if answer["missing"] is not None:
            yield f"  no Python stacks: {MISSING[answer['missing']]}"
            if answer["said"]:
                yield f"    py-spy could not read them either: {answer['said']}"
        return
    number = answer["samples"]
    yield f"  {count(number, 'sample')} of its main thread in {answer['sampled_s']:.0f} s (by {answer['way']}):"
    shown = one.places[:MOST_PLACES]
    for place in shown:
        yield f"    {_percent(place.samples, number)}  {_line(place.frame)} in {place.frame['function']}"
    rest = number - sum(place.samples for place in shown)
    if rest:
        yield f"    {_percent(rest, number)}  elsewhere"
    first = answer["stacks"][0]
    if len(first["frames"]) > 1:
        yield f"  the most frequent stack ({_percent(first['samples'], number).strip()}), the innermost call first:"
        calls = list(_calls(first["frames"]))
        yield from (f"    {call}" for call in calls[:MOST_CALLS])
        if len(calls) > MOST_CALLS or first["omitted"]:
            yield "    ... and calls outside of these"


def _calls(frames: Sequence[Frame]) -> Iterator[str]:
    """The innermost call, those of the user's own code, and a line for each row of calls within libraries."""
    row: list[str] = []
    for number, frame in enumerate(frames):
        if number and not is_users(frame["file"]):
            row.append(frame["file"])
            continue
        if row:
            yield left_out(row)
        row = []
        yield f"{frame['function']} ({_line(frame)})"
    if row:
        yield left_out(row)


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:3.0f} %"


def _line(frame: Frame) -> str:
    """The place of a call: a file of the user's as in the project, one of a library by its name."""
    file = in_project(frame["file"]) if is_users(frame["file"]) else frame["file"].rpartition("/")[2]
    return file if frame["line"] is None else f"{file}:{frame['line']}"


def _show_next_steps(profiles: Profiles) -> None:
    from dtctl.render.errors import note

    with_file = [one for one in profiles.tasks if one.answer["file"] is not None]
    if with_file:
        first = with_file[0]
        note(
            f"TensorBoard shows TensorFlow's profiles of its host in the tab Profile, if its Python has {PLUGIN}",
            f"dtctl exec {first.task} -- {_python(first.answer)} -m pip install {PLUGIN}",
            "dtctl tensorboard",
        )
    if any(one.answer["missing"] in _HELPED_BY_PY_SPY for one in profiles.tasks):
        note(INSTALL_PY_SPY)


def _python(answer: Profile) -> str:
    """The interpreter of the trainer as it was typed, if its command names one."""
    word = answer["command"].split(" ")[0]
    return word if re.fullmatch(r"(?:/[\w./-]+/)?python[\d.]*", word) else "python"
