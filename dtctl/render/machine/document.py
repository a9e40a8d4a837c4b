"""The machine form of everything that a person sees: one JSON document, versioned, times in RFC 3339 UTC."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtctl.agent.records.reasons import sentence
from dtctl.plan.roster import shown
from dtctl.render.terminal import console
from dtctl.render.words import iso_utc

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.errors import DtctlError, Problem
    from dtctl.model import TaskId
    from dtctl.operations.checkpoints import Checkpoint, Checkpoints
    from dtctl.operations.events import Happening
    from dtctl.operations.gc import GcResult, Written
    from dtctl.operations.runs import KnownRun, KnownRuns
    from dtctl.operations.stop import StopResult
    from dtctl.operations.up.result import Unseen, UpResult
    from dtctl.plan.roster import RunPlan

API_VERSION = "dtctl/v1"


def print_json(kind: str, body: Mapping[str, Any]) -> None:
    print_document({"apiVersion": API_VERSION, "kind": kind, **body})


def print_document(body: Mapping[str, Any]) -> None:
    """Prints it as it is, without our version: its form is not ours."""
    console.put(json.dumps(valid(body), indent=2, allow_nan=False) + "\n")


def print_json_line(body: Mapping[str, Any]) -> None:
    """One document a line, for streams without an end."""
    console.put(json_line(body))


def json_line(body: Mapping[str, Any]) -> str:
    return json.dumps(valid(body), allow_nan=False) + "\n"


def tell_json(kind: str, body: Mapping[str, Any]) -> None:
    """One document a line, on stderr."""
    console.put(json_line({"apiVersion": API_VERSION, "kind": kind, **body}), stderr=True)


def started(cluster: str, outcome: UpResult) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "run": outcome.run,
        "unchanged": not outcome.started,
        "earlierCheckpoints": checkpoints(outcome.earlier) if outcome.earlier else None,
        "unseenCheckpoint": _unseen(outcome.unseen) if outcome.unseen else None,
        "comesBackBy": dict(outcome.revival),
        "joined": [str(task) for task in outcome.joined],
        "missing": errors(outcome.absent),
        "movedAside": [{"host": host, "path": path} for host, paths in outcome.aside.items() for path in paths],
    }


def _unseen(unseen: Unseen) -> dict[str, Any]:
    """What an earlier run has saved where this one does not look; without a checkpoint nobody knows what is there."""
    newest = checkpoint(unseen.checkpoint) if unseen.checkpoint else None
    return {"run": unseen.run, "host": unseen.host, "directory": unseen.directory or None, "checkpoint": newest}


def not_pushed(bundle: Bundle) -> dict[str, Any]:
    """Beside what the user's own rules leave out."""
    return {"notPushed": [*(one.path for one in bundle.withheld), *bundle.twins]}


def plan(value: RunPlan, tasks: Sequence[TaskId] | None = None) -> dict[str, Any]:
    """With these of its tasks; None: all."""
    return {
        "cluster": value.cluster.name,
        "lead": str(value.lead),
        "success": value.success,
        "strategy": value.strategy.value,
        "coordinator": {"host": value.coordinator.host, "address": value.coordinator.address},
        "stages": [
            {
                "name": stage.name,
                "tasks": [str(task) for task in stage.tasks],
                "after": list(stage.after) if stage.held else [],
                "needs": list(stage.after),
            }
            for stage in value.stages
        ],
        "needsCheckpoint": value.needs_checkpoint,
        "settleSeconds": value.settle_s,
        "targetStep": value.target_step,
        "code": str(value.cluster.trainer.code),
        "setup": value.cluster.trainer.setup,
        "hooks": [
            {"name": hook.name, "on": list(hook.on), "posts": hook.post is not None, "runs": list(hook.run)}
            for hook in value.cluster.hooks.values()
        ],
        "dirs": {host: {name: shown(path) for name, path in value.dirs[host].items()} for host in value.hosts},
        "checkpointDirs": {host: [shown(path) for path in value.checkpoint_dirs[host]] for host in value.hosts},
        "tasks": [
            {
                "task": str(task.id),
                "host": task.host,
                "address": task.address,
                "gpus": list(task.gpus) if task.gpus is not None else None,
                "argv": [shown(word) for word in task.argv],
                "env": {name: shown(text) for name, text in task.env.items()},
                "secrets": list(task.secrets),
                "keepProxy": task.keep_proxy,
                "role": task.role,
                "scope": task.scope,
                "vital": task.vital,
                "decides": task.decides,
                "serves": task.serves,
                "ready": task.ready,
            }
            for task in value.tasks
            if tasks is None or task.id in tasks
        ],
    }


