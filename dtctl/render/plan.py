"""A plan as text: all tasks in a table that fits a screen, or some of them in full; and the code that is not sent."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.agent.host.secrets import hide_text
from dtctl.bundle import OWN
from dtctl.config.cluster import Hook
from dtctl.dataclass import dataclass
from dtctl.durations import duration_text
from dtctl.model import Host, OtherTransport, Revision, TaskId, grouped
from dtctl.operations.engines import HERE
from dtctl.plan import RunPlan, TaskPlan, shown, shown_variables, shown_words
from dtctl.render.errors import note, show_warning
from dtctl.render.format import by_value, count, fold, spans
from dtctl.render.terminal import console
from dtctl.render.terminal.console import print_table, table, table_fits
from dtctl.render.terminal.safe import lines_of

if TYPE_CHECKING:
    from dtctl.agent.records.spec import Stage
    from dtctl.bundle import Bundle, LeftOut
    from dtctl.bundle.revision import Inspected
    from dtctl.operations.local import Exposure

_SHOWN = 5
"""The most paths that are named; the rest is counted."""
_ROWS = 10
"""The most tasks with a line each; of more, those with the same values share one."""
_LONGEST_CLUSTER = 300
"""The most characters of TF_CONFIG's cluster that are shown with a table, which has the same addresses."""
_LOSSES = {"task": "alone", "with-lead": "with the lead", "gang": "with every task"}
_SURVIVED = {1: "one host", 2: "two hosts", 3: "three hosts"}
"""How many voters may be lost; there are at most seven."""


def show_plan(plan: RunPlan, files: Mapping[str, str] = {}) -> None:
    """Shows once what all tasks have in common, and with each group of tasks what differs.

    `files`: of the environment, with their SHA-256.
    """
    _show_head(plan, files, all_of_setup=False)
    out = console.out()
    out.print()
    _show_table(plan)
    out.print()
    for line in _command_lines(plan):
        out.prose(line)
    out.print(f"dtctl plan {plan.lead}    shows one task in full, --all every task")


def show_whole_tasks(plan: RunPlan, tasks: Sequence[TaskId] | None, files: Mapping[str, str] = {}) -> None:
    """Shows each task with its environment, command and directories; None: all, below what they have in common."""
    out = console.out()
    if tasks is None:
        _show_head(plan, files, all_of_setup=True)
    chosen = [task for task in plan.tasks if tasks is None or task.id in tasks]
    for number, task in enumerate(chosen):
        if number or tasks is None:
            out.print()
        _show_whole(plan, task)


def _show_head(plan: RunPlan, files: Mapping[str, str], *, all_of_setup: bool) -> None:
    out = console.out()
    cluster = plan.cluster
    out.prose(f"{cluster.name}: {count(len(plan.tasks), 'task')} on {fold(plan.hosts)}, lead {plan.lead}")
    out.prose(f"code from {cluster.trainer.code}")
    if cluster.trainer.environment:
        digests = [f"{name} {digest[:12]}" for name, digest in files.items()]
        of = f" ({', '.join(digests)})" if digests else ""
        command = shlex.join(shown_words(cluster.trainer.environment.command))
        out.prose(f"environment, once per host and content: {command}{of}")
        if cluster.trainer.wheels is not None:
            out.prose(f"  from the wheels in {cluster.trainer.wheels}, which are sent, and from no index")
    if cluster.trainer.setup:
        first, *more = lines_of(hide_text(cluster.trainer.setup))
        rest = f" (and {count(len(more), 'line')} more)" if more and not all_of_setup else ""
        out.prose(f"setup, once per host and content: {first}{rest}")
        for line in more if all_of_setup else ():
            out.print(f"  {line}")
    for line in order_lines(plan):
        out.prose(line)


def show_new_hosts(hosts: Sequence[str], run: str) -> None:
    """Shows what `up` does with hosts that are new in the file since its run was started."""
    if hosts:
        verb, what = ("is", "it") if len(hosts) == 1 else ("are", "them")
        note(
            f"{fold(hosts)} {verb} new in the file: dtctl up    adds {what} to run {run}, if that is live, as "
            f"{'a spare' if len(hosts) == 1 else 'spares'}",
            "dtctl scale JOB=N    then starts the tasks that the file gives to new hosts, where tasks train together",
            "dtctl up --replace    starts the run again, with all tasks of the file",
        )


def show_bad_hosts(hosts: Sequence[str], run: str) -> None:
    """Shows the hosts that `up` will not use, because the last run has left them out for the failures on them."""
    if hosts:
        verb, its = ("takes", "it") if len(hosts) == 1 else ("take", "them")
        note(
            f"{fold(hosts)} {verb} part in no run: the last failures of {run} were all on {its}",
            *(f"dtctl undrain {host}    lets it take part again" for host in hosts[:_MOST_BAD]),
        )


