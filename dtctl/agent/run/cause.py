"""The cause of a program's end, in one line, by the end of its log: a pure function of text.

It recognises messages of Python, argparse, absl, C++ (glog, the standard library's terminate), TensorFlow's status
codes, CUDA, shells, and of programs that print `error:`. The last message counts, and an exception that ended the
program before a line that only complains. For a program that ends itself by `sys.exit(message)` it is the message.
"""

from __future__ import annotations

import re

from .log_text import redrawn

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Match, Optional, Tuple

    Extract = Callable[[Match[str], List[str]], str]
    """Returns the cause from the match and the lines after it; empty if there is none."""


MOST = 300
"""The most characters of a cause; more does not fit on the screen."""


def _shown(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= MOST else line[: MOST - 3] + "..."


def cause(log: str) -> str:
    """The cause by the end of a program's log, without secrets; empty if unknown."""
    lines = _lines(log)
    return _uncaught(lines) or _unparsed(lines) or _complaint(lines) or ""


def cause_of_end(log: str, code: Optional[int]) -> str:
    """The cause of an exit with this code: 1 is also the code of `sys.exit(message)`, which prints only the message."""
    found = cause(log)
    return found if found or code != 1 else _last_message(log)


_GOES_WELL = (
    r"\s|\[|[IWE]\d{4} |\d{4}-\d\d-\d\d|INFO|WARN|DEBUG|sys:1|Exception ignored|.*(?:Warning: |%\||\d ?it/s)|"
    r"(?i:.*\b(?:steps?|epochs?|iterations?|loss|accuracy|saved|saving|done|starting|started)\b)"
)
"""Output of a program that continues; if it is the last, it is no cause."""


_FRAME_LINES = (
    r"\W*\Z|<stack traces unavailable>|Traceback|Set the environment variable HYDRA_FULL_ERROR|"
    r"For simplicity, JAX has removed|During handling of|The above exception"
)
"""Lines around a message that carry no cause."""


def _last_message(log: str) -> str:
    last = next((line for line in reversed(_lines(log)) if not re.match(_FRAME_LINES, line)), "")
    return _shown(last if " " in last and not re.match(_GOES_WELL, last) else "")


_RANK = r"\A\[rank\d+\]: ?"
"""The prefix of PyTorch before each line of a traceback (torch.distributed, since 2.2)."""


def _lines(log: str) -> List[str]:
    """The lines as a terminal would show them."""
    return [re.sub(_RANK, "", redrawn(line).rstrip(), count=1) for line in log.split("\n")]


# Exceptions of Python.

_TRACEBACK = "Traceback (most recent call last):"
_EXCEPTION = r"(?:[A-Za-z_]\w*\.)*(?P<name>[A-Za-z_]\w*)(?:: ?(?P<message>.*))?\Z"
_IGNORED = r"Exception ignored |Error in (?:atexit|sys)\b"
"""Lines before a traceback that does not end the program."""

_VAGUE = (
    r"(?:Graph execution error:|Restoring from checkpoint failed\b.*|\d+ root error\(s\) found\.|From .*|"
    r"Error\(s\) in loading state_dict .*|)\s*\Z"
)
"""Messages whose substance is in the lines below them."""

_SUBSTANCE = (
    r"Key \S+ not found in checkpoint|\S+; No space left on device|"
    r"\S+\.data-\d+-of-\d+; No such file or directory|allow_missing_files was set to false and \S+ did not exist|"
    r"(?:Tensor name|Assign requires shapes|Checksum does not match|Unable to open table file|Data loss: |DATA_LOSS: |"
    r"size mismatch for |Missing key\(s\) in state_dict|OOM when allocating|Could not start gRPC server).*"
)
_FRAMING = (
    r"\s*\[\[|\s*\(\d+\) |Detected at node|Original stack trace|\s*\[Op:|Errors? may have originated|"
    r"<stack traces unavailable>|Traceback|[=-]{4,}\Z|"
    r"\s*File \"|\s{4}|From /job:\S+:$|Node: '|Hint: If you want to see a list of allocated tensors"
)
"""Lines of TensorFlow's messages about where in the graph it happened."""

_OPENS, _CLOSES = ("{", "[", "("), ("}", "]", ")")
"""Around a value that is printed over several lines of a message, and whose own lines say nothing."""

_MESSAGE_LINES = 60
"""The most lines of one message."""

_MANY = 12
"""The most lines of a shutdown. After more of them the program has continued, and ended for another cause."""

_NOISE = (
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d|[IWE]\d{4} |WARNING|INFO|Exception ignored|During handling|The above exception|"
    r"Traceback|Detected at node|Original stack|Errors? may|node |Function call stack|sys:1|\W"
)
"""Output of programs during their shutdown; no step of a training begins like that."""


def _uncaught(lines: List[str]) -> Optional[str]:
    """The last exception that ended the program: of a chain the last, too, as it shows what was being done."""
    found = _last_exception(lines)
    if found is None or _goes_on(found[1]):
        return None
    told = _of_worker(lines, found) or _asserted(lines, found) or _evaluated(lines, found)
    return told or _named(found[0], found[1][:_MESSAGE_LINES])


_MARKERS = r"\s*[\^~]+\s*\Z"
"""The line below the source, since Python 3.11."""


def _asserted(lines: List[str], found: Tuple[Match[str], List[str]]) -> Optional[str]:
    """What an assertion without a message has asserted, by the source in its traceback."""
    exception, later = found
    if exception.group("name") != "AssertionError" or exception.group("message"):
        return None
    above = lines[max(0, len(lines) - len(later) - 3) : len(lines) - len(later) - 1]
    source = next((line.strip() for line in reversed(above) if not re.match(_MARKERS, line)), "")
    return _shown("AssertionError: %s" % source) if source.startswith("assert ") else None


_TEXT_LINES = 4
"""The lines between the name of a text that is no file, and the exception: the text, and a marker below it."""


def _evaluated(lines: List[str], found: Tuple[Match[str], List[str]]) -> Optional[str]:
    """A text that the program itself has evaluated, as an option or an expression, and that is no Python."""
    exception, later = found
    if exception.group("name") != "SyntaxError":
        return None
    end = len(lines) - len(later) - 1
    above = lines[max(0, end - _TEXT_LINES) : end]
    begin = next(
        (at for at, line in enumerate(above) if re.match(r'\s*File "<(?:unknown|string)>", line \d+\Z', line)), None
    )
    text = "".join(above[begin + 1 : begin + 2]).strip() if begin is not None else ""
    return _shown("SyntaxError in a text that the program evaluates: %s" % text) if text else None


def _of_worker(lines: List[str], found: Tuple[Match[str], List[str]]) -> Optional[str]:
    """The exception of a worker in the log of its launcher, torchrun, which reports only that one has failed."""
    if found[0].group("name") != "ChildFailedError":
        return None
    exception = len(lines) - len(found[1]) - 1
    begin = next((at for at in range(exception - 1, -1, -1) if lines[at] == _TRACEBACK), 0)
    worker = _last_exception(lines[:begin])
    return _named(worker[0], worker[1][:_MESSAGE_LINES]) if worker is not None else None


def _last_exception(lines: List[str]) -> Optional[Tuple[Match[str], List[str]]]:
    """The one of the last traceback, and all lines after its first."""
    for start in range(len(lines) - 1, -1, -1):
        if lines[start] == _TRACEBACK and not (start and re.match(_IGNORED, lines[start - 1])):
            at = next((at for at in range(start + 1, len(lines)) if lines[at] and not lines[at][0].isspace()), None)
            matched = re.match(_EXCEPTION, lines[at]) if at is not None else None
            return (matched, lines[at + 1 :]) if at is not None and matched is not None else None
    return None


def ends_in_exception(log: str) -> bool:
    """Whether an exception is the last that the program wrote: one that it has caught is followed by other output."""
    found = _last_exception(_lines(log))
    if found is None or _goes_on(found[1]):
        return False
    message = found[0].group("message") or ""
    if message.endswith(_OPENS) or (re.match(_VAGUE, message) and message):
        return True  # the lines below are its own
    return not any(line and not re.match(_NOISE, line) and not re.match(_FRAMING, line) for line in found[1])


_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash")
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.|\|\||#[^\n]*")
"""What holds no pipe in the text of a shell."""


_SHEBANG = re.compile(r"#![^\n]*[/ ](?:%s)\b" % "|".join(_SHELLS))


def loses_status(argv: List[str], script: str = "") -> bool:
    """Whether a command is a shell's, whose exit status is that of the last program of a pipe (sh(1)).

    `script`: the text of the file that `script_of` names. What its last line runs gives its status.
    """
    if not argv or not (_is_shell(argv) or re.match(_SHEBANG, script)):
        return False
    text = next((argv[at + 1] for at in range(1, len(argv) - 1) if re.match(r"-[a-z]*c[a-z]*\Z", argv[at])), "")
    lines = [line for line in _QUOTED.sub("", script.replace("\\\n", " ")).splitlines() if line.strip()]
    has_pipe = "|" in _QUOTED.sub("", text) if _is_shell(argv) and text else bool(lines) and "|" in lines[-1]
    return has_pipe and not re.search(r"pipefail|PIPESTATUS|pipestatus", " ".join([*argv, script]))


def script_of(argv: List[str]) -> str:
    """The path of the file that a command runs as a script, as far as its words say; empty for none."""
    if not argv:
        return ""
    if not _is_shell(argv):
        return argv[0] if "/" in argv[0] else ""
    words = iter(argv[1:])
    for word in words:
        if not word.startswith(("-", "+")):
            return word
        if re.match(r"-[a-z]*c[a-z]*\Z", word):
            return ""
        if word in ("-o", "+o", "-O", "+O"):
            next(words, None)
    return ""


def _is_shell(argv: List[str]) -> bool:
    return argv[0].rpartition("/")[2] in _SHELLS


def _goes_on(later: List[str]) -> bool:
    return len([line for line in later if line and not re.match(_NOISE, line)]) > _MANY


_AFTERWORDS = 5
"""Lines, with it, of an exception that has no traceback."""


def _unparsed(lines: List[str]) -> Optional[str]:
    """The last exception without a traceback, as of an unparsable file, or one that a program prints itself."""
    for line in reversed([line for line in lines if line][-_AFTERWORDS:]):
        matched = re.match(_EXCEPTION, line)
        if matched is not None and matched.group("name").endswith(("Error", "Exception")):
            return _named(matched, [])
    return None


def _named(exception: Match[str], later: List[str]) -> str:
    """Class and message; for a vague message, the text of the lines below it."""
    name, message = exception.group("name"), exception.group("message") or ""
    substance = re.search(_SUBSTANCE, "\n".join([message, *later]))
    if substance is not None:
        message = substance.group()
    elif message.endswith(_OPENS):
        closing = next((line.strip() for line in later if line.startswith(_CLOSES)), "")
        message = "%s...%s" % (message[:-1], closing[1:])
    elif re.match(_VAGUE, message):
        message = next((line.strip() for line in later if line.strip() and not re.match(_FRAMING, line)), message)
    return _shown("%s: %s" % (name, message) if message else name)


# Last messages of other programs, and of libraries that end a process.

_COMPLAINT_LINES = 20
"""The most lines after a complaint; a program that has written more has continued."""

_HARMLESS = r"Unable to register cu|failed call to cuInit|cuda_platform|computation placer already|TF-TRT"
"""Errors that TensorFlow logs at each start on a machine without a GPU."""


def is_harmless(line: str) -> bool:
    """Whether a line reports an error that ends no program."""
    return re.search(_HARMLESS, line) is not None


_GLOG = r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?%s(?:\d{4} [\d:.]+ +\d+)? (?P<file>[\w./-]+:\d+)\] (?P<message>.+)"
_DIRECTORIES = r"[\w./-]*/"


