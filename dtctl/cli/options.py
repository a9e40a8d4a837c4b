"""Options that many commands share, and what they lead to: a run and a way to its hosts."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from dtctl.cli.completion import complete_runs, complete_tasks
from dtctl.cli.interrupts import left
from dtctl.errors import DtctlError, UsageError

if TYPE_CHECKING:
    from dtctl.model import Cluster, Host
    from dtctl.operations.memory.record import RunRecord
    from dtctl.operations.memory.store import Memory
    from dtctl.transport.connect import Transports

Output = Literal["text", "json"]
ClusterFile = Annotated[
    Path | None,
    typer.Argument(metavar="[CLUSTER_FILE]", help="The cluster file; if omitted, searched for from here upwards."),
]
Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a key of the file, as trainer.args.steps=100."),
]
OutputOption = Annotated[
    Output, typer.Option("-o", "--output", metavar="text|json", help="Output for people or for programs.")
]
Local = Annotated[bool, typer.Option("--local", help="Run all hosts on this machine, without SSH.")]
Raw = Annotated[bool, typer.Option("--raw", help="Pass output through byte for byte, escape sequences included.")]
Tasks = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[TASK]...",
        help="worker:1, worker, worker:0-3 or @HOST; all if none is named.",
        autocompletion=complete_tasks,
    ),
]


@dataclass(frozen=True)
class Scope:
    """Which run a command is about and how its hosts are reached, as the options say."""

    config: Path | None = None
    run: str | None = None
    user: str | None = None
    identity: Path | None = None
    jump: str | None = None
    ssh_config: Path | None = None
    verbose: bool = False

    @functools.cached_property
    def memory(self) -> Memory:
        from dtctl.operations.memory.store import Memory

        def report(line: str) -> None:
            from dtctl.render.errors import note

            note(line)

        return Memory(report)

    @functools.cached_property
    def transport(self) -> Transports:
        from dtctl.render.terminal.moving import still
        from dtctl.render.terminal.safe import one_line
        from dtctl.transport.connect import Transports
        from dtctl.transport.ssh.passphrase import terminal_passphrase

        passphrase = terminal_passphrase(one_line, still)
        return Transports(ssh_config=self.ssh_config, passphrase=passphrase, waiting=_tell_of_silence)

    def left(self, what: str | Callable[[], str], *next_steps: str) -> AbstractContextManager[None]:
        """As `interrupts.left`, once a host was reached; before that nothing can have changed."""

        def said() -> str:
            if not self.transport.reached:
                return "no host had been reached, so nothing was changed"
            return what if isinstance(what, str) else what()

        return left(said, *next_steps)

    def file(self, argument: Path | None = None) -> Path:
        """The cluster file that is meant; raises when there is none."""
        from dtctl.config import find_cluster_file

        return find_cluster_file(argument or self.config, os.environ, Path.cwd())

    def cluster(self, argument: Path | None = None, overrides: list[str] | None = None) -> Cluster:
        from dtctl.config import load_cluster

        cluster = load_cluster(self.file(argument), overrides=overrides or [])
        return dataclasses.replace(cluster, hosts={name: self._reached(host) for name, host in cluster.hosts.items()})

    def record(self, *, for_its_hosts: bool = False) -> RunRecord:
        """The run that is meant: --run, or the current run of the cluster file here, or else of the last `up`.

        `for_its_hosts`: for commands that need no run: without one, the hosts of the cluster file are meant.
        """
        from dtctl.operations.memory.record import record_of
        from dtctl.plan.roster import plan_roster

        record = self.memory.load(self.run) if self.run is not None else None
        if record is not None:
            return self._with_own_access(self._with_hosts_of_file(record))
        if self.run is not None:
            return self._run_of_others(self.run)
        file = self._file_here()
        record = self.memory.newest_of(file) if file else self.memory.current()
        if record is None and file and not for_its_hosts:
            record = self.memory.place_of(file)
        if record is None and file:
            record = record_of(plan_roster(self.cluster(file)))
        if record is None:
            self.file()  # raises, and says what there is
            raise AssertionError("no file here, and one is found")
        # Without --run hosts are asked for their current run: somebody else may have started another since.
        return self._with_own_access(self._with_hosts_of_file(dataclasses.replace(record, run=None)))

    def _run_of_others(self, run: str) -> RunRecord:
        """One that this machine has not started: the cluster file says which hosts may know it."""
        from dtctl.operations.memory.record import record_of
        from dtctl.operations.runs import check_known, unknown
        from dtctl.plan.roster import plan_roster

        remembered = [str(record.run) for record in self.memory.runs()]
        try:
            file = self.file()
        except UsageError as error:
            why = "this machine remembers no such run, and there is no cluster file whose hosts could be asked"
            raise unknown(run, why, remembered) from error
        record = self.memory.newest_of(file) or self.memory.place_of(file) or record_of(plan_roster(self.cluster(file)))
        record = self._with_own_access(self._with_hosts_of_file(dataclasses.replace(record, run=run)))
        check_known(record, self.transport, remembered)
        return record

    def _file_here(self) -> Path | None:
        """None: nothing was named and nothing lies here, so that the remembered run is meant."""
        if self.config is not None or os.environ.get("DTCTL_CONFIG"):
            return self.file()
        try:
            return self.file()
        except UsageError:
            return None

    def _with_own_access(self, record: RunRecord) -> RunRecord:
        return dataclasses.replace(record, hosts={name: self._reached(host) for name, host in record.hosts.items()})

    def _with_hosts_of_file(self, record: RunRecord) -> RunRecord:
        """The run may have moved to a host that the file has got since this machine has started it."""
        if record.file is None or record.is_local:
            return record
        own, file = {name: self._reached(host) for name, host in record.others.items()}, record.file

        def look() -> Mapping[str, Host]:
            try:
                return {**own, **self.cluster(file).hosts}
            except DtctlError:
                return own  # what the run was started with still counts

        return dataclasses.replace(record, others=_Late(look))

    def _reached(self, host: Host) -> Host:
        """The host with what the command line says of SSH over what the file says. Raises UsageError."""
        from dtctl.config.names import check_names
        from dtctl.reach import SshSettings

        own: dict[str, Any] = {
            "user": self.user,
            "identity_file": str(self.identity) if self.identity else None,
            "jump": self.jump,
        }
        check_names(own)
        given = {name: value for name, value in own.items() if value is not None}
        if not given or not isinstance(host.reach, SshSettings):
            return host
        return dataclasses.replace(host, reach=dataclasses.replace(host.reach, **given))


class _Late(Mapping[str, "Host"]):
    """Hosts that are looked for when somebody wants to know: few commands do, and a file takes time to read."""

    def __init__(self, look: Callable[[], Mapping[str, Host]]) -> None:
        self._look = look

    @functools.cached_property
    def _found(self) -> Mapping[str, Host]:
        return self._look()

    def __getitem__(self, name: str) -> Host:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _tell_of_silence(host: str, silent_s: float, limit_s: float) -> None:
    """Shown with -q and -o json too: it is on stderr, and nothing else says why nothing happens."""
    from dtctl.render import errors

    errors.note(f"waiting for {host}: silent for {silent_s:g} s, given up after {limit_s:g} s")


_RUN = Annotated[
    str | None,
    typer.Option("--run", metavar="ID", help="A run other than the current one.", autocompletion=complete_runs),
]
ACCESS = {
    "config": Annotated[Path | None, typer.Option("-c", "--config", metavar="FILE", help="The cluster file.")],
    "user": Annotated[str | None, typer.Option("-u", "--user", metavar="NAME", help="SSH user.")],
    "identity": Annotated[Path | None, typer.Option("-i", "--identity", metavar="FILE", help="SSH private key.")],
    "jump": Annotated[str | None, typer.Option("-J", "--jump", metavar="[USER@]HOST[:PORT]", help="SSH jump host.")],
    "ssh_config": Annotated[
        Path | None, typer.Option("-F", "--ssh-config", metavar="FILE", help="Read this file instead of ~/.ssh/config.")
    ],
    "verbose": Annotated[bool, typer.Option("-v", "--verbose", help="Say what is done on which host.")],
}


DEFAULTS = {field.name: field.default for field in dataclasses.fields(Scope)}


def on_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose first parameter is a Scope, for Typer: with the options that say which file and how to log in."""
    return _scoped(command, ACCESS)


def on_run(command: Callable[..., None]) -> Callable[..., None]:
    """Like `on_cluster`, with --run as well."""
    return _scoped(command, {**ACCESS, "run": _RUN})


def _scoped(command: Callable[..., None], options: Mapping[str, Any]) -> Callable[..., None]:
    """Ctrl-C in the command ends with 130, whatever the version of Typer makes of it."""
    signature = inspect.signature(command, eval_str=True)
    own = list(signature.parameters.values())[1:]
    shared = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=DEFAULTS[name])
        for name, annotation in options.items()
    ]

    def run(**values: Any) -> None:
        scope = Scope(**{name: values.pop(name) for name in options})
        if scope.verbose:
            from dtctl.render.trace import show_trace

            show_trace()
        with left("nothing was changed"):
            command(scope, **values)

    run.__name__, run.__doc__, run.__module__ = command.__name__, command.__doc__, command.__module__
    parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own] + shared
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