_MOST_BAD = 3


def order_lines(plan: RunPlan) -> list[str]:
    """Which tasks wait for which, what a loss restarts, and which host coordinates."""
    tasks: dict[str, list[str]] = grouped((task.scope, str(task.id)) for task in plan.tasks)
    losses = [f"{_LOSSES[scope]}: {fold(names)}" for scope, names in tasks.items()]
    return [
        f"strategy {plan.strategy.value}; coordinator on {plan.coordinator['host']}, {plan.coordinator['address']}",
        *survival_lines(plan),
        f"start order: {_starts(plan)}",
        *(
            f"{job.name}: {job.replicas} of {len(job.hosts)} tasks run; dtctl scale {job.name}=N lets others"
            for job in plan.cluster.jobs.values()
            if job.replicas is not None
        ),
        f"a lost task restarts {'; '.join(losses)}",
    ]


def survival_lines(plan: RunPlan) -> list[str]:
    """The losses of hosts that a run of this plan survives."""
    lead = plan.coordinator["host"]
    lines = []
    if _is_lent(plan):
        then = (
            "the job is queued again" if plan.cluster.slurm.requeue else "the job ends; slurm.requeue queues it again"
        )
        lines.append(f"if {lead} is lost, {then}")
    elif plan.voters:
        most = (len(plan.voters) - 1) // 2
        lines.append(f"the run survives the loss of {_SURVIVED[most]}")
    elif len(plan.members) > 1:
        lines.append(f"if {lead} is lost, no other host can coordinate; that takes a third machine (arbiters:)")
    if plan.slots:
        lines += _takeovers(plan)
    return lines


def _is_lent(plan: RunPlan) -> bool:
    """Whether the hosts are machines of an engine, which ends the job with the first of them."""
    return isinstance(plan.cluster.hosts[plan.coordinator["host"]].reach, OtherTransport) and plan.cluster.on != HERE


def _takeovers(plan: RunPlan) -> list[str]:
    after = duration_text(plan.cluster.recovery.replace_s or 0.0)
    spares = list(plan.slots)
    takers = fold(spares) if len(spares) == 1 else f"one of {fold(spares)}"
    seen = " if it sees the checkpoints" if any(plan.checkpoint_dirs[host] for host in spares) else ""
    unfit = {
        spare: fold(lacking)
        for spare, slots in plan.slots.items()
        if (lacking := [host for host in plan.hosts if host not in slots])
    }
    return [
        f"when a host has been lost for {after}, {takers} takes over its tasks{seen}",
        *(f"too few GPUs for the tasks of {hosts}: {fold(names)}" for hosts, names in by_value(unfit).items()),
    ]


def _starts(plan: RunPlan) -> str:
    held = [stage for stage in plan.stages if stage["held"]]
    if not held:
        return "all at once"
    at_once = fold(task for stage in plan.stages if not stage["held"] for task in stage["tasks"])
    return "; ".join([f"{at_once} at once", *(_after(stage, plan) for stage in held)])


def _after(stage: Stage, plan: RunPlan) -> str:
    others = [fold(plan.stages[other]["tasks"]) for other in stage["after"]]
    return f"{fold(stage['tasks'])} after {' and '.join(others)}"


def _show_whole(plan: RunPlan, task: TaskPlan) -> None:
    out = console.out()
    gpus = "" if task.gpus is None else f", GPU {','.join(map(str, task.gpus))}" if task.gpus else ", no GPU"
    out.prose(f"on {task.host}, {task.address}{gpus}", label=f"{task.id} ", label_style="bold")
    for name, value in shown_variables(task.env).items():
        out.prose(f"{name}={shlex.quote(value)}", label="  ")
    for name in task.secrets:
        out.print(f"  {name}=***")
    for line in _in_lines(list(map(_quoted, shown_words(task.argv))), out.width if out.is_terminal else None):
        out.print(line)
    if plan.dirs[task.host]:
        out.prose(f"  directories: {_directories(plan.dirs[task.host])}")


def _in_lines(words: Sequence[str], width: int | None) -> list[str]:
    """A command as a shell takes it, in lines of at most this width where its words allow it."""
    from rich.cells import cell_len

    lines = [f"  {words[0]}"]
    for word in words[1:]:
        if width is not None and cell_len(lines[-1]) + cell_len(word) + len("  \\") > width:
            lines[-1] += " \\"
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {word}"
    return lines