def _message(matched: Match[str], later: List[str]) -> str:
    return matched.group("message").strip()


def _next_line(matched: Match[str], later: List[str]) -> str:
    return later[0].strip() if later else matched.group()


def _thrown(matched: Match[str], later: List[str]) -> str:
    what = next((line.split("what():", 1)[1].strip() for line in later if "what():" in line), "")
    return "%s: %s" % (_message(matched, later), what) if what else _message(matched, later)


def _placed(matched: Match[str], later: List[str]) -> str:
    """The message with the name of the file, which helps a Web search."""
    return "%s (%s)" % (_message(matched, later), re.sub(_DIRECTORIES, "", matched.group("file")))


_COMPLAINTS: Tuple[Tuple[str, Extract], ...] = (
    (r"\S+: error: (?P<message>.+)", _message),  # argparse
    (r"FATAL Flags parsing error:", _next_line),  # absl.app
    (r"terminate called after throwing an instance of '(?P<message>[^']+)'", _thrown),  # C++
    (r"Fatal Python error: (?P<message>.+)", _message),  # CPython and its faulthandler
    (_GLOG % "F", _placed),  # CHECK and LOG(FATAL) of glog and TensorFlow
    (r".*?(?P<message>(?:CUDA_ERROR_|CUDA error: |CUDA out of memory).*)", _message),
    (
        r"(?P<message>.*\b(?:error while loading shared libraries|command not found|Permission denied|"
        r"No space left on device|Segmentation fault|double free or corruption|stack smashing detected)\b.*)",
        _message,  # shells, the loader, the C library
    ),
    (r"(?:ERROR|CRITICAL|FATAL)(?::[\w.]+:| ) ?(?P<message>.+)", _message),  # logging
    (
        r"(?:\[?\d{4}[-/]\d\d[-/]\d\d[T ][\d:.,]+\]?(?: [^ ]{1,60}){0,4}? ?|[\w.]+ - )[\[| -]*"
        r"\b(?:ERROR|CRITICAL|FATAL)\b[\]|: -]*(?:\[[^\]]*\] *|[\w.<>]+:[\w.<>]+:\d+ - )?(?P<message>.+)",
        _message,  # logging and loguru, after the time
    ),
    (r"(?:\S+: )?(?i:fatal error|fatal|error): (?P<message>.+)", _message),
    (_GLOG % "E", _placed),
)
"""Lines by which programs end, the surest first."""


