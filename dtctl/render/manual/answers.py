"""What each code of a host's answer means, why it comes about, and what to do."""

from __future__ import annotations

from dtctl.render.manual.trouble import trouble

ANSWERS = (
    trouble(
        "bad_request",
        "the host's agent did not understand a request",
        (
            "a bug of dtctl, or something that changes the bytes on their way",
            "try again with `-v`, which shows each step",
        ),
    ),
    trouble(
        "bundle_damaged",
        "the pushed code is not what it should be",
        (
            "files changed while they were sent, or the disk of the host is at fault",
            "try again; the damaged copy is replaced",
        ),
    ),
    trouble(
        "changed_run",
        "a live run of this cluster differs from what `up` was asked for",
        ("the code or the file has changed since", "`dtctl up --replace` stops it and starts anew"),
    ),
    trouble(
        "checkpoint_damaged",
        "a checkpoint that was pushed is not what was sent",
        (
            "its file changed while it was sent, or the disk of the host is at fault",
            "try again; what is damaged is sent once more",
        ),
    ),
    trouble(
        "command_not_found",
        "`dtctl exec` names a program that the host lacks",
        ("it is not in the PATH of an ordinary login", "name it by its whole path"),
    ),
    trouble(
        "damaged",
        "a file of the run cannot be used",
        (
            "the disk was full, or somebody changed it",
            "`dtctl down` ends what is left of the run and removes its files; what trainers wrote to `dirs` stays",
        ),
    ),
    trouble(
        "disk_full",
        "there is no room on the host",
        (
            "old runs, old code, or checkpoints",
            "`dtctl gc` removes what dtctl has left; `keep` and `ttl` say how many runs are kept",
        ),
    ),
    trouble(
        "internal",
        "the agent could not do it, for a reason that it had not foreseen",
        ("the message has the system's words", "`dtctl events` and `dtctl logs` often say more"),
    ),
    trouble(
        "locked",
        "another dtctl works on this cluster on that host",
        ("somebody else runs `up`, `stop` or the like", "try again when they are done"),
    ),
    trouble(
        "name_taken",
        "another checkpoint of this name is in the directory",
        (
            "an earlier training has saved it; dtctl overwrites none",
            "give the files of yours another name, move that one away, or push `--into` another directory",
        ),
    ),
    trouble(
        "no_run",
        "the host knows no such run",
        ("it was removed by `dtctl down`, by `keep` or by `ttl`", "`dtctl runs` lists those that there are"),
    ),
    trouble(
        "no_tensorboard",
        "no Python of the tasks on the host has TensorBoard",
        (
            "it is not installed in the environment that trains",
            "`pip install tensorboard` there, or here for `dtctl tensorboard --copy`",
        ),
    ),
    trouble(
        "not_a_directory",
        "a directory that is needed is not there",
        (
            "a file is in its place, or `dirs.data` does not exist on the host",
            "make it there, or name another in `dirs` or `hosts.NAME.dirs`",
        ),
    ),
    trouble(
        "not_answering",
        "the run's coordinator shows no sign of life",
        ("its host is very busy, or frozen", "wait a little; `dtctl stop` ends the run without it"),
    ),
    trouble(
        "not_coordinator",
        "the host does not lead this run",
        ("the run has moved, or another machine has started a new one", "`dtctl status` finds the right one"),
    ),
    trouble(
        "not_started",
        "the tasks have not started again yet",
        ("TensorFlow takes long to start, or the host is busy", "`dtctl status` shows when they run"),
    ),
    trouble(
        "other_version",
        "the run was begun by a version of dtctl that writes its files otherwise",
        (
            "dtctl was brought up to date, or is older here than where the run was begun",
            "use the version that began it, or end the run: `dtctl down`, which removes its files; what trainers wrote"
            " to `dirs` stays",
        ),
    ),
    trouble(
        "permission_denied",
        "the host's user may not write where it has to",
        (
            "the directory belongs to somebody else, or the file system is read-only",
            "the message names it: change its owner, or choose another directory in `dirs`",
        ),
    ),
    trouble(
        "port_taken",
        "a port of a task, or the coordinator's, is in use",
        (
            "an old run, or another program; the message names it",
            "`dtctl gc` if it is dtctl's own; otherwise `jobs.NAME.port` or `coordinator.port`",
        ),
    ),
    trouble(
        "python_too_old",
        "the host's `python3` is older than 3.8",
        ("an old system", "install a newer one and have it first in PATH"),
    ),
    trouble(
        "rolled_back",
        "the start was cancelled",
        ("another host could not start its part", "the error of that host is the one to look at"),
    ),
    trouble(
        "run_ended",
        "the run is over",
        (
            "it has succeeded, failed or was stopped",
            "`dtctl up` starts the next one, which continues from the newest checkpoint",
        ),
    ),
    trouble(
        "run_live",
        "a run of this cluster is live, and a checkpoint is to be pushed",
        (
            "its trainers save their own, and would not begin from this one",
            "`dtctl stop` ends it; then push, and start again",
        ),
    ),
    trouble(
        "setup_failed",
        "`trainer.setup` ended with an error",
        ("its output follows the message", "try it by hand: `dtctl exec @HOST -- sh -c '...'`"),
    ),
    trouble(
        "tensorboard_failed",
        "TensorBoard did not begin on the host",
        (
            "its output follows the message: often a plugin or a package that does not fit its version",
            "`dtctl tensorboard --copy` shows copies here, with the TensorBoard of this machine",
        ),
    ),
    trouble(
        "would_be_killed",
        "the host ends all processes of a user who logs out",
        ("systemd's `KillUserProcesses`", "`loginctl enable-linger` on the host, once"),
    ),
)
"""`error.code` of a host's answer."""
