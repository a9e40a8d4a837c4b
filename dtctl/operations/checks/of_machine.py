"""What can be wrong with the machines themselves: rows of the table of `check`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

_ROOM = (
    "dtctl gc    removes old runs and old code from {own}",
    "dtctl checkpoints prune --keep 2    removes old checkpoints from {saved}",
)
"""The one for the disk of dtctl's own files, the other for that of checkpoints."""

DISK_FULL = Signature(
    "disk_full_before",
    Level.ENDS,
    "nothing is left on a disk that the run writes to",
    "the file systems of the run's files, of dirs.output, dirs.log and checkpoint.dir",
    "a disk of {hosts} is full: {free_bytes} of {size_bytes} left at {where}. The run cannot save there",
    (*_ROOM, "dtctl exec {at} -- df -h {where}    shows the disk"),
)
INODES_GONE = Signature(
    "inodes_gone",
    Level.ENDS,
    "a disk that the run writes to takes no more files, though it has room",
    "the free inodes of the same file systems",
    "a disk of {hosts} takes only {free_files} more files at {where}, though {free_bytes} are free",
    (*_ROOM, "dtctl exec {at} -- df -i {where}    shows the disk"),
)
DISK_LOW = Signature(
    "disk_low",
    Level.SLOWS,
    "little is left on a disk that the run writes to",
    "the same file systems",
    "a disk of {hosts} is nearly full: {free_bytes} of {size_bytes} left at {where}",
    (*_ROOM, "dtctl exec {at} -- df -h {where}    shows the disk"),
)
DISK_SILENT = Signature(
    "disk_silent",
    Level.ENDS,
    "a file system that the run writes to does not answer",
    "a look at it, which is given a few seconds",
    "{hosts} cannot look at {where}: its file system does not answer. Its server may be away",
    ("dtctl exec {at} -- mount    shows where it comes from",),
)
MEMORY_SHORT = Signature(
    "memory_short",
    Level.ENDS,
    "the tasks of a host took more memory in earlier runs than it has",
    "the most that each task was seen to take, and the host's memory",
    "{tasks} took {took_bytes} together in earlier runs, and {hosts} has {memory_bytes}",
    ("place fewer tasks there: jobs.NAME.hosts in cluster.yaml; or a smaller batch: trainer.args",),
)
MEMORY_TAKEN = Signature(
    "memory_taken",
    Level.SLOWS,
    "others use memory that the tasks will need",
    "the most that each task was seen to take, and what is free now",
    "{tasks} took {took_bytes} together in earlier runs, and only {available_bytes} of {memory_bytes} are free on "
    "{hosts} now",
    ("dtctl exec {at} -- ps -eo pid,user,rss,args --sort=-rss    shows who has it",),
)
GPUS_MISSING = Signature(
    "gpus_missing",
    Level.ENDS,
    "cluster.yaml declares GPUs that the host does not have",
    "hosts.NAME.gpus, and nvidia-smi",
    "{tasks} on {hosts} is given GPU {wanted}, and the host has {have}",
    ("dtctl exec {at} -- nvidia-smi    shows them", "hosts.NAME.gpus in cluster.yaml: as many as there are"),
)
GPUS_UNSEEN = Signature(
    "gpus_unseen",
    Level.ENDS,
    "cluster.yaml declares GPUs, and the host has no nvidia-smi",
    "hosts.NAME.gpus, and the host's PATH",
    "{tasks} on {hosts} is given GPU {wanted}, and the host has no nvidia-smi: no driver, it seems",
    ("install NVIDIA's driver there, or leave hosts.NAME.gpus out of cluster.yaml",),
)
GPUS_SILENT = Signature(
    "gpus_silent",
    Level.ENDS,
    "nvidia-smi is there, and tells of no GPU",
    "hosts.NAME.gpus, and nvidia-smi",
    "{tasks} on {hosts} is given GPU {wanted}, and nvidia-smi there tells of none: the driver does not answer",
    ("dtctl exec {at} -- nvidia-smi    tells why; after an update of the driver the host needs a restart",),
)
GPUS_LACKING = (GPUS_MISSING, GPUS_UNSEEN, GPUS_SILENT)
GPUS_IN_USE = Signature(
    "gpus_in_use",
    Level.SLOWS,
    "processes of others have memory of a GPU that a task will use",
    "nvidia-smi: memory and processes",
    "GPU {gpu} of {hosts} has {used_bytes} of {memory_bytes} in use already[, by {users}]",
    ("dtctl exec {at} -- nvidia-smi    shows who", "other hosts or GPUs, or wait until they are free"),
)
GPUS_SHARED = Signature(
    "gpus_shared",
    Level.SLOWS,
    "several tasks of a host would all take all of its GPUs",
    "nvidia-smi, and that cluster.yaml declares no GPUs",
    "{tasks} would all take all {have} GPUs of {hosts}, because cluster.yaml does not say how many it has",
    ("hosts.NAME.gpus: {have}    in cluster.yaml: then each task gets its own",),
)
DRIVERS_DIFFER = Signature(
    "drivers_differ",
    Level.NOTE,
    "hosts have several versions of NVIDIA's driver",
    "nvidia-smi",
    "NVIDIA's driver is not the same everywhere: {versions}",
    ("the same driver on every host",),
)
CLOCK_WRONG = Signature(
    "clock_wrong",
    Level.BLOCKS,
    "a clock is a minute or more off",
    "the time that each host tells, between a question and its answer",
    "the clock of {hosts} is {off_s} {way} that of {others}[ and {here}]. Times in logs and event files will not fit "
    "together, nobody can tell which checkpoint is the newest, and logins by ticket or certificate fail",
    ("dtctl exec {at} -- timedatectl    shows what keeps it", "as root on that host: timedatectl set-ntp true"),
)
CLOCK_OFF = Signature(
    "clock_off",
    Level.SLOWS,
    "a clock is some seconds off",
    "the same",
    "the clock of {hosts} is {off_s} {way} that of {others}[ and {here}]: times in logs and event files will not "
    "fit together",
    ("as root on that host: timedatectl set-ntp true",),
)
CLOCK_HERE = Signature(
    "clock_wrong_here",
    Level.SLOWS,
    "this machine's clock is off, and those of the hosts agree",
    "the same",
    "the clock of this machine is {off_s} {way} that of {others}[ and {here}]: ages and times that dtctl shows here "
    "are off by that",
    ("as root on this machine: timedatectl set-ntp true",),
)
FEW_FILES = Signature(
    "few_files",
    Level.SLOWS,
    "a login may open few files",
    "ulimit -n of the login",
    "processes of {hosts} may open only {open_files} files at a time; each task holds a connection to every other one, "
    "and its data",
    ("as root on that host: a line `* - nofile 65536` in /etc/security/limits.conf",),
)
FEW_PROCESSES = Signature(
    "few_processes",
    Level.SLOWS,
    "a login may have few processes and threads",
    "ulimit -u of the login",
    "the user of {hosts} may have only {processes} threads at a time; TensorFlow starts hundreds a task",
    ("as root on that host: a line `* - nproc 65536` in /etc/security/limits.conf",),
)
KILLED_AT_LOGOUT = Signature(
    "killed_at_logout",
    Level.SLOWS,
    "logind ends at the logout what a login has started",
    "KillUserProcesses of logind, and whether the user lingers",
    "{hosts} ends at the logout what a login has started (KillUserProcesses=yes), and the user does not linger; up "
    "tries to switch that on, and refuses where it may not",
    ("as root on that host: loginctl enable-linger USER",),
)

ROWS = (
    DISK_FULL,
    INODES_GONE,
    DISK_LOW,
    DISK_SILENT,
    MEMORY_SHORT,
    MEMORY_TAKEN,
    *GPUS_LACKING,
    GPUS_IN_USE,
    GPUS_SHARED,
    DRIVERS_DIFFER,
    CLOCK_WRONG,
    CLOCK_OFF,
    CLOCK_HERE,
    FEW_FILES,
    FEW_PROCESSES,
    KILLED_AT_LOGOUT,
)
