"""The parts of a step of a run, for runs side by side: by what dtctl has measured of its workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dtctl.dataclass import dataclass
from dtctl.errors import DtctlError
from dtctl.operations.run_record import RunRecord
from dtctl.rooms.speed.facts import Facts
from dtctl.rooms.speed.operation import speed
from dtctl.transport.seam import Transport


@dataclass(frozen=True)
class Parts:
    """Shares of the workers' time in the last minutes in which the run trained, on average."""

    computes: float
    network: float
    saves: float
    other: float
    """What is left: input, and waits for other workers."""
    step_s: float | None
    """The seconds of a step of the fastest worker; None: no step is reported."""

    def each(self) -> Iterator[tuple[str, float]]:
        """The parts by name."""
        yield from (("compute", self.computes), ("network", self.network), ("save", self.saves), ("other", self.other))


def parts_of(record: RunRecord, transport: Transport) -> tuple[Parts | None, Mapping[str, DtctlError]]:
    """The parts, None if nothing was measured; and the hosts that did not answer."""
    found = speed(record, transport)
    return divided(found.facts) if found.facts is not None else None, found.errors


def divided(facts: Facts) -> Parts | None:
    """None: no worker was measured. What overlaps counts as computing, and then as the network."""
    if not facts.trainers:
        return None
    sums = [0.0, 0.0, 0.0]
    for task in facts.trainers:
        left = 1.0
        for index, share in enumerate((facts.works(task), facts.on_network(task) or 0.0, facts.saving(task))):
            sums[index] += min(left, share)
            left -= min(left, share)
    computes, network, saves = (one / len(facts.trainers) for one in sums)
    rest = max(0.0, 1.0 - computes - network - saves)
    return Parts(computes, network, saves, rest, 1 / facts.rate if facts.rate else None)
