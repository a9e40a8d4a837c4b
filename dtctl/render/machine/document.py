"""The machine form of all output: one JSON document, versioned, with times in RFC 3339 UTC."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from functools import reduce
from typing import TYPE_CHECKING, Any

from dtctl.agent.host.secrets import hide_text, hide_words
from dtctl.agent.records.reasons import Fact, sentence, why_of
from dtctl.agent.records.whole_run import HistoryEvent
from dtctl.render.format import iso_utc
from dtctl.render.terminal import console

if TYPE_CHECKING:
    from dtctl.bundle import Bundle
    from dtctl.bundle.revision import Inspected
    from dtctl.config.cluster import Environment
    from dtctl.errors import DtctlError, Problem
    from dtctl.model import TaskId
    from dtctl.operations.checkpoints import Checkpoints
    from dtctl.operations.engines import JobRequest
    from dtctl.operations.gc import GcResult
    from dtctl.operations.runs import KnownRun, KnownRuns
    from dtctl.operations.stop import StopResult
    from dtctl.operations.up.result import UnusedCheckpoint, UpResult
    from dtctl.plan import RunPlan

API_VERSION = "dtctl/v1"


def print_json(kind: str, body: Mapping[str, Any]) -> None:
    print_document({"apiVersion": API_VERSION, "kind": kind, **body})


def print_document(body: Mapping[str, Any]) -> None:
    """Prints a document unchanged, without our version: its format is not ours."""
    console.put(json.dumps(valid(body), indent=2, allow_nan=False) + "\n")


def print_json_line(body: Mapping[str, Any]) -> None:
    """Prints one document per line, for streams without an end."""
    console.put(json_line(body))


def json_line(body: Mapping[str, Any]) -> str:
    return json.dumps(valid(body), allow_nan=False) + "\n"


def print_json_to_stderr(kind: str, body: Mapping[str, Any]) -> None:
    """Prints one document per line, on stderr."""
    console.put(json_line({"apiVersion": API_VERSION, "kind": kind, **body}), stderr=True)


def picked(value: Any, names: str) -> dict[str, Any]:
    """Attributes or keys of a value, named for JSON: size_bytes becomes sizeBytes, and settle_s settleSeconds.

    `code=exitCode` renames; `@` marks a time, and `?` makes empty values null. `record.run`: an attribute of another
    one, null if that is None. `gpus[index name]`: these of each element; `newest(step)`: these of one object, or null.
    """
    found: dict[str, Any] = {}
    for path, other, mark, each, inner in _WORDS.findall(names):
        held = reduce(_part, path.split("."), value)
        if inner:
            shown: Any = None if held is None else picked(held, inner)
        elif each:
            shown = [picked(one, each) for one in held]
        else:
            shown = iso_utc(held) if mark == "@" else plain(held)
        found[other or _in_camels(path.rpartition(".")[2])] = shown or None if mark == "?" else shown
    return found


_WORDS = re.compile(r"([\w.]+)(?:=(\w+))?([@?]?)(?:\[([^]]*)\]|\(([^)]*)\))?")


def _part(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, Mapping) else None if value is None else getattr(value, name)


def plain(value: Any) -> Any:
    """The value in types of JSON."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Enum):
        return value.value
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _in_camels(name: str) -> str:
    first, *others = (f"{name}econds" if name.endswith("_s") else name).split("_")
    return first + "".join(map(str.capitalize, others))


def started(cluster: str, outcome: UpResult) -> dict[str, Any]:
    return {
        "cluster": cluster,
        "run": outcome.run,
        "unchanged": not outcome.started,
        "earlierCheckpoints": checkpoints(outcome.earlier) if outcome.earlier else None,
        "unseenCheckpoint": _unseen(outcome.unseen) if outcome.unseen else None,
        **picked(outcome, "revival=comesBackBy"),
        "moved": [{"host": host, "to": to} for host, to in outcome.moved.items()],
        "joined": plain(tuple(outcome.joined)),
        "joinedSpares": list(outcome.spares),
        "waiting": plain([task for tasks in outcome.waiting.values() for task in tasks]),
        "missing": errors(outcome.absent),
        "movedAside": [{"host": host, "path": path} for host, paths in outcome.aside.items() for path in paths],
    }


def _unseen(unseen: UnusedCheckpoint) -> dict[str, Any]:
    """An earlier run's checkpoint in a place that this run does not use; null if it is unknown whether there is one."""
    return picked(unseen, f"run host directory? checkpoint({CHECKPOINT})")


def not_pushed(bundle: Bundle) -> dict[str, Any]:
    """The paths that are left out for other reasons than the user's rules."""
    return {"notPushed": [*(one.path for one in bundle.withheld), *bundle.twins]}


def without_content(inspected: Inspected | None) -> dict[str, Any]:
    """The files that are only pointers of Git LFS, and the submodules that are empty here."""
    return {
        "lfsPointers": [*inspected.pointers] if inspected is not None else [],
        "emptySubmodules": [*inspected.empty_submodules] if inspected is not None else [],
    }


def job(value: JobRequest | None) -> dict[str, Any]:
    """The job that `up` would submit; nothing for a run on the hosts of the file."""
    return {} if value is None else {"job": {**picked(value, "engine machines"), "words": hide_words(value.words)}}