def checkpoints(found: Checkpoints) -> dict[str, Any]:
    newest = found.newest_complete
    return {
        "host": found.host,
        "directory": found.directory,
        "newestComplete": checkpoint(newest) if newest else None,
        "newerIncomplete": [checkpoint(one) for one in found.incomplete],
        "all": [checkpoint(one) for one in found.all],
        "problem": found.problem or None,
    }


def known_runs(known: KnownRuns) -> dict[str, Any]:
    return {
        "runs": [known_run(run) for run in known.runs],
        "damaged": [{"host": one.host, "run": one.run, "problem": one.problem} for one in known.damaged],
        "errors": errors(known.errors),
    }


def known_run(run: KnownRun) -> dict[str, Any]:
    return {
        "run": run.run,
        "cluster": run.cluster,
        "created": iso_utc(run.created),
        "live": run.live,
        "result": run.verdict.outcome.value if run.verdict else None,
        "reason": sentence(run.verdict.why) if run.verdict else None,
        "hosts": list(run.hosts),
        "tasks": {str(task): state.value for task, state in run.tasks.items()},
    }


def stop(result: StopResult) -> dict[str, Any]:
    return {
        "stopped": [str(task) for task in result.stopped],
        "killed": [{"task": str(task), "afterSeconds": seconds} for task, seconds in result.killed.items()],
        "already": [str(task) for task in result.already],
        "survivors": [
            {"task": one.task, "host": one.host, "pid": one.pid, "command": one.command} for one in result.survivors
        ],
        "withoutRun": list(result.without_run),
        "endedWhenBack": list(result.promised),
        "errors": errors(result.errors),
    }


def happening(one: Happening) -> dict[str, Any]:
    return {
        "n": one.number,
        "time": iso_utc(one.time),
        "kind": one.kind,
        "host": one.host,
        "task": one.task,
        "attempt": one.attempt,
        "from": one.before,
        "to": one.after,
        "reason": sentence(one.why),
        "why": list(one.why),
        "by": one.by or None,
    }


def gc(result: GcResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "hosts": [
            {
                "host": host,
                "processes": [dataclasses.asdict(one) for one in found.processes],
                "survivors": [dataclasses.asdict(one) for one in found.survivors],
                "runs": [
                    {"run": one.run, "cluster": one.cluster, "reason": one.reason, "sizeBytes": one.size_bytes}
                    for one in found.runs
                ],
                "bundles": list(found.bundles),
                "files": list(found.files),
                "freedBytes": found.freed_bytes,
            }
            for host, found in result.remains.items()
        ],
        "written": [written(one) for one in result.written],
        "kept": [written(one) for one in result.kept],
        "errors": errors(result.errors),
    }


def errors(found: Mapping[str, DtctlError]) -> list[dict[str, Any]]:
    return [
        {
            "host": host,
            "code": getattr(error, "code", None),
            "error": error.summary,
            "detail": error.detail,
            "hint": error.hint,
        }
        for host, error in found.items()
    ]


def problems(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [
        {
            "file": problem.place.file,
            "line": problem.place.line,
            "column": problem.place.column,
            "problem": problem.summary,
            "hint": problem.hint,
        }
        for problem in found
    ]


def valid(value: Any) -> Any:
    """What JSON has no word for is null, and half a surrogate pair, which parsers refuse, U+FFFD."""
    if isinstance(value, Mapping):
        return {valid(key): valid(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [valid(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


def written(one: Written) -> dict[str, Any]:
    return {
        "cluster": one.cluster,
        "path": one.path,
        "files": one.files,
        "sizeBytes": one.size_bytes,
        "hosts": list(one.hosts),
        "directories": one.directories,
    }


def checkpoint(found: Checkpoint) -> dict[str, Any]:
    return {
        "prefix": found.prefix,
        "step": found.step,
        "time": iso_utc(found.time),
        "sizeBytes": found.size_bytes,
        "shards": found.shards,
        "kind": found.kind,
        "complete": found.complete,
        "problem": found.problem or None,
    }
