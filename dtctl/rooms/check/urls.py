"""Checks the run's storage URLs: the trainers' Python on each host that will use one tries to open it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from dtctl.agent.records.kinds import made
from dtctl.agent.records.values import urls_of
from dtctl.agent.rooms.check.records import UrlAsked, UrlsFacts, UrlsQuestion, UrlTried
from dtctl.config.strategies import KVSTORE_JOBS, PS
from dtctl.model import grouped
from dtctl.operations.findings import Finding
from dtctl.plan.hosts import output_places
from dtctl.plan.spec import environment_of
from dtctl.rooms.check import Answers, CheckContext, Line, Topic, found, once
from dtctl.rooms.check.programs import Needs, runs_python
from dtctl.rooms.check.storage import savers

_OTHERS = frozenset({"torch", "jax", "flax", "mxnet", "fsspec", "gcsfs", "s3fs", "adlfs"})
"""Frameworks whose programs do not open files through TensorFlow."""

_ROWS = {
    "missing": "url_missing",
    "denied": "url_denied",
    "scheme": "url_scheme_unknown",
    "unresolved": "url_unresolved",
    "other": "url_failed",
}
_BY_ITSELF = ("http://", "https://")
"""URL schemes that are not checked, because a program may fetch them with any library."""

_INSTALLED = {"gs": "gcsfs", "s3": "s3fs", "hdfs": "pyarrow", "viewfs": "pyarrow", "webhdfs": "requests"}
"""The package that fsspec needs for a scheme; adlfs for Azure's."""

_BY_TENSORFLOW_IO = ("s3", "hdfs", "viewfs", "az")


def url_questions(context: CheckContext, answers: Answers[UrlsFacts]) -> Mapping[str, UrlsQuestion]:
    return once(answers, {host: question for host in context.hosts if (question := _question(context, host))})


def _question(context: CheckContext, host: str) -> UrlsQuestion | None:
    plan = context.plan
    tasks = [task for task in plan.may_run(host) if runs_python(plan, task.id.job)]
    may_start = not context.host(host).is_local or context.allowed_here
    urls = _wanted(context, host) if tasks and may_start else []
    if not urls:
        return None
    task = min(tasks, key=lambda one: one.id != plan.lead)
    modules = context.needs.get(task.id.job, Needs()).modules
    return made(
        UrlsQuestion,
        token=context.token,
        host=host,
        program=task.argv[0],
        environment=environment_of(plan, task, context.content),
        variables=dict(task.env),
        secrets={name: context.secrets[name] for name in task.secrets if name in context.secrets},
        keep_proxy=task.keep_proxy,
        libraries=_libraries(modules),
        modules=list(modules),
        urls=urls,
    )


def _libraries(modules: Collection[str]) -> list[str]:
    """The libraries that may open URLs, by the program's imports; either one if they do not show it."""
    if "tensorflow" in modules:
        return ["tensorflow"]
    return ["fsspec", "tensorflow"] if _OTHERS & set(modules) else ["tensorflow", "fsspec"]


def _wanted(context: CheckContext, host: str) -> list[UrlAsked]:
    """The URLs that a host uses: those that save or evaluate write checkpoints, those that train read data; other
    directories are for all.
    """
    plan = context.plan
    dirs, here = plan.dirs[host], plan.may_run(host)
    saves = host in (*savers(plan), *plan.slots) or any(task.role == "evaluator" for task in here)
    written = urls_of(
        [
            *(output_places(plan.cluster, dirs) if saves else ()),
            *(dirs[name] for name in ("log", "work") if name in dirs),
        ]
    )
    reads = any(task.id.job not in (PS, *KVSTORE_JOBS) for task in here)
    read = urls_of([dirs["data"]]) if reads and "data" in dirs else []
    asked = {**dict.fromkeys(read, False), **dict.fromkeys(written, True)}
    return [made(UrlAsked, url=url, write=write) for url, write in asked.items() if not url.startswith(_BY_ITSELF)]


def url_findings(context: CheckContext, answers: Answers[UrlsFacts]) -> Iterator[Finding]:
    refused = grouped(
        ((one["url"], one["doing"], one["kind"], one["said"], one["library"]), host)
        for host, answer in answers.first.items()
        for one in _tried(context, host, answer)
        if one["kind"]
    )
    for (url, doing, kind, said, library), hosts in refused.items():
        fields = _fields(context, url, hosts)
        if kind == "scheme":
            fields |= _remedies(url, library, answers.first[hosts[0]]["path"])
        yield found(_ROWS[kind], hosts, _tasks(context, hosts), doing=doing, said=said, library=library, **fields)
    if context.plan.cluster.trainer.setup is None:  # the environment may have a library
        yield from _unasked(context, answers.first)


def _tried(context: CheckContext, host: str, answer: UrlsFacts) -> list[UrlTried]:
    """The results for URLs that the host was asked about: they appear in commands that a person may type."""
    asked = {one["url"] for one in _wanted(context, host)}
    return [one for one in answer["tried"] if one["url"] in asked]


def _unasked(context: CheckContext, facts: Mapping[str, UrlsFacts]) -> Iterator[Finding]:
    silent = grouped(
        ((answer["problem"], answer["path"]), host)
        for host, answer in facts.items()
        if answer["path"] and not answer["tried"]
    )
    for (problem, path), hosts in silent.items():
        yield found("url_not_tried", hosts, python=path, said=problem or "no answer")


def _fields(context: CheckContext, url: str, hosts: list[str]) -> dict[str, Any]:
    scheme = url.partition(":")[0]
    bucket = "/".join(url.split("/")[:3])
    task = context.plan.may_run(hosts[0])[0]
    key = task.env.get("GOOGLE_APPLICATION_CREDENTIALS", "") if scheme == "gs" else ""
    return {
        "where": url,
        "scheme": scheme,
        "bucket": bucket,
        **({f"{scheme}_bucket": bucket} if scheme in ("gs", "s3") else {}),
        **({"key": key} if key else {}),
    }


def _remedies(url: str, library: str, python: str) -> dict[str, Any]:
    """Packages that may open a scheme which the trainers' library does not know."""
    scheme = url.partition(":")[0]
    if library.startswith("TensorFlow"):
        return {"tensorflow_io": scheme} if scheme in _BY_TENSORFLOW_IO else {}
    return {"package": _INSTALLED.get(scheme, "adlfs"), "python": python}


def _tasks(context: CheckContext, hosts: list[str]) -> tuple[Any, ...]:
    return tuple(task.id for task in context.plan.tasks if task.host in hosts)


def url_lines(context: CheckContext, answers: Answers[UrlsFacts]) -> Iterator[Line]:
    tried = [(host, one) for host, answer in answers.first.items() for one in _tried(context, host, answer)]
    for url, each in grouped((one["url"], (host, one)) for host, one in tried).items():
        yield Line(url, {host: "not usable" if one["kind"] else "usable" for host, one in each})


TOPIC = Topic("urls", url_questions, url_findings, url_lines)
