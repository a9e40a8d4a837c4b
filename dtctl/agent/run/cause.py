"""What a program died of, in one line, as the end of its log tells: a pure function of text.

Known are the words of Python, argparse, absl, C++ (glog, the standard library's terminate), TensorFlow's status codes,
CUDA, shells, and of programs that say `error:`. What is told last counts, and an exception that ended the program
before a line that only complains.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Match, Optional, Pattern, Tuple

    Told = Callable[[Match[str], List[str]], str]
    """Of the match and the lines that follow it: the cause, empty where it is none after all."""

MOST = 300
"""Characters; a line on a screen does not hold more."""

_LATER = 60
"""Lines that may follow an exception's first one and belong to its message."""

_NAMED = r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)"
_EXCEPTION = re.compile(_NAMED + r"(?:: ?(?P<message>.*))?\Z")
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*\Z")
_IGNORED = re.compile(r"Exception ignored |Error in (?:atexit|sys)\b")
_GLOG = r"(?:\d{{4}}-\d\d-\d\d [\d:.]+: )?(?:[{level}]\d{{4}} [\d:.]+ +\d+ |[{level}] )(?P<file>[\w./-]+:\d+)\] "
_FATAL = re.compile(_GLOG.format(level="F") + r"(?P<message>.+)")
_ERROR = re.compile(_GLOG.format(level="E") + r"(?P<message>.+)")
_PATH = re.compile(r"\(?[\w./-]*/(?=[\w-]+\.(?:cc|cpp|h|cu|py)\b)")
_NODE = re.compile(r"\s*\[\[|\s*\(\d+\) |Detected at node|Original stack trace|\s*\[Op:|Errors? may have originated")

_VAGUE = re.compile(
    r"(?:Graph execution error:|Restoring from checkpoint failed\b.*|\d+ root error\(s\) found\.|From .*|"
    r"Error\(s\) in loading state_dict .*|)\s*\Z"
)
"""Messages whose substance stands in the lines below."""

_SPECIFIC = re.compile(
    r"(?P<found>Key \S+ not found in checkpoint|"
    r"(?:Tensor name|Assign requires shapes|Checksum does not match|Unable to open table file|"
    r"Data loss: |DATA_LOSS: |size mismatch for |Missing key\(s\) in state_dict|OOM when allocating|"
    r"Could not start gRPC server|No address added out of total).*)"
)

CANNOT_LOAD = ("ImportError", "ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError")
"""Exceptions that say that code cannot be loaded; another try meets them again."""

_OF_PEERS = re.compile(
    r"unavailable|deadline.?exceeded|aborted|cancel|heartbeat|connect|socket|broken ?pipe|timed? ?out|no route to host|"
    r"name resolution|incarnation|peer|unhealthy|interrupt|systemexit|store|rendezvous",
    re.IGNORECASE,
)


class Cause:
    """`text`: one line, empty when nothing is known. `name`: the exception's class, without its module."""

    __slots__ = ("name", "text")

    def __init__(self, text: str = "", name: str = "") -> None:
        self.text = _line(text)
        self.name = name

    @property
    def cannot_load(self) -> bool:
        """The program's code cannot be loaded."""
        return self.name in CANNOT_LOAD

    @property
    def is_of_peers(self) -> bool:
        """It tells of somebody else's absence: it may be gone at the next try, however often it was met before."""
        return _OF_PEERS.search(self.text) is not None


def cause(log: str) -> Cause:
    """By the end of a program's log, without its secrets."""
    lines = [line.rsplit("\r", 1)[-1].rstrip() for line in log.split("\n")]
    return _exception(lines) or _complaint(lines) or Cause()


def _exception(lines: List[str]) -> Optional[Cause]:
    """The last exception that nobody caught; nothing where so much follows that the program has gone on."""
    for start in range(len(lines) - 1, -1, -1):
        if _TRACEBACK.match(lines[start]) and not (start and _IGNORED.match(lines[start - 1])):
            at = next((at for at in range(start + 1, len(lines)) if _ends_frames(lines[at])), None)
            matched = None if at is None else _EXCEPTION.match(lines[at])
            if at is None or matched is None:
                return None
            if _went_on(lines[at + 1 :]):
                return None
            return Cause(_worded(matched, lines[at + 1 : at + 1 + _LATER]), matched.group("name"))
    return _without_traceback(lines)


def _ends_frames(line: str) -> bool:
    return bool(line) and not line.startswith((" ", "\t"))


