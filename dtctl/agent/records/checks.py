"""What `check` asks of a host before a run: a question and its facts for each topic."""

from .kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within
from .network import NetworkFacts, NetworkQuestion, SshFacts, SshQuestion
from .spec import Environment, Paths
from .values import MOST_TASKS, BundleId, Count, Epoch, Line, Name, Path, StorageUrl, TaskName, Variables
from .vitals import Busy, Disk, Machine

MOST_PYTHONS = 20
MOST_MODULES = 1000
MOST_FILES = 200
"""Of a program."""
MOST_PLACES = 200
MOST_TAKEN = 1000

Module = AtMost[str, 200]
Version = AtMost[str, 200]


class PythonAsked(Record):
    """A Python that trainers of this host are started with; marks in it are replaced on the host."""

    program: Line
    path: Default[Line, ""]
    """Where a program without a `/` is looked for."""
    python_path: Default[Line, ""]
    """The trainers' PYTHONPATH."""
    modules: Default[AtMost[List[Module], MOST_MODULES], []]
    """That their programs import."""
    cuda: Default[bool, False]
    """CUDA's libraries are looked for, and GPUs that frameworks see are counted: trainers are given some."""
    isolated: Default[bool, False]
    """On the controller: started with -I, in / and without any variable; nothing of `python_path` is imported."""
    may_start: Default[bool, True]
    """False on a controller whose user has not allowed the cluster file to start it."""
    environment: Default[Optional[Environment], None]
    """Whose Python it is."""
    bundle: Default[Optional[BundleId], None]
    """The code that it is to compile, which the host has."""
    files: Default[AtMost[List[Path], MOST_FILES], []]
    """Those of the code."""


class SoftwareQuestion(Record):
    """What the trainers' Pythons have."""

    pythons: AtMost[List[PythonAsked], MOST_PYTHONS]
    started: Default[bool, False]
    """Each is started and asked itself; else the names of its directories are read."""
    imported: Default[bool, False]
    """The modules are imported, which takes its time."""


class Imported(Record):
    """A module that was imported, or was not."""

    seconds: Count
    problem: Default[Line, ""]
    gpus: Default[Optional[Count], None]
    """How many a framework sees; null: it is none, or was not asked."""


class Broken(Record):
    """The first line of the code that a Python cannot compile."""

    file: Path
    line: Count
    problem: Line


class PythonFound(Record):
    """A Python, as it was asked for, and what it has."""

    program: Line
    path: Default[Line, ""]
    """Empty: there is none."""
    version: Default[Version, ""]
    libc: Default[Version, ""]
    packages: Default[AtMost[Dict[AtMost[str, 100], Version], 100], {}]
    missing: Default[AtMost[List[Module], MOST_MODULES], []]
    """Modules that it does not find."""
    broken: Default[Optional[Broken], None]
    imported: Default[AtMost[Dict[Module, Imported], MOST_MODULES], {}]
    cuda: Default[Line, ""]
    """Where CUDA's libraries are, as far as it was looked for them."""
    problem: Default[Line, ""]
    """Its output instead of an answer."""


class SoftwareFacts(Record):
    """In the order of the question."""

    pythons: AtMost[List[PythonFound], MOST_PYTHONS]


class MachineQuestion(Record):
    """What the host has, and what of it is free."""

    places: Default[AtMost[List[Path], MOST_PLACES], []]
    """Where the run writes, with marks; where it is not there yet, the directory above it counts."""
    gpus: Default[bool, False]
    """They are read."""
    rights: Default[bool, False]
    """What may end processes, or limits them, is looked at."""
    cluster: Default[Optional[Name], None]
    """What tasks of its earlier runs took is looked up."""


class GpuTaken(Record):
    """A GPU that a task of a live run of this user may use."""

    gpu: Count
    cluster: Name
    run: Name
    task: TaskName


class Rights(Record):
    """What may end a user's processes, or limits them. null: unlimited."""

    open_files: Default[Optional[Count], None]
    processes: Default[Optional[Count], None]
    selinux: Default[OneOf["", "enforcing", "permissive"], ""]
    kills_at_logout: Default[bool, False]
    """logind ends what a login has started (KillUserProcesses)."""
    lingers: Default[bool, False]
    """The user's own systemd outlives the logins."""


