"""Evaluates the options that many commands share: a cluster, one of its runs, and the routes to its hosts."""

from __future__ import annotations

import dataclasses
import functools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from dtctl.cli import which
from dtctl.cli.ending import on_interrupt
from dtctl.cli.late import console, errors, operations, render
from dtctl.cli.table import may_guess
from dtctl.dataclass import dataclass
from dtctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from dtctl.config.cluster import Cluster
    from dtctl.config.load import Checked
    from dtctl.model import Host
    from dtctl.operations.engines import Lent
    from dtctl.operations.run_record import RunRecord
    from dtctl.operations.snapshot import RunStatus
    from dtctl.operations.stop import Ending
    from dtctl.transport.connect import Transports


@dataclass(frozen=True)
class Scope:
    """The run that a command is about, and how its hosts are reached, by the options."""

    command: str = ""
    """Its name in `dtctl --help`."""
    config: Path | None = None
    named: str | None = None
    run: str | None = None
    user: str | None = None
    identity: Path | None = None
    jump: str | None = None
    ssh_config: Path | None = None
    verbose: bool = False

    @functools.cached_property
    def memory(self) -> operations.history.Memory:
        def report(line: str) -> None:
            errors.note(line)

        return operations.history.Memory(report)

    @functools.cached_property
    def transport(self) -> Transports:
        from dtctl.transport.connect import Transports, terminal_passphrase
        from dtctl.transport.timeouts import Waiting

        asks = sys.stdin is not None and sys.stdin.isatty() and console.on_terminal(stderr=True)
        return Transports(
            ssh_config=self.ssh_config,
            passphrase=terminal_passphrase(render.terminal.safe.one_line, render.terminal.moving.still),
            asking=_announce_questions if asks else None,
            waiting=Waiting(_report_silence, _report_wait),
        )

    def on_interrupt(
        self, what: str | Callable[[], str], *next_steps: str, announced: Announced | None = None
    ) -> AbstractContextManager[None]:
        """Does the same as `ending.on_interrupt` once a host was reached; before that nothing can have changed.

        Nor has it before what is about to end was announced, where that is done, and agreed to.
        """

        def said() -> tuple[str, ...]:
            if not self.transport.reached:
                return "no host had been reached, so nothing was changed", *next_steps
            if announced is not None and not announced.made:
                return ("nothing was changed",)
            return what if isinstance(what, str) else what(), *next_steps

        return on_interrupt(said)

    @contextmanager
    def detached(self, *next_steps: str) -> Iterator[None]:
        """An interrupt ends the command alone, once a host was reached; `next_steps` are what to type then."""
        try:
            yield
        except KeyboardInterrupt:
            if not self.transport.reached:
                raise
            errors.below()
            errors.note("detached: the run continues", *next_steps)
            raise typer.Exit(ExitCode.INTERRUPTED) from None

    def dialling(self) -> AbstractContextManager[None]:
        """Shows whom a command waits for that asks hosts before it shows anything."""
        return render.awaiting.dialling(self.transport.dialled, self.transport.failed)

    def file(self, argument: Path | None = None) -> Path:
        """The cluster file that is meant; raises when there is none, or when two are named."""
        from dtctl.config import find_cluster_file

        given = which.one_file(argument, self.config, self.named)
        if self.named is not None:
            return self._of_name(self.named).file or Path()
        return find_cluster_file(given, os.environ, Path.cwd())

    def cluster(
        self, argument: Path | None = None, overrides: list[str] | None = None, *, needs_files: bool = False
    ) -> Cluster:
        """`needs_files`: its code and its secrets are to be sent, and so have to be here."""
        from dtctl.config.load import load_cluster

        file = self.file(argument)
        return self._with_reach(load_cluster(file, overrides=overrides or [], needs_files=needs_files))

    def checked(
        self, argument: Path | None = None, overrides: list[str] | None = None, lent: Lent | None = None
    ) -> Checked:
        """The same for one who is about to start it: the findings are still to be raised. `lent`: what is started was
        submitted earlier.
        """
        from dtctl.config.load import check_cluster

        file, content = (self.file(argument), None) if lent is None else (lent.file, lent.content)
        checked = check_cluster(file, overrides=overrides or [], content=content)
        return dataclasses.replace(checked, cluster=self._with_reach(checked.cluster))

    def _with_reach(self, cluster: Cluster) -> Cluster:
        """Options for SSH override the file's settings."""
        reached = {name: self._reached(host) for name, host in cluster.hosts.items()}
        said = {name: host.reach for name, host in cluster.hosts.items() if host.reach != reached[name].reach}
        return dataclasses.replace(cluster, hosts=reached, as_written=said)

    def record(self, *, for_its_hosts: bool = False) -> RunRecord:
        """The run that is meant: --run, or the current run of the cluster that is named or whose file lies here.

        Commands that only look fall back to the run that was started last, and say so; see cli/table.py.
        `for_its_hosts`: for commands that need no run: without one, the hosts of the cluster file are meant.
        """
        record = self._meant(for_its_hosts=for_its_hosts)
        # Without --run it is the newest, which no other has followed: what all records say need not be read again.
        return record if self.run is None else dataclasses.replace(record, starts=self.memory.starts_of(record))

    def _meant(self, *, for_its_hosts: bool) -> RunRecord:
        if self.run is not None:
            return self.started_here(self.run) or self._not_started(self.run) or self._run_of_others(self.run)
        record = self._of_name(self.named) if self.named else None
        file = record.file if record else self._file_here()
        if record is None:
            record = self.memory.newest_of(file) if file else self._last()
        if record is None and file and not for_its_hosts:
            record = self.memory.place_of(file)
        if record is None and file:
            return self._of_file()
        if record is None:
            self.file()  # raises, and lists what exists
            raise AssertionError("no file here, and one is found")
        # Without --run, hosts are asked for their current run: another run may have been started since.
        # One whose machines were lent to it is known here: it has them for itself.
        run = record.run if operations.engines.engine_of_record(record) is not None else None
        return self._with_own_access(dataclasses.replace(self._followed(record), run=run))

    def placed(self, *, for_its_hosts: bool = False) -> RunRecord:
        """The same for commands that ask the hosts of tasks: a spare may have taken the place of one."""
        record = self.record(for_its_hosts=for_its_hosts)
        if not record.idle_hosts:
            return record

        with operations.client.persistent.PersistentTransport(self.transport) as asked:
            found = operations.status.placed(record, asked)
            self.transport.resume(*asked.hand_over())  # the command continues in the same conversations
        self.memory.note_places(found)
        return found

    def note_failed_start(self, record: RunRecord) -> None:
        """Says that the file's last start failed, before what is shown of the run before it."""
        failed = self.memory.failed_start(record) if self.run is None else None
        if failed is not None and record.file and self.memory.newest_of(record.file) is not None:
            errors.note(
                f"{failed.record.run} was not started: this is of the run before it", "dtctl status    shows why"
            )

    def record_of_start(self) -> RunRecord:
        """The same for what the last start has left on its hosts, even if it failed."""
        record = self.placed()
        failed = self.memory.failed_start(record, self.run)
        return record if failed is None else self._with_own_access(failed.record)

    def refuse_others(self, record: RunRecord, run: str | None) -> None:
        """Raises UsageError for a run that this machine has started from another directory, by the same name."""
        other = self.memory.other_file_of(run, record) if run and run != self.run else None
        if run and other is not None:
            raise which.of_other_directory(run, other, record.file)

    def started_here(self, run: str) -> RunRecord | None:
        """A run that this machine has started, reached as the options say; None for another."""
        record = self.memory.load(run)
        if record is None:
            return None
        if self.named not in (None, record.cluster):
            raise UsageError(f"{run} is a run of {record.cluster}, not of {self.named}", hint="leave one of them out")
        if self.config is not None and not (record.file and which.same_file(self.config, record.file)):
            record = dataclasses.replace(record, file=self.config.absolute(), file_sha256="")
        return self._with_own_access(self._followed(record))

    def _not_started(self, run: str) -> RunRecord | None:
        """The run that `up` could not start here, if the id is of such a one."""
        record = self.memory.record_of_failed(run)
        return self._with_own_access(record) if record is not None else None

    def or_not_started(self, found: RunStatus) -> RunStatus:
        """The status, or that of the cluster file's last start if that failed and no run may have been live since."""
        failed = self.memory.failed_start(found.record, self.run)
        if failed is None:
            return found
        file = failed.record.file
        newest = self.memory.newest_of(file) if file is not None and self.run is None else None
        return failed.status(found.errors) if failed.comes_after(found, newest) else found

    def _run_of_others(self, run: str) -> RunRecord:
        """A run that this machine has not started: the cluster file lists the hosts that may know it."""
        remembered = [str(record.run) for record in self.memory.runs()]
        try:
            file = self.file()
        except UsageError as error:
            why = "this machine has no record of the run, and no cluster file names hosts to query"
            raise operations.runs.unknown(run, why, remembered) from error
        record = self.memory.newest_of(file) or self.memory.place_of(file) or self._of_file()
        record = self._with_own_access(dataclasses.replace(self._followed(record), run=run))
        operations.runs.check_known(record, self.transport, remembered)
        return record

    def _of_file(self) -> RunRecord:
        """The record from the cluster file alone; reading it takes a third of a command's CPU time."""
        from dtctl.plan import plan_roster

        return operations.run_record.record_of(plan_roster(self.cluster()))

    def _of_name(self, name: str) -> RunRecord:
        """The newest run of the cluster of this name."""
        from dtctl.config import find_cluster_file

        try:
            here: Path | None = find_cluster_file(None, os.environ, Path.cwd())
        except UsageError:
            here = None
        return which.of_name(self.memory.runs(), name, here)

    def _last(self) -> RunRecord | None:
        """The run for a command that names no cluster where there is none. Raises UsageError if it must name one."""
        if not may_guess(self.command) and (runs := self.memory.runs()):
            raise which.not_named(self.command, runs)
        # The last run may have been taken down: the newest of the others is meant then.
        record = self.memory.current() or next(iter(self.memory.runs()), None) if may_guess(self.command) else None
        if record is not None:
            place = f" in {record.file.parent}" if record.file else ""
            errors.note(f"no cluster.yaml here: this is {record.cluster}{place}, started last from this machine")
        return record

    def _file_here(self) -> Path | None:
        """The cluster file; None if none is named and none is in this directory."""
        if self.config is not None or os.environ.get("DTCTL_CONFIG"):
            return self.file()
        try:
            return self.file()
        except UsageError:
            return None

    def _with_own_access(self, record: RunRecord) -> RunRecord:
        """The record with the connection options of this command, which override file and records."""
        return dataclasses.replace(
            record,
            hosts={name: self._reached(host) for name, host in record.hosts.items()},
            others={name: self._reached(host) for name, host in record.others.items()},
        )

    def _followed(self, record: RunRecord) -> RunRecord:
        """The record with the routes of the current cluster file. If that cannot be read, prints a note."""
        followed = self.memory.follow(record)
        if followed.problem is not None:
            errors.note(
                f"{which.first_problem(followed.problem)}: hosts are reached as remembered of {record.run}",
                f"dtctl validate {record.file}    shows more",
            )
        return followed.record

    def _reached(self, host: Host) -> Host:
        """The host with what the command line says of SSH over what the file says. Raises UsageError."""
        from dtctl.model import SshSettings

        if not self._own_access or not isinstance(host.reach, SshSettings):
            return host
        return dataclasses.replace(host, reach=dataclasses.replace(host.reach, **self._own_access))

    @functools.cached_property
    def _own_access(self) -> dict[str, Any]:
        """The settings of SSH that the command line gives. Raises UsageError."""
        own = {"user": self.user, "identity_file": str(self.identity) if self.identity else None, "jump": self.jump}
        given = {name: value for name, value in own.items() if value is not None}
        if given:
            from dtctl.config.names import check_names

            check_names(given)
        if self.identity is not None and not self.identity.expanduser().is_file():
            raise UsageError(f"-i {self.identity} is not a file", hint="-i FILE    the private key to log in with")
        return given


