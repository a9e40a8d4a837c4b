"""What a host measures of its tasks, as it is kept and as `speed` reports it. Amounts are those of the time span."""

from ...records.kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within
from ...records.requests import Request
from ...records.values import Count, Epoch, Line, Name, Path, Seconds, TaskName

MOST_MINUTES = 30
MOST_FLOWS = 1000
MOST_INTERFACES = 32
MOST_SHARDS = 1000
MOST_LARGEST = 10
MOST_SAVES = 100

Bytes = Within[float, 0, 1e18]
Processors = Within[float, 0, 1e6]


Resource = OneOf["cpu", "memory", "io"]


class Interface(Record):
    """A network interface of the host, the loopback apart."""

    sent_bytes: Bytes
    received_bytes: Bytes
    bits_a_second: Default[Optional[Bytes], None]
    """The speed of its hardware; null: unknown, as in a virtual machine."""


class TaskUse(Record):
    """What the processes of one task have used."""

    seconds: Seconds
    """The part of the time span in which they were there."""
    cpu_s: Default[Seconds, 0.0]
    thread_s: Default[Optional[Seconds], None]
    """The processor time of the busiest thread; null: unknown."""
    thread: Default[AtMost[str, 100], ""]
    """The name of that thread."""
    threads: Default[Count, 0]
    waits_s: Default[Optional[Seconds], None]
    """How long threads were ready to run and had no processor, added up; null: the kernel does not count it."""
    throttled_s: Default[Optional[Seconds], None]
    """How long their control group had used up its quota; null: it has none."""
    read_bytes: Default[Bytes, 0]
    """Read from disks, and written to them."""
    written_bytes: Default[Bytes, 0]
    faults: Default[Count, 0]
    """Pages that had to be read from a disk."""
    gpu_s: Default[Optional[Seconds], None]
    """How long its GPUs were busy, on average; null: it has none, or they are unknown."""
    saving_s: Default[Optional[Seconds], None]
    """How long it made no step while it wrote to disks; null: it reports no steps."""
    step: Default[Optional[Count], None]
    rate: Default[Optional[Bytes], None]
    """Steps a second at the last step of the time span."""


class Flow(Record):
    """What the connections of a task with one other end have carried."""

    task: TaskName
    peer: Default[Optional[TaskName], None]
    """null: no task, or it is unknown which one of its host."""
    host: Default[Optional[Name], None]
    """The host of the other end; null: none of the run."""
    sent_bytes: Default[Bytes, 0]
    received_bytes: Default[Bytes, 0]
    resent: Default[Count, 0]
    """Segments that had to be sent again."""
    busy_s: Default[Optional[Seconds], None]
    """How long the busiest of the connections had data under way that the reader there was ready for; null: unknown."""
    rtt_us: Default[Count, 0]
    """The longest round-trip time."""
    connections: Default[Count, 0]


class Sample(Record):
    """A time span on one host. Longer ones are sums of shorter ones."""

    time: Epoch
    """The end of the time span."""
    seconds: Seconds
    cpus: Within[int, 1, 1_000_000]
    busy_s: Default[Optional[Seconds], None]
    """The time of its processors that was used, by whomever."""
    stolen_s: Default[Optional[Seconds], None]
    """The time that other guests of the same machine took."""
    swapped_bytes: Default[Bytes, 0]
    waited_s: Default[Dict[Resource, Seconds], {}]
    """How long processes waited for the resource (/proc/pressure), where the kernel says."""
    interfaces: Default[AtMost[Dict[AtMost[str, 64], Interface], MOST_INTERFACES], {}]
    tasks: Default[Dict[TaskName, TaskUse], {}]
    flows: Default[AtMost[List[Flow], MOST_FLOWS], []]
    flows_omitted: Default[Count, 0]
    """How many smaller ones were left out."""
    traffic: Default[OneOf["measured", "refused", "unsupported"], "measured"]
    """Whether the kernel reports the connections."""


class Shard(Record):
    """The variables of one part of a checkpoint, which was saved by one task."""

    size_bytes: Bytes
    variables: Count


class Variable(Record):
    """A variable of a checkpoint."""

    name: Line
    size_bytes: Bytes
    shard: Count


class Parameters(Record):
    """The variables in the newest complete checkpoint."""

    prefix: Path
    step: Default[Optional[Count], None]
    shards: AtMost[List[Shard], MOST_SHARDS]
    largest: AtMost[List[Variable], MOST_LARGEST]


class Save(Record):
    """A complete checkpoint."""

    time: Epoch
    step: Default[Optional[Count], None]
    size_bytes: Bytes


class SpeedRequest(Request):
    """Requests the measurements of a host."""

    minutes: Default[Within[int, 1, MOST_MINUTES], 5]
    parameters: Default[bool, False]
    """Whether the newest checkpoint is read."""


class SpeedResult(Record):
    """`minutes`: newest first; each is of about a minute."""

    run: Name
    time: Epoch
    minutes: AtMost[List[Sample], MOST_MINUTES]
    whole: Default[Optional[Sample], None]
    """All that is kept, added up."""
    since: Default[Optional[Epoch], None]
    """The begin of that."""
    parameters: Default[Optional[Parameters], None]
    saves: Default[AtMost[List[Save], MOST_SAVES], []]
    """Those that are kept of the checkpoints, newest first."""
    strategy: Default[Optional[Line], None]
    """How the run trains, as its cluster file says or dtctl has recognised; null: unknown."""
