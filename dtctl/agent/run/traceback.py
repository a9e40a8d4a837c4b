"""Tracebacks of Python at the end of a log: where the user's own code raised, and the frames of libraries in one line.

Pure functions of text: the agent shortens what it keeps of a log by them, and the controller shows it.
"""

from __future__ import annotations

import re

from .log_text import redrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List, Optional, Tuple

BEGINS = "Traceback (most recent call last):"
_BEGIN = r"\s*(?:\| )?(?:Exception Group )?Traceback \(most recent call last\):\s*\Z"
_CHAINED = r"(?:During handling of the above exception|The above exception was the direct cause)"
_FRAME = r"\s+File \"(?P<file>[^\"]+)\", line (?P<line>\d+)(?:, in (?P<function>.+))?\Z"
_CARETS = r"\s*[~^]+\s*\Z"
_RANK = r"\A\[rank\d+\]: ?"
"""The prefix of PyTorch before each line of a traceback (torch.distributed, since 2.2)."""

LIBRARY = r"/(?:site|dist)-packages/|/lib(?:64|-python)?/(?:python|pypy)[\d.]*/|<frozen |<__array_function__"
"""Files that are not the user's."""

_PACKAGE = r".*/(?:site|dist)-packages/(?P<name>\w+)"
_TREE = r".*/\.dtctl/(?:[^/]+/)+?tree/"
"""The directory in which the code of the user is on a host; files are shown as they are in the project."""

_FOLDED = r"  \[\.\.\. \d+ frames? of [\w., ]+\]\Z"
_MOST_PACKAGES = 3


def lines_of(log: str) -> List[str]:
    """The lines as a terminal would show them, without the ranks of PyTorch."""
    return [re.sub(_RANK, "", redrawn(line).rstrip(), count=1) for line in log.split("\n")]


def start_of(lines: List[str]) -> Optional[int]:
    """Where the last traceback begins; of a chain, where the first of its tracebacks does."""
    starts = [at for at, line in enumerate(lines) if re.match(_BEGIN, line)]
    if not starts:
        return None
    first = starts[-1]
    for start in reversed(starts[:-1]):
        between = [line for line in lines[start + 1 : first] if line]
        if not (between and re.match(_CHAINED, between[-1])):
            break
        first = start
    return first


def own_place(lines: List[str]) -> str:
    """The innermost frame of the user's own code in the last traceback, as `train.py:7`; empty without one."""
    starts = [at for at, line in enumerate(lines) if re.match(_BEGIN, line)]
    frames = [matched for line in lines[starts[-1] :] if (matched := re.match(_FRAME, line))] if starts else []
    own = [one for one in frames if is_users(one.group("file"))]
    return "%s:%s" % (in_project(own[-1].group("file")), own[-1].group("line")) if own else ""


def in_project(file: str) -> str:
    """The path of a file as it is in the user's project; of another file its name."""
    matched = re.match(_TREE, file)
    return file[matched.end() :] if matched else file.rpartition("/")[2]


def folded(lines: List[str]) -> List[str]:
    """The lines with each row of library frames as one line, and without the markers below sources."""
    shown: List[str] = []
    row: List[str] = []
    at = 0
    while at < len(lines):
        matched = re.match(_FRAME, lines[at])
        end = _end_of_frame(lines, at) if matched else at + 1
        if matched and not is_users(matched.group("file")):
            row.append(matched.group("file"))
        else:
            shown += _one_line(row)
            row = []
            shown += [line for line in lines[at:end] if not (matched and re.match(_CARETS, line))]
        at = end
    return shown + _one_line(row)


def is_folded(line: str) -> bool:
    """Whether a line stands for frames of libraries."""
    return re.match(_FOLDED, line) is not None


def kept(log: str, most: int) -> str:
    """The last complete lines in at most `most` bytes; of a longer traceback the frames of libraries are left out."""
    data = log.encode("utf-8", "replace")
    if len(data) <= most:
        return log
    lines = log.split("\n")
    start = start_of(lines)
    if start is not None and len("\n".join(lines[start:]).encode("utf-8", "replace")) > most:
        data = "\n".join(folded(lines[start:])).encode("utf-8", "replace")
    cut = data[-most:]
    if len(cut) < len(data):
        cut = cut[cut.find(b"\n") + 1 :]
    return cut.decode("utf-8", "replace")


def is_users(file: str) -> bool:
    """Whether a file is of the user's own code."""
    return re.search(LIBRARY, file) is None


def _end_of_frame(lines: List[str], at: int) -> int:
    """The line after a frame's source: sources and their markers are indented further than the frame."""
    indent = len(lines[at]) - len(lines[at].lstrip())
    end = at + 1
    while end < len(lines) and lines[end][: indent + 1].isspace() and len(lines[end]) > indent + 1:
        if re.match(_FRAME, lines[end]):
            break
        end += 1
    return end


def _one_line(files: List[str]) -> List[str]:
    return ["  " + left_out(files)] if files else []


def left_out(files: List[str]) -> str:
    """What stands for frames of libraries, by the files that they are in."""
    named = dict.fromkeys(_package(file) for file in files)
    names = [*named][:_MOST_PACKAGES] + (["others"] if len(named) > _MOST_PACKAGES else [])
    return "[... %d frame%s of %s]" % (len(files), "" if len(files) == 1 else "s", ", ".join(names))


def _package(file: str) -> str:
    matched = re.match(_PACKAGE, file)
    return matched.group("name") if matched else "Python"


def raised(lines: List[str], cause: str) -> Tuple[str, str]:
    """The class and the message of a cause that is an exception; two empty texts of another cause."""
    name, _, message = cause.partition(":")
    matched = re.match(r"[A-Za-z_]\w*\Z", name)
    if matched is None:
        return "", ""
    in_log = any(re.match(r"(?:[A-Za-z_]\w*\.)*%s(?::|\Z)" % re.escape(name), line) for line in lines)
    is_class = in_log and start_of(lines) is not None
    if is_class or name.endswith(("Error", "Exception", "Interrupt")):
        return name, message.strip()
    return "", ""
