"""The questions of `check` to a host before a run: a question and its facts for each topic (`Room.topics`)."""

from ...records.kinds import AtMost, Default, Dict, List, OneOf, Optional, Record, Within
from ...records.requests import Request
from ...records.spec import Environment, Paths
from ...records.values import (
    MOST_PLACES,
    MOST_TASKS,
    BundleId,
    Count,
    Epoch,
    Line,
    Name,
    Path,
    StorageUrl,
    TaskName,
    Topics,
    Variables,
)
from ...records.vitals import Busy, Disk, Machine

MOST_PYTHONS = 20
MOST_MODULES = 1000
MOST_FILES = 200
"""The most files of a program."""
MOST_TAKEN = 1000

Module = AtMost[str, 200]
Version = AtMost[str, 200]


class PythonAsked(Record):
    """A Python that starts trainers on this host; marks in it are replaced on the host."""

    program: Line
    path: Default[Line, ""]
    """The PATH in which a program without a `/` is searched for."""
    python_path: Default[Line, ""]
    """The trainers' PYTHONPATH."""
    modules: Default[AtMost[List[Module], MOST_MODULES], []]
    """The modules that their programs import."""
    cuda: Default[bool, False]
    """Whether to search for CUDA's libraries and count the GPUs that frameworks see: trainers are given GPUs."""
    isolated: Default[bool, False]
    """Whether it is a Python of the controller, which starts with -I, in / and without variables; nothing of
    `python_path` is imported.
    """
    may_start: Default[bool, True]
    """False on a controller whose user has not allowed the cluster file to start it."""
    environment: Default[Optional[Environment], None]
    """The environment that contains the Python."""
    bundle: Default[Optional[BundleId], None]
    """The bundle of code to compile, which the host has."""
    files: Default[AtMost[List[Path], MOST_FILES], []]
    """The files of the code to compile."""


class SoftwareQuestion(Record):
    """Queries the packages of the trainers' Pythons."""

    pythons: AtMost[List[PythonAsked], MOST_PYTHONS]
    started: Default[bool, False]
    """Whether each Python is started and queried; otherwise the names in its directories are read."""
    imported: Default[bool, False]
    """Whether the modules are imported, which takes time."""


class Imported(Record):
    """The result of importing a module."""

    seconds: Count
    problem: Default[Line, ""]
    gpus: Default[Optional[Count], None]
    """The number of GPUs that a framework sees; null: it is no framework, or was not queried."""


class Broken(Record):
    """The first line of the code that a Python cannot compile."""

    file: Path
    line: Count
    problem: Line


class PythonFound(Record):
    """The facts of a Python; `program` as in the question."""

    program: Line
    path: Default[Line, ""]
    """The path; empty: not found."""
    version: Default[Version, ""]
    libc: Default[Version, ""]
    packages: Default[AtMost[Dict[AtMost[str, 100], Version], 100], {}]
    managed: Default[bool, False]
    """Whether the system's package manager owns it, so that pip refuses to install (PEP 668)."""
    missing: Default[AtMost[List[Module], MOST_MODULES], []]
    """Modules that it does not find."""
    broken: Default[Optional[Broken], None]
    imported: Default[AtMost[Dict[Module, Imported], MOST_MODULES], {}]
    cuda: Default[Line, ""]
    """The directory of CUDA's libraries, if they were searched for."""
    legacy_keras: Default[bool, False]
    """Whether it starts with a variable that makes tf.keras Keras 2 (TF_USE_LEGACY_KERAS), as from a login."""
    problem: Default[Line, ""]
    """Its output, if that is no valid answer."""


class SoftwareFacts(Record):
    """The facts of the Pythons, in the order of the question."""

    pythons: AtMost[List[PythonFound], MOST_PYTHONS]


class MachineQuestion(Record):
    """Queries the host's resources, and how much of them is free."""

    places: Default[AtMost[List[Path], MOST_PLACES], []]
    """Directories that the run writes to, with marks; for a missing one its nearest existing parent counts."""
    gpus: Default[bool, False]
    """Whether to query the GPUs."""
    rights: Default[bool, False]
    """Whether to query what may end or limit processes."""
    cluster: Default[Optional[Name], None]
    """The cluster for which to report the memory that tasks of earlier runs used."""


class GpuTaken(Record):
    """A GPU that a task of a live run of this user may use."""

    gpu: Count
    cluster: Name
    run: Name
    task: TaskName


class Rights(Record):
    """Settings that may end or limit a user's processes. null: unlimited."""

    open_files: Default[Optional[Count], None]
    processes: Default[Optional[Count], None]
    cpu_s: Default[Optional[Count], None]
    """CPU time of a process, in seconds."""
    file_bytes: Default[Optional[Count], None]
    """The largest file that a process may write."""
    selinux: Default[OneOf["", "enforcing", "permissive"], ""]
    kills_at_logout: Default[bool, False]
    """logind ends what a login has started (KillUserProcesses)."""
    lingers: Default[bool, False]
    """The user's own systemd outlives the logins."""


class TaskMemory(Record):
    """The memory of a cluster's tasks on this host."""

    took: Default[AtMost[Dict[TaskName, Count], MOST_TASKS], {}]
    """The most memory that tasks of earlier runs used here."""
    taking_bytes: Default[Count, 0]
    """The memory that tasks of the cluster use now."""


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
    """The number of levels above `path` at which they wrote."""
    hosts: AtMost[List[Name], 4096]