def _complaint(lines: List[str]) -> Optional[str]:
    last = [line for line in lines if line and not is_harmless(line)][-_COMPLAINT_LINES:]
    for pattern, extract in _COMPLAINTS:
        for at in range(len(last) - 1, -1, -1):
            matched = re.match(pattern, last[at])
            if matched is not None:
                return _shown(extract(matched, last[at + 1 : at + 3]))
    return None


_ALONE = r"(?:[A-Za-z_]\w*\.)*[A-Za-z_]\w*(?:Error|Exception)(?:: .*)?\Z"


def complains(line: str) -> bool:
    """Whether a line reports an error by itself: one by which programs end, or an exception without a traceback."""
    if is_harmless(line):
        return False
    return any(re.match(pattern, line) for pattern, _ in _COMPLAINTS) or re.match(_ALONE, line) is not None


def is_location(line: str) -> bool:
    """Whether a line below an exception's names where in the graph it has happened."""
    return re.match(_FRAMING, line) is not None


def is_substance(line: str) -> bool:
    """Whether a line below an exception's contains the essential message."""
    return re.search(_SUBSTANCE, line) is not None


def is_vague(line: str) -> bool:
    """Whether an exception's first line leaves what has happened to the lines below it."""
    matched = re.match(_EXCEPTION, line)
    return matched is not None and re.match(_VAGUE, matched.group("message") or "") is not None


