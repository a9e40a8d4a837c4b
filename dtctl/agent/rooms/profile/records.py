"""What tasks do for some seconds, as `profile` reports it: samples of stacks, and a profile of TensorFlow's."""

from ...records.kinds import AtMost, Default, InvalidValue, List, OneOf, Optional, Pattern, Record, Within, also
from ...records.requests import Request
from ...records.values import Count, Line, Path, Pid, Reason, TaskName, Tasks, TaskState
from ...records.vitals import Frame
from ..dump.records import Missing

MOST_SECONDS = 60
MOST_STACKS = 20
MOST_FRAMES = 60
MOST_SAMPLES = 5 * MOST_SECONDS + 1

Session = Pattern[str, 19, r"[0-9]{4}(?:_[0-9]{2}){5}", "a time such as 2026_11_30_13_49_09"]
"""The name of the directory with the profiles of one request, as TensorBoard lists them."""

Sampled = Within[int, 1, MOST_SAMPLES]


class SampledStack(Record):
    """A stack of the main thread, innermost call first, and how many samples have found it."""

    samples: Sampled
    frames: AtMost[List[Frame], MOST_FRAMES]
    omitted: Default[Count, 0]
    """The number of omitted outer frames, at least."""


class ProfileFile(Record):
    """A profile that TensorFlow has made."""

    path: Path
    size_bytes: Count


class Profiling(Record):
    """The frame `profiling`: from now on these tasks are observed."""

    tasks: Tasks


NoFile = OneOf["no_tensorflow", "contained", "no_port", "no_service", "no_python", "failed", "not_written"]
"""Why there is no profile of TensorFlow's. no_port: no process of the task listens on a port as gRPC does; no_service:
what listens there has no profiler.
"""


class Profile(Record):
    """The frame `profile`: one task."""

    task: TaskName
    attempt: Count
    state: TaskState
    pid: Default[Optional[Pid], None]
    """The process whose main thread was sampled; null: none was there."""
    command: Default[Line, ""]
    way: Default[Optional[OneOf["py-spy", "faulthandler"]], None]
    """The source of the stacks; null: there are none."""
    sampled_s: Default[Within[float, 0, 3600], 0.0]
    samples: Default[Within[int, 0, MOST_SAMPLES], 0]
    stacks: Default[AtMost[List[SampledStack], MOST_STACKS], []]
    """The most frequent ones."""
    missing: Default[Optional[Missing], None]
    said: Default[Reason, ""]
    """The output of py-spy if it could not read them."""
    file: Default[Optional[ProfileFile], None]
    no_file: Default[Optional[NoFile], None]
    file_said: Default[Reason, ""]
    """The error of TensorFlow, or of the file system, if there is no file."""


@also(Profile)
def _adds_up(profile: Profile) -> None:
    if sum(one["samples"] for one in profile["stacks"]) > profile["samples"]:
        raise InvalidValue.at(("samples",), "at least those of the stacks", profile["samples"])
    if profile["samples"] and profile["way"] is None:
        raise InvalidValue.at(("way",), "the source of the samples", None)


class ProfileRequest(Request):
    """Requests what tasks do in the next seconds."""

    seconds: Within[int, 1, MOST_SECONDS]
    session: Session
    tasks: Default[Optional[Tasks], None]
    """null: all on this host."""