@dataclass(frozen=True)
class _Row:
    """Tasks of one job with the same values."""

    tasks: tuple[TaskPlan, ...]
    differs: str
    """The settings of their hosts alone."""

    @property
    def name(self) -> str:
        return f"{self.tasks[0].id.job}:{spans(sorted(task.id.index for task in self.tasks))}"

    @property
    def hosts(self) -> str:
        return fold({task.host for task in self.tasks})

    @property
    def addresses(self) -> str:
        """The addresses; only the ports if the addresses are the hosts' names."""
        if len(self.tasks) == 1:
            return self.tasks[0].address
        if all(task.address.rpartition(":")[0] == task.host for task in self.tasks):
            ports = {task.address.rpartition(":")[2] for task in self.tasks}
            known = sorted(int(port) for port in ports if port.isdecimal())
            return f":{spans(known)}" if known else f":{min(ports)}"
        return fold({task.address for task in self.tasks})

    @property
    def gpus(self) -> str:
        seen = {task.gpus for task in self.tasks}
        first = self.tasks[0].gpus
        if first is None:
            return "all"
        if len(seen) > 1:
            return f"{len(first)} each"
        return ",".join(map(str, first)) or "none"


def _show_table(plan: RunPlan) -> None:
    """Shows the tasks; differences are in a column, or below the table if the terminal is too narrow."""
    rows = _rows(plan)
    columns = {
        "TASK": [row.name for row in rows],
        "HOST": [row.hosts for row in rows],
        "ADDRESS": [row.addresses for row in rows],
        "GPU": [row.gpus for row in rows],
    }
    whole = table({**columns, "NOTE": [row.differs for row in rows]})
    beside = any(row.differs for row in rows) and table_fits(whole)
    print_table(whole if beside else table(columns))
    for row in rows:
        if row.differs and not beside:
            console.out().prose(f"{row.name} on {row.hosts}: {row.differs}")


def _rows(plan: RunPlan) -> list[_Row]:
    differs = {name: _own(plan.cluster.hosts[name]) for name in plan.hosts}
    if len(plan.tasks) <= _ROWS:
        return [_Row((task,), differs[task.host]) for task in plan.tasks]
    groups = grouped(
        ((task.id.job, None if task.gpus is None else len(task.gpus), differs[task.host]), task) for task in plan.tasks
    )
    return [_Row(tuple(tasks), own) for (_, _, own), tasks in groups.items()]


def _own(host: Host) -> str:
    """The settings of the host alone in the cluster file."""
    parts = [f"python {host.python}"] if host.python else []
    parts += [f"{name}={value}" for name, value in shown_variables(host.env).items()]
    parts += [f"{name} {path}" for name, path in host.dirs.items()]
    return ", ".join(parts)


def _command_lines(plan: RunPlan) -> list[str]:
    listed = {name for host in plan.hosts for name in plan.cluster.hosts[host].env}
    listed |= {"CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES"}
    jobs = grouped((task.id.job, task) for task in plan.tasks)
    groups = grouped(((_program(tasks), _environment(tasks, listed)), name) for name, tasks in jobs.items())
    lines = []
    for (program, environment), names in groups.items():
        whose = "each task" if len(groups) == 1 else ", ".join(names)
        lines += [f"{whose} runs {program}", f"  with {environment}"]
    if plan.cluster.trainer.secrets:
        lines.append(f"secrets: {', '.join(plan.cluster.trainer.secrets)}")
    lines += [hook_line(hook) for hook in plan.cluster.hooks.values()]
    directories = plan.dirs[plan.coordinator["host"]]
    if directories:
        lines.append(f"directories: {_directories(directories)}")
    return lines + _tf_config(plan)


def _program(tasks: Sequence[TaskPlan]) -> str:
    """The command of the first task, with only the names of the flags that differ or set a task's place."""
    first = tasks[0]
    own = [task.argv[: len(task.argv) - task.placed] for task in tasks]
    shared = [argument if all(row[index : index + 1] == (argument,) for row in own) else _without_value(argument)
             for index, argument in enumerate(own[0])]  # fmt: skip
    placed = [_without_value(argument) for argument in first.argv[len(own[0]) :]]
    return " ".join([_command_line(shared), *placed])


def _without_value(argument: str) -> str:
    name, equals, _ = argument.partition("=")
    return f"{name}=..." if equals else "..."


