"""Every byte of checkpoints, read where they lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from dtctl.agent.records.checkpoints import Verified as Told
from dtctl.agent.records.checkpoints import VerifyResult
from dtctl.errors import DtctlError
from dtctl.model import Host
from dtctl.operations.checkpointing.finding import Found
from dtctl.operations.client.conversation import Request, ask
from dtctl.operations.client.plausible import check_run, wrong
from dtctl.operations.history.record import RunRecord
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Verified:
    """`problems` is empty where all that was read is as it was saved; `unread` says why not all was read."""

    found: Found
    problems: tuple[str, ...]
    unread: str
    tensors: int
    read_bytes: int
    seconds: float

    @property
    def sound(self) -> bool:
        return not self.problems and not self.unread


@dataclass(frozen=True)
class Verification:
    """What each was found to be; hosts that gave no answer are in `errors`."""

    checked: tuple[Verified, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)


def verify(record: RunRecord, transport: Transport, wanted: Sequence[Found], *, limit_s: float) -> Verification:
    """Each on one host. The reading may take `limit_s` on each; what is left by then is told as not read."""
    of_host: dict[str, list[Found]] = {}
    for one in wanted:
        of_host.setdefault(one.host, []).append(one)

    def places(host: Host) -> list[dict[str, str]]:
        return [{"dir": one.directory, "prefix": one.checkpoint.prefix} for one in of_host[host.name]]

    def check(host: Host, answer: VerifyResult) -> None:
        check_run(record.cluster, record.run, answer["run"])
        told = [{"dir": one["dir"], "prefix": one["prefix"]} for one in answer["verified"]]
        if told != places(host):
            raise wrong("verified", "those that were asked about", told)

    request = Request(
        "verify",
        VerifyResult,
        lambda host: {"wanted": places(host), "limit_s": limit_s},
        check,
        within_s=limit_s + 60.0,
    )
    outcomes = ask(record, transport, request, list(of_host))
    checked = [
        _verified(one, told)
        for host, answer in outcomes.results.items()
        for one, told in zip(of_host[host], answer["verified"], strict=True)
    ]
    return Verification(tuple(checked), outcomes.errors)


def _verified(found: Found, told: Told) -> Verified:
    return Verified(
        found=found,
        problems=tuple(told["problems"]),
        unread=told["unread"] or "",
        tensors=told["tensors"],
        read_bytes=told["read_bytes"],
        seconds=told["seconds"],
    )
