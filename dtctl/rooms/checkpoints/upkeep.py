"""Removes old checkpoints where they are: one host does so for a directory that several hosts share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field

from dtctl.agent.rooms.checkpoints.records import Pruned, PruneResult, VerifyResult
from dtctl.agent.rooms.checkpoints.records import Verified as VerifyReport
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.model import Host, grouped
from dtctl.operations.checkpoints import Checkpoints, Found
from dtctl.operations.client import Request, ask_hosts
from dtctl.operations.client.plausible import wrong
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.storage import checkpoints as urls
from dtctl.transport.seam import Transport

_PATIENCE_S = 660.0


@dataclass(frozen=True)
class Pruning:
    """The checkpoints that were or would be removed; hosts without an answer are in `errors`."""

    directories: tuple[tuple[str, Pruned], ...]
    """Pairs of a host and the result for one of its directories."""
    errors: Mapping[str, DtctlError] = field(default_factory=dict)

    @property
    def removed(self) -> int:
        return sum(len(one["removed"]) for _, one in self.directories)

    def as_reported(self, found: Sequence[Checkpoints]) -> list[Checkpoints]:
        """The same for the hosts that have answered: what would be removed on the others was not shown."""
        return [place for place in found if place.host not in self.errors]


def prune(
    record: RunRecord, transport: Transport, found: Sequence[Checkpoints], *, keep: int, dry_run: bool, live: bool
) -> Pruning:
    """Keeps the newest `keep` complete checkpoints of each directory, and incomplete ones. `live`: the run may be."""
    named = [place for place in found if not place.report["guessed"]]
    if found and not named:
        raise DtctlError(
            f"{found[0].report['dir']} is not named in the cluster file, so nothing is removed there",
            detail="a directory that only a command line names may belong to another program",
            hint="set dirs.output or checkpoint.dir",
        )
    whole = [place for place in named if place.report["newest_complete"] is not None and not place.is_url]
    of_host = grouped((place.host, place.report["dir"]) for place in whole)

    def check(host: Host, answer: PruneResult) -> None:
        if [directory["dir"] for directory in answer["directories"]] != of_host[host.name]:
            raise wrong("directories", "those that were asked about", [one["dir"] for one in answer["directories"]])

    request = Request(
        "prune",
        PruneResult,
        lambda host: {"dirs": of_host[host.name], "before": of_host[host.name], "keep": keep, "dry_run": dry_run},
        check,
        within_s=_PATIENCE_S,
    )
    outcomes = ask_hosts(record, transport, request, list(of_host))
    directories = [(host, one) for host, answer in outcomes.results.items() for one in answer["directories"]]
    at_urls, failed = _prune_here([place for place in named if place.is_url], keep, dry_run, live)
    return Pruning((*directories, *at_urls), {**outcomes.errors, **failed})


def _prune_here(
    places: Sequence[Checkpoints], keep: int, dry_run: bool, live: bool
) -> tuple[list[tuple[str, Pruned]], dict[str, DtctlError]]:
    """Prunes the directories at storage URLs, from this machine."""
    done: list[tuple[str, Pruned]] = []
    errors: dict[str, DtctlError] = {}
    for place in places:
        with _failures(errors, place.host, place.where):
            done.append((place.host, urls.prune(place.report["dir"], keep, dry_run=dry_run, live=live)))
    return done, errors


@contextmanager
def _failures(errors: dict[str, DtctlError], bucket: str, where: str) -> Iterator[None]:
    try:
        yield
    except DtctlError as error:
        errors[bucket] = error
    except OSError as error:
        errors[bucket] = DtctlError(f"{where} cannot be read here: {error.strerror or error}")


@dataclass(frozen=True)
class Verified:
    """A checkpoint, and what its host reports about its bytes."""

    found: Found
    report: VerifyReport

    @property
    def sound(self) -> bool:
        return not self.report["problems"] and not self.report["unread"]


@dataclass(frozen=True)
class Verification:
    """The result for each checkpoint; hosts without an answer are in `errors`."""

    checked: tuple[Verified, ...]
    errors: Mapping[str, DtctlError] = field(default_factory=dict)


def verify(record: RunRecord, transport: Transport, wanted: Sequence[Found], *, limit_s: float) -> Verification:
    """Verifies each checkpoint on one host. The reading may take `limit_s` on each; what is left by then is reported as
    not read.
    """
    at_urls, failed = _verify_here([one for one in wanted if one.is_url], limit_s)
    of_host = grouped((host, one) for one in wanted if not one.is_url for host in one.hosts)

    def places(host: Host) -> list[dict[str, str]]:
        return [{"dir": one.directory, "prefix": one.checkpoint["prefix"]} for one in of_host[host.name]]

    def asked(host: Host) -> list[dict[str, object]]:
        pairs = zip(places(host), of_host[host.name], strict=True)
        return [{**place, "part": one.scattered} for place, one in pairs]

    def directories(host: Host) -> list[str]:
        return list(dict.fromkeys(one.directory for one in of_host[host.name]))

    def check(host: Host, answer: VerifyResult) -> None:
        named = [{"dir": one["dir"], "prefix": one["prefix"]} for one in answer["verified"]]
        if named != places(host):
            raise wrong("verified", "those that were asked about", named)

    request = Request(
        "verify",
        VerifyResult,
        lambda host: {"wanted": asked(host), "before": directories(host), "limit_s": limit_s},
        check,
        within_s=limit_s + 60.0,
    )
    outcomes = ask_hosts(record, transport, request, list(of_host))
    reports: dict[int, dict[str, VerifyReport]] = {}
    for host, answer in outcomes.results.items():
        for one, report in zip(of_host[host], answer["verified"], strict=True):
            reports.setdefault(id(one), {})[host] = report
    checked = [
        Verified(one, _of_all(reports[id(one)]))
        for one in wanted
        if len(reports.get(id(one), {})) == len(one.hosts) and not one.is_url
    ]
    return Verification((*checked, *at_urls), {**outcomes.errors, **failed})


def _of_all(reports: Mapping[str, VerifyReport]) -> VerifyReport:
    """What several hosts say, each of its own part; of one host what it says."""
    if len(reports) == 1:
        return next(iter(reports.values()))
    every = list(reports.values())
    unread = dict.fromkeys(f"{host}: {one['unread']}" for host, one in reports.items() if one["unread"])
    return {
        **every[0],
        "problems": [f"{host}: {text}" for host, one in reports.items() for text in one["problems"]],
        "unread": "; ".join(unread) or None,
        "tensors": sum(one["tensors"] for one in every),
        "read_bytes": sum(one["read_bytes"] for one in every),
        "seconds": max(one["seconds"] for one in every),
    }


def refuse_damaged(record: RunRecord, transport: Transport, checkpoint: Found) -> str:
    """Raises DtctlError, before a pull, if the host finds the checkpoint damaged. Returns what was not checked
    there.
    """
    if checkpoint.scattered or checkpoint.is_url:
        why = "no agent runs at a storage URL" if checkpoint.is_url else "no host has all of it"
        return f"{why}: its checksums are read here, when it has arrived"
    outcome = verify(record, transport, [checkpoint], limit_s=600.0)
    for error in outcome.errors.values():
        raise error
    for checked in outcome.checked:
        if problems := checked.report["problems"]:
            raise DtctlError(
                f"{checkpoint.path} on {checkpoint.host} is damaged: {problems[0]}",
                hint="dtctl checkpoints verify --all    finds one that is sound",
            )
        if unread := checked.report["unread"]:
            return f"not all of it was checked: {unread}"
    return ""


def _verify_here(wanted: Sequence[Found], limit_s: float) -> tuple[list[Verified], dict[str, DtctlError]]:
    """Verifies the checkpoints at storage URLs, one after the other: this machine downloads them."""
    checked: list[Verified] = []
    errors: dict[str, DtctlError] = {}
    for one in wanted:
        with _failures(errors, one.host, one.path):
            checked.append(Verified(one, urls.verify(one, limit_s)))
    return checked, errors
