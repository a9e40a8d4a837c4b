"""What the error that ended a program means for another try: one table of its exceptions and phrases.

A row matches by the exception's class, which stands first, or by a phrase of the message. The first row that matches
holds; what no row knows is the program's own error.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Pattern, Tuple

OWN = "own"
"""Another try meets it again."""

OTHERS = "others"
"""Somebody else is away, or in the way, which may be over at the next try, however often it was met."""

SHORTAGE = "shortage"
"""The machine lacks something for the moment: room on a disk, processes, memory for one more, open files."""

CANNOT_LOAD = "cannot_load"
"""The program's code cannot be loaded."""


def _exceptions(names: str) -> Pattern[str]:
    """One of these classes, at the beginning, and nothing else of the name."""
    return re.compile(r"(?:%s)(?=:|\Z)" % "|".join(names.split()))


def _phrases(*phrases: str) -> Pattern[str]:
    """Anywhere in the text, as whole words."""
    return re.compile(r".*?(?<!\w)(?:%s)(?!\w)" % "|".join(phrases))


SIGNATURES: Tuple[Tuple[str, Pattern[str]], ...] = (
    # Python's errors of programming, whatever their messages say.
    (
        OWN,
        _exceptions(
            "ArithmeticError AssertionError AttributeError FileExistsError FileNotFoundError FloatingPointError "
            "IndexError IsADirectoryError JSONDecodeError KeyError LookupError NameError NotADirectoryError "
            "NotImplementedError OverflowError PermissionError RecursionError StopIteration TypeError "
            "UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError ValueError ZeroDivisionError"
        ),
    ),
    # errno(3): ENOSPC, EAGAIN, ENOMEM, ENFILE, EMFILE, EDQUOT, in the words of Python, C, Rust and shells.
    (
        SHORTAGE,
        _phrases(
            r"\[Errno (?:11|12|23|24|28|122)\]",
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
        ),
    ),
    (CANNOT_LOAD, _exceptions("ImportError ModuleNotFoundError SyntaxError IndentationError TabError")),
    (
        OTHERS,
        _exceptions(
            # TensorFlow (tensorflow/python/framework/errors_impl.py), gRPC
            "AbortedError CancelledError DeadlineExceededError UnavailableError "
            "_InactiveRpcError _MultiThreadedRendezvous AioRpcError "
            # Python, requests, urllib3, aiohttp
            "BrokenPipeError ConnectionAbortedError ConnectionError ConnectionRefusedError ConnectionResetError "
            "InterruptedError KeyboardInterrupt SystemExit TimeoutError gaierror timeout herror "
            "ChunkedEncodingError ConnectTimeout ConnectTimeoutError IncompleteRead MaxRetryError "
            "NameResolutionError NewConnectionError ProtocolError ProxyError ReadTimeout ReadTimeoutError "
            "RemoteDisconnected ServerDisconnectedError ClientConnectorError ServerTimeoutError "
            # PyTorch (torch.distributed), Horovod, Ray
            "DistNetworkError DistStoreError RendezvousClosedError RendezvousConnectionError "
            "RendezvousTimeoutError RendezvousGracefulExitError "
            "HorovodInternalError HostsUpdatedInterrupt ActorDiedError ActorUnavailableError NodeDiedError "
            "WorkerCrashedError"
        ),
    ),
    (
        OTHERS,
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
            # connect(2), bind(2), getaddrinfo(3)
            r"Connection (?:refused|reset by peer|timed out|aborted|closed by (?:remote )?peer)",
            r"Connection (?:to \S+ )?(?:was closed|was lost|timed out)",
            r"Broken pipe",
            r"No route to host",
            r"(?:Network|Host) is (?:unreachable|down)",
            r"Name or service not known",
            r"(?:Temporary failure in|DNS) (?:name )?resolution(?: failed)?",
            r"Address already in use",
            r"EADDRINUSE",
            r"bind failed",
            r"Could not start gRPC server",
            # NCCL, gloo and the stores of torch.distributed
            r"remote process exited or there was a network error",
            r"NCCL error in.*(?:unhandled system error|internal error)",
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
        ),
    ),
)


def kind_of_error(text: str) -> str:
    """`text`: the line by which a program's end is told, an exception without its module."""
    return next((kind for kind, pattern in SIGNATURES if pattern.match(text)), OWN)


_NOT_RESTORED = re.compile(
    r"DataLoss|Data loss|DATA_LOSS|Unable to open table file|Checksum does not match|Read (?:less|fewer) bytes than|"
    r"not an sstable|truncated block read|block checksum mismatch|TensorSliceReader"
)


def names_damaged_checkpoint(text: str) -> bool:
    """A checkpoint could not be restored; a file of data may have been meant, too."""
    return _NOT_RESTORED.search(text) is not None