def plan(
    value: RunPlan, tasks: Sequence[TaskId] | None = None, files: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The plan with these of its tasks; None: all. `files`: of the environment, with their SHA-256."""
    from dtctl.plan import shown, shown_variables, shown_words
    from dtctl.plan.hosts import checkpoint_places  # not earlier: it reads the sections of cluster files

    return {
        **picked(value, "cluster.name=cluster lead success strategy coordinator(host address)"),
        "voters": [voter["host"] for voter in value.voters],
        "spares": {spare: list(slots) for spare, slots in value.slots.items()},
        **picked(value, "cluster.recovery.replace_s"),
        "stages": [
            {
                **picked(stage, "name tasks"),
                "after": stage["after"] if stage["held"] else [],
                "needs": stage["after"],
            }
            for stage in value.stages
        ],
        **picked(value, "needs_checkpoint settle_s target_step cluster.trainer.code"),
        "environment": _environment(value.cluster.trainer.environment, files or {}),
        "setup": hide_text(value.cluster.trainer.setup) if value.cluster.trainer.setup else None,
        "hooks": [
            {**picked(hook, "name on"), "posts": hook.post is not None, "runs": hide_words(hook.run)}
            for hook in value.cluster.hooks.values()
        ],
        "dirs": {host: {name: shown(path) for name, path in value.dirs[host].items()} for host in value.hosts},
        "checkpointDirs": {
            host: [shown(place) for place in checkpoint_places(value.cluster, value.dirs[host])] for host in value.hosts
        },
        "tasks": [
            {
                **picked(task, "id=task host address gpus"),
                "argv": shown_words(task.argv),
                "env": shown_variables(task.env),
                **picked(task, "secrets keep_proxy role scope vital decides serves ready"),
            }
            for task in value.tasks
            if tasks is None or task.id in tasks
        ],
    }


def _environment(said: Environment | None, files: Mapping[str, str]) -> dict[str, Any] | None:
    if said is None:
        return None
    listed = [{"path": path, "sha256": digest} for path, digest in files.items()]
    return {**picked(said, "kind what python wheels"), "files": listed}


def checkpoints(found: Checkpoints) -> dict[str, Any]:
    newest = f"dir=directory newest_complete({CHECKPOINT}) incomplete=newerIncomplete[{CHECKPOINT}]"
    return {"host": found.host, **picked(found.report, f"{newest} all[{CHECKPOINT}] problem?")}


def known_runs(known: KnownRuns) -> dict[str, Any]:
    return {
        "runs": [known_run(run) for run in known.runs],
        **picked(known, "damaged[host run problem] foreign[run account hosts] foreign_hidden"),
        "errors": errors(known.errors),
    }


def known_run(run: KnownRun) -> dict[str, Any]:
    return {
        **picked(run, "run cluster created@ live verdict.outcome=result"),
        "reason": sentence(run.verdict.why) if run.verdict else None,
        **picked(run, "by=startedBy? commit? hosts tasks"),
    }


def stop(result: StopResult) -> dict[str, Any]:
    return {
        **picked(result, "stopped"),
        "killed": [{"task": str(task), "afterSeconds": seconds} for task, seconds in result.killed.items()],
        **picked(result, "already survivors[task host pid command] without_run promised=endedWhenBack unwritten"),
        "errors": errors(result.errors),
    }


def event(one: HistoryEvent) -> dict[str, Any]:
    return {**picked(one, "n time@ kind host task attempt from to"), **reasoned(why_of(one)), **picked(one, "by?")}


def reasoned(why: Sequence[Fact]) -> dict[str, Any]:
    return {"reason": sentence(why), "why": list(why)}


def gc(result: GcResult, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dryRun": dry_run,
        "hosts": [
            {
                "host": host,
                **picked(found, "processes survivors"),
                "runs": [
                    {**picked(run, "run cluster"), "reason": sentence(why_of(run)), **picked(run, "size_bytes")}
                    for run in found["runs"]
                ],
                **picked(found, "bundles environments files freed_bytes"),
            }
            for host, found in result.remains.items()
        ],
        **picked(result, f"written[{WRITTEN}] kept[{WRITTEN}]"),
        "errors": errors(result.errors),
    }


def errors(found: Mapping[str, DtctlError]) -> list[dict[str, Any]]:
    return [{"host": host, **error_fields(error)} for host, error in found.items()]


def error_fields(error: DtctlError) -> dict[str, Any]:
    return {"code": getattr(error, "code", None), **picked(error, "summary=error detail hint")}


def problems(found: Sequence[Problem]) -> list[dict[str, Any]]:
    return [{**picked(one.place, "file line column"), **picked(one, "summary=problem hint")} for one in found]


def valid(value: Any) -> Any:
    """The value in valid JSON: other numbers become null, and lone surrogates, which parsers refuse, U+FFFD."""
    if isinstance(value, Mapping):
        return {valid(key): valid(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [valid(one) for one in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return value


CHECKPOINT = "prefix step time@ size_bytes shards kind complete problem?"
WRITTEN = "cluster path files size_bytes hosts directories"
