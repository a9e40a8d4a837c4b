"""The machine form of what commands have done that show nothing but that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.render.machine import document
from dtctl.render.machine.document import picked

if TYPE_CHECKING:
    from dtctl.agent.records.answers import ExecResult
    from dtctl.agent.records.vitals import ProcessDump
    from dtctl.bundle import Bundle
    from dtctl.operations.compare import Compared, Comparison
    from dtctl.operations.consent import Program
    from dtctl.operations.down import DownResult
    from dtctl.operations.dump import Dumps
    from dtctl.operations.metrics import Metrics, Point, Series
    from dtctl.operations.replace import Replacement
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.scale import Scaling
    from dtctl.operations.snapshot import RunStatus
    from dtctl.operations.stop import Ending, StopResult
    from dtctl.operations.trust import KeyScan, NewKeys
    from dtctl.operations.up.result import UpResult
    from dtctl.transport.fanout import Outcomes


MOST_OUTPUT = 1 << 20
"""Bytes of each stream of a place that `exec` keeps: the last ones."""


def down(outcome: DownResult) -> dict[str, Any]:
    return {
        **document.stop(outcome.stop),
        "removed": [{"host": host, "runs": list(runs)} for host, runs in outcome.removed.items()],
        **picked(outcome, f"kept[{document.WRITTEN}]"),
        "notAsked": list(outcome.unasked),
    }


def drain(host: str, outcome: StopResult, about: Ending) -> dict[str, Any]:
    """`about`: what was known of it beforehand."""
    roster = outcome.known.roster if outcome.known is not None else {}
    others = [task for task in (*outcome.stopped, *outcome.already) if roster.get(task) != host]
    spares = None if about.spares is None else list(about.spares)
    restarts = list(map(str, about.restarts))
    return {"host": host, "pausesRun": bool(others), "restarts": restarts, "spares": spares, **document.stop(outcome)}


def scale(
    scaling: Scaling, stopped: StopResult | None, started: RestartResult | None, *, dry_run: bool
) -> dict[str, Any]:
    """`stop` and `start`: as of the documents Stop and Restart; null where nothing was stopped or started."""
    return {
        **picked(scaling, "record.run job before count starts stops restarts"),
        "dryRun": dry_run,
        "stop": document.stop(stopped) if stopped else None,
        "start": restart(started) if started else None,
    }


def allow(programs: Sequence[Program], new: Sequence[Program]) -> dict[str, Any]:
    return {"programs": [{**picked(one, "what hosts argv=words settings"), "new": one in new} for one in programs]}


def push(outcome: Outcomes[int], bundle: Bundle) -> dict[str, Any]:
    return {
        "bundle": bundle.id,
        "files": len(bundle.manifest.files),
        "sizeBytes": bundle.total_bytes,
        **document.not_pushed(bundle),
        "hosts": [{"host": host, "sentFiles": sent} for host, sent in outcome.results.items()],
        "errors": document.errors(outcome.errors),
    }


def replace(exchange: Replacement, outcome: UpResult) -> dict[str, Any]:
    names = "old=host new=newHost tasks=moved moves_the_lead=leadMoved cluster.file"
    return {**document.started(exchange.cluster.name, outcome), **picked(exchange, names)}


def restart(outcome: RestartResult) -> dict[str, Any]:
    from dtctl.render.machine.status import task_status

    return {"tasks": [task_status(task) for task in outcome.tasks], "errors": document.errors(outcome.errors)}


def trust(found: KeyScan, pinned: Sequence[tuple[NewKeys, Sequence[Path]]]) -> dict[str, Any]:
    """`pinned`: what was pinned just now, and in which files."""
    return {
        "pinned": [
            {
                **picked(one, "station.name=host station.where"),
                "files": document.plain(files),
                **picked(one, "keys[type fingerprint]"),
            }
            for one, files in pinned
        ],
        **picked(found, "known=unchanged"),
        "errors": document.errors(found.errors),
    }


class Outputs:
    """Collects what `exec` prints, by place and stream; of much of it the end."""

    def __init__(self) -> None:
        self._data: dict[tuple[str, int], bytearray] = {}
        self._cut: set[tuple[str, int]] = set()

    def print(self, place: str, stream: int, data: bytes) -> None:
        """As OutputPrinter does; called by several threads, each of which has its own place."""
        kept = self._data.setdefault((place, 2 if stream == 2 else 1), bytearray())
        kept += data
        if len(kept) > MOST_OUTPUT:
            self._cut.add((place, 2 if stream == 2 else 1))
            del kept[:-MOST_OUTPUT]

    def document(self, outcome: Outcomes[ExecResult]) -> dict[str, Any]:
        return {
            "results": [
                {
                    "place": place,
                    **picked(done, "exit_code signal"),
                    "stdout": self.text(place, 1),
                    "stderr": self.text(place, 2),
                    "cut": any((place, stream) in self._cut for stream in (1, 2)),
                }
                for place, done in outcome.results.items()
            ],
            "errors": document.errors(outcome.errors),
        }

    def text(self, place: str, stream: int) -> str:
        return bytes(self._data.get((place, stream), b"")).decode("utf-8", "replace")


def init(cluster: str, files: Sequence[Path]) -> dict[str, Any]:
    return {"cluster": cluster, "files": document.plain(files)}


def templates(found: Mapping[str, str]) -> dict[str, Any]:
    return {"templates": [{"name": name, "use": use} for name, use in found.items()]}


def comparison(found: Comparison) -> dict[str, Any]:
    return {
        "runs": [_compared(one) for one in found.runs.values()],
        "differences": [
            {"key": key, "values": dict(zip(found.runs, values, strict=True))}
            for key, values in found.differences.items()
        ],
        "errors": [{"run": run, **document.error_fields(error)} for run, error in found.errors.items()],
    }


def _compared(one: Compared) -> dict[str, Any]:
    roster = one.status.record.roster
    progress = "status.progress.step status.progress.target=targetStep status.progress.loss steps_per_s=stepsPerSecond"
    kept = "goodput.share=goodput restarts status.newest_complete.step=checkpointStep"
    return {
        **picked(one, "status.record.run status.record.cluster status.verdict.outcome"),
        **document.reasoned(one.status.verdict.why),
        **picked(one, f"status.record.created=startTime@ duration_s {progress} {kept}"),
        "hosts": list(dict.fromkeys(roster.values())),
        "tasks": len(roster),
        "metrics": {name: picked(metric, "last best") for name, metric in one.metrics.items()},
        **picked(one, "settings"),
        "errors": document.errors(one.errors),
    }


def dumps(found: Dumps) -> dict[str, Any]:
    return {
        "run": found.run,
        "tasks": [
            {
                **picked(one, "task host answer.attempt answer.state"),
                "processes": [_process(process) for process in one.answer["processes"]],
                **picked(one, "answer.omitted=processesOmitted"),
            }
            for one in found.tasks
        ],
    }


def _process(process: ProcessDump) -> dict[str, Any]:
    stacks = "stacks[thread name? tid main active gil=holdsGil frames omitted=framesOmitted] stacks_omitted"
    threads = "threads[tid name state wchan=waitsIn? kernel=kernelStack] threads_omitted"
    return picked(process, f"pid command way=stacksBy {stacks} missing said=pySpySaid? {threads}")


def metrics(found: Metrics, status: RunStatus | None) -> dict[str, Any]:
    """`tasks`: from the logs, if there is no event file."""
    telling = [task for task in status.tasks.values() if task.entry["step"] is not None] if status else []
    return {
        "run": found.run,
        "series": [_series(one) for one in found.series],
        "tasks": [{**picked(task, "id=task"), **picked(task.entry, "step rate loss")} for task in telling],
        "lookedIn": {host: answer["dirs"] for host, answer in found.answers.items()},
        "notRead": [
            {"host": host, **picked(one, "path problem")}
            for host, answer in found.answers.items()
            for one in answer["problems"]
        ],
        "unreadBytes": {host: one["unread_bytes"] for host, one in found.answers.items() if one["unread_bytes"]},
        "valuesLeftOut": {host: one["omitted"] for host, one in found.answers.items() if one["omitted"]},
        "errors": document.errors(found.errors),
    }


def _series(one: Series) -> Mapping[str, Any]:
    last = one.last
    return {
        **picked(one, "tag name=run host directory count least=min most=max"),
        "last": point(last) if last else None,
        "points": [point(each) for each in one.points],
    }


def line(series: Series, each: Point) -> dict[str, Any]:
    """One point by itself."""
    return {**picked(series, "tag name=run host"), **point(each)}


def point(one: Point) -> dict[str, Any]:
    """A value that is no number is a text: `nan`, `inf` or `-inf`."""
    value: float | str = one.value if math.isfinite(one.value) else repr(one.value)
    return {**picked(one, "step time@"), "value": value}