OWN = "own"
"""Another try meets it again."""

PEER = "peer"
"""It has lost its connection to another task, or to a service: usually that one has ended first."""

OTHERS = "others"
"""A name is not resolved, a port is taken, it was interrupted: the next try may succeed, however often it failed."""

SHORTAGE = "shortage"
"""The machine temporarily lacks something: room on a disk, processes, memory for one more, open files."""

CANNOT_LOAD = "cannot_load"
"""The program's code cannot be loaded."""


ALWAYS_RETRIED = (PEER, OTHERS, SHORTAGE)
"""Causes that are always retried, whatever `recovery.repeat` says."""

NEVER_RETRIED = (CANNOT_LOAD,)
"""Kinds of errors that are not retried if the exit code is only a general failure."""


def _exceptions(names: str) -> str:
    """A pattern for one of these classes, at the beginning, as the whole name."""
    return r"(?:%s)(?=:|\Z)" % "|".join(names.split())


def _phrases(*phrases: str) -> str:
    """A pattern for one of these phrases anywhere in the text, as whole words."""
    return r".*?(?<!\w)(?:%s)(?!\w)" % "|".join(phrases)


SIGNATURES: Tuple[Tuple[str, str], ...] = (
    # Python's errors of programming, with any message.
    (
        OWN,
        _exceptions(
            "ArithmeticError AssertionError AttributeError FileExistsError FileNotFoundError FloatingPointError "
            "IndexError IsADirectoryError JSONDecodeError KeyError LookupError NameError NotADirectoryError "
            "NotImplementedError OverflowError PermissionError RecursionError StopIteration TypeError "
            "UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError ValueError ZeroDivisionError"
        ),
    ),
    # errno(3): ENOSPC, EAGAIN, ENOMEM, ENFILE, EMFILE, EDQUOT, in the messages of Python, C, Rust and shells.
    (
        SHORTAGE,
        _phrases(
            r"\[Errno (?:5|11|12|23|24|28|116|121|122)\]",
            r"Input/output error",
            r"Stale file handle",
            r"No space left on device",
            r"Disk quota exceeded",
            r"Too many open files(?: in system)?",
            r"Cannot allocate memory",
            r"Resource temporarily unavailable",
            r"[Cc]an't start new thread",
            r"Cannot fork",
            r"Thread creation failed",
            r"PytorchStreamWriter failed writing file",
            r"out of shared memory",
            # PyTorch: usually the kernel has killed it for want of memory
            r"DataLoader worker \(pid(?:\(s\))?[^)]*\) is killed by signal: (?:Killed|Bus error)",
            r"DataLoader worker \(pid(?:\(s\))?[^)]*\) exited unexpectedly",
            # a service that is overloaded: HTTP, S3
            r"(?:429|50[234]) (?:Client|Server) Error",
            r"HTTP Error (?:429|50[234])",
            r"Error code: (?:429|50[234])",
            r"Too Many Requests",
            r"Service (?:Temporarily )?Unavailable",
            r"(?:429|50[234]) (?:GET|PUT|POST|HEAD)",
            r"\(SlowDown\)",
        ),
    ),
    (
        CANNOT_LOAD,
        _exceptions(
            "ImportError ModuleNotFoundError SyntaxError IndentationError TabError "
            # importlib.metadata, pkg_resources, gymnasium
            "PackageNotFoundError DistributionNotFound DependencyNotInstalled"
        ),
    ),
    (OTHERS, _exceptions("InterruptedError KeyboardInterrupt SystemExit gaierror herror NameResolutionError")),
    # bind(2), getaddrinfo(3)
    (
        OTHERS,
        _phrases(
            r"Name or service not known",
            r"(?:Temporary failure in|DNS) (?:name )?resolution(?: failed)?",
            r"Address already in use",
            r"EADDRINUSE",
            r"bind failed",
            r"Could not start gRPC server",
        ),
    ),
    (
        PEER,
        _exceptions(
            # TensorFlow (tensorflow/python/framework/errors_impl.py), gRPC
            "AbortedError CancelledError DeadlineExceededError UnavailableError "
            "_InactiveRpcError _MultiThreadedRendezvous AioRpcError "
            # Python, requests, urllib3, aiohttp
            "BrokenPipeError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError "
            "TimeoutError timeout ChunkedEncodingError ConnectTimeout ConnectTimeoutError IncompleteRead "
            "MaxRetryError NewConnectionError ProtocolError ProxyError ReadTimeout ReadTimeoutError "
            "RemoteDisconnected ServerDisconnectedError ClientConnectorError ServerTimeoutError "
            # PyTorch (torch.distributed), Horovod, Ray
            "DistNetworkError DistStoreError RendezvousClosedError RendezvousConnectionError "
            "RendezvousTimeoutError RendezvousGracefulExitError "
            "HorovodInternalError HostsUpdatedInterrupt ActorDiedError ActorUnavailableError NodeDiedError "
            "WorkerCrashedError RayActorError "
            # botocore, the hub of Hugging Face
            "EndpointConnectionError ConnectionClosedError ResponseStreamingError LocalEntryNotFoundError"
        ),
    ),
    (
        PEER,
        _phrases(
            # status codes of gRPC and absl, where a status begins
            r"(?:UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED): .*",
            r"(?:Unavailable|Deadline Exceeded|Aborted|Cancelled): .*",
            r"StatusCode\.(?:UNAVAILABLE|DEADLINE_EXCEEDED|ABORTED|CANCELLED)",
            r"[Ss]ocket closed",
            r"[Ff]ailed to connect to (?:all addresses|remote host)",
            r"(?:different|unknown|new) incarnation",
            r"[Hh]eartbeat timeout",
            r"stopped sending heartbeats",
            r"Barrier timed out",
            r"(?:task|cluster|peer|worker) is unhealthy",
            # connect(2)
            r"Connection (?:refused|reset by peer|timed out|aborted|closed by (?:remote )?peer)",
            r"Connection (?:to \S+ )?(?:was closed|was lost|timed out)",
            r"Broken pipe",
            r"No route to host",
            r"(?:Network|Host) is (?:unreachable|down)",
            # NCCL, gloo and the stores of torch.distributed
            r"remote process exited or there was a network error",
            r"NCCL(?: error in|:).*(?:unhandled system error|internal error)",
            r"ncclRemoteError",
            r"Watchdog caught collective operation timeout",
            r"NCCL operations have failed or timed out",
            r"connectFullMesh failed",
            r"Timed out (?:waiting \d+ ?ms for (?:recv|send) operation|initializing process group)",
            r"failed to pass monitoredBarrier",
            r"received errors while waiting for send/recv",
            r"[Ss]ocket [Tt]imeout",
            r"connect\(\) timed out",
            r"wait timeout after \d+ ?ms",
            r"client socket has timed out",
            r"Read timed out",
            r"Max retries exceeded",
            r"Application timeout caused pair closure",
            r"ActorDiedError",
            r"The actor is dead",
            r"[Cc]ould(?: not|n't) connect to (?:the endpoint URL|'https?://[^']*')",
            r"Run initialization has timed out",
            r"Error communicating with wandb process",
        ),
    ),
)
"""The kinds of errors that end a program, which decide about another attempt.

A row matches by the exception's class, which comes first, or by a phrase of the message. The first row that matches
applies; an error without a row is the program's own. Compiled at first use: most processes import this and need none.
"""