class TaskMemory(Record):
    """Of a cluster's tasks on this host."""

    took: Default[AtMost[Dict[TaskName, Count], MOST_TASKS], {}]
    """The memory that tasks of earlier runs took here at most."""
    taking_bytes: Default[Count, 0]
    """What tasks of the cluster take now."""


class MachineFacts(TaskMemory):
    """Memory and disks now."""

    machine: Machine
    disks: Default[AtMost[List[Disk], 100], []]
    silent: Default[Paths, []]
    """Places on file systems that do not answer."""
    gpus_taken: Default[AtMost[List[GpuTaken], MOST_TAKEN], []]
    rights: Default[Optional[Rights], None]


class LookFor(Record):
    """A directory in which other hosts have written."""

    path: Path
    up: Default[Count, 0]
    """So many directories above it."""
    hosts: AtMost[List[Name], 4096]


class StorageQuestion(Record):
    """Marks in paths are replaced on the host."""

    token: Name
    """Of this check: in the names of the files that are written, and removed with the conversation."""
    host: Name
    """As which this one writes."""
    write: Default[AtMost[List[Path], MOST_PLACES], []]
    """Directories to write to; of one that is not there yet, the one above it."""
    look: Default[AtMost[List[LookFor], MOST_PLACES], []]
    checkpoints: Default[Paths, []]
    """Whose newest checkpoint is measured."""
    data: Default[AtMost[List[Path], MOST_PLACES], []]
    """Directories that trainers read."""


class Written(Record):
    """A directory that was to be written to. `problem`: the system's words where it could not be."""

    path: Path
    """As it was asked for."""
    at: Default[Path, ""]
    """The directory itself, or what of its path is there."""
    up: Default[Count, 0]
    """So many directories above it."""
    free_bytes: Default[Count, 0]
    filesystem: Default[AtMost[str, 100], ""]
    """The type of its file system, as ext4 or nfs4; empty where it is unknown."""
    full: Default[bool, False]
    """Its disk has no room."""
    problem: Default[Line, ""]


class Looked(Record):
    """A directory in which others have written: whose files are seen here."""

    path: Path
    seen: AtMost[List[Name], 4096]


class Data(Record):
    """What lies in a directory of data."""

    path: Path
    there: bool
    files: Default[Count, 0]
    size_bytes: Default[Count, 0]
    whole: Default[bool, True]
    """All of it was counted."""
    digest: Default[Line, ""]
    """Of all names and sizes, and of the beginnings and ends of some files."""
    problem: Default[Line, ""]


class DataHeld(Record):
    """What a push has put into a directory, and what is left of it."""

    dir: Path
    """As it was asked for."""
    there: bool
    bundle: Default[Optional[BundleId], None]
    """Of the newest push, also of one that was cut off; null: there was none."""
    files: Default[Count, 0]
    """That the bundle has."""
    size_bytes: Default[Count, 0]
    missing: Default[Count, 0]
    missing_bytes: Default[Count, 0]
    changed: Default[Count, 0]
    examples: Default[AtMost[List[Path], 10], []]
    """Of what is missing or changed."""


class DataQuestion(Record):
    """Directories that `data push` fills."""

    dirs: AtMost[List[Path], MOST_PLACES]
    """With marks."""


class DataFacts(Record):
    """In the order in which they were asked for."""

    at: AtMost[List[DataHeld], MOST_PLACES]


class CheckpointSize(Record):
    """The newest complete checkpoint of a directory."""

    path: Path
    size_bytes: Count


class StorageFacts(Record):
    """What has come of the question."""

    written: Default[AtMost[List[Written], MOST_PLACES], []]
    looked: Default[AtMost[List[Looked], MOST_PLACES], []]
    checkpoints: Default[AtMost[List[CheckpointSize], 100], []]
    data: Default[AtMost[List[Data], MOST_PLACES], []]


class UrlAsked(Record):
    """A storage URL, and whether the run writes there."""

    url: StorageUrl
    write: bool


