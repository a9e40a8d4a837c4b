"""The machine form of the results of commands, and of checkpoints and data sets."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtctl.agent.host.secrets import hide_variable, hide_words
from dtctl.operations.checkpoints import Checkpoints, every, missing_elsewhere
from dtctl.operations.checks import shown
from dtctl.render.machine import document
from dtctl.render.machine.document import CHECKPOINT, picked

if TYPE_CHECKING:
    from dtctl.agent.records.answers import DataDropped, ExecResult
    from dtctl.agent.records.vitals import ProcessDump
    from dtctl.bundle import Bundle
    from dtctl.config.outgoing import Sending
    from dtctl.operations.checkpoints.pull import Pulled
    from dtctl.operations.checkpoints.push import Pushed
    from dtctl.operations.checkpoints.upkeep import Pruning, Verification
    from dtctl.operations.compare import Compared, Comparison
    from dtctl.operations.consent import KeyScan, LocalProgram, NewKeys
    from dtctl.operations.data import DataSet, PlaceState
    from dtctl.operations.down import DownResult
    from dtctl.operations.drain import Scaled, Scaling
    from dtctl.operations.dump import Dumps
    from dtctl.operations.metrics import Metrics, Point, Series
    from dtctl.operations.push import PushedData
    from dtctl.operations.replace import Replacement
    from dtctl.operations.restart import RestartResult
    from dtctl.operations.snapshot import RunStatus
    from dtctl.operations.stop import Ending, StopResult
    from dtctl.operations.up.result import UpResult
    from dtctl.plan.hosts import DataPlace
    from dtctl.transport.fanout import Outcomes

MOST_OUTPUT = 1 << 20
"""The most bytes of each stream of a place that `exec` keeps: the last ones."""


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


class Outputs:
    """Collects the output of `exec`, by place and stream; of long output the end."""

    def __init__(self) -> None:
        self._data: dict[tuple[str, int], bytearray] = {}
        self._cut: set[tuple[str, int]] = set()

    def print(self, place: str, stream: int, data: bytes) -> None:
        """Does what OutputPrinter does; called by several threads, each of which has its own place."""
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


def _compared(compared: Compared) -> dict[str, Any]:
    roster = compared.status.record.roster
    progress = "status.progress.step status.progress.target=targetStep status.progress.loss steps_per_s=stepsPerSecond"
    kept = "goodput.share=goodput restarts status.newest_complete.step=checkpointStep"
    return {
        **picked(compared, "status.record.run status.record.cluster status.verdict.outcome"),
        **document.reasoned(compared.status.verdict.why),
        **picked(compared, f"status.record.created=startTime@ duration_s {progress} {kept}"),
        "hosts": list(dict.fromkeys(roster.values())),
        "tasks": len(roster),
        "metrics": {name: picked(metric, "last best") for name, metric in compared.metrics.items()},
        **picked(compared, "settings"),
        "errors": document.errors(compared.errors),
    }


def dumps(found: Dumps) -> dict[str, Any]:
    return {
        "run": found.run,
        "tasks": [
            {
                **picked(task, "task host answer.attempt answer.state"),
                "processes": [_process(process) for process in task.answer["processes"]],
                **picked(task, "answer.omitted=processesOmitted"),
            }
            for task in found.tasks
        ],
    }


def _process(process: ProcessDump) -> dict[str, Any]:
    stacks = "stacks[thread name? tid main active gil=holdsGil frames omitted=framesOmitted] stacks_omitted"
    threads = "threads[tid name state wchan=waitsIn? kernel=kernelStack] threads_omitted"
    return picked(process, f"pid command way=stacksBy {stacks} missing said=pySpySaid? {threads}")


def metrics(found: Metrics, status: RunStatus | None) -> dict[str, Any]:
    """The metrics. `tasks`: from the logs, if there is no event file."""
    reporting = [task for task in status.tasks.values() if task.entry["step"] is not None] if status else []
    return {
        "run": found.run,
        "series": [_series(one) for one in found.series],
        "tasks": [{**picked(task, "id=task"), **picked(task.entry, "step rate loss")} for task in reporting],
        "lookedIn": {host: answer["dirs"] for host, answer in found.answers.items()},
        "notRead": [
            {"host": host, **picked(problem, "path problem")}
            for host, answer in found.answers.items()
            for problem in answer["problems"]
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
    """One point with its series."""
    return {**picked(series, "tag name=run host"), **point(each)}


def point(one: Point) -> dict[str, Any]:
    """A point. A value that is not finite is a text: `nan`, `inf` or `-inf`."""
    value: float | str = one.value if math.isfinite(one.value) else repr(one.value)
    return {**picked(one, "step time@"), "value": value}


def directories(places: Sequence[Checkpoints]) -> list[dict[str, Any]]:
    """Each directory once; `elsewhere` of a checkpoint lists the shards that its host lacks and others hold."""
    scattered = {(one.directory, one.checkpoint["prefix"]) for one in every(places) if one.scattered}
    documents = []
    for place in places:
        body = document.checkpoints(place)
        for entry, one in zip(body["all"], place.report["all"], strict=True):
            elsewhere = missing_elsewhere(places, place, one)
            entry["elsewhere"] = [{"shard": shard, "host": host} for shard, host in sorted(elsewhere.items())]
            entry["scattered"] = (place.report["dir"], one["prefix"]) in scattered
        documents.append({**body, "guessed": place.report["guessed"], "others": list(place.others)})
    return documents


def verified(outcome: Verification) -> list[dict[str, Any]]:
    found = "found.host found.directory found.checkpoint.prefix found.checkpoint.step"
    report = "report.problems report.unread? report.tensors report.read_bytes report.seconds"
    return [picked(one, f"{found} sound {report}") for one in outcome.checked]


def pulled(outcome: Pulled) -> dict[str, Any]:
    return picked(outcome, "found.hosts found.path found.checkpoint.step files size_bytes sent_bytes")


def pushed(outcome: Pushed) -> dict[str, Any]:
    own = "own.name own.step own.size_bytes own.unread?"
    return picked(outcome, f"{own} placed[host others directory prefix sent_bytes]")


def pruned(outcome: Pruning) -> list[dict[str, Any]]:
    names = f"dir=directory removed[{CHECKPOINT}] kept[{CHECKPOINT}] freed_bytes problem?"
    return [{"host": host, **picked(one, names)} for host, one in outcome.directories]


def data_source(data: DataSet) -> dict[str, Any]:
    bundle = data.bundle
    return {
        "bundle": bundle.id if bundle else None,
        "files": len(bundle.manifest.files) if bundle else None,
        "sizeBytes": bundle.total_bytes if bundle else None,
    }


def data_states(found: Mapping[str, Sequence[PlaceState]]) -> list[dict[str, Any]]:
    held = "held.bundle held.files held.size_bytes held.missing held.missing_bytes held.changed held.examples"
    return [{**_place(one.place), **picked(one, f"state {held}")} for each in found.values() for one in each]


def data_pushed(found: Mapping[str, Sequence[PushedData]]) -> list[dict[str, Any]]:
    names = "files answer.bundle answer.sent_files answer.found_files answer.removed_files"
    return [{**_place(one.place), **picked(one, names)} for each in found.values() for one in each]


def data_dropped(found: Mapping[str, Sequence[DataDropped]]) -> list[dict[str, Any]]:
    return [
        {"host": host, "directory": shown(one["dir"]), **picked(one, "removed_files freed_bytes kept_files")}
        for host, each in found.items()
        for one in each
    ]


def _place(place: DataPlace) -> dict[str, Any]:
    share = None if place.share is None else {"index": place.share[0], "of": place.share[1]}
    return {"host": place.host, "directory": shown(place.directory), "share": share}