def _environment(tasks: Sequence[TaskPlan], listed: Container[str]) -> str:
    """The variables that all tasks share, and the names of those that differ, without the table's `listed` ones."""
    first = {name: value for name, value in tasks[0].env.items() if name not in listed}
    common = {name: value for name, value in first.items() if all(task.env.get(name) == value for task in tasks)}
    common.pop("TF_CONFIG", None)  # also the note of a single task
    own = dict.fromkeys(name for task in tasks for name in task.env if name not in common and name not in listed)
    parts = [f"{name}={shlex.quote(value)}" for name, value in shown_variables(common).items()]
    return " ".join([*parts, *(f"{name}=..." for name in own)])


def _tf_config(plan: RunPlan) -> list[str]:
    """The cluster of TF_CONFIG, once, from the lead's, which contains all tasks."""
    value = next((task.env.get("TF_CONFIG") for task in plan.tasks if task.id == plan.lead), None)
    try:
        cluster = json.loads(value or "")["cluster"]
    except (ValueError, KeyError, TypeError):  # the user sets a TF_CONFIG of their own
        return []
    text = json.dumps(cluster)
    if len(text) > _LONGEST_CLUSTER:
        text = "the addresses above, by job and in the order of the tasks"
    return [f"TF_CONFIG's cluster: {text}"]


def _directories(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {shown(path)}" for name, path in named.items())


def _command_line(arguments: Iterable[str]) -> str:
    return " ".join(map(_quoted, shown_words(arguments)))


def _quoted(argument: str) -> str:
    """Quoted for people; a ~ of the host stays as it is."""
    return (
        argument if argument.startswith("~/") and shlex.quote(argument[2:]) == argument[2:] else shlex.quote(argument)
    )


def hook_line(hook: Hook) -> str:
    """The hook as a line, without any value."""
    how = "the coordinator posts" if hook.post else f"{hook.run[0]} runs here"
    *others, last = (_VERBS[event] for event in hook.on)
    when = " or ".join(filter(None, [", ".join(others), last]))
    return f"hook {hook.name}: {how} when the run or a task of it {when}"


_VERBS = {
    "succeeded": "has succeeded",
    "failed": "has failed",
    "stopped": "was stopped",
    "restarting": "is restarted",
    "recovered": "has recovered",
    "stalled": "stalls",
}


def show_left_out(bundle: Bundle, cluster_file: Path | None = None) -> None:
    """Shows which paths are not pushed, except the cluster file itself, which no trainer reads."""
    if bundle.withheld:
        rule = "!" + re.sub(r"([\\*?\[])", r"\\\1", bundle.withheld[0].path)
        note(f"not pushed: {_with_rules(bundle.withheld)} (a line such as {rule} in .dtctlignore pushes one)")
    if bundle.twins:
        note(f"not pushed: {_folded(bundle.twins)} (identical to a file of secrets or keys that this run uses)")
    by_rule = grouped((one.rule, one.path) for one in bundle.skipped if bundle.root / one.path != cluster_file)
    by_rule.pop(OWN, None)
    if by_rule:
        number = count(sum(map(len, by_rule.values())), "path")
        rules = [f"{paths[0] if len(paths) == 1 else len(paths)} [{rule}]" for rule, paths in by_rule.items()]
        note(f"not pushed by your ignore rules: {number}: {_folded(rules)}")


def show_code(inspected: Inspected | None) -> None:
    """Shows the commit of the code, and files that are not what their names say."""
    if inspected is None:
        return
    revision = inspected.revision
    if revision != Revision():
        note(f"code: {revision.shown}{f' ({revision.note})' if revision.note else ''}")
    show_without_content(inspected)


def show_without_content(inspected: Inspected | None) -> None:
    for summary, hint in without_content(inspected):
        show_warning(summary, hint=hint)


def without_content(inspected: Inspected | None) -> list[tuple[str, str]]:
    """A sentence and a remedy for files and directories whose content is not here."""
    found = []
    if inspected is not None and inspected.pointers:
        what = f"{_folded(inspected.pointers)}: only a pointer of Git LFS, not the content"
        found.append((what, "git lfs pull    fetches the content"))
    if inspected is not None and inspected.empty_submodules:
        what = f"{_folded(inspected.empty_submodules)}: a submodule without its files"
        found.append((what, "git submodule update --init    fetches them"))
    return found


def show_exposure(exposed: Exposure | None) -> None:
    if exposed is not None:
        show_warning(f"{exposed.file} {exposed.what}", hint=exposed.remedy)


def _with_rules(left_out: Sequence[LeftOut]) -> str:
    """The paths, each with its rule unless that is the same."""
    return _folded([one.path if one.rule == one.path else f"{one.path} [{one.rule}]" for one in left_out])


def _folded(paths: Sequence[str]) -> str:
    rest = f" and {len(paths) - _SHOWN} more" if len(paths) > _SHOWN else ""
    return ", ".join(paths[:_SHOWN]) + rest
