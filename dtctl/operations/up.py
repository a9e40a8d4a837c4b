"""Start a run: everything is made ready on every host before anything starts on one."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from dtctl.agent.records import answers
from dtctl.bundle import Bundle, Sender
from dtctl.errors import DtctlError, PreflightError
from dtctl.model import Cluster, Host, TaskId
from dtctl.operations.asking.conversation import Progress, Report, Request, about, final, request
from dtctl.operations.asking.plausible import check_run, check_tasks, wrong
from dtctl.operations.asking.tasks import TaskStatus
from dtctl.operations.checkpoints import Checkpoints, newest_of_run, read_checkpoints
from dtctl.operations.memory.record import RunRecord
from dtctl.operations.starting.credentials import Authority
from dtctl.operations.starting.ownership import refuse_outputs_of_others
from dtctl.operations.starting.ports import refuse_taken_ports, wanted_ports, with_chosen
from dtctl.operations.starting.readying import converse
from dtctl.operations.stop import StopOrder, StopResult, stop
from dtctl.plan.directories import output_directories
from dtctl.plan.spec import host_spec
from dtctl.plan.values import RunPlan
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Session, Transport

R = TypeVar("R")

_NOTHING_STARTED: answers.Started = {"run": "", "tasks": {}}
_INTERRUPTS = (signal.SIGINT, signal.SIGTERM)
_ROLLBACK_S = 60.0
"""Rolling back kills what was started, without a grace period."""


@dataclass(frozen=True)
class Start:
    """What one `up` is to start."""

    plan: RunPlan
    record: RunRecord
    bundle: Bundle
    digest: str
    controller: str
    """user@host, for those who find the run later."""
    secrets: Mapping[str, str]
    authority: Authority | None
    """By which the run's agents know each other; None where there is only one."""
    replace: bool
    replan: Callable[[Cluster], RunPlan] | None = None
    """Makes the plan when the hosts have chosen ports; None: they choose none."""
    adopt_output: bool = False
    """Output directories are taken over from other clusters."""

    @property
    def expects_revival(self) -> bool:
        """Hosts are to bring the agents back by themselves when they have been restarted."""
        return not self.record.is_local and self.plan.cluster.recovery.reboot == "auto"


