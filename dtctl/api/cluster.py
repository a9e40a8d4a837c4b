"""A cluster file that has been read and checked, and how its hosts are reached."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.config import find_cluster_file
from dtctl.config.load import Checked, check_cluster
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError, UsageError
from dtctl.operations.client import Progress, controller_name, silent
from dtctl.operations.consent import Consents, programs_of_local_hosts
from dtctl.operations.history import Memory
from dtctl.operations.run_record import RunRecord, record_of
from dtctl.plan import plan_roster, shown, shown_variables, shown_words
from dtctl.transport.connect import Transports
from dtctl.transport.fanout import Outcomes
from dtctl.transport.timeouts import Waiting

if TYPE_CHECKING:
    from dtctl.bundle.revision import Inspected

log = logging.getLogger("dtctl")
"""Receives the messages that the command line shows as warnings and notes."""


@dataclass(frozen=True)
class PlannedTask:
    """One task as `up` would start it."""

    name: str
    """JOB:INDEX, as worker:1."""
    host: str
    address: str
    """host:port, as the other tasks reach it."""
    gpus: tuple[int, ...] | None
    """The host's GPUs that it sees; None: all of them, because the file declares none."""
    argv: tuple[str, ...]
    """~ is the home directory on the host."""
    env: Mapping[str, str]
    """Variables that dtctl sets in addition to the host's own, without secrets."""


@dataclass(frozen=True)
class Finding:
    """A finding of a check or a diagnosis. `str` is the text that the command line shows, safe for a terminal."""

    fails: bool
    """The run would not work, or does not; else it is a warning."""
    name: str
    hosts: tuple[str, ...]
    lines: tuple[str, ...]
    """The finding, and the command or action that helps."""

    def __str__(self) -> str:
        from dtctl.render.terminal.safe import one_line

        return "\n".join(map(one_line, self.lines))


@dataclass(frozen=True)
class DataPlace:
    """The data set in one directory of a host."""

    host: str
    directory: str
    state: str
    """complete, incomplete, changed, differs (from what is on this machine), or missing."""
    files: int
    """Files of the newest push."""
    size_bytes: int
    missing: int
    changed: int


@dataclass(frozen=True)
class Cluster:
    """A checked cluster file, as it was when it was loaded.

    `progress` of its methods is called with each step of a host, once at a time, from other threads. `local`: all hosts
    are this machine. Where a host cannot do its part they raise errors.DtctlError, when all hosts have done theirs.
    """

    name: str
    file: Path
    hosts: tuple[str, ...]
    """The hosts, in the order of the file."""
    tasks: Mapping[str, str]
    """Task (JOB:INDEX, as worker:1) -> its host."""
    checked: Checked = field(repr=False, compare=False)
    overrides: tuple[str, ...] = field(default=(), repr=False)
    transport: Transports = field(default_factory=lambda: make_transport(), repr=False, compare=False)

    def plan(self, *, local: bool = False) -> dict[str, PlannedTask]:
        """The tasks that `up` would start, by name; contacts no host."""
        from dtctl.operations.up.launch import make_plan

        planned = make_plan(self.checked.cluster, self.transport.hostname, local=local)
        return {
            str(task.id): PlannedTask(
                str(task.id),
                task.host,
                task.address,
                task.gpus,
                tuple(shown_words(task.argv)),
                shown_variables(task.env),
            )
            for task in planned.tasks
        }

    def check(
        self,
        *,
        local: bool = False,
        deep: bool = False,
        exclude: Sequence[str] = (),
        progress: Callable[[Progress], None] = silent,
    ) -> list[Finding]:
        """Problems of the hosts or their network, the worst first; nothing is started.

        `deep`: slow checks that load the hosts and their network, too. `exclude`: hosts that are not asked.
        """
        from dtctl.operations.findings import fails
        from dtctl.render.checked import worded
        from dtctl.rooms.check.checking import check, prepare_check

        config, hostname = self.checked.cluster, self.transport.hostname
        context, record = prepare_check(config, hostname, self.overrides, local=local, deep=deep, exclude=exclude)
        checked = check(context, record, self.transport, one_at_a_time(progress))
        all_of("check", checked.hosts, checked.errors)
        return [Finding(fails(one), one.signature.name, one.seen.hosts, tuple(worded(one))) for one in checked.found]

    def push(
        self, *, local: bool = False, exclude: Sequence[str] = (), progress: Callable[[Progress], None] = silent
    ) -> dict[str, int]:
        """Sends the code and starts nothing. How many files each host lacked.

        `exclude`: hosts that are left out.
        """
        from dtctl.operations.local import make_local
        from dtctl.operations.push import push
        from dtctl.operations.selection import select_hosts
        from dtctl.operations.sending import inspect, scan_code

        config = self.checked.cluster
        record = record_of(plan_roster(make_local(config) if local else config))
        hosts = select_hosts(record, [*record.hosts], exclude)
        bundle = scan_code(config)
        warn_of_missing_content(inspect(bundle))
        outcome = push(record, bundle, self.transport, one_at_a_time(progress), hosts)
        return outcome.or_raise("push the code")

    def push_data(self, *, overwrite: bool = False, progress: Callable[[Progress], None] = silent) -> dict[str, int]:
        """Brings each host what it lacks of the data set of `data.from`. How many files were sent to each.

        `overwrite`: replaces files that others have put there, and that differ. Raises errors.UsageError where the file
        names no data. After an interrupt the next call sends the rest.
        """
        from dtctl.rooms.data.operation import data_set, source_of
        from dtctl.rooms.data.pushing import push_data

        source_of(self.checked.cluster)
        self._require_to_write()
        data = data_set(self.checked.cluster)
        outcome = push_data(self._record(), data, self.transport, one_at_a_time(progress), overwrite=overwrite)
        found = outcome.or_raise("push the data")
        return {host: sum(one.answer["sent_files"] for one in each) for host, each in found.items()}

    def data(self, *, verify: bool = False, progress: Callable[[Progress], None] = silent) -> list[DataPlace]:
        """The state of the data on each host, by sizes and times; `verify`: by the content of files."""
        from dtctl.rooms.data import operation as operations

        source = operations.source_of(self.checked.cluster)
        data = operations.data_set(self.checked.cluster, read=not verify and source.is_dir())
        if verify:
            outcome = operations.verify(self._record(), data, self.transport, one_at_a_time(progress))
        else:
            outcome = operations.status(self._record(), data, self.transport)
        return [
            DataPlace(
                one.place.host,
                shown(one.place.directory),
                one.state,
                **{name: one.held[name] for name in ("files", "size_bytes", "missing", "changed")},
            )
            for each in outcome.or_raise("look for the data").values()
            for one in each
        ]

    def push_checkpoint(
        self,
        path: str | os.PathLike[str],
        *,
        into: str | None = None,
        local: bool = False,
        progress: Callable[[Progress], None] = silent,
    ) -> list[str]:
        """Brings a checkpoint of this machine to where the next run restores it; returns its paths on the hosts.

        `path`: it, one of its files, or a directory, whose newest one is meant. `into`: a directory in that of the
        checkpoints, or another one. Raises errors.PreflightError for one that is damaged, or while a run is live.
        """
        from dtctl.operations.checkpoints import at
        from dtctl.operations.up.launch import make_plan
        from dtctl.rooms.checkpoints import push
        from dtctl.rooms.checkpoints.local import find, read

        if not local:
            self._require_to_write()
        plan = make_plan(self.checked.cluster, self.transport.hostname, local=local)
        where = push.targets(plan, into)
        own = read(find(Path(path), anywhere=self.checked.cluster.send_anywhere))
        report = one_at_a_time(progress)
        pushed = push.push(record_of(plan), self.transport, own, where, controller_name(), report)
        return [at(one.host, shown(f"{one.directory}/{one.prefix}")) for one in pushed.placed]

    def _require_to_write(self) -> None:
        """Raises PreflightError where the file writes to directories of this machine, and that is not allowed."""
        config = self.checked.cluster
        if missing := Consents().missing(programs_of_local_hosts(config, self.overrides)):
            from dtctl.render.starting import not_allowed

            raise not_allowed(config, missing, local=False)

    def _record(self) -> RunRecord:
        return record_of(plan_roster(self.checked.cluster))

    def __str__(self) -> str:
        return f"{self.name}: {len(self.tasks)} tasks on {len(set(self.tasks.values()))} hosts ({self.file})"


