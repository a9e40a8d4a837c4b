"""Run a command on hosts, where the tasks would run it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Literal

from dtctl.agent.records.answers import Output
from dtctl.agent.rooms.execute.records import ExecResult
from dtctl.dataclass import dataclass
from dtctl.model import Host, TaskId
from dtctl.operations.away import ImpatientTransport
from dtctl.operations.client import Progress, Report, about, final, frames_of, request, silent
from dtctl.operations.client.plausible import wrong
from dtctl.operations.run_record import RunRecord
from dtctl.operations.selection import select_hosts, select_tasks
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Transport

OnOutput = Callable[[str, int, bytes], None]
"""Called with where it ran (a task or @host), 1 for stdout or 2 for stderr, and the bytes."""


@dataclass(frozen=True)
class Target:
    """A place where a command runs: the environment and code directory of a task, or the home directory of a host."""

    host: Host
    task: TaskId | None = None

    @property
    def name(self) -> str:
        return str(self.task) if self.task else f"@{self.host.name}"


def targets(record: RunRecord, where: Sequence[str], exclude: Sequence[str] = ()) -> list[Target]:
    """The named tasks; hosts if a host, or nothing, is named. Without `where`, it is `exclude` that names them.

    A task in `exclude` stands for its host where hosts are meant, and a host for its tasks where tasks are.
    """
    named = where or exclude
    if named and not any(word.startswith("@") for word in named):
        return [Target(record.hosts[record.roster[task]], task) for task in select_tasks(record, where, exclude)]
    return [Target(record.hosts[name]) for name in select_hosts(record, where, exclude)]


def exit_code(done: ExecResult) -> int:
    """The exit code as a shell reports it: 128 plus the signal for a process that a signal ended."""
    return 128 + done["signal"] if done["signal"] else done["exit_code"] or 0


def execute(
    record: RunRecord,
    transport: Transport,
    targets: Sequence[Target],
    argv: Sequence[str],
    on_output: OnOutput,
    *,
    cwd: Literal["code", "home"],
    report: Report = silent,
) -> Outcomes[ExecResult]:
    """Runs argv without a shell: its words reach the program unchanged.

    `report` hears of each place when it is begun, and when it is done.
    """

    route = ImpatientTransport(transport, record)

    def work(target: Target) -> ExecResult:
        report(Progress(target.name, "connect"))
        try:
            return run_on(target)
        finally:
            report(Progress(target.name, "done"))

    def run_on(target: Target) -> ExecResult:
        with closing(route.open(target.host)) as session:
            task = str(target.task) if target.task else None
            session.send({**request(record, target.host, "exec"), "argv": list(argv), "task": task, "cwd": cwd})
            for message in frames_of(session, "output", most_bytes=None):
                if message.type == "output":
                    with about(target.host.name, "sent an invalid `output`"):
                        on_output(target.name, _stream(message.of(Output)), message.payload)
            return final(record, session, "exec", message, ExecResult)

    return fan_out(targets, work, name=lambda target: target.name)


def _stream(output: Output) -> int:
    if output["stream"] not in (1, 2):
        raise wrong("stream", "1 or 2", output["stream"])
    return output["stream"]
