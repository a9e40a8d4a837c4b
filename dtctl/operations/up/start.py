"""The conversations of one start: the requests to every host, and the answers that it must give."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from dtctl.agent.records import answers
from dtctl.agent.records.run_state import REPLACED
from dtctl.agent.records.spec import Spec, inventory_of
from dtctl.agent.records.starting import EnvironmentResult
from dtctl.errors import AgentError, DtctlError, PreflightError
from dtctl.model import Host, TaskId
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Progress, Report, Request, about, reporting_failure
from dtctl.operations.client.plausible import check_inventory
from dtctl.operations.findings import Checked
from dtctl.operations.run_record import RunRecord
from dtctl.operations.sending import sender
from dtctl.operations.snapshot import TaskStatus
from dtctl.operations.stop import StopOrder, StopResult, stop
from dtctl.operations.up import readying
from dtctl.operations.up.conflicts import (
    explained,
    is_dispensable,
    left_out,
    no_ports,
    ports_request,
    refuse_taken_ports,
    with_chosen,
    without_ports,
)
from dtctl.operations.up.inspecting import NOTHING
from dtctl.operations.up.launch import Start, environment_on, up_request
from dtctl.operations.up.readying import Left, Rollback, end
from dtctl.operations.up.result import UpReport
from dtctl.transport.fanout import Outcomes, SomeHostsFailed, fan_out
from dtctl.transport.seam import Session, Transport

Answers = Mapping[str, answers.Prepared]


def offered(prepared: Answers, coordinator: str) -> answers.Joining | None:
    """The credentials that the coordinator's host keeps for hosts without which its live run was started."""
    answer = prepared.get(coordinator)
    return answer["joining"] if answer is not None and answer["unchanged"] else None


def gone_without(prepared: Answers, coordinator: str) -> Collection[str]:
    """Hosts that the live run was started without; they need not be reachable now."""
    offer = offered(prepared, coordinator)
    return offer["inventory"]["absent"] if offer is not None else ()


def newcomers(prepared: Answers, joining: answers.Joining | None) -> tuple[str, ...]:
    """Hosts that are reachable now, and that the run was started without."""
    if joining is None:
        return ()
    run, kept = joining["inventory"]["run"], joining["credentials"]
    return tuple(
        host for host, answer in prepared.items() if host in kept and run not in (answer["run"], answer["current"])
    )


class Joining:
    """Adds hosts to a live run. A failure of one host does not affect the others."""

    def __init__(self, launch: Start, joining: answers.Joining, transport: Transport, report: Report) -> None:
        inventory = joining["inventory"]
        run, created, replaced = inventory["run"], inventory["created"], inventory["replaced"]
        record = dataclasses.replace(launch.record, run=run, created=created, replaced=replaced)
        self._launch = dataclasses.replace(launch, record=record, authority=None, inspect=None)
        self._run = run
        self._joining = joining
        self._transport = transport
        self._report = report
        self._sender = sender(launch.bundle, launch.record)

    def join(self, hosts: Sequence[Host]) -> Outcomes[answers.Started]:
        """Each host prepares, starts and keeps its part.

        A host that fails cancels its own part; the run does not change.
        """
        try:
            return fan_out(hosts, reporting_failure(self._join, self._report))
        finally:
            self._sender.close()

    def _join(self, host: Host) -> answers.Started:
        self._report(Progress(host.name, "connect"))
        session = self._transport.open(host)
        try:
            return self._converse(session, host)
        finally:
            session.close()

    def _converse(self, session: Session, host: Host) -> answers.Started:
        live = self._joining["inventory"]
        asked = up_request(self._launch, host, live["absent"])
        # values may be written in another way now, and an earlier dtctl may have started the run
        of_the_run = {name: live[name] for name in ("settings", "overridden", "revision", "hold_s")}
        asked["spec"] = {**asked["spec"], **of_the_run}
        self._check_same(host, asked["spec"])
        asked = {**asked, "credentials": self._joining["credentials"][host.name]}
        record = self._launch.record
        answer = readying.prepared(session, asked, self._sender, self._report, record)
        refuse_taken_ports({host.name: answer}, self._launch.plan.cluster)
        session.send({"type": "start"})
        tasks = readying.started(session, self._report, record, self._run)
        readying.kept(session, self._report, record, self._run)
        self._report(Progress(host.name, "started"))
        return tasks

    def _check_same(self, host: Host, spec: Spec) -> None:
        """Raises PreflightError if this file differs from what the run's hosts know."""
        expected = self._joining["inventory"]
        with about(self._launch.record.coordinator, "reports another run than its own"):
            check_inventory(expected, spec["cluster"], self._run)
        if {**inventory_of(spec), "voting": expected["voting"]} != expected:
            raise PreflightError(
                f"{host.name} cannot join run {self._run}: its tasks have other addresses there than in this file",
                detail="names of hosts in ~/.ssh/config count as well, where hosts.NAME.address is not set",
                hint="run it where the run was started, or restart: dtctl up --replace",
            )