def load(file: str | os.PathLike[str] | None = None, overrides: Mapping[str, Any] | None = None) -> Cluster:
    """Reads and checks a cluster file; asks no host.

    `file` None: $DTCTL_CONFIG, or the nearest cluster.yaml from the working directory up to the root of its repository.
    `overrides`: values for keys of the file, as `--set` has them, such as {"trainer.args.learning_rate": 0.01}.

    Raises errors.ConfigError with every mistake and its place, errors.UsageError where there is no file.
    """
    found = find_cluster_file(Path(file) if file is not None else None, os.environ, Path.cwd())
    words = tuple(_override(path, value) for path, value in (overrides or {}).items())
    checked = check_cluster(found, overrides=words)
    cluster = checked.cluster
    return Cluster(
        name=cluster.name,
        file=cluster.file,
        hosts=tuple(cluster.hosts),
        tasks={str(task.id): task.host for task in plan_roster(cluster).tasks},
        checked=checked,
        overrides=words,
    )


def _override(path: str, value: Any) -> str:
    """JSON is YAML."""
    try:
        return f"{path}={json.dumps(value, ensure_ascii=False, allow_nan=False, default=os.fspath)}"
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"the override of {path} is {value!r}, which no cluster file can hold",
            detail=str(error),
            hint="numbers, texts, booleans, None, lists and dicts are possible: float(x) converts one of NumPy's",
        ) from error


def make_transport() -> Transports:
    """Does not prompt for passphrases: keys that have one have to be in an SSH agent."""
    return Transports(waiting=Waiting(_report_silence, _report_wait))


def memory() -> Memory:
    return Memory(log.warning)


def warn_of_missing_content(inspected: Inspected | None) -> None:
    """Logs warnings of pointers of Git LFS and of empty submodules."""
    from dtctl.render.plan import without_content

    for summary, hint in without_content(inspected):
        log.warning("%s (%s)", summary, hint)


def one_at_a_time(progress: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Hosts report from the threads that ask them."""
    lock = threading.Lock()

    def report(one: Progress) -> None:
        with lock:
            progress(one)

    return report


def all_of(doing: str, hosts: Iterable[str], errors: Mapping[str, DtctlError]) -> None:
    """Raises what the hosts that failed have in common."""

    Outcomes(dict.fromkeys(host for host in hosts if host not in errors), dict(errors)).or_raise(doing)


def _report_silence(host: str, silent_s: float, limit_s: float) -> None:
    log.warning("waiting for %s: silent for %g s, given up after %g s", host, silent_s, limit_s)


def _report_wait(hosts: Sequence[str], what: str, waited_s: float) -> None:
    log.warning("waiting for %s: %s for %g s", ", ".join(hosts), what, waited_s)