class UrlsQuestion(Record):
    """What the run's storage URLs are to a Python of its trainers. Marks in variables are replaced on the host."""

    token: Name
    host: Name
    """Both are in the name of what is written, and removed."""
    program: Line
    environment: Default[Optional[Environment], None]
    variables: Default[Variables, {}]
    secrets: Default[Variables, {}]
    keep_proxy: Default[bool, False]
    libraries: Default[AtMost[List[OneOf["tensorflow", "fsspec"]], 2], ["tensorflow", "fsspec"]]
    """The first that is there and knows the scheme is asked."""
    modules: Default[AtMost[List[Module], MOST_MODULES], []]
    """That the program imports."""
    urls: AtMost[List[UrlAsked], 20]


class UrlTried(Record):
    """What came of a URL. `kind` empty: everything could be done."""

    url: StorageUrl
    library: Line
    """With its version."""
    doing: Default[OneOf["", "write", "read", "list", "remove"], ""]
    kind: Default[OneOf["", "missing", "denied", "scheme", "other"], ""]
    said: Default[Line, ""]
    saved: Default[bool, False]
    """TensorFlow's file `checkpoint` is there."""


class UrlsFacts(Record):
    """In the order of the question; nothing where the Python has no library that opens them."""

    path: Default[Line, ""]
    problem: Default[Line, ""]
    tried: Default[AtMost[List[UrlTried], 20], []]


class SpeedQuestion(Record):
    """How fast the host computes: it multiplies matrices for so long."""

    python: PythonAsked
    seconds: Within[float, 0.1, 60]
    framework: Default[OneOf["", "tensorflow", "torch"], ""]
    """That multiplies on the GPUs, where there are some."""


class GpuSpeed(Record):
    """What one GPU came to, and in what state it was meanwhile. null: its driver does not report it."""

    gpu: Count
    name: Default[AtMost[str, 200], ""]
    flops: Default[Within[float, 0, 1e18], 0.0]
    clock_mhz: Default[Optional[Count], None]
    degrees: Default[Optional[Count], None]
    lanes: Default[Optional[Count], None]
    """Of PCI Express."""


class SpeedFacts(Record):
    """What it came to, and what may explain it."""

    kind: Default[OneOf["", "numpy", "python"], ""]
    """With which means; only the same compare."""
    flops: Default[Within[float, 0, 1e18], 0.0]
    """Additions and multiplications a second, on all processors where NumPy uses them."""
    copied_bytes: Default[Within[float, 0, 1e15], 0.0]
    """In memory, a second."""
    model: Default[Line, ""]
    """Of the processors."""
    governor: Default[Line, ""]
    """By which the kernel sets their frequency."""
    machine: Machine
    """Its shares are of the time of the measurement."""
    busy: Default[AtMost[List[Busy], 10], []]
    """Processes of others meanwhile."""
    problem: Default[Line, ""]
    gpus: Default[AtMost[List[GpuSpeed], 64], []]
    gpu_problem: Default[Line, ""]
    """Why there are GPUs, and they could not be measured."""


class Questions(Record):
    """By topic; null: not asked."""

    software: Default[Optional[SoftwareQuestion], None]
    machine: Default[Optional[MachineQuestion], None]
    storage: Default[Optional[StorageQuestion], None]
    data: Default[Optional[DataQuestion], None]
    urls: Default[Optional[UrlsQuestion], None]
    speed: Default[Optional[SpeedQuestion], None]
    network: Default[Optional[NetworkQuestion], None]
    ssh: Default[Optional[SshQuestion], None]


class CheckFacts(Record):
    """The answers, by topic; null: not asked."""

    software: Default[Optional[SoftwareFacts], None]
    machine: Default[Optional[MachineFacts], None]
    storage: Default[Optional[StorageFacts], None]
    data: Default[Optional[DataFacts], None]
    urls: Default[Optional[UrlsFacts], None]
    speed: Default[Optional[SpeedFacts], None]
    network: Default[Optional[NetworkFacts], None]
    ssh: Default[Optional[SshFacts], None]


class CheckResult(Record):
    """The facts of one host in one round."""

    time: Epoch
    facts: CheckFacts
