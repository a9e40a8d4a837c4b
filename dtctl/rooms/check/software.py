"""Checks the Pythons that start the trainers, and the packages that they have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TypeVar

from dtctl.agent.records.kinds import made
from dtctl.agent.records.values import CODE
from dtctl.agent.rooms.check.records import MOST_FILES, PythonAsked, PythonFound, SoftwareFacts, SoftwareQuestion
from dtctl.model import TaskId, grouped
from dtctl.operations.findings import Finding, commonness
from dtctl.plan import TaskPlan, shown_path
from dtctl.plan.spec import environment_of
from dtctl.rooms.check import Answers, CheckContext, Line, Topic, found, once
from dtctl.rooms.check.programs import Needs, runs_python
from dtctl.rooms.check.tensorflow1 import GONE
from dtctl.rooms.diagnose.modules import PACKAGES, is_standard, why_missing

EQUAL = ("tensorflow", "tensorflow-cpu", "tf-nightly", "torch", "mxnet")
"""Packages that need the same version on all hosts, because their servers talk to each other."""
ALIKE = ("keras", "tf-keras", "numpy", "protobuf", "tensorboard", "tensorflow-estimator", "jax", "jaxlib")
SHOWN = ("tensorflow", "tensorflow-cpu", "tf-nightly", "keras", "tf-keras", "tensorboard", "torch", "mxnet", "numpy")
_TENSORFLOW = ("tensorflow", "tensorflow-cpu", "tf-nightly")

Facts = SoftwareFacts
K = TypeVar("K", bound=Hashable)
_LAST_WITH_ESTIMATOR = (2, 15)


def software_questions(context: CheckContext, answers: Answers[Facts]) -> Mapping[str, SoftwareQuestion]:
    return once(answers, {host: question for host in context.hosts if (question := _question(context, host))})


def _question(context: CheckContext, host: str) -> SoftwareQuestion | None:
    asked = [
        made(
            PythonAsked,
            program=program,
            path=path,
            python_path=python_path,
            modules=sorted(_needed(context, tasks, lambda needs: needs.modules)),
            cuda=any(task.gpus for task in tasks),
            isolated=context.host(host).is_local,
            may_start=_may_start(context, host, program),
            environment=environment_of(context.plan, tasks[0], context.content),
            bundle=context.bundle,
            files=_needed(context, tasks, lambda needs: needs.files)[:MOST_FILES] if context.bundle else [],
        )
        for (program, path, python_path), tasks in _pythons(context, host).items()
    ]
    return (
        made(SoftwareQuestion, pythons=asked, started=True, imported=context.asks_for("import_fails", "gpus_not_seen"))
        if asked
        else None
    )


def _may_start(context: CheckContext, host: str, program: str) -> bool:
    return not context.host(host).is_local or context.allowed_here or program == context.own_python


def _pythons(context: CheckContext, host: str) -> dict[tuple[str, str, str], list[TaskPlan]]:
    """The Pythons of a host, each with its tasks: by program, PATH and PYTHONPATH."""
    return grouped(
        ((task.argv[0], task.env.get("PATH", ""), _python_path(task, context.bundle)), task)
        for task in context.plan.may_run(host)
        if runs_python(context.plan, task.id.job)
    )


def _python_path(task: TaskPlan, bundle: str | None) -> str:
    """The task's PYTHONPATH; without the code's directories if the code is not on the host yet."""
    parts = task.env.get("PYTHONPATH", "").split(":")
    return ":".join(part for part in parts if part and (bundle is not None or CODE not in part))


def _needed(context: CheckContext, tasks: Iterable[TaskPlan], of: Callable[[Needs], Iterable[str]]) -> list[str]:
    needs = [context.needs[task.id.job] for task in tasks if task.id.job in context.needs]
    return list(dict.fromkeys(name for each in needs for name in of(each)))


def _each(context: CheckContext, answers: Answers[Facts]) -> Iterator[tuple[str, PythonFound, list[TaskPlan]]]:
    for host, facts in answers.first.items():
        yield from zip([host] * len(facts["pythons"]), facts["pythons"], _pythons(context, host).values(), strict=False)


def software_findings(context: CheckContext, answers: Answers[Facts]) -> Iterator[Finding]:
    trainer = context.plan.cluster.trainer
    # A start asks when everything has been created.
    made_by_setup = not context.brief and (trainer.setup is not None or trainer.environment is not None)
    each = list(_each(context, answers))
    yield from _absent([one for one in each if not one[1]["path"]], made_by_setup)
    there = [one for one in each if one[1]["path"]]
    yield from _not_allowed(context, there)
    yield from _broken(there)
    yield from _lacking(context, there, made_by_setup)
    yield from _unreadable(context, there)
    yield from _different(there)
    yield from _traps(context, there)
    counted = list(_sees(context, there))
    yield from counted or _without_cuda(there)


Found = tuple[str, PythonFound, list[TaskPlan]]


def _absent(each: list[Found], made_by_setup: bool) -> Iterator[Finding]:
    for program, group in _by(each, lambda python: python["program"]).items():
        row = "python_to_come" if made_by_setup else "python_missing"
        yield found(row, _hosts(group), _tasks(group), python=shown_path(program))


def _not_allowed(context: CheckContext, each: list[Found]) -> Iterator[Finding]:
    held = [one for one in each if not _may_start(context, one[0], one[1]["program"])]
    for path, group in _by(held, lambda python: python["path"]).items():
        yield found("python_not_started", _hosts(group), _tasks(group), python=path)


def _broken(each: list[Found]) -> Iterator[Finding]:
    for text, group in _by(each, lambda python: python["problem"]).items():
        if text:
            yield found("python_broken", _hosts(group), _tasks(group), python=_python(group), said=text)


def _unreadable(context: CheckContext, each: list[Found]) -> Iterator[Finding]:
    """Programs that a Python cannot compile, as it reports itself if it has the code.

    Else by that of this machine: what it cannot read, no older one and no equal one reads; a newer one may.
    """
    by_word = grouped(
        ((one[1]["broken"]["file"], one[1]["broken"]["line"], one[1]["broken"]["problem"]), one)
        for one in each
        if one[1]["broken"] is not None
    )
    for (file, line, text), group in by_word.items():
        yield found("syntax_error", _hosts(group), _tasks(group), file=file, line=str(line), said=text)
    for job, needs in context.needs.items() if context.bundle is None else ():
        group = [
            (host, python, [task for task in tasks if task.id.job == job])
            for host, python, tasks in each
            if python["version"] and _number(python["version"]) <= sys.version_info[:2]
        ]
        group = [one for one in group if one[2]]
        if needs.broken and group:
            file, line, text = needs.broken
            yield found("syntax_error", _hosts(group), _tasks(group), file=file, line=str(line), said=text)


def _lacking(context: CheckContext, each: list[Found], made_by_setup: bool) -> Iterator[Finding]:
    standard = [(module, one) for one in each for module in one[1]["missing"] if is_standard(module)]
    for module, group in grouped(standard).items():
        fields = {"python": _python(group), "module": _with_place(context, module, group), **why_missing(module)}
        yield found("standard_module_missing", _hosts(group), _tasks(group), **fields)
    for missing, group in _by(each, _installable).items():
        if missing:
            row = "modules_to_come" if made_by_setup else "modules_missing"
            packages = " ".join(_requirement(module, each) for module in missing)
            names = ", ".join(_with_place(context, module, group) for module in missing)
            python, environment = _python(group), context.plan.cluster.trainer.environment
            where = {"by_hand": python} if environment is None else {"file": environment.what}
            if environment is None and not group[0][1]["managed"]:
                where["pip"] = python
            fields = {"python": python, "modules": names, "packages": packages, **where}
            yield found(row, _hosts(group), _tasks(group), **fields)
    for problems, group in _by(each, _import_problems).items():
        for module, text in problems:
            yield found("import_fails", _hosts(group), _tasks(group), python=_python(group), module=module, said=text)


def _installable(python: PythonFound) -> tuple[str, ...]:
    return tuple(module for module in python["missing"] if not is_standard(module))


def _with_place(context: CheckContext, module: str, group: list[Found]) -> str:
    needs = [context.needs[task.id.job] for _, _, tasks in group for task in tasks if task.id.job in context.needs]
    place = next((one.places[module] for one in needs if module in one.places), "")
    return f"{module} ({place})" if place else module


def _import_problems(python: PythonFound) -> tuple[tuple[str, str], ...]:
    return tuple((name, one["problem"]) for name, one in python["imported"].items() if one["problem"])


def _requirement(module: str, each: list[Found]) -> str:
    """What to install: the version that most other hosts have."""
    package = PACKAGES.get(module, module)
    versions = [python["packages"][package] for _, python, _ in each if package in python["packages"]]
    return f"{package}=={max(set(versions), key=versions.count)}" if versions else package


def _different(each: list[Found]) -> Iterator[Finding]:
    for package in (*EQUAL, *ALIKE):
        by_version = grouped((one[1]["packages"][package], one) for one in each if package in one[1]["packages"])
        if len(by_version) > 1:
            yield _versions("framework_differs" if package in EQUAL else "packages_differ", package, by_version)
    by_version = grouped((".".join(one[1]["version"].split(".")[:2]), one) for one in each if one[1]["version"])
    if len(by_version) > 1:
        yield _versions("pythons_differ", "Python", by_version)


def _versions(row: str, package: str, by_version: Mapping[str, list[Found]]) -> Finding:
    """Findings about the hosts whose version differs from that of most hosts."""
    versions = tuple((version, _hosts(group)) for version, group in sorted(by_version.items()))
    *others, usual = sorted(versions, key=commonness)
    hosts = dict.fromkeys(host for _, own in others for host in own)
    return found(
        row, hosts, package=package, versions=versions, version=usual[0], python=_python(by_version[others[0][0]])
    )


def _without_cuda(each: list[Found]) -> Iterator[Finding]:
    """Tasks with GPUs that would train on CPUs, of which their logs have one line that is easily missed."""
    with_gpus = [one for one in each if any(task.gpus for task in one[2]) and not one[1]["problem"]]
    for package, group in _by(with_gpus, _blind).items():
        if package:
            tasks = [task.id for _, _, tasks in group for task in tasks if task.gpus]
            row = "tensorflow_without_gpus" if package == "tensorflow-cpu" else "cuda_missing"
            yield found(row, _hosts(group), tasks, python=_python(group), package=package)


def _sees(context: CheckContext, each: list[Found]) -> Iterator[Finding]:
    """Frameworks that see a number of GPUs other than the cluster file states."""
    for host, python, tasks in each:
        wanted = context.host(host).gpus
        for module, imported in python["imported"].items() if wanted else ():
            if imported["gpus"] is not None and imported["gpus"] < wanted:
                own = [task.id for task in tasks if task.gpus]
                fields = {"python": python["path"], "module": module, "sees": imported["gpus"], "have": wanted}
                yield found("gpus_not_seen", [host], own, **fields)


def _blind(python: PythonFound) -> str:
    """The package for which the Python sees no GPU; empty if it may see them."""
    packages = python["packages"]
    if "tensorflow-cpu" in packages and "tensorflow" not in packages:
        return "tensorflow-cpu"
    return "tensorflow" if "tensorflow" in packages and not python["cuda"] else ""


def _traps(context: CheckContext, each: list[Found]) -> Iterator[Finding]:
    """Findings about programs that do not work with the installed versions."""
    wanting = grouped(
        ((row, tuple(fields.items())), (host, python, [task]))
        for host, python, tasks in each
        for task in tasks
        for row, fields in _trapped(python, context.needs.get(task.id.job, Needs()))
    )
    for (row, fields), group in wanting.items():
        yield found(row, _hosts(group), _tasks(group), python=_python(group), **dict(fields))


def _trapped(python: PythonFound, needs: Needs) -> Iterator[tuple[str, dict[str, str]]]:
    packages, uses = python["packages"], needs.uses
    tensorflow = next((packages[name] for name in _TENSORFLOW if name in packages), "")
    if "estimator" in uses and tensorflow and _number(tensorflow) > _LAST_WITH_ESTIMATOR:
        yield "estimator_gone", {"version": tensorflow}
    if needs.old and _number(tensorflow) >= (2, 0):
        yield "tensorflow_1_used", {"version": tensorflow, **_old_fields(needs.old)}
    keras = packages.get("keras", "")
    strategy = next((name for use, name in _WITHOUT_KERAS_3 if use in uses), "")
    if "fit" in uses and strategy and not (python["legacy_keras"] or "keras_2" in uses) and _number(keras) >= (3, 0):
        lacks = {} if "tf-keras" in packages else {"install": "tf_keras"}
        yield "keras_3_fit", {"version": keras, "strategy": strategy, **lacks}
    if "summaries" in uses and "graphs" not in uses and tensorflow and "tensorboard" not in packages:
        yield "summaries_without_tensorboard", {"version": tensorflow}


_WITHOUT_KERAS_3 = (
    ("ps_strategy", "ParameterServerStrategy"),
    ("mirrored_strategy", "MultiWorkerMirroredStrategy"),
)
"""TensorFlow versions with which fit() of Keras 3 fails."""

_MOST_PLACES = 5


def _old_fields(old: Mapping[str, str]) -> dict[str, str]:
    """The lines that use old names, and the remedy: compat.v1 has all of `names`, and none of `contrib` and
    `examples`.
    """
    places = [f"{name} ({place})" for name, place in old.items()]
    more = [f"{len(places) - _MOST_PLACES} more"] if len(places) > _MOST_PLACES else []
    parts = {part: f"tf.{part} ({old[f'tf.{part}']})" for part in GONE if f"tf.{part}" in old}
    names = [name for name in old if name.removeprefix("tf.") not in GONE]
    moved = {"moved": ", ".join(names[:_MOST_PLACES]), "files": _files(old[name] for name in names)} if names else {}
    return {"places": ", ".join([*places[:_MOST_PLACES], *more]), **parts, **moved}


def _files(places: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(place.rpartition(":")[0] for place in places))


def software_lines(context: CheckContext, answers: Answers[Facts]) -> Iterator[Line]:
    firsts: dict[str, PythonFound] = {}
    for host, python, _ in _each(context, answers):
        firsts.setdefault(host, python)
    yield Line("Python", {host: python["version"] for host, python in firsts.items() if python["version"]})
    for package in SHOWN:
        yield Line(package, {host: python["packages"].get(package, "") for host, python in firsts.items()})
    yield Line("CUDA", {host: python["cuda"] for host, python in firsts.items() if python["cuda"]})
    yield Line("C library", {host: python["libc"] for host, python in firsts.items() if python["libc"]})
    slowest = {
        host: max((one["seconds"] for one in python["imported"].values()), default=None)
        for host, python in firsts.items()
    }
    yield Line("imports_s", {host: seconds for host, seconds in slowest.items() if seconds is not None})


def _by(each: Iterable[Found], key: Callable[[PythonFound], K]) -> dict[K, list[Found]]:
    return grouped((key(one[1]), one) for one in each)


def _hosts(group: Iterable[Found]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(host for host, _, _ in group))


def _tasks(group: Iterable[Found]) -> tuple[TaskId, ...]:
    return tuple(dict.fromkeys(task.id for _, _, tasks in group for task in tasks))


def _python(group: list[Found]) -> str:
    """The Python as a user would type it on those hosts."""
    return group[0][1]["path"] or shown_path(group[0][1]["program"])


def _number(version: str) -> tuple[int, ...]:
    """2.15.1 -> (2, 15)"""
    return tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())


TOPIC = Topic("software", software_questions, software_findings, software_lines)