class StorageQuestion(Record):
    """Marks in paths are replaced on the host."""

    token: Name
    """Identifies this check in the names of files that it writes, which are removed with the conversation."""
    host: Name
    """The name of this host in those files."""
    write: Default[AtMost[List[Path], MOST_PLACES], []]
    """Directories to write to; of one that is not there yet, the one above it."""
    look: Default[AtMost[List[LookFor], MOST_PLACES], []]
    checkpoints: Default[Paths, []]
    """Directories whose newest checkpoint is measured."""
    data: Default[AtMost[List[Path], MOST_PLACES], []]
    """Directories that trainers read."""


class Written(Record):
    """The result of writing to a directory. `problem`: the system's error if that failed."""

    path: Path
    """The path as in the request."""
    at: Default[Path, ""]
    """The directory itself, or its nearest existing parent."""
    up: Default[Count, 0]
    """The number of levels that `at` is above it."""
    free_bytes: Default[Count, 0]
    filesystem: Default[AtMost[str, 100], ""]
    """The type of its file system, as ext4 or nfs4; empty where it is unknown."""
    full: Default[bool, False]
    """Whether its disk is full."""
    problem: Default[Line, ""]


class Looked(Record):
    """The hosts whose files are visible here in a directory."""

    path: Path
    seen: AtMost[List[Name], 4096]


class Data(Record):
    """The contents of a directory of data."""

    path: Path
    there: bool
    files: Default[Count, 0]
    size_bytes: Default[Count, 0]
    whole: Default[bool, True]
    """Whether all files were counted."""
    digest: Default[Line, ""]
    """A digest of all names and sizes, and of the beginnings and ends of some files."""
    problem: Default[Line, ""]


class CheckpointSize(Record):
    """The newest complete checkpoint of a directory."""

    path: Path
    size_bytes: Count


class StorageFacts(Record):
    """The answers to StorageQuestion."""

    written: Default[AtMost[List[Written], MOST_PLACES], []]
    looked: Default[AtMost[List[Looked], MOST_PLACES], []]
    checkpoints: Default[AtMost[List[CheckpointSize], 100], []]
    data: Default[AtMost[List[Data], MOST_PLACES], []]


class UrlAsked(Record):
    """A storage URL, and whether the run writes there."""

    url: StorageUrl
    write: bool


class UrlsQuestion(Record):
    """Whether a Python of the trainers can use the run's storage URLs. Marks in variables are replaced on the host."""

    token: Name
    host: Name
    """Both are in the names of the test files, which are removed."""
    program: Line
    environment: Default[Optional[Environment], None]
    variables: Default[Variables, {}]
    secrets: Default[Variables, {}]
    keep_proxy: Default[bool, False]
    libraries: Default[AtMost[List[OneOf["tensorflow", "fsspec"]], 2], ["tensorflow", "fsspec"]]
    """The first library that is installed and supports the scheme is used."""
    modules: Default[AtMost[List[Module], MOST_MODULES], []]
    """The modules that the program imports."""
    urls: AtMost[List[UrlAsked], 20]


class UrlTried(Record):
    """The result for a URL. `kind` empty: every operation succeeded."""

    url: StorageUrl
    library: Line
    """The library with its version."""
    doing: Default[OneOf["", "write", "read", "list", "remove"], ""]
    kind: Default[OneOf["", "missing", "denied", "scheme", "unresolved", "other"], ""]
    said: Default[Line, ""]
    saved: Default[bool, False]
    """Whether TensorFlow's file `checkpoint` exists."""


class UrlsFacts(Record):
    """The results in the order of the question; none if the Python has no library that opens the URLs."""

    path: Default[Line, ""]
    problem: Default[Line, ""]
    tried: Default[AtMost[List[UrlTried], 20], []]


class SpeedQuestion(Record):
    """Measures how fast the host computes: it multiplies matrices for `seconds`."""

    python: PythonAsked
    seconds: Within[float, 0.1, 60]
    framework: Default[OneOf["", "tensorflow", "torch"], ""]
    """The framework that multiplies on the GPUs; empty: none."""


class GpuSpeed(Record):
    """The speed of one GPU, and its state during the measurement. null: its driver does not report it."""

    gpu: Count
    name: Default[AtMost[str, 200], ""]
    flops: Default[Within[float, 0, 1e18], 0.0]
    clock_mhz: Default[Optional[Count], None]
    degrees: Default[Optional[Count], None]
    lanes: Default[Optional[Count], None]
    """The number of its PCI Express lanes."""


class SpeedFacts(Record):
    """The measured speed, and facts that may explain it."""

    kind: Default[OneOf["", "numpy", "python"], ""]
    """The library that was used; only results of the same one are comparable."""
    flops: Default[Within[float, 0, 1e18], 0.0]
    """Additions and multiplications a second, on all processors where NumPy uses them."""
    copied_bytes: Default[Within[float, 0, 1e15], 0.0]
    """The bytes a second copied in memory."""
    model: Default[Line, ""]
    """The model of the processors."""
    governor: Default[Line, ""]
    """The governor by which the kernel sets their frequency."""
    machine: Machine
    """The machine; its shares are of the time of the measurement."""
    busy: Default[AtMost[List[Busy], 10], []]
    """Other processes that kept the processors busy during the measurement."""
    problem: Default[Line, ""]
    gpus: Default[AtMost[List[GpuSpeed], 64], []]
    gpu_problem: Default[Line, ""]
    """Why existing GPUs could not be measured."""


class CheckResult(Record):
    """The facts of one host in one round."""

    time: Epoch
    facts: Topics


class CheckRequest(Request):
    """Checks what a run needs on the host; may be repeated, as each answer leads to more questions."""

    ask: Topics