def kind_of_error(text: str) -> str:
    """`text`: the line that shows a program's cause of death, an exception without its module."""
    return next((kind for kind, pattern in SIGNATURES if re.match(pattern, text)), OWN)


_TAKEN = r"(?i:already in use|EADDRINUSE|errno:? 98\b|failed to bind|no address added|address in use|start gRPC server)"
_PORT = re.compile(
    r"(?:\[[\da-fA-F:.]*\]|(?<![\d:])(?:\d{1,3}\.){3}\d{1,3}|localhost|\*|::|(?<= )):(\d{2,5})\b|"
    r"['\"], (\d{2,5})[,)]|\b[Pp]ort:? (\d{2,5})\b"
)
"""A port after an address, in the address of a Python socket, or after the word."""


def taken_port(log: str) -> Optional[int]:
    """The port that a program could not listen on, where a line about that at the end of its log names one."""
    for line in reversed(_lines(log)[-_MESSAGE_LINES:]):
        named = re.search(_PORT, line) if re.search(_TAKEN, line) else None
        if named is not None:
            return int(next(filter(None, named.groups())))
    return None


def names_taken_port(text: str) -> bool:
    """A server could not be started because its port is taken: of any kind of error."""
    return re.search(_TAKEN, text) is not None


_DAMAGED = (
    r"DataLoss|Data loss|DATA_LOSS|Unable to open table file|Checksum does not match|Read (?:less|fewer) bytes than|"
    r"not an sstable|truncated block read|block checksum mismatch|TensorSliceReader|"
    r"PytorchStreamReader failed|failed finding central directory|invalid header or archive is corrupted|"
    r"unexpected EOF, expected \d+ more bytes\. The file might be corrupted|storage has wrong byte size|"
    r"[Ee]rror while deserializing header|SafetensorError|Unable to (?:synchronously )?open file \((?:truncated file|"
    r"file signature not found|bad object header)|trainer_state\.json|"
    r"[Cc]an't find a valid checkpoint at|CheckpointException"
)


def names_damaged_file(text: str) -> bool:
    """A checkpoint could not be restored, or a file of data not be read: of any kind of error."""
    return re.search(_DAMAGED, text) is not None