def _worded(exception: Match[str], later: List[str]) -> str:
    """Class and message; of a message that says nothing yet, what the lines below it say."""
    name, message = exception.group("name"), exception.group("message") or ""
    text = "\n".join([message, *later])
    specific = _SPECIFIC.search(text)
    if specific is not None:
        message = specific.group("found")
    elif _VAGUE.match(message):
        message = next((line.strip() for line in later if line.strip() and not _NODE.match(line)), message)
    return "%s: %s" % (name, message) if message else name


def _went_on(later: List[str]) -> bool:
    """The program has written much after an exception, in lines that are no part of its message."""
    return len([line for line in later if line and not line.startswith((" ", "\t")) and not _is_noise(line)]) > _MANY


_MANY = 12
"""Lines that a message and a shutdown may take. More of them, and the program has gone on."""

_NOISE = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[IWE]\d{4} |WARNING|INFO|Exception ignored|During handling|The above exception|"
    r"Traceback|Detected at node|Original stack|Errors? may|node |Function call stack|\[|\*\*\*|=+|-+|\^|sys:1)"
)


def _is_noise(line: str) -> bool:
    return _NOISE.match(line) is not None


def _without_traceback(lines: List[str]) -> Optional[Cause]:
    """An exception at the very end: of a file that cannot be parsed Python prints no traceback."""
    for line in reversed([line for line in lines if line][-_AFTERWORDS:]):
        matched = _EXCEPTION.match(line)
        if matched is not None and matched.group("name") in CANNOT_LOAD:
            return Cause(_worded(matched, []), matched.group("name"))
        if matched is not None and matched.group("name").endswith(("Error", "Exception")):
            return Cause(_worded(matched, []), matched.group("name"))
    return None


_AFTERWORDS = 5


def _message(matched: Match[str], later: List[str]) -> str:
    return matched.group("message").strip()


def _next_line(matched: Match[str], later: List[str]) -> str:
    return later[0].strip() if later else matched.group(0)


def _terminated(matched: Match[str], later: List[str]) -> str:
    what = next((line.split("what():", 1)[1].strip() for line in later[:2] if "what():" in line), "")
    return "%s: %s" % (matched.group("message"), what) if what else matched.group("message")


def _placed(matched: Match[str], later: List[str]) -> str:
    """A message of C++ with the name of its file, as the one who looks for it on the Web needs it."""
    return "%s (%s)" % (matched.group("message").strip(), _PATH.sub("", matched.group("file")))


_COMPLAINT_LINES = 20
"""A program that has written more since has gone on."""

_HARMLESS = re.compile(r"Unable to register cu|failed call to cuInit|cuda_platform|computation placer already|TF-TRT")
"""Errors that TensorFlow tells at each start on a machine without a GPU."""

_COMPLAINTS: Tuple[Tuple[Pattern[str], Told], ...] = (
    (re.compile(r"\S+: error: (?P<message>.+)"), _message),  # argparse
    (re.compile(r"FATAL Flags parsing error:"), _next_line),  # absl.app
    (re.compile(r"terminate called after throwing an instance of '(?P<message>[^']+)'"), _terminated),
    (re.compile(r"Fatal Python error: (?P<message>.+)"), _message),  # faulthandler, PyErr_FatalError
    (_FATAL, _placed),
    (
        re.compile(
            r".*?(?P<message>(?:free|malloc|munmap_chunk|double free|corrupted)\S*\(?\)?: .+|.*stack smashing.*)"
        ),
        _message,
    ),
    (re.compile(r".*?(?P<message>CUDA_ERROR_\w+.*|CUDA error: .+|CUDA out of memory.*)"), _message),
    (
        re.compile(
            r"(?P<message>.*\b(?:error while loading shared libraries|command not found|Permission denied|"
            r"No space left on device|Segmentation fault|Killed)\b.*)"
        ),
        _message,
    ),  # of shells and loaders
    (re.compile(r"(?:ERROR|CRITICAL|FATAL)(?::[\w.]+:| ) ?(?P<message>.+)"), _message),  # logging, absl.logging
    (re.compile(r"(?:\S+: )?(?i:fatal error|fatal|error): (?P<message>.+)"), _message),
    (_ERROR, _placed),
)
"""Lines by which programs end without an exception, the surest first."""


def _complaint(lines: List[str]) -> Optional[Cause]:
    last = [line for line in lines if line.strip() and not _HARMLESS.search(line)][-_COMPLAINT_LINES:]
    for pattern, told in _COMPLAINTS:
        for at in range(len(last) - 1, -1, -1):
            matched = pattern.match(last[at])
            text = told(matched, last[at + 1 : at + 3]) if matched is not None else ""
            if text:
                return Cause(text)
    return None


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= MOST else words[: MOST - 3] + "..."
