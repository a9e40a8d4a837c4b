"""What can be wrong with the places that a run reads and writes: rows of the table of `check`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

_SHARE = "{setting} in cluster.yaml: a directory that all of them share (NFS, Lustre); the program has to save there"

UNWRITABLE = Signature(
    "place_unwritable",
    Level.ENDS,
    "a directory that the run writes to cannot be written, or made",
    "a file that is written there and removed again",
    "{hosts} cannot write to {where}: {said}[ (of that path only {there} is there)]",
    (
        "dtctl exec {at} -- ls -ld {there}    shows whose it is",
        "another directory: dirs.output or checkpoint.dir in cluster.yaml",
    ),
)
NOT_SHARED = Signature(
    "checkpoints_not_shared",
    Level.BLOCKS,
    "the parts of a checkpoint would lie on several disks, and no restore could put them together",
    "a file that is written on the lead's host, and looked for on the others",
    "{where} is not one directory: what {lead} writes there is not seen on {hosts}. In this way of training each ps "
    "saves its own part, so no host would have a whole checkpoint, and {tasks} could not be restored",
    (
        _SHARE,
        "or let the chief save all of it: Saver(sharded=False) on the chief's device, or "
        "CheckpointOptions(experimental_io_device=...)",
    ),
)
PERHAPS_NOT_SHARED = Signature(
    "checkpoints_perhaps_not_shared",
    Level.SLOWS,
    "the same, of a program whose text does not tell who saves",
    "the same",
    "{where} is not one directory: what {lead} writes there is not seen on {hosts}. If each ps saves its own part "
    "(sharded=True, which is usual), no host has a whole checkpoint",
    (
        _SHARE,
        "or let the chief save all of it: Saver(sharded=False) on the chief's device",
    ),
)
NOT_SEEN = Signature(
    "checkpoints_not_seen",
    Level.BLOCKS,
    "an evaluator does not see what the lead saves",
    "the same",
    "{tasks} waits for checkpoints that it will never see: what {lead} writes to {where} is not seen on {hosts}",
    (
        _SHARE,
        "or place the evaluator on {lead}: jobs.evaluator.hosts",
    ),
)
RESTARTS_APART = Signature(
    "restarts_apart",
    Level.SLOWS,
    "workers that train in step would not all find the checkpoint to continue from",
    "the same",
    "{where} is not one directory: what {lead} writes there is not seen on {hosts}. After a restart {tasks} would not "
    "find the checkpoint that {lead} continues from",
    (
        _SHARE,
        "or a program in which the first worker restores, and sends the others what it has read",
    ),
)
NO_ROOM = Signature(
    "no_room_to_save",
    Level.ENDS,
    "the next checkpoint does not fit on the disk",
    "the newest complete checkpoint, and what is free there",
    "{hosts} has no room for the next checkpoint: {free_bytes} are free at {where}, and the last one has {last_bytes}",
    ("dtctl checkpoints prune --keep 2    removes old ones", "dtctl gc    removes old runs and old code"),
)
LITTLE_ROOM = Signature(
    "little_room_to_save",
    Level.SLOWS,
    "few checkpoints fit on the disk",
    "the same",
    "{hosts} has room for only {fit} more checkpoints: {free_bytes} are free at {where}, and the last one has "
    "{last_bytes}",
    ("dtctl checkpoints prune --keep 2    removes old ones", "dtctl gc    removes old runs and old code"),
)
DATA_MISSING = Signature(
    "data_missing",
    Level.ENDS,
    "a directory of data is not there",
    "dirs.data on the hosts of the tasks that read it",
    "{hosts} has no {where}, where {tasks} reads its data",
    ("put the data there, or name its place on this host: hosts.NAME.dirs in cluster.yaml",),
)
DATA_UNREADABLE = Signature(
    "data_unreadable",
    Level.ENDS,
    "a directory of data cannot be read",
    "the same",
    "{hosts} cannot read {where}: {said}",
    ("dtctl exec {at} -- ls -ld {where}    shows whose it is",),
)
DATA_EMPTY = Signature(
    "data_empty",
    Level.SLOWS,
    "a directory of data is empty on some hosts",
    "the same",
    "{where} is empty on {hosts}, and not on {others}",
    ("copy the data there as well; or is it a network disk that is not mounted?  dtctl exec {at} -- df {where}",),
)
DATA_DIFFERS = Signature(
    "data_differs",
    Level.SLOWS,
    "hosts have different data",
    "the number and the sizes of the files, and pieces of some of them",
    "the data in {where} is not the same everywhere: {versions}",
    ("if each host is not meant to have its own part, copy it again: rsync -a --delete",),
)
DATA_CHANGED = Signature(
    "data_changed",
    Level.SLOWS,
    "hosts have files of the same sizes and other contents",
    "the same",
    "the data in {where} has the same sizes everywhere, and other contents on {hosts} than on {others}",
    ("copy it again: rsync -a --checksum",),
)

ROWS = (
    UNWRITABLE,
    NOT_SHARED,
    PERHAPS_NOT_SHARED,
    NOT_SEEN,
    RESTARTS_APART,
    NO_ROOM,
    LITTLE_ROOM,
    DATA_MISSING,
    DATA_UNREADABLE,
    DATA_EMPTY,
    DATA_DIFFERS,
    DATA_CHANGED,
)
