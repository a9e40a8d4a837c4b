"""What topics of `check` are tried on: a plan of four hosts, and what they tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dtctl.agent.records.kinds import checked
from dtctl.agent.rooms.check.records import MachineFacts, PythonFound, SoftwareFacts, StorageFacts
from dtctl.config.cluster import Cluster
from dtctl.operations.findings import Finding
from dtctl.plan.run import plan_run
from dtctl.render.findings import FIELD, OPTIONAL, filled, words
from dtctl.rooms.check import Answers, CheckContext, Topic
from dtctl.rooms.check.programs import Needs
from tests.unit.clusters import cluster

GB = 10**9


def context(
    value: Cluster | None = None, uses: Iterable[str] = (), modules: Iterable[str] = (), **fields: Any
) -> CheckContext:
    """Of ps on a and b, and workers on c (the lead's host) and d, unless said otherwise."""
    value = value or cluster(dirs={"output": "/saved"})
    plan = plan_run(value, {name: name for name in value.hosts}, local_python="python3")
    return CheckContext(plan, dict.fromkeys(value.jobs, Needs(tuple(modules), frozenset(uses))), token="ab", **fields)


def software(path: str = "/usr/bin/python3", **packages: str) -> SoftwareFacts:
    """`packages`: versions, `tf_keras` for tf-keras."""
    named = {name.replace("_", "-"): version for name, version in packages.items()}
    return {"pythons": [python(path, packages=named)]}


def python(path: str = "/usr/bin/python3", **fields: Any) -> PythonFound:
    return checked(PythonFound, {"program": "python3", "path": path, "version": "3.11.7", **fields})


def machine(
    *, available: float = 8, memory: float = 16, gpus: Iterable[Any] = (), problem: str = "", **fields: Any
) -> MachineFacts:
    """Memory in GB."""
    load: dict[str, Any] = {
        "time": 1000.0, "cpus": 8, "load": 0.1, "memory_bytes": int(memory * GB), "waiting": {},
        "available_bytes": int(available * GB),
    }  # fmt: skip
    load["gpus"] = {"problem": problem, "text": "its own words" if problem else "", "each": [*gpus]}
    return checked(MachineFacts, {"machine": load, **fields})


def disk(path: str = "/saved", free: int = 100 * GB, size: int = 500 * GB, files: int | None = 10**6) -> dict[str, Any]:
    return {"path": path, "free_bytes": free, "size_bytes": size, "free_files": files}


def storage(**fields: Any) -> StorageFacts:
    return checked(StorageFacts, fields)


def judged(topic: Topic[Any, Any], value: CheckContext, *rounds: Mapping[str, Any], **more: Any) -> list[Finding]:
    """Fails where a sentence lacks a field."""
    found = list(topic.findings(value, Answers(rounds, **more)))
    for one in found:
        assert set(FIELD.findall(OPTIONAL.sub("", one.signature.means))) <= words(one).keys()
    return found


def hosts_by_signature(found: Iterable[Finding]) -> dict[str, tuple[str, ...]]:
    """Signature -> hosts; fails where one is found twice."""
    each = [(one.signature.name, one.seen.hosts) for one in found]
    assert len(dict(each)) == len(each), each
    return dict(each)


def sentence(one: Finding) -> str:
    return filled(one.signature.means, words(one))
