"""The machine form of the results of commands, and of checkpoints and data sets."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.agent.host.secrets import hide_variable, hide_words
from dtctl.operations.consent import LocalProgram
from dtctl.render.machine import document
from dtctl.render.machine.document import picked

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.bundle.revision import Inspected
    from dtctl.config.outgoing import Sending
    from dtctl.operations.consent import KeyScan, NewKeys
    from dtctl.operations.down import DownResult
    from dtctl.operations.drain import Scaled, Scaling
    from dtctl.operations.replace import Replacement
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.stop import Ending, StopResult
    from dtctl.operations.up.result import UpResult
    from dtctl.transport.fanout import Outcomes


def down(outcome: DownResult) -> dict[str, Any]:
    return {
        **document.stop(outcome.stop),
        "removed": [{"host": host, "runs": list(runs)} for host, runs in outcome.removed.items()],
        **picked(outcome, f"kept[{document.WRITTEN}]"),
        "notAsked": list(outcome.unasked),
        "awaited": [{"host": host, "by": list(one.waiting)} for host, one in outcome.awaited.items()],
    }


def drain(host: str, outcome: StopResult, about: Ending) -> dict[str, Any]:
    """The result of a drain. `about`: what was known of it beforehand."""
    roster = outcome.known.roster if outcome.known is not None else {}
    others = [task for task in (*outcome.stopped, *outcome.already) if roster.get(task) != host]
    spares = None if about.spares is None else list(about.spares)
    restarts = list(map(str, about.restarts))
    return {"host": host, "pausesRun": bool(others), "restarts": restarts, "spares": spares, **document.stop(outcome)}


def scale(scaling: Scaling, scaled: Scaled, *, dry_run: bool) -> dict[str, Any]:
    """The result of a scaling. `stop` and `start` are as in the documents Stop and Restart, or null."""
    return {
        **picked(scaling, "record.run job before count starts stops restarts"),
        "now": scaled.number,
        "dryRun": dry_run,
        "stop": document.stop(scaled.stopped) if scaled.stopped else None,
        "start": restart(scaled.started) if scaled.started else None,
    }


def allow(
    programs: Sequence[LocalProgram], sendings: Sequence[Sending], new: Sequence[LocalProgram | Sending]
) -> dict[str, Any]:
    return {
        "programs": [
            {**picked(one, "what hosts"), "words": hide_words(one.argv), "settings": _settings(one), "new": one in new}
            for one in programs
        ],
        "sendings": [{**picked(sending, "key source names to doubt"), "new": sending in new} for sending in sendings],
    }


def _settings(program: LocalProgram) -> dict[str, str]:
    return {name: hide_variable(name, value) for name, value in program.settings.items()}


def push(outcome: Outcomes[int], bundle: Bundle, inspected: Inspected | None) -> dict[str, Any]:
    return {
        "bundle": bundle.id,
        "files": len(bundle.manifest.files),
        "sizeBytes": bundle.total_bytes,
        **document.not_pushed(bundle),
        **document.without_content(inspected),
        "hosts": [{"host": host, "sentFiles": sent} for host, sent in outcome.results.items()],
        "errors": document.errors(outcome.errors),
    }


def replace(exchange: Replacement, outcome: UpResult) -> dict[str, Any]:
    names = "old=host new=newHost tasks=moved moves_the_lead=leadMoved cluster.file"
    return {**document.started(exchange.cluster.name, outcome), **picked(exchange, names)}


def restart(outcome: RestartResult) -> dict[str, Any]:
    from dtctl.render.machine.status import task_status

    return {"tasks": [task_status(task) for task in outcome.tasks], "errors": document.errors(outcome.errors)}


def trust(key_scan: KeyScan, pinned: Sequence[tuple[NewKeys, Sequence[Path]]]) -> dict[str, Any]:
    """The trusted keys. `pinned`: those that were pinned just now, and their files."""
    return {
        "pinned": [
            {
                **picked(one, "station.name=host station.where"),
                "files": document.plain(files),
                **picked(one, "keys[type fingerprint]"),
            }
            for one, files in pinned
        ],
        **picked(key_scan, "known=unchanged"),
        "errors": document.errors(key_scan.errors),
    }