@dataclass(frozen=True)
class UpResult:
    """`started` is empty when the run was there already and nothing has changed."""

    run: str
    started: Mapping[TaskId, TaskStatus]
    ended: tuple[TaskId, ...]
    """Tasks that no longer run, if the run was there already."""
    replaced: Mapping[str, StopResult] = field(default_factory=dict)
    """Runs that were replaced, and how they ended."""
    earlier: Checkpoints | None = None
    """Where the lead's host has a complete checkpoint already."""
    without_revival: Mapping[str, str] = field(default_factory=dict)
    """Hosts on which nothing brings the agent back after a restart of the machine, and why."""
    revival: Mapping[str, str] = field(default_factory=dict)
    """Host -> what brings the agent back there: `systemd` or `cron`."""
    new_revival: Mapping[str, str] = field(default_factory=dict)
    """The same of the hosts on which it was written just now."""
    aside: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Host -> where files of trainers are now that stood where the code has one."""
    unremembered: DtctlError | None = None
    """Why there is no record of the run on this machine."""


def up(
    launch: Start,
    transport: Transport,
    report: Report,
    remember: Callable[[RunRecord], None],
    consent: Callable[[Collection[str]], None] = lambda runs: None,
    forget: Callable[[RunRecord], None] = lambda record: None,
) -> UpResult:
    """Prepares all hosts, ends the run that is replaced, starts all hosts, then tells them to keep what they started.

    A host that fails, an interrupt or the death of this process before that takes everything back: hosts that
    lose their controller do so by themselves. `remember` is called when all has started and before any host is told
    to keep it, so that no run goes on of which nothing is known here; `forget` when it was taken back after that.
    `consent` is called when all is prepared, with the runs that are to be ended: what it raises takes everything back.
    """
    record = launch.record
    assert record.run is not None
    with _Starting(launch, transport, report) as starting:
        starting.choose_ports()
        prepared = starting.everywhere("prepare", starting.prepare)
        running = _already_running(prepared)
        if running is not None:
            return UpResult(running, {}, starting.ended(prepared))
        refuse_taken_ports(prepared, launch.plan.cluster)
        if not launch.adopt_output:
            refuse_outputs_of_others(
                prepared, record.cluster, launch.controller, Path(os.path.realpath(launch.plan.cluster.file))
            )
        old = dict.fromkeys(answer["replaces"] for answer in prepared.values() if answer["replaces"])
        consent(old)
        replaced = {run: _replace(run, launch, transport) for run in old}
        started = starting.start_everywhere()
        with _uninterrupted():
            unremembered = _error_of(remember, record)
            if unremembered is not None and record.is_local:
                raise _without_trace(unremembered)
            kept = starting.keep_everywhere(forget)
    return UpResult(
        run=record.run,
        started=_statuses(record.roster, started),
        ended=(),
        replaced=replaced,
        earlier=_earlier(prepared),
        without_revival=_without_revival(kept) if launch.expects_revival else {},
        revival=_revival(kept),
        new_revival=_revival({host: told for host, told in kept.items() if told["reboot_new"]}),
        aside={host: tuple(told["aside"]) for host, told in kept.items() if told["aside"]},
        unremembered=unremembered,
    )


def _error_of(remember: Callable[[RunRecord], None], record: RunRecord) -> DtctlError | None:
    """A record that cannot be written is no reason to end a run that its hosts know."""
    try:
        remember(record)
    except DtctlError as error:
        return error
    return None


def _without_trace(error: DtctlError) -> DtctlError:
    """Nobody else knows a run on this machine: no command would find it again."""
    detail = f"{error.detail}; without a record no command could find a run on this machine again".lstrip("; ")
    return PreflightError(
        error.summary, detail=detail, hint="free some space or fix the directory, then dtctl up again"
    )


def _earlier(prepared: Mapping[str, answers.Prepared]) -> Checkpoints | None:
    """In the newest of the directories that the hosts have looked into."""
    found = [each for host, answer in prepared.items() for each in read_checkpoints(host, answer["checkpoints"])]
    newest = newest_of_run(found)
    return newest if newest and newest.newest_complete else None


def _replace(old: str, launch: Start, transport: Transport) -> StopResult:
    """Ends the whole of the old run, also on hosts that have no part in the new one, and its ps tasks last."""
    record = dataclasses.replace(launch.record, run=old)
    return stop(
        record, transport, tuple(record.roster), StopOrder(launch.controller, why="replaced", run=launch.record.run)
    )


class _Starting:
    """The conversations of one `up`. A context manager: left by an exception, it takes back what was begun."""

    def __init__(self, launch: Start, transport: Transport, report: Report) -> None:
        self._launch = launch
        self._transport = transport
        self._report = report
        self._hosts = tuple(launch.record.hosts.values())
        self._sessions: dict[str, Session] = {}
        self._sender = Sender(launch.bundle)
        self._runs: dict[str, str] = {}
        """Host -> the run that it has prepared, or has already."""

    def __enter__(self) -> _Starting:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._abort()
            self._wait_for_the_end()
        for session in self._sessions.values():
            session.close()
        self._sender.close()

    def everywhere(self, doing: str, work: Callable[[Host], R]) -> dict[str, R]:
        """The answers of all hosts; one that fails is an error of the whole."""
        return fan_out(self._hosts, work, cancel=self._abort).or_raise(doing)

    def choose_ports(self) -> None:
        """Has the hosts choose the ports that nothing says, before there is a plan that could name them."""
        cluster = self._launch.plan.cluster
        if cluster.hosts_choose_ports and self._launch.replan is not None:
            chosen = self.everywhere("choose ports", lambda host: self._ports_of(host, cluster))
            plan = self._launch.replan(with_chosen(cluster, chosen))
            self._launch = dataclasses.replace(self._launch, plan=plan)

    def _ports_of(self, host: Host, cluster: Cluster) -> answers.PortsResult:
        tasks, coordinator = wanted_ports(cluster, host.name)
        names = frozenset(map(str, tasks))

        def check(host: Host, answer: answers.PortsResult) -> None:
            check_tasks("tasks", answer["tasks"], names)
            if set(answer["tasks"]) != names or (answer["coordinator"] is not None) != coordinator:
                raise wrong("tasks", "a port for each task", None)

        asked = {"tasks": sorted(names), "coordinator": coordinator}
        wanted = Request("ports", answers.PortsResult, lambda _: asked, check)
        return wanted.put(self._launch.record, self._session(host))

    def _session(self, host: Host) -> Session:
        if host.name not in self._sessions:
            self._report(Progress(host.name, "connect"))
            self._sessions[host.name] = self._transport.open(host)
        return self._sessions[host.name]

    def prepare(self, host: Host) -> answers.Prepared:
        session = self._session(host)
        session.send(_request(self._launch, host))
        answer = converse(session, self._sender, self._report, until="prepared").of(answers.Prepared)
        with about(host.name, "sent an invalid `prepared`"):
            _check_prepared(self._launch.record, answer)
        self._runs[host.name] = answer["run"]
        self._report(Progress(host.name, "prepared"))
        return answer

    def start_everywhere(self) -> dict[str, answers.Started]:
        """Tells all hosts before it listens to any, then listens to all at once: tasks wait for tasks elsewhere."""
        for session in self._sessions.values():
            session.send({"type": "start"})
        hearing = fan_out(self._hosts, self._hear_of_the_start, width=len(self._hosts), cancel=self._abort)
        return _causes(hearing).or_raise("start")

    def _hear_of_the_start(self, host: Host) -> answers.Started:
        try:
            answer = self._started(host)
        except DtctlError:
            self._abort()  # or the other hosts would wait for this one
            raise
        self._report(Progress(host.name, "started"))
        return answer

    def _started(self, host: Host) -> answers.Started:
        session = self._sessions[host.name]
        answer = converse(session, None, self._report, until="started").of(answers.Started)
        with about(host.name, "sent an invalid `started`"):
            _check_started(self._launch.record, self._runs[host.name], host.name, answer)
        return answer

    def ended(self, prepared: Mapping[str, answers.Prepared]) -> tuple[TaskId, ...]:
        """The run's final tasks, and all tasks of a host where it does not continue."""
        hosts = [host for host in self._hosts if prepared[host.name]["unchanged"]]
        started = fan_out(hosts, self._start).or_raise("look")
        roster = self._launch.record.roster
        there = _statuses({task: host for task, host in roster.items() if host in started}, started)
        return tuple(task for task in roster if task not in there or there[task].state.final)

    def _start(self, host: Host) -> answers.Started:
        self._sessions[host.name].send({"type": "start"})
        return self._started(host)

    def keep_everywhere(self, forget: Callable[[RunRecord], None]) -> dict[str, answers.UpResult]:
        """A host that is lost at this very moment rolls back by itself; the others must not continue without it."""
        kept = fan_out(self._hosts, self._keep)
        if kept.errors:
            goes_on = [host for host in self._hosts if host.name in kept.results]
            fan_out(goes_on, self._take_back).or_raise("take back the start")
            _error_of(forget, self._launch.record)
        return kept.or_raise("keep what was started")

    def _keep(self, host: Host) -> answers.UpResult:
        session = self._sessions[host.name]
        session.send({"type": "keep"})
        message = converse(session, None, self._report, until="result")
        run = self._runs[host.name]
        return final(
            session,
            "up",
            message,
            answers.UpResult,
            lambda answer: check_run(self._launch.record.cluster, run, answer["run"]),
        )

    def _take_back(self, host: Host) -> answers.DownResult:
        session = self._sessions[host.name]
        ending = {"grace_s": 0, "by": "dtctl up"}
        session.send({**request(self._launch.record, host, "down"), **ending})
        return final(session, "down", converse(session, None, self._report, until="result"), answers.DownResult)

    def _abort(self) -> None:
        for session in list(self._sessions.values()):
            with contextlib.suppress(DtctlError):
                session.send({"type": "abort"})

    def _wait_for_the_end(self) -> None:
        """Until each agent has said that it has rolled back, or cannot say so any more."""

        def drain(session: Session) -> None:
            deadline = time.monotonic() + _ROLLBACK_S
            with contextlib.suppress(DtctlError, TimeoutError):
                while (remaining := deadline - time.monotonic()) > 0:
                    session.receive(remaining)

        fan_out(list(self._sessions.values()), drain, name=lambda session: session.host.name)