A = TypeVar("A")

_NOTHING_STARTED: answers.Started = {"run": "", "tasks": {}}
_SAY_PORTS = "ports: auto queries every host: dtctl up --ports-from 2222 --allow-missing N    sets them instead"


class Starting:
    """The conversations of one `up`. A context manager: left by an exception, it takes back what was begun."""

    def __init__(self, launch: Start, transport: Transport, report: UpReport, *, without: Collection[str] = ()) -> None:
        """`without`: hosts that are not asked, as others have their tasks in a run that continues."""
        self.launch = launch
        self.transport = transport
        record = dataclasses.replace(launch.record, run=None)
        self._route = ImpatientTransport(transport, record, awaits=(record.coordinator,))
        self.report = report
        self._without = without
        self._hosts = tuple(host for name, host in launch.record.hosts.items() if name not in without)
        self._sessions: dict[str, Session] = {}
        self._sender = sender(launch.bundle, launch.record)
        self._passing = launch.inspect(launch.plan) if launch.inspect is not None else NOTHING
        self._runs: dict[str, str] = {}
        """Host -> the run that it has prepared, or already has."""
        self._rollback = Rollback(self._sessions)
        self._deciding = False
        """Whether the coordinator's host was asked to keep the run: from then on it decides."""
        self._kept = False
        self._replaced: list[str] = []
        self.absent: dict[str, DtctlError] = {}
        """Hosts that the start leaves out, and why. Those without a task are never waited for."""
        self.unconfirmed: Mapping[str, DtctlError] = {}
        """Hosts that did not answer when the run was kept, and why: the coordinator repeats the order."""

    def __enter__(self) -> Starting:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not self._deciding:
            self._rollback.begin()
            self._rollback.finish()
        for session in self._sessions.values():
            session.close()
        self._sender.close()

    def hand_over(self) -> Session | None:
        """The conversation with the coordinator's host, which the caller uses to watch the run, and closes."""
        return self._sessions.pop(self.launch.record.coordinator, None)

    def left(self, unremembered: DtctlError | None) -> Left:
        """The known state after the start was cancelled."""
        assert self.launch.record.run is not None
        begun = [host.name for host in self._hosts if self._rollback.started and host.name in self._sessions]
        return Left(
            run=self.launch.record.run,
            kept=self._kept,
            started=self._rollback.started,
            unclear=tuple(host for host in begun if not self._kept and host not in self._rollback.done),
            ended=tuple(self._replaced),
            unremembered=unremembered,
        )

    def replace(self, old: str, record: RunRecord | None = None) -> StopResult:
        """Stops the whole old run, also on hosts that the new run does not use, and its ps tasks last.

        `record`: how its hosts are reached, if the new run uses none of them.
        """
        launch = self.launch
        record = dataclasses.replace(record or launch.record, run=old)
        self._replaced.append(old)
        return stop(
            record,
            self.transport,
            tuple(record.roster),
            StopOrder(launch.controller, why="makes_room", ends_as=REPLACED),
            self.report.stopped,
            self.report.stopping,
        )

    def prepare_everywhere(self) -> dict[str, answers.Prepared]:
        """The answers of all hosts. If one fails, the start fails, unless the run can start without it."""
        outcomes = self._ask_all(reporting_failure(self.prepare, self.report))
        still_away = gone_without(outcomes.results, self.launch.record.coordinator)
        busy = {host for host, answer in outcomes.results.items() if answer["unchanged"] or answer["replaces"]}
        spares = [name for name in self.launch.plan.cluster.spares if name not in busy]
        self._go_without("prepare", outcomes.errors, still_away, spares)
        return outcomes.results

    def _ask_all(self, work: Callable[[Host], A]) -> Outcomes[A]:
        """Runs `work` for all hosts.

        If none may be missing, the first failure of a host with a task cancels the others.
        """
        idle: dict[str, DtctlError] = {}

        def tried(host: Host) -> A | None:
            try:
                return work(host)
            except DtctlError as error:
                if self._has_task(host.name):
                    raise
                idle[host.name] = error
                return None

        needs_all = not self.launch.allow_missing
        outcomes = fan_out(self._hosts, tried, cancel=self._rollback.begin, needs_all=needs_all)
        answered = {host: answer for host, answer in outcomes.results.items() if answer is not None}
        return Outcomes(answered, {**outcomes.errors, **idle})

    def _has_task(self, host: str) -> bool:
        return host in self.launch.plan.hosts or host in self.launch.record.roster.values()

    @property
    def missing(self) -> dict[str, DtctlError]:
        """The hosts in `absent` that have a task."""
        return {host: error for host, error in self.absent.items() if self._has_task(host)}

    def pass_over(self, errors: Mapping[str, DtctlError]) -> None:
        """Continues without these hosts, if allowed; otherwise the next check raises the reason."""
        plan, allowed = self.launch.plan, self.launch.allow_missing or 0
        self._go_without("start", {host: error for host, error in errors.items() if not self._has_task(host)})
        dispensable = {
            host: error for host, error in errors.items() if self._has_task(host) and is_dispensable(plan, host)
        }
        if len(self.missing) + len(dispensable) <= allowed:
            self._go_without("start", dispensable)

    def give_back(self, names: Iterable[str]) -> tuple[Host, ...]:
        """Ends what these hosts have prepared, and returns them when they say so."""
        hosts = tuple(host for host in self._hosts if host.name in names)
        self._hosts = tuple(host for host in self._hosts if host not in hosts)
        fan_out(hosts, lambda host: end(self._sessions.pop(host.name)))
        return hosts

    def _go_without(
        self,
        doing: str,
        errors: Mapping[str, DtctlError],
        still_away: Collection[str] = (),
        spares: Sequence[str] = (),
    ) -> None:
        away = {
            host: error for host, error in errors.items() if host in still_away or not self._has_task(host)
        }  # a host without a task is not needed
        others = {host: error for host, error in errors.items() if host not in away}
        already, spares = self.missing, [name for name in spares if name not in errors]
        lacked = {**away, **left_out(self.launch.plan, self.launch.allow_missing, doing, others, already, spares)}
        for host in lacked:
            if (session := self._sessions.pop(host, None)) is not None:
                session.close()
        self.absent.update(lacked)
        self._hosts = tuple(host for host in self._hosts if host.name not in lacked)

    def choose_ports(self) -> None:
        """Lets the hosts choose the ports that the file does not set, before there is a plan that could name them."""
        cluster = self.launch.plan.cluster
        if cluster.hosts_choose_ports and self.launch.replan is not None:
            asked = self._ask_all(
                lambda host: ports_request(cluster, host.name).put(self.launch.record, self._session(host))
            )
            needed = {host: error for host, error in asked.errors.items() if self._has_task(host)}
            if needed and self.launch.allow_missing:
                raise explained(SomeHostsFailed("choose ports", needed, len(self._hosts)), _SAY_PORTS)
            chosen = Outcomes(asked.results, needed).or_raise("choose ports")
            chosen.update({host: no_ports(cluster, host) for host in self._without})
            self._go_without("choose ports", asked.errors)
            self.launch = dataclasses.replace(self.launch, plan=self.launch.replan(with_chosen(cluster, chosen)))

    def bring_wheels(self) -> None:
        """Sends the wheels that a host lacks, unless it has the environment that is created from them."""
        launch = self.launch
        if launch.wheels is None:
            return
        with sender(launch.wheels, launch.record) as sending:

            def send(host: Host) -> int | None:
                session, wanted = self._session(host), environment_on(launch, host)
                if wanted is None:
                    return None
                question = Request("environment", EnvironmentResult, lambda _: {"environment": wanted})
                if question.put(launch.record, session)["exists"]:
                    return None
                return readying.sent_bundle(launch.record, session, sending, self.report)

            sent = self._ask_all(reporting_failure(send, self.report))
        self._go_without("send the wheels", sent.errors)
        self.report.wheels({host: files for host, files in sent.results.items() if files is not None}, launch.wheels)

    def move_ports(self) -> dict[str, answers.Prepared]:
        """Lets all hosts give up what they have prepared, choose other ports and prepare again, because ports that the
        file does not set are in use."""
        assert self.launch.replan is not None
        hosts = self._hosts
        self.give_back([host.name for host in hosts])
        self._hosts = hosts
        plan = self.launch.replan(without_ports(self.launch.plan.cluster))
        self.launch = dataclasses.replace(self.launch, plan=plan)
        self._passing = self.launch.inspect(plan) if self.launch.inspect is not None else NOTHING
        self.choose_ports()
        return self.prepare_everywhere()

    def _session(self, host: Host) -> Session:
        if host.name not in self._sessions:
            self.report(Progress(host.name, "connect"))
            self._sessions[host.name] = self._passing.opened(host.name, lambda: self._route.open(host))
        return self._sessions[host.name]

    def prepare(self, host: Host) -> answers.Prepared:
        session = self._session(host)
        asked = {**up_request(self.launch, host), "ask": self._passing.question(host.name)}
        answer = readying.prepared(session, asked, self._sender, self.report, self.launch.record)
        self._passing.met(session)
        self._runs[host.name] = answer["run"]
        self.report(Progress(host.name, "prepared"))
        return answer

    @property
    def saw_checkpoint(self) -> bool:
        """Whether a host has seen a checkpoint at a storage URL that the run writes to."""
        return self._passing.saw_checkpoint

    def check(self, prepared: Mapping[str, answers.Prepared]) -> Checked | None:
        """Evaluates the facts of the hosts. They probe each other in a second round, all at once."""
        self._passing.add(prepared)
        while asked := [host for host in self._hosts if self._passing.question(host.name) is not None]:
            looking = fan_out(asked, self._inspect, width=len(asked), cancel=self._rollback.begin)
            self._go_without("look around", looking.errors)
            self._passing.add(looking.results)
        brief = self._passing.judged()
        if brief is not None:
            self.report.checked(brief)
        return brief

    def _inspect(self, host: Host) -> answers.Facts:
        session = self._sessions[host.name]
        session.send({"type": "look", "ask": self._passing.question(host.name)})
        answer = readying.converse(session, None, self.report, until="looked").of(answers.Facts)
        with about(host.name, "sent an invalid `looked`"):
            self._passing.check(host.name, answer)
        return answer

    def start_everywhere(self) -> dict[str, answers.Started]:
        """Sends the order to all hosts first, then reads all answers."""
        self._rollback.started = True
        for host in self._hosts:
            self._sessions[host.name].send(self._start_word(host))
        hearing = fan_out(self._hosts, self._hear_of_the_start, width=len(self._hosts), cancel=self._rollback.begin)
        idle = {host: error for host, error in hearing.errors.items() if not self._has_task(host)}
        needed = {host: error for host, error in hearing.errors.items() if host not in idle}
        started = _causes(Outcomes(hearing.results, needed)).or_raise("start")
        self._go_without("start", idle)
        return started

    def _start_word(self, host: Host) -> dict[str, Any]:
        """The order to start. The coordinator's host also gets credentials with which missing hosts join later."""
        authority, absent = self.launch.authority, list(self.absent)
        keeps = authority is not None and host.name == self.launch.record.coordinator
        issued = {name: authority.issue(name, coordinates=False) for name in absent} if authority and keeps else {}
        pending_hosts = {name: dataclasses.asdict(one) for name, one in issued.items()}
        return {"type": "start", "absent": absent, "pending_hosts": pending_hosts}

    def _hear_of_the_start(self, host: Host) -> answers.Started:
        try:
            answer = self._started(host)
        except DtctlError as error:
            if isinstance(error, AgentError):
                self._rollback.fail(host.name, error)
            if self._has_task(host.name):
                self._rollback.begin()  # otherwise the other hosts would wait for this one
            raise
        self.report(Progress(host.name, "started"))
        return answer

    def _started(self, host: Host) -> answers.Started:
        return readying.started(self._sessions[host.name], self.report, self.launch.record, self._runs[host.name])

    def not_running(
        self, prepared: Mapping[str, answers.Prepared]
    ) -> tuple[tuple[TaskId, ...], Mapping[TaskId, TaskStatus]]:
        """The tasks of the run that need not run: ended ones, drained ones, and all of a host where the run does not
        continue.
        """
        hosts = [host for host in self._hosts if host.name in prepared and prepared[host.name]["unchanged"]]
        started = fan_out(hosts, self._start).or_raise("look")
        roster = {task: host for task, host in self.launch.record.roster.items() if host in prepared}
        there = statuses(roster, started)
        ended = tuple(task for task in roster if task not in there or there[task].state.final)
        return ended, {task: one for task, one in there.items() if one.held}

    def _start(self, host: Host) -> answers.Started:
        self._sessions[host.name].send({"type": "start"})
        return self._started(host)

    def keep_everywhere(self) -> dict[str, answers.UpResult]:
        """Asks the coordinator's host first, which decides for all; it also informs hosts that cannot be reached from
        here.

        Where its answer is lost, the others learn from it what it has decided: they do not roll back.
        """
        lead = self.launch.record.coordinator
        self._deciding = True
        try:
            kept = {lead: self._keep(self.launch.record.hosts[lead])}
        except DtctlError as error:
            explained(error, f"dtctl status    shows whether the run continues: {lead} did not say that it keeps it")
            raise
        self._kept = True
        others = fan_out([host for host in self._hosts if host.name != lead], self._keep)
        self.unconfirmed = others.errors
        return {**kept, **others.results}

    def _keep(self, host: Host) -> answers.UpResult:
        return readying.kept(self._sessions[host.name], self.report, self.launch.record, self._runs[host.name])


def _causes(outcomes: Outcomes[answers.Started]) -> Outcomes[answers.Started]:
    """Leaves out hosts that only gave up because another one had failed."""
    given_up = [host for host, error in outcomes.errors.items() if getattr(error, "code", "") == "rolled_back"]
    if len(given_up) == len(outcomes.errors):
        return outcomes
    results = {**outcomes.results, **dict.fromkeys(given_up, _NOTHING_STARTED)}
    return Outcomes(results, {host: error for host, error in outcomes.errors.items() if host not in given_up})


def statuses(roster: Mapping[TaskId, str], started: Mapping[str, answers.Started]) -> dict[TaskId, TaskStatus]:
    """The states of the tasks on hosts that have started."""
    there = {task: host for task, host in roster.items() if host in started}
    return {task: TaskStatus.of(task, host, started[host]["tasks"][str(task)]) for task, host in there.items()}