DEFAULTS = {field.name: field.default for field in dataclasses.fields(Scope)}


@contextmanager
def _announce_questions(host: str) -> Iterator[None]:
    with render.terminal.moving.still():
        errors.note(f"{host}: ssh needs an answer to log in")
        yield


def _report_silence(host: str, silent_s: float, limit_s: float) -> None:
    """Shown with -q and -o json too: it is on stderr, and nothing else says why nothing happens."""
    errors.note(f"waiting for {host}: silent for {silent_s:g} s, given up after {limit_s:g} s")


def _report_wait(hosts: Sequence[str], what: str, waited_s: float) -> None:
    """Shown as `_report_silence` is."""
    errors.note(f"waiting for {render.format.summarize_hosts(hosts)}: {what} for {waited_s:g} s")


@dataclass
class Announced:
    """Called with what is about to be ended: names it on stderr, unless it is another directory's run (UsageError).

    `agreed` asks whether it may be, and raises where it may not. `made`: until then no host was asked to end anything.
    """

    scope: Scope
    record: RunRecord
    doing: str
    say: bool = True
    agreed: Callable[[Ending], None] = lambda found: None
    made: bool = False

    def __call__(self, found: Ending) -> None:
        self.scope.refuse_others(self.record, found.run)
        if self.say and found.run and found.tasks:
            with render.terminal.moving.still():
                errors.note(f"{self.doing} {facts(found)}")
        self.agreed(found)
        self.made = True


def facts(found: Ending) -> str:
    if not found.tasks:
        return f"{found.run}"
    count = render.format.count
    return f"{found.run}: {count(len(found.tasks), 'task')} on {count(len(found.hosts), 'host')}"
