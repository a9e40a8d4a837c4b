"""What each exit code means, why it comes about, and what to do."""

from __future__ import annotations

from dtctl.errors import ExitCode
from dtctl.render.manual.trouble import trouble

EXITS = (
    trouble(
        ExitCode.OK,
        "done; with `up -f`, `logs -f` and `wait`: the run has succeeded, and nothing of it is left",
    ),
    trouble(
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
    trouble(
        ExitCode.USAGE,
        "the command line asks for something impossible",
        (
            "an option or a task that does not exist",
            "the message names the nearest one that does; `dtctl COMMAND --help` lists all",
        ),
        ("no cluster file", "`dtctl init DIR` writes one; `-c FILE` names one"),
        ("a question, and nobody there to answer it", "`--yes` answers it"),
    ),
    trouble(
        ExitCode.CONFIG,
        "the cluster file has mistakes",
        (
            "each mistake comes with its line and a remedy",
            "`dtctl explain KEY` tells what a key means; `dtctl validate` checks the file without contacting anything",
        ),
    ),
    trouble(
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
    trouble(
        ExitCode.PREFLIGHT,
        "something that the run needs is missing (a port is taken, the disk is full, the setup failed, a Python lacks "
        "a module), or a live run differs from what was asked for; nothing was started",
        (
            "`tasks would fail as soon as they start`",
            "the check says why, and for a missing module the command that installs it; under `--local` the "
            "Python of the active environment trains, else the one that runs dtctl; `trainer.python` names another",
        ),
        ("`dtctl check` tells of a problem", "each says what to type; [check.md](check.md) has all of them"),
        ("`is in use on this host`", "`dtctl gc` ends what an old run has left; otherwise choose another `port`"),
        ("`the disk is full`", "`dtctl gc` removes old runs and code; `dtctl exec @HOST -- df -h` shows the rest"),
        ("`the setup command ended with ...`", "its output follows: correct `trainer.setup`"),
        ("`another run ... is live`", "`dtctl up --replace` stops it first"),
        ("`dtctl top needs Textual`", "the message has the command that installs it: the extra `dtctl[top]`"),
        ("`no value for the secret`", "export the variable, or write it to the `env_file`"),
        ("a file that cannot be sent", "name it in `.dtctlignore`"),
    ),
    trouble(
        ExitCode.LOCKED,
        "another controller is at work on the same cluster",
        (
            "somebody runs `up`, `stop`, `restart` or `replace` right now",
            "the message says who; try again when they are done",
        ),
    ),
    trouble(
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
    trouble(
        ExitCode.SURVIVORS,
        "processes are left after a stop, or after the end of the run",
        (
            "a process that SIGKILL does not end",
            "it waits for a disk or a GPU in the kernel; the message has its "
            "number: look at it with `dtctl ssh TASK`; a restart of the host ends it",
        ),
    ),
    trouble(
        ExitCode.TIMEOUT,
        "the time to wait is over",
        ("`dtctl wait --timeout`", "the run goes on; `dtctl status` shows how far it is"),
    ),
    trouble(
        ExitCode.INTERRUPTED,
        "Ctrl-C",
        ("typed while logs are followed", "the run goes on; `dtctl logs -f` follows again, `dtctl stop` ends it"),
        (
            "typed during `up`",
            "the start is cancelled; once all hosts have started, `up` asks, and the run continues unless you say yes",
        ),
    ),
    trouble(ExitCode.TERMINATED, "SIGTERM", ("somebody ended the command", "the run goes on, as after Ctrl-C")),
)
"""In the order of their numbers."""
