"""What can go wrong, by exit code and by the codes of the hosts' answers: what it means, why, and what to do.

One source for `dtctl explain`, docs/exit-codes.md and docs/troubleshooting.md.
"""

from __future__ import annotations

from dataclasses import dataclass

from dtctl.errors import ExitCode


@dataclass(frozen=True)
class Cause:
    """One reason why: what the message says, or what is so, and the remedy."""

    sign: str
    remedy: str


@dataclass(frozen=True)
class Trouble:
    """`code` is an exit code, or the name of a host's answer (`error.code` with `-o json`)."""

    code: ExitCode | str
    meaning: str
    causes: tuple[Cause, ...] = ()

    @property
    def name(self) -> str:
        return str(int(self.code)) if isinstance(self.code, ExitCode) else self.code


def _trouble(code: ExitCode | str, meaning: str, *causes: tuple[str, str]) -> Trouble:
    return Trouble(code, meaning, tuple(Cause(*each) for each in causes))


EXITS = (
    _trouble(
        ExitCode.OK,
        "done; with `up -f`, `logs -f` and `wait`: the run has succeeded, and nothing of it is left",
    ),
    _trouble(
        ExitCode.RUN_FAILED,
        "the run has failed or was stopped, or a command could not do what it was asked",
        (
            "a trainer failed",
            "the last lines name the task that failed first and show the end of its log; "
            "`dtctl events` tells what was tried, `dtctl logs TASK -n all` shows the whole log",
        ),
        (
            "`No module named ...` in a log",
            "install it into the Python of that host, or name another Python: "
            "`trainer.python`, `trainer.venv`; `trainer.setup` runs a command before the first start",
        ),
        (
            "`exit code 2, which is not tried again`",
            "the trainer did not accept its flags: `dtctl plan` shows them, `dialect` and `args` choose them",
        ),
        (
            "`killed by SIGKILL`, and nobody asked",
            "the host ran out of memory, as a rule: `dtctl exec @HOST -- free -h`",
        ),
        ("`there is no run`", "`dtctl runs` lists those that are known; `dtctl up` starts one"),
    ),
    _trouble(
        ExitCode.USAGE,
        "the command line asks for something impossible",
        (
            "an option or a task that does not exist",
            "the message names the nearest one that does; `dtctl COMMAND --help` lists all",
        ),
        ("no cluster file", "`dtctl init DIR` writes one; `-c FILE` names one"),
        ("a question, and nobody there to answer it", "`--yes` answers it"),
    ),
    _trouble(
        ExitCode.CONFIG,
        "the cluster file has mistakes",
        (
            "each mistake comes with its line and a remedy",
            "`dtctl explain KEY` tells what a key means; `dtctl validate` checks the file without contacting anything",
        ),
    ),
    _trouble(
        ExitCode.UNREACHABLE,
        "hosts cannot be reached, refuse the key, or show another host key",
        (
            "`does not resolve`, `refuses connections`, `does not answer`",
            "the address or the port is wrong, or the "
            "host is down: `ssh HOST true` has to work first; dtctl reads `~/.ssh/config` as ssh does",
        ),
        ("`the host key ... is not known`", "`dtctl trust` shows the keys and, if you agree, pins them"),
        (
            "`the host key ... has changed`",
            "the host was reinstalled, or somebody listens in; the message has the command that forgets the old key",
        ),
        (
            "`cannot log in`",
            "the message says which keys were offered: `ssh-add KEY`, `ssh: {identity_file: KEY}`, or "
            "`ssh: {user: NAME}`",
        ),
        ("`through its gateway`", "the jump host is the one that cannot be reached: `ssh: {jump: HOST}`"),
        (
            "`python3 ... 3.8 is the oldest that works`",
            "install a newer `python3` on the host; the trainers may use another one (`trainer.python`)",
        ),
    ),
    _trouble(
        ExitCode.PREFLIGHT,
        "something that the run needs is missing (a port is taken, the disk is full, the setup failed, a Python lacks "
        "a module), or a live run differs from what was asked for; nothing was started",
        (
            "`cannot run ...: it lacks ...`",
            "the message has the command that installs it; under `--local` the "
            "Python of the active environment trains, else the one that runs dtctl; `trainer.python` names another",
        ),
        ("`is in use on this host`", "`dtctl gc` ends what an old run has left; otherwise choose another `port`"),
        ("`the disk is full`", "`dtctl gc` removes old runs and code; `dtctl exec @HOST -- df -h` shows the rest"),
        ("`the setup command ended with ...`", "its output follows: correct `trainer.setup`"),
        ("`another run ... is live`", "`dtctl up --replace` stops it first"),
        ("`no value for the secret`", "export the variable, or write it to the `env_file`"),
        ("a file that cannot be sent", "name it in `.dtctlignore`"),
    ),
    _trouble(
        ExitCode.LOCKED,
        "another controller is at work on the same cluster",
        (
            "somebody runs `up`, `stop`, `restart` or `replace` right now",
            "the message says who; try again when they are done",
        ),
    ),
    _trouble(
        ExitCode.PARTIAL,
        "some hosts could not be asked; dtctl did what it could with the others. With `status`: the coordinator's "
        "host, or any host if all had to be asked. With `stop`: hosts out of reach, whose tasks end if they are back "
        "within a day. With `wait` and the like: the run has succeeded, but something may still run on such hosts",
        (
            "a host is down, or its network is",
            "the run goes on without it as far as it can; type the command again "
            "when it is back, or `dtctl replace HOST` to move its tasks",
        ),
    ),
    _trouble(
        ExitCode.SURVIVORS,
        "processes are left after a stop, or after the end of the run",
        (
            "a process that SIGKILL does not end",
            "it waits for a disk or a GPU in the kernel; the message has its "
            "number: look at it with `dtctl ssh TASK`; a restart of the host ends it",
        ),
    ),
    _trouble(
        ExitCode.TIMEOUT,
        "the time to wait is over",
        ("`dtctl wait --timeout`", "the run goes on; `dtctl status` shows how far it is"),
    ),
    _trouble(
        ExitCode.INTERRUPTED,
        "Ctrl-C",
        ("typed while logs are followed", "the run goes on; `dtctl logs -f` follows again, `dtctl stop` ends it"),
        ("typed during `up`", "what had been started was taken back, unless the message says that the run continues"),
    ),
    _trouble(ExitCode.TERMINATED, "SIGTERM", ("somebody ended the command", "the run goes on, as after Ctrl-C")),
)
"""In the order of their numbers."""

