"""The checkpoints that the hosts have found in a run's directories."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING

from dtctl.agent.records.values import is_storage_url
from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError

if TYPE_CHECKING:
    from dtctl.agent.records.checkpoints import Checkpoint, CheckpointReport


def at(host: str, place: str) -> str:
    """The place as it is shown: HOST:DIRECTORY, or the storage URL itself."""
    return place if is_storage_url(place) else f"{host}:{place}"


@dataclass(frozen=True)
class Checkpoints:
    """One directory on one host, as that host reports it."""

    host: str
    report: CheckpointReport
    others: tuple[str, ...] = ()
    """Other hosts that see the same directory."""

    @property
    def is_url(self) -> bool:
        """Whether the directory is a storage URL; `host` is then the bucket."""
        return is_storage_url(self.report["dir"])

    @property
    def where(self) -> str:
        return at(self.host, self.report["dir"])


def before(found: Sequence[Checkpoints], time: float) -> tuple[Checkpoints, ...]:
    """Without the checkpoints from this time on, which a later run has written."""
    return tuple(_before(one, time) for one in found)


def _before(found: Checkpoints, time: float) -> Checkpoints:
    kept = [one for one in found.report["all"] if one["time"] < time]
    if len(kept) == len(found.report["all"]):
        return found
    newest = max((one for one in kept if one["complete"]), key=lambda one: one["time"], default=None)
    incomplete = [one for one in found.report["incomplete"] if one["time"] < time]
    report: CheckpointReport = {**found.report, "all": kept, "newest_complete": newest, "incomplete": incomplete}
    return dataclasses.replace(found, report=report)


def newest_of_run(found: Sequence[Checkpoints]) -> Checkpoints | None:
    """The directory with the newest complete checkpoint; among equals (a shared directory) the first, the lead's."""
    complete = [(one, newest) for one in found if (newest := one.report["newest_complete"])]
    if not complete:
        return next((one for one in found if one.report["all"] or one.report["problem"]), None)
    return max(complete, key=lambda one: one[1]["time"])[0]


@dataclass(frozen=True)
class Found:
    """One checkpoint in one directory. Where `hosts` has several, each holds other shards of it."""

    directory: str
    checkpoint: Checkpoint
    hosts: tuple[str, ...]
    """The first host is the one that reported `checkpoint`."""
    shards: Mapping[int, str] = field(default_factory=dict)
    """Shard -> a host that holds it; only for a checkpoint that no single host has completely."""

    @property
    def host(self) -> str:
        return self.hosts[0]

    @property
    def is_url(self) -> bool:
        """Whether it lies at a storage URL: the bucket stands for the host, and the controller reads it."""
        return is_storage_url(self.directory)

    @property
    def scattered(self) -> bool:
        """Whether its shards are spread over several hosts."""
        return len(self.hosts) > 1

    @property
    def whole(self) -> bool:
        return self.checkpoint["complete"] or self.scattered

    @property
    def name(self) -> str:
        return self.checkpoint["prefix"].rpartition("/")[2]

    @property
    def path(self) -> str:
        return f"{self.directory}/{self.checkpoint['prefix']}"


def each_once(places: Iterable[Checkpoints]) -> list[Checkpoints]:
    """A directory that hosts share, as the first of them reports it, with the names of the others."""
    distinct: list[Checkpoints] = []
    for one in places:
        for number, before in enumerate(distinct):
            if _same(before, one):
                distinct[number] = dataclasses.replace(before, others=(*before.others, one.host))
                break
        else:
            distinct.append(one)
    return distinct


def _same(checkpoints: Checkpoints, other: Checkpoints) -> bool:
    """Whether both hosts see the same directory: by a file that both report; without such a file, by the directory's
    identity.
    """
    if any(checkpoints.report[name] != other.report[name] for name in ("dir", "identity")):
        return False
    seen = [
        {(each["prefix"], each["identity"]) for each in place.report["all"] if each["identity"]}
        for place in (checkpoints, other)
    ]
    return bool(seen[0] & seen[1]) or not (seen[0] or seen[1])


def missing_elsewhere(places: Sequence[Checkpoints], place: Checkpoints, checkpoint: Checkpoint) -> Mapping[int, str]:
    """Shards that this host lacks, and who holds them."""
    if checkpoint["complete"] or checkpoint["kind"] not in ("tensorflow", "dcp"):
        return {}
    wanted = set(checkpoint["lacking"])
    return {
        shard: other.host
        for other in reversed(places)
        if other is not place and other.report["dir"] == place.report["dir"]
        for same in other.report["all"]
        if same["prefix"] == checkpoint["prefix"] and same["kind"] == checkpoint["kind"]
        if checkpoint["kind"] != "tensorflow" or same["shards"] == checkpoint["shards"]
        for shard in same["held"]
        if shard not in checkpoint["held"] and (not wanted or shard in wanted)
    }


