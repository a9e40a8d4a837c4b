"""Copies a checkpoint of this machine to the hosts on which the next run restores it.

Every host says first that it has room and no live run; then one of those that share a directory is sent the files; when
all of them hold what was sent, it gets its name everywhere, at the lead's host last.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from dtctl.agent.records.values import is_storage_url
from dtctl.dataclass import dataclass
from dtctl.errors import AgentError, DtctlError, PreflightError
from dtctl.model import grouped
from dtctl.operations.client import Report
from dtctl.operations.outputs import strangers
from dtctl.operations.run_record import RunRecord
from dtctl.plan import RunPlan, restoring_hosts
from dtctl.plan.hosts import checkpoint_places, on_host
from dtctl.rooms.checkpoints.delivery import Delivery, StoredCheckpoint, Target
from dtctl.rooms.checkpoints.local import OwnCheckpoint
from dtctl.rooms.checkpoints.upload import Upload
from dtctl.transport.fanout import Outcomes, fan_out
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Pushed:
    """The result of a push; `placed` has the lead's host first."""

    own: OwnCheckpoint
    placed: tuple[StoredCheckpoint, ...]


def targets(plan: RunPlan, into: str | None) -> tuple[Target, ...]:
    """The directories where the next run of this plan looks for checkpoints. `into`: a directory there; with a / at its
    front, a ~, or as a URL another one.

    Raises PreflightError where no setting says where that is.
    """
    elsewhere = into is not None and (into.startswith(("/", "~")) or is_storage_url(into))
    below = None if into is None or elsewhere else into.strip("/")
    if below is not None and ("/" in below or below in ("", ".", "..")):
        raise PreflightError(
            f"{into!r} is not the name of a directory in the checkpoint directory",
            hint="--into chief    or a whole path: --into /shared/checkpoints",
        )
    found = []
    for host in restoring_hosts(plan):
        named = (
            (on_host(into, plan.cluster.name),)
            if into is not None and elsewhere
            else checkpoint_places(plan.cluster, plan.dirs[host])
        )
        if not named:
            raise PreflightError(
                f"no setting of {plan.cluster.file} says where {plan.cluster.name} looks for checkpoints",
                hint="set dirs.output or checkpoint.dir and have the trainer read it; or name the place: --into DIR",
            )
        found.append(Target(host, named[0], below))
    return tuple(found)


def push(
    record: RunRecord, transport: Transport, own: OwnCheckpoint, where: Sequence[Target], by: str, report: Report
) -> Pushed:
    """Copies the checkpoint. Raises DtctlError; the next push resumes with the received part, which has no final name
    yet.
    """
    with ExitStack() as stack:
        push = secrets.token_hex(16)
        deliveries: dict[str, Delivery] = {}
        for target in where:
            kind = Upload if is_storage_url(target.directory) else Delivery
            deliveries[target.host] = kind(record, own, target, (push, by), report)
        for one in deliveries.values():
            stack.callback(one.close)
        every = list(deliveries.values())

        def all_do(doing: str, those: Sequence[Delivery], work: Callable[[Delivery], None]) -> None:
            outcomes = fan_out(those, work, name=lambda one: one.host, cancel=stack.close)
            _refuse_live(outcomes)
            outcomes.or_raise(doing)

        try:
            all_do("store the checkpoint", every, lambda one: one.open(transport))
            _refuse_directories_of_others(record, deliveries, by)
        except DtctlError:
            fan_out(every, Delivery.give_up, name=lambda one: one.host)
            raise
        shared = _shared(every)
        for one in every:
            if one.host not in shared:
                one.close()
        senders = [deliveries[host] for host in shared]
        all_do("store the checkpoint", senders, lambda one: one.send())
        all_do("give the checkpoint its name", senders[1:], lambda one: one.keep())
        senders[0].keep()
        return Pushed(own, tuple(one.placed(shared[one.host]) for one in senders))


def _shared(every: Sequence[Delivery]) -> dict[str, list[str]]:
    """The hosts that are sent the files, and for each host the others that see the same directory."""
    same = grouped((one.landed["token"], one.host) for one in every)
    return {sender: others for sender, *others in same.values()}


def _refuse_live(outcomes: Outcomes[None]) -> None:
    for error in outcomes.errors.values():
        if isinstance(error, AgentError) and error.code == "run_live":
            raise PreflightError(
                f"{error.summary}: its trainers would save their own checkpoints there, and continue from those",
                detail="nothing was sent",
                hint="dtctl stop    stops it; then try again",
            )


def _refuse_directories_of_others(record: RunRecord, deliveries: Mapping[str, Delivery], by: str) -> None:
    owners = {host: one.landed["owners"] for host, one in deliveries.items()}
    lines = strangers(owners, record.cluster, by, record.file or Path())
    if lines:
        raise PreflightError(
            "the directory was last written by a cluster of another directory; nothing was sent",
            detail="\n".join([*lines, f"this is cluster {record.cluster} of {(record.file or Path()).parent}"]),
            hint=f"give this cluster a name, or dirs.output, of its own in {record.file}; or name a place: --into DIR",
        )