ANSWERS = (
    _trouble(
        "bad_request",
        "the host's agent did not understand a request",
        (
            "a bug of dtctl, or something that changes the bytes on their way",
            "try again with `-v`, which shows each step",
        ),
    ),
    _trouble(
        "bundle_damaged",
        "the pushed code is not what it should be",
        (
            "files changed while they were sent, or the disk of the host is at fault",
            "try again; the damaged copy is replaced",
        ),
    ),
    _trouble(
        "changed_run",
        "a live run of this cluster differs from what `up` was asked for",
        ("the code or the file has changed since", "`dtctl up --replace` stops it and starts anew"),
    ),
    _trouble(
        "command_not_found",
        "`dtctl exec` names a program that the host lacks",
        ("it is not in the PATH of an ordinary login", "name it by its whole path"),
    ),
    _trouble(
        "damaged",
        "a file of the run cannot be used",
        (
            "the disk was full, or somebody changed it",
            "`dtctl down` ends what is left of the run and removes its files; what trainers wrote to `dirs` stays",
        ),
    ),
    _trouble(
        "disk_full",
        "there is no room on the host",
        (
            "old runs, old code, or checkpoints",
            "`dtctl gc` removes what dtctl has left; `keep` and `ttl` say how many runs are kept",
        ),
    ),
    _trouble(
        "internal",
        "the agent could not do it, for a reason that it had not foreseen",
        ("the message has the system's words", "`dtctl events` and `dtctl logs` often say more"),
    ),
    _trouble(
        "locked",
        "another dtctl works on this cluster on that host",
        ("somebody else runs `up`, `stop` or the like", "try again when they are done"),
    ),
    _trouble(
        "no_run",
        "the host knows no such run",
        ("it was removed by `dtctl down`, by `keep` or by `ttl`", "`dtctl runs` lists those that there are"),
    ),
    _trouble(
        "not_a_directory",
        "a directory that is needed is not there",
        (
            "a file is in its place, or `dirs.data` does not exist on the host",
            "make it there, or name another in `dirs` or `hosts.NAME.dirs`",
        ),
    ),
    _trouble(
        "not_answering",
        "the run's coordinator shows no sign of life",
        ("its host is very busy, or frozen", "wait a little; `dtctl stop` ends the run without it"),
    ),
    _trouble(
        "not_coordinator",
        "the host does not lead this run",
        ("the run has moved, or another machine has started a new one", "`dtctl status` finds the right one"),
    ),
    _trouble(
        "not_started",
        "the tasks have not started again yet",
        ("TensorFlow takes long to start, or the host is busy", "`dtctl status` shows when they run"),
    ),
    _trouble(
        "permission_denied",
        "the host's user may not write where it has to",
        (
            "the directory belongs to somebody else, or the file system is read-only",
            "the message names it: change its owner, or choose another directory in `dirs`",
        ),
    ),
    _trouble(
        "port_taken",
        "a port of a task, or the coordinator's, is in use",
        (
            "an old run, or another program; the message names it",
            "`dtctl gc` if it is dtctl's own; otherwise `jobs.NAME.port` or `coordinator.port`",
        ),
    ),
    _trouble(
        "python_too_old",
        "the host's `python3` is older than 3.8",
        ("an old system", "install a newer one and have it first in PATH"),
    ),
    _trouble(
        "rolled_back",
        "the start was taken back",
        ("another host could not start its part", "the error of that host is the one to look at"),
    ),
    _trouble(
        "run_ended",
        "the run is over",
        (
            "it has succeeded, failed or was stopped",
            "`dtctl up` starts the next one, which continues from the newest checkpoint",
        ),
    ),
    _trouble(
        "setup_failed",
        "`trainer.setup` ended with an error",
        ("its output follows the message", "try it by hand: `dtctl exec @HOST -- sh -c '...'`"),
    ),
    _trouble(
        "would_be_killed",
        "the host ends all processes of a user who logs out",
        ("systemd's `KillUserProcesses`", "`loginctl enable-linger` on the host, once"),
    ),
)
"""`error.code` of a host's answer."""


def troubles() -> dict[str, Trouble]:
    return {trouble.name: trouble for trouble in (*EXITS, *ANSWERS)}