def _causes(outcomes: Outcomes[answers.Started]) -> Outcomes[answers.Started]:
    """Leaves out hosts that only gave up because another one had failed."""
    given_up = [host for host, error in outcomes.errors.items() if getattr(error, "code", "") == "rolled_back"]
    if len(given_up) == len(outcomes.errors):
        return outcomes
    results = {**outcomes.results, **dict.fromkeys(given_up, _NOTHING_STARTED)}
    return Outcomes(results, {host: error for host, error in outcomes.errors.items() if host not in given_up})


def _check_prepared(record: RunRecord, answer: answers.Prepared) -> None:
    """Raises Wrong. A run that is replaced, or continues, must be one of this cluster."""
    check_run(record.cluster, None if answer["unchanged"] else record.run, answer["run"])
    for name in (answer["current"], answer["replaces"]):
        if name is not None:
            check_run(record.cluster, None, name, "replaces")


def _check_started(record: RunRecord, run: str, host: str, answer: answers.Started) -> None:
    """Raises Wrong. The answer must have each task of the host, and no other."""
    own = record.names_on(host)
    check_run(record.cluster, run, answer["run"])
    check_tasks("tasks", answer["tasks"], own)
    for task in own:
        if task not in answer["tasks"]:
            raise wrong(f"tasks.{task}", "a task of this name", None)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C and SIGTERM wait: a run that some hosts have been told to keep can no more be taken back by going away."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = {number: signal.signal(number, lambda got, _: held.append(got)) for number in _INTERRUPTS}
    try:
        yield
    finally:
        for interrupt, action in before.items():
            signal.signal(interrupt, action)
        for number in held:
            signal.raise_signal(number)


