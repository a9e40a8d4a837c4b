"""The known signatures: the rows of signatures.ini, and the functions that read the facts for each."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from dtctl.agent.records.vitals import Disk
from dtctl.agent.run.cause import taken_port
from dtctl.agent.run.installing import reached_no_index
from dtctl.config.strategies import PS
from dtctl.operations import pace
from dtctl.operations.findings import Facts, Fields, Join, Match, Signature, table
from dtctl.operations.snapshot import TaskStatus
from dtctl.rooms.diagnose import hosts, modules, waits


def python(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The task's Python, and the PyPI package of the module that it lacks, or the one that the log names.

    `pip_python` is left out where the system's package manager owns that Python: pip refuses to install there.
    """
    module = str(fields.get("module", "")).partition(".")[0]
    known = {"python": facts.python(task), **_pip(facts, task)}
    return {**known, "module": module, "package": fields.get("package") or modules.PACKAGES.get(module, module)}


def _pip(facts: Facts, task: TaskStatus) -> Fields:
    """The task's Python: as `pip_python`, or as `system_python` if the system's package manager owns it."""
    vitals = facts.vitals(task)
    managed = vitals is not None and vitals["managed"]
    return {"system_python" if managed else "pip_python": facts.python(task)}


def no_index(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """No fields; None if pip has reached its index."""
    end = facts.end_of(task)
    return {} if end is not None and reached_no_index(end.log) else None


def standard_module(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """The reason why Python lacks a module of the standard library; None for any other module."""
    module = str(fields.get("module", "")).partition(".")[0]
    if not modules.is_standard(module):
        return None
    return {"python": facts.python(task), "module": module, **modules.why_missing(module)}


def version(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The versions of TensorFlow and Keras."""
    vitals = facts.vitals(task)
    packages = vitals["packages"] if vitals is not None else {}
    found = {name: packages[package] for name, package in (("version", "tensorflow"), ("keras", "keras"))
             if package in packages}  # fmt: skip
    return {"python": facts.python(task), **_pip(facts, task), **found}


_KERAS_3 = re.compile(r"/keras/src/")
"""A file of Keras 3 in a traceback; those of Keras 2 are in tf_keras/src and keras/engine."""


def keras_3(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """The versions; None if Keras is older, or not involved in an error that other programs have as well.

    `split`: a value of several replicas was taken for one. Its lines may leave no room for the traceback.
    """
    found, end = version(facts, task, fields), facts.end_of(task)
    if str(found.get("keras", "3")).partition(".")[0] in ("0", "1", "2"):
        return None
    log = end.log if end is not None else ""
    if fields.get("split") and "Traceback (most recent" in log and not _KERAS_3.search(log):
        return None
    return found


_PID = re.compile(r"pid (\d+)\b(?! of the run)")


def port(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The port that the log names, or the task's own, and its holder, as the agent saw it at the end or sees it now.

    If neither is so, the program uses a port of which nothing is known.
    """
    end, vitals = facts.end_of(task), facts.vitals(task)
    own = facts.address(task.id).rpartition(":")[2]
    held = task.exit["evidence"]["port"]
    named = taken_port(f"{end.log}\n{end.cause}" if end is not None else facts.complaint(task))
    if held is not None:
        number, holder = str(held["port"]), held["holder"]
    elif named is not None:
        number, holder = str(named), ""
    elif vitals is not None and vitals["holder"]:
        number, holder = own, vitals["holder"]
    else:
        number, holder = own if end is None or "gRPC" in end.cause else "", ""
    known = {"holder": holder} if holder else {}
    if pid := _PID.match(holder):
        known["holder_pid"] = pid[1]
    if number and number == own:
        return {"taken": f"port {number}", "own_port": number, **known}
    if not number:
        other = f"a port other than the task's own ({own})" if own else "a port"
        return {"taken": other, "opener": str(task.id)}
    return {"taken": f"port {number}", "program_port": number, **known}


def disk(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The file system that its agent found full, that of the path in the message, or the fullest of the run's own.

    One that is not full is not named: it may have been freed since, or another one is meant.
    """
    mount = next(iter(task.exit["evidence"]["full_disks"]), None)
    if mount is not None:
        other = {} if mount["own"] else {"elsewhere": shlex.quote(mount["path"])}
        return {"mount": mount["path"], "path": "", **other}
    vitals = facts.hosts.get(task.host)
    known = list(vitals["disks"]) if vitals is not None else []
    path = str(fields.get("path") or fields.get("file") or "")
    if path:
        above = [one for one in known if is_below(path, one["path"])]
        known = [max(above, key=lambda one: len(one["path"]))] if above else []
    fullest = min(known, key=_free_share, default=None)
    if fullest is None or _free_share(fullest) > FULL_SHARE:
        return {"path": path} if path else {}
    return {
        "path": "",
        "where": fullest["path"],
        "free_bytes": fullest["free_bytes"],
        "size_bytes": fullest["size_bytes"],
    }


FULL_SHARE = 0.02
"""A disk with more free space than this share is not full, as of the query."""


def is_below(path: str, directory: str) -> bool:
    return directory == "/" or path == directory or path.startswith(directory.rstrip("/") + "/")


def _free_share(one: Disk) -> float:
    return one["free_bytes"] / max(1, one["size_bytes"])


def limits(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The limits of the process that the agent found set."""
    found = [f"ulimit {one['option']} is {one['text']}" for one in task.exit["evidence"]["limits"]]
    return {"limit": " and ".join(found)} if found else {}


def cpu_limit(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """The limit of CPU time: SIGXCPU shows it, or SIGKILL where the agent found that the time was used up."""
    found = [one["text"] for one in task.exit["evidence"]["limits"] if one["option"] == "-t"]
    if not found and killed_by("SIGXCPU")(facts, task, fields) is None:
        return None
    return {"limit": f"ulimit -t is {found[0]}"} if found else {}


def file_limit(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    return limits(facts, task, fields) if killed_by("SIGXFSZ")(facts, task, fields) is not None else None


FREE_SHARE = 0.6
"""A host with this share of its memory free lacks none, even if the program held as much as a typical one."""


def memory_limit(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """A limit that is set; without one, a note that most of the host's memory is free. None: the host may lack
    memory.
    """
    if found := limits(facts, task, fields):
        return found
    known = memory(facts, task, fields)
    free, of = known.get("available_bytes", 0), known.get("memory_bytes", 0)
    asked = _bytes(str(fields.get("asked", "")))
    killed = task.exit["evidence"]["oom_kills"] > 0
    return known if of and free > FREE_SHARE * of and asked <= free and not killed else None


def _bytes(text: str) -> float:
    """A size as numpy writes it, as in 18.6 TiB; 0 of an empty text."""
    number, _, unit = text.partition(" ")
    return float(number) * 1024 ** " KMGTPE".index(unit[0] if unit[:1] in "KMGTPE" else " ") if number else 0.0


def memory(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The memory of the host, and how much of it is free now."""
    machine = facts.machines().get(task.host)
    if machine is None:
        return {}
    return {"available_bytes": machine["available_bytes"], "memory_bytes": machine["memory_bytes"]}


def gpu(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The fullest of the task's GPUs, or of its host's, and the driver."""
    known = facts.gpus_of(task) or facts.gpus(task.host)
    if not known:
        return {}
    fullest = max(known, key=lambda one: one["used_bytes"] / max(1, one["memory_bytes"]))
    return {"gpu": fullest["index"], "used_bytes": fullest["used_bytes"], "driver": fullest["driver"],
            "memory_bytes": fullest["memory_bytes"]}  # fmt: skip


def checkpoint(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The newest checkpoint that the run has, which is what trainers restore."""
    newest = facts.status.newest_checkpoint
    complete = facts.status.newest_complete
    if newest is None or complete is None:
        return {}
    return {"checkpoint": f"{newest.report['dir']}/{complete['prefix']}", "holder_host": newest.host}


def in_parts(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """Fields if the ps tasks, each of which saves a part, are on more hosts than this one."""
    record = facts.status.record
    hosts = tuple(dict.fromkeys(host for one, host in record.roster.items() if one.job == PS))
    if {*hosts} <= {task.host}:
        return None
    said = next((fields[name] for name in ("whole", "half", "part") if fields.get(name)), "")
    return {"said": said, "ps_hosts": hosts, "lead_host": record.roster[record.lead]}


def killed(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """Fields for an unrequested SIGKILL while the kernel reports that it killed processes for lack of memory."""
    before = task.entry["history"][-1]["short_of_memory"] if task.entry["history"] else False
    if not before and not task.exit["evidence"]["oom_kills"]:
        return None
    return memory(facts, task, fields)


def killed_by(name: str) -> Join:
    """A join that matches ends by this signal."""
    number = signal.Signals[name].value

    def join(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
        end = facts.end_of(task)
        if end is None or number not in (end.signal, (end.code or 0) - 128):
            return None
        return memory(facts, task, fields)

    return join


_EXCEPTION = re.compile(r"[\w.]+(?:Error|Exception)\b")


def ended_itself(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """Fields for an exit that Python's `sys.exit(message)` makes."""
    end = facts.end_of(task)
    return {} if end is not None and end.code == 1 and end.cause and not _EXCEPTION.match(end.cause) else None


def with_its_host(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    end = facts.end_of(task)
    return {} if end is not None and task.exit["fault"] == "host_restarted" else None


def cannot_run(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """Fields for a program that the keeper could not start; there is no log."""
    obstacle = task.exit["cannot_run"]
    return {**obstacle} if obstacle is not None else None


_TREE = re.compile(r"/.*/\.dtctl/work/[^/]+/tree/")
"""Matches the directory of the code on a host."""


def missing_file(facts: Facts, task: TaskStatus, fields: Fields) -> Fields | None:
    """The rule by which a file or a module that the trainer lacks was not pushed; other modules have another row."""
    module = str(fields.get("module", "")).replace(".", "/")
    named = str(fields.get("path") or fields.get("file") or fields.get("argument") or "")
    path = _TREE.sub("", named).removeprefix("./")
    for one in [path] if path else [f"{module}.py", module]:
        if found := facts.left_out(one):
            return {"path": one, "rule": found.rule, "entry": found.path}
    return {"path": path, "typed": shlex.quote(path)} if path else None


def driver(facts: Facts, task: TaskStatus, fields: Fields) -> Fields:
    """The task's GPUs, and its Python for each framework that the program may use."""
    pip = _pip(facts, task).get("pip_python")
    own = {f"{name}_python": pip for name in frameworks(facts, task) if pip}
    return {**gpu(facts, task, fields), **own}


_FRAMEWORKS = {
    "torch": re.compile(r"\btorch\b|PyTorch|\bc10\b|\bat::"),
    "tensorflow": re.compile(r"tensorflow|TensorFlow|\btf\.|stream_executor|dso_loader"),
    "jax": re.compile(r"\bjaxlib\b|\bjax\b|XlaRuntimeError"),
}


def frameworks(facts: Facts, task: TaskStatus) -> list[str]:
    """The framework that the log names last; otherwise those that the Python has."""
    end, vitals = facts.end_of(task), facts.vitals(task)
    text = f"{end.log}\n{end.cause}" if end is not None else ""
    named = {name: [one.start() for one in pattern.finditer(text)] for name, pattern in _FRAMEWORKS.items()}
    last = max((name for name in named if named[name]), key=lambda name: named[name][-1], default=None)
    return (
        [last]
        if last is not None
        else [name for name in _FRAMEWORKS if vitals is not None and name in vitals["packages"]]
    )


def _of_gpus(facts: Facts, name: str) -> Iterable[Match]:
    if all(machine["gpus"] is None for machine in facts.machines().values()):
        return ()
    from dtctl.rooms.diagnose import gpus  # most runs have none

    found: Iterable[Match] = getattr(gpus, name)(facts)
    return found


def _function(words: str) -> Any:
    """The function NAME of this module, or MODULE.NAME of another; with arguments, the function that it returns."""
    name, *arguments = words.split()
    module, _, own = name.rpartition(".")
    if module == "gpus":
        return lambda facts: _of_gpus(facts, own)
    function = getattr({"waits": waits, "hosts": hosts, "pace": pace}[module], own) if module else globals()[own]
    return function(*arguments) if arguments else function


SIGNATURES = table(Path(__file__).with_name("signatures.ini"), _function)

IN_LOGS = tuple(row for row in SIGNATURES if row.pattern)
"""Signatures found in logs, of a task that has ended or still runs."""

BY_STATE = tuple(row for row in SIGNATURES if not row.pattern and row.find is Signature.find)
"""Signatures of ends whose logs match no pattern."""

BY_FACTS = tuple(row for row in SIGNATURES if row.find is not Signature.find)
"""Signatures found in states and figures; some name the tasks that wait."""