def _makes_whole(one: Checkpoint, elsewhere: Mapping[int, str]) -> bool:
    """Whether a host that knows which shards there are, by an index or metadata, has all of them with the others."""
    if one["kind"] == "dcp":
        return 0 < len(one["lacking"]) == len(elsewhere) and len(one["held"]) + len(elsewhere) == one["shards"]
    return bool(elsewhere and one["identity"]) and len({*one["held"], *elsewhere}) == one["shards"]


def every(places: Sequence[Checkpoints]) -> Iterator[Found]:
    """Each checkpoint, the newest first; one that is spread over hosts once, by a host that has its index."""
    scattered: dict[tuple[str, str], Found] = {}
    found: list[Found] = []
    entries = [(place, one) for place in places for one in place.report["all"]]
    for place, one in entries:
        directory, elsewhere = place.report["dir"], missing_elsewhere(places, place, one)
        key = directory, one["prefix"]
        if not _makes_whole(one, elsewhere):
            found.append(Found(directory, one, (place.host,)))
        elif key not in scattered:
            hosts = tuple(dict.fromkeys([place.host, *elsewhere.values()]))
            scattered[key] = Found(directory, one, hosts, {**dict.fromkeys(one["held"], place.host), **elsewhere})
    alone = (one for one in found if one.checkpoint["complete"] or not _is_part(one, scattered))
    yield from sorted((*scattered.values(), *alone), key=lambda each: each.checkpoint["time"], reverse=True)


def _is_part(one: Found, scattered: Mapping[tuple[str, str], Found]) -> bool:
    whole = scattered.get((one.directory, one.checkpoint["prefix"]))
    return whole is not None and one.host in whole.hosts


def newest_scattered(places: Sequence[Checkpoints]) -> Found | None:
    """The newest checkpoint, if it is whole only with the shards of several hosts."""
    newest = next((one for one in every(places) if one.whole), None)
    return newest if newest is not None and newest.scattered else None


def chosen(places: Sequence[Checkpoints], wanted: str | None) -> Found:
    """The checkpoint of this step or name; None: the newest complete one. Raises DtctlError where there is none."""
    known = list(every(places))
    fit = [one for one in known if wanted is None or wanted in _names(one)]
    whole = [one for one in fit if one.whole]
    if whole:
        return whole[0]
    if fit:
        best = max(fit, key=lambda one: len(one.checkpoint["held"]))  # another host may have an empty directory alone
        raise DtctlError(
            f"{at(best.host, best.path)} is not complete: {best.checkpoint['problem']}",
            hint="dtctl checkpoints    shows which others there are",
        )
    there = ", ".join(dict.fromkeys(_called(one) for one in known if one.whole))
    raise DtctlError(
        "no complete checkpoint was found" if wanted is None else f"no checkpoint is of step or name {wanted}",
        hint=f"there are {there[:300]}" if there else "dtctl checkpoints    lists the checkpoints",
    )


def named(places: Sequence[Checkpoints], wanted: str | None, *, all_of_them: bool) -> list[Found]:
    """The checkpoints to verify: those of this step or name, all of them, or the newest and the newest complete one of
    each directory.
    """
    known = [one for one in every(places) if not (one.scattered and one.checkpoint["kind"] == "keras")]
    if wanted is not None:
        fit = [one for one in known if wanted in _names(one)]
        return fit or [chosen(places, wanted)]
    if all_of_them:
        return known
    picked: list[Found] = []
    for place in places:
        own = [one for one in known if (one.directory, one.host) == (place.report["dir"], place.host)]
        newest = next((one for one in own if one.checkpoint["complete"]), None)
        picked += [*own[:1], *([newest] if newest is not None and newest is not own[0] else [])]
    return picked


def epoch_of(checkpoint: Checkpoint) -> int | None:
    """The epoch that its name says, where its step is not known."""
    if checkpoint["step"] is not None:
        return None
    from dtctl.agent.checkpoints import formats  # `status` seldom needs it

    return formats.epoch_in_name(checkpoint["kind"], checkpoint["prefix"].rpartition("/")[2])


def _names(one: Found) -> set[str]:
    step = one.checkpoint["step"]
    return {one.checkpoint["prefix"], one.name, one.path, *([] if step is None else [str(step)])}


def _called(one: Found) -> str:
    step, epoch, prefix = one.checkpoint["step"], epoch_of(one.checkpoint), one.checkpoint["prefix"]
    if step is None:
        return prefix if epoch is None else f"{prefix} (epoch {epoch})"
    return f"{prefix} (step {step})"