def _request(launch: Start, host: Host) -> dict[str, Any]:
    record = launch.record
    assert record.run is not None
    spec = host_spec(
        launch.plan,
        host.name,
        run=record.run,
        digest=launch.digest,
        bundle=launch.bundle.id,
        created=record.created,
        controller=launch.controller,
        replaced=record.replaced,
    )
    return {
        **request(record, host, "up"),
        "spec": spec,
        "bundle": launch.bundle.id,
        "secrets": launch.secrets,
        "credentials": _credentials(launch, host),
        "replace": launch.replace,
        "file": os.path.realpath(launch.plan.cluster.file),
        "outputs": list(output_directories(launch.plan.dirs[host.name], launch.plan.checkpoint_dirs[host.name])),
    }


def _credentials(launch: Start, host: Host) -> dict[str, str] | None:
    """Of a run on one host nobody dials anybody."""
    if launch.authority is None:
        return None
    coordinates = launch.record.coordinator == host.name
    return dataclasses.asdict(launch.authority.issue(host.name, coordinates=coordinates))


def _already_running(prepared: Mapping[str, answers.Prepared]) -> str | None:
    """The run that continues unchanged on all hosts. If it does so on some hosts only, that is an error."""
    unchanged = {host: answer["run"] for host, answer in prepared.items() if answer["unchanged"]}
    if not unchanged:
        return None
    runs: set[str] = set(unchanged.values())
    # A host whose tasks have all ended still belongs to the run that goes on elsewhere.
    others = [host for host, answer in prepared.items() if host not in unchanged and answer["current"] not in runs]
    if len(runs) > 1 or others:
        from dtctl.config.ranges import fold

        raise PreflightError(
            f"run {min(runs)} continues on {fold(unchanged)}, but not on {fold(others or prepared)}",
            hint="dtctl stop    and then dtctl up again",
        )
    return runs.pop()


def _revival(kept: Mapping[str, answers.UpResult]) -> dict[str, str]:
    return {host: told["reboot"] for host, told in kept.items() if told["reboot"]}


def _without_revival(kept: Mapping[str, answers.UpResult]) -> dict[str, str]:
    return {host: told["reboot_why"] for host, told in kept.items() if told["reboot_why"]}


def _statuses(roster: Mapping[TaskId, str], started: Mapping[str, answers.Started]) -> dict[TaskId, TaskStatus]:
    return {task: TaskStatus.of(task, host, started[host]["tasks"][str(task)]) for task, host in roster.items()}
