"""Checks that involve several values: missing keys, contradictions, settings that cannot work or look unintended.

The last two are reported to those who are about to start a run (`check_workable`, `check_gpus`).
Commands about a run that is there already do not ask: a file that no run can be started from may well stop one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from dtctl.agent.records.spec import shortest_replace_s
from dtctl.agent.records.values import is_storage_url
from dtctl.config.cluster import Cluster
from dtctl.config.document import Findings, KeyPath
from dtctl.config.launching import directory_is_set, field_names, lacks_directory, uses_mxnet
from dtctl.config.ranges import expand, fold
from dtctl.config.sections import ClusterFile, LaunchKeys
from dtctl.config.strategies import (
    EVALUATOR,
    KVSTORE_JOBS,
    PS,
    SERVER,
    WORKER,
    Strategy,
    circle,
    gpus_wanted,
    parties,
    resizes,
    strategy_of,
    trainers,
    waits,
)
from dtctl.durations import duration_text
from dtctl.errors import closest, did_you_mean
from dtctl.model import FIELD, LEAD_JOBS, VALUE, grouped, lead_among, tokens_in

_NEEDED = {
    "name": "name: digits",
    "hosts": "hosts: {gpu-1: 10.0.0.1}",
    "jobs": "jobs: {worker: {hosts: [gpu-1]}}",
}
_COMMAND = "trainer: {command: [python, train.py]}"
_MOST_FILES = 90
"""Fewer files than a spec holds, which also lists those of `requirements`, `uv` or `conda`."""

EXAMPLES = {key: f"write, for example, {text}" for key, text in {**_NEEDED, "trainer": _COMMAND}.items()}
"""An example for each required key."""


def check_sections(content: ClusterFile, findings: Findings) -> None:
    """Reports missing keys, and keys that contradict each other."""
    check_presence(content, findings)
    check_secrets(content, findings)
    check_success(content, findings)
    check_environment(content, findings)
    check_strategy(content, findings)
    check_kvstore(content, findings)
    check_recovery(content, findings)
    check_hooks(content, findings)
    check_waits(content, findings)
    check_data(content, findings)
    check_batch(content, findings)


def check_presence(content: ClusterFile, findings: Findings) -> None:
    """A cluster needs a name, hosts, jobs on them, and a command for each job."""
    present = findings.document.data
    for key in _NEEDED:
        if not getattr(content, key) and not findings.has(key):
            state = "empty" if key in present else "missing"
            findings.add((key,), f"{key} is {state}", EXAMPLES[key], at_key=True)
    for name, job in content.jobs.items():
        if not job.hosts and not findings.has("jobs", name, "hosts"):
            findings.add(("jobs", name), f"jobs.{name} has no hosts", "write, for example, hosts: [gpu-1]", at_key=True)
    lacking = [name for name, job in content.jobs.items() if not (job.command or content.trainer.command)]
    sections = [("trainer",), *(("jobs", name) for name in lacking)]
    if any(findings.has(*section, "command") for section in sections) or ("trainer",) in findings:
        return
    if lacking or not (content.jobs or content.trainer.command):
        missing = "trainer.command" if present.get("trainer") else "trainer"
        also = f", and jobs.{lacking[0]} has no command of its own" if lacking else ""
        findings.add(("trainer",), f"{missing} is missing{also}", EXAMPLES["trainer"], at_key=True)


def check_secrets(content: ClusterFile, findings: Findings) -> None:
    """A value in the file is no secret, and would be printed with the plan."""
    envs = [
        (("trainer", "env"), content.trainer.env),
        *((("jobs", name, "env"), job.env) for name, job in content.jobs.items()),
        *((("hosts", name, "env"), host.env) for name, host in content.hosts.items()),
    ]
    for path, env in envs:
        for name in content.trainer.secrets:
            if name in env:
                summary = f"{findings.name(*path, name)} is in trainer.secrets too, expected in one of them"
                hint = "leave it out here: a secret's value comes from env_file or from your own environment"
                findings.add((*path, name), summary, hint, at_key=True)


def check_success(content: ClusterFile, findings: Findings) -> None:
    if content.success == "all-workers" and content.jobs and "worker" not in findings.names_in("jobs"):
        findings.add(("success",), "success is all-workers, but there is no job 'worker'", "write success: lead")


def check_environment(content: ClusterFile, findings: Findings) -> None:
    said, path = content.trainer.environment, ("trainer", "environment")
    if said is None or path in findings or any(findings.has(*path, key) for key in said.known_keys()):
        return
    kinds = list(said.kinds)
    if len(kinds) != 1:
        summary = f"trainer.environment has {' and '.join(kinds) or 'nothing to make it of'}, expected one of"
        hint = "write, for example, requirements: requirements.txt"
        findings.add(path, f"{summary} requirements, uv, conda, modules, container", hint)
        return
    for key in ("engine", "options"):
        if getattr(said, key) and kinds != ["container"]:
            summary = f"trainer.environment.{key} is for a container, and the environment is made of {kinds[0]}"
            findings.add((*path, key), summary, "leave it out, or name the image: container: IMAGE")
    if said.wheels and kinds[0] not in ("requirements", "uv"):
        summary = f"trainer.environment.wheels is for requirements and uv, and the environment is made of {kinds[0]}"
        findings.add(WHEELS, summary, "leave it out")
    if said.files and not said.is_from_files:
        of = f"{kinds[0]} {said.what!r}" if kinds == ["conda"] else kinds[0]
        summary = f"trainer.environment.files is for requirements, uv and environment files, and it is made of {of}"
        findings.add((*path, "files"), summary, "leave it out")
    if len(said.files) > _MOST_FILES:
        summary = f"trainer.environment.files names {len(said.files)} files, expected at most {_MOST_FILES}"
        findings.add((*path, "files"), summary, "put wheels into a directory: wheels: DIR")
    if said.container and said.container.endswith(".sif") and said.engine not in (None, "apptainer"):
        summary = f"trainer.environment.engine is {said.engine!r}, which does not run a .sif file, expected apptainer"
        findings.add((*path, "engine"), summary, "leave it out, or name an image or a .tar file")
    for key in ("python", "venv"):
        if getattr(content.trainer, key) is not None:
            summary = f"trainer.{key} and trainer.environment are both set, expected one of them"
            findings.add(("trainer", key), summary, "trainer.environment.python is what makes the environment")
    if kinds == ["conda"]:
        places = {(*path, "python"): said.python}
        places |= {("hosts", name, "python"): host.python for name, host in content.hosts.items()}
        for place, python in places.items():
            if python is not None:
                summary = f"{findings.name(*place)} is {python!r}, but conda brings a Python of its own"
                findings.add(place, summary, f"leave it out, and name the version in {said.what}")


WHEELS: KeyPath = ("trainer", "environment", "wheels")


def check_workable(content: ClusterFile, findings: Findings) -> None:
    """Adds to the findings, and raises nothing but what they raise when there are too many.

    `content` may have other mistakes, and what they leave out is not missed here.
    """
    check_lead(content, findings)
    check_placeholders(content, findings)
    doubt_pipes(content, findings)
    doubt_hooks(content, findings)


_NEAR = 0.8
"""The similarity from which a word in braces counts as a mistyped field; other braces are the user's own, such as JSON.
"""


def check_placeholders(content: ClusterFile, findings: Findings) -> None:
    known = field_names(list(content.jobs))
    jobs_are_known, dirs_are_known = not findings.lacks_keys_of("jobs"), not findings.has("dirs")
    for path, text in _filled(content):
        for field, joiner in dict.fromkeys(FIELD.findall(text)):
            if joiner:
                if field in known:
                    summary = (
                        f"{findings.name(*path)}: {{{field}|{joiner}}} stays as it is: only `template` joins lists"
                    )
                    findings.doubt(path, summary, f"write {{{field}}} here, or use `template`")
            elif field not in known:
                if jobs_are_known and (meant := closest(field, known, _NEAR)) is not None:
                    summary = f"{findings.name(*path)}: {{{field}}} is no field, and stays as it is"
                    findings.doubt(path, summary, f"did you mean '{{{meant}}}'?")
            elif field.endswith("_dir") and dirs_are_known and not directory_is_set(field, content):
                lacks_directory(path, f"{{{field}}}", findings)


def _launched(content: ClusterFile) -> list[tuple[KeyPath, LaunchKeys]]:
    """The sections that say how tasks are launched, with their paths."""
    return [(("trainer",), content.trainer), *((("jobs", name), job) for name, job in content.jobs.items())]


def _filled(content: ClusterFile) -> Iterator[tuple[KeyPath, str]]:
    """Each text in which fields are filled in, with its path."""
    for path, section in _launched(content):
        for index, word in enumerate(section.command or ()):
            yield (*path, "command", index), word
        if isinstance(section.args, Mapping):
            yield from (((*path, "args", name), text) for name, text in section.args.items() if isinstance(text, str))
        else:
            yield from (((*path, "args", index), word) for index, word in enumerate(section.args or ()))
        yield from (((*path, "env", name), text) for name, text in section.env.items())
    for host, entry in content.hosts.items():
        yield from ((("hosts", host, "env", name), text) for name, text in entry.env.items())


MOST = 20


def check_hooks(content: ClusterFile, findings: Findings) -> None:
    if len(content.hooks) > MOST:
        findings.add(("hooks",), f"hooks has {len(content.hooks)} entries, expected at most {MOST}", at_key=True)
    for name, said in content.hooks.items():
        path = ("hooks", name)
        if not (said.post or said.run) and not (findings.has(*path, "post") or findings.has(*path, "run")):
            summary = f"hooks.{name} has neither post nor run"
            findings.add(path, summary, "write, for example, post: ${SLACK_URL}", at_key=True)
        if said.post and said.run:
            summary = f"hooks.{name} has both post and run, expected one of them"
            findings.add((*path, "run"), summary, "write two hooks", at_key=True)
        if said.headers and said.run:
            findings.add((*path, "headers"), f"hooks.{name}.headers belong to a post", "leave them out", at_key=True)


def doubt_pipes(content: ClusterFile, findings: Findings) -> None:
    """Warns of a command whose exit status is not the program's: after a failure without a traceback it is 0."""
    for path, section in _launched(content):
        command = section.command or ()
        if any("|" in word for word in command) and _loses_status(command):
            where: KeyPath = (*path, "command")
            summary = (
                f"{findings.name(*where)} ends with the exit code of the last program of a pipe, not of the trainer"
            )
            findings.doubt(
                where, summary, "begin it with `set -o pipefail; ` (bash): a trainer that fails has failed then"
            )


def _loses_status(command: Sequence[str]) -> bool:
    from dtctl.agent.run.cause import loses_status  # few commands have a pipe

    return loses_status(list(command))


def doubt_hooks(content: ClusterFile, findings: Findings) -> None:
    """Warns of secrets that are in the file, which travel with it, and of secrets that are sent unencrypted."""
    for name, said in content.hooks.items():
        post = said.post or ""
        for keys in tokens_in(post, said.headers):
            path = ("hooks", name, *keys)
            summary = f"{findings.name(*path)} looks as if it held a secret, which travels with this file"
            findings.doubt(path, summary, "write ${NAME} for it, and its value to trainer.env_file or the environment")
        needs_values = VALUE.search(" ".join([post, *said.headers.values()]))
        if needs_values and post.lower().startswith("http://") and not _is_near(post):
            path = ("hooks", name, "post")
            findings.doubt(path, f"{findings.name(*path)} sends secrets unencrypted", "write https://")


def _is_near(url: str) -> bool:
    host = VALUE.sub("x", url).partition("://")[2]
    return host.startswith(("127.", "localhost", "[::1]"))


_LEADING = (WORKER, *LEAD_JOBS)
_KNOWN = (*_LEADING, PS, EVALUATOR, *KVSTORE_JOBS)
_ENDLESS = (PS, *KVSTORE_JOBS)
"""Jobs whose tasks serve until they are stopped."""
_NEARLY_LEAD = 0.75


def check_lead(content: ClusterFile, findings: Findings) -> None:
    """A run ends with its lead: what never ends cannot lead it."""
    jobs = list(content.jobs)
    if not jobs or findings.lacks_keys_of("jobs"):
        return
    lead = lead_among(jobs)
    if lead.job in _LEADING:
        for job, meant in _slips(jobs, _KNOWN):
            summary = f"jobs.{job}: dtctl knows no job of this name, so the strategy does not cover its tasks"
            findings.doubt(("jobs", job), summary, f"did you mean '{meant}'?", at_key=True)
        return
    slips = _slips(jobs, _LEADING)
    if lead.job in _ENDLESS:
        summary = f"no job leads: {lead} would, and a {lead.job} never ends"
        if slips:
            job, meant = slips[0]
            findings.add(("jobs", job), f"jobs.{job}: {summary}", f"did you mean '{meant}'?", at_key=True)
        else:
            hint = "call the job that trains worker or chief; or write it first, and its task 0 leads"
            findings.add(("jobs", lead.job), summary, hint, at_key=True)
    elif slips or len(jobs) > 1:
        summary = f"no job is called {', '.join(_LEADING[:-1])} or {_LEADING[-1]}: {lead}, of the first job, leads"
        job, hint = lead.job, "call the job that leads worker or chief, if it is another"
        if slips:
            job, hint = slips[0][0], f"did you mean '{slips[0][1]}'?"
        findings.doubt(("jobs", job), summary, hint, at_key=True)


def _slips(jobs: Sequence[str], names: Sequence[str]) -> list[tuple[str, str]]:
    """Jobs whose names resemble a known name that no job has, each with that name."""
    near = [(job, closest(job, names, _NEARLY_LEAD)) for job in jobs if job not in _KNOWN]
    return [(job, name) for job, name in near if name is not None and name not in jobs]


_Load = tuple[tuple[str, int], ...]
"""Jobs and how many of their tasks are on a host."""


def check_gpus(content: ClusterFile, cluster: Cluster, findings: Findings) -> None:
    """Checks GPUs; hosts with the same problem are reported once."""
    entry_of = {name: key for key in content.hosts for name in expand(key)}
    alike = grouped(((entry_of[host], tuple(counts.items())), host) for host, counts in _loads(cluster).items())
    undeclared: dict[str, list[str]] = {}
    for (entry, load), hosts in alike.items():
        declared = "gpus" in content.hosts[entry].written
        if declared or cluster.hosts[hosts[0]].gpus:
            _check_load(load, hosts, cluster, findings)
            continue
        for job, _ in load:
            if cluster.jobs[job].gpus_per_task:
                undeclared.setdefault(job, []).extend(hosts)
    for job, hosts in undeclared.items():
        path = _path(job, findings)
        summary = f"{findings.name(*path)} does nothing on {fold(hosts)}, for which `gpus` is not set"
        findings.doubt(path, summary, f"write under hosts how many there are: gpus: {cluster.jobs[job].gpus_per_task}")


def _loads(cluster: Cluster) -> Mapping[str, Counter[str]]:
    """Host -> number of tasks of each job there that may see GPUs."""
    loads: dict[str, Counter[str]] = {}
    for job in cluster.jobs.values():
        for host in job.hosts if gpus_wanted(job) != 0 else ():
            loads.setdefault(host, Counter())[job.name] += 1
    return loads


def _check_load(load: _Load, hosts: list[str], cluster: Cluster, findings: Findings) -> None:
    gpus = cluster.hosts[hosts[0]].gpus
    said = {job: number for job, number in load if gpus_wanted(cluster.jobs[job])}
    sharing = {job: number for job, number in load if gpus_wanted(cluster.jobs[job]) is None}
    wanted = sum((gpus_wanted(cluster.jobs[job]) or 0) * number for job, number in said.items())
    if gpus == 0:
        sharing = {}  # a host without any hides none, and its tasks find none
    if wanted + sum(sharing.values()) <= gpus:
        return
    due = [f"{number} of {job} want {gpus_wanted(cluster.jobs[job])} each" for job, number in said.items()]
    due += [f"{number} of {job} share {'the rest' if said else 'them'}" for job, number in sharing.items()]
    has = f"{gpus} GPU{'' if gpus == 1 else 's'}" if gpus else "no GPU"
    each = " each" if len(hosts) > 1 else ""
    job = next(iter(said or sharing))
    path = _path(job, findings)
    hint = "place its tasks elsewhere, or set gpus_per_task: 0, which hides the GPUs from them"
    most = (gpus - wanted + (gpus_wanted(cluster.jobs[job]) or 0) * said.get(job, 0)) // dict(load)[job]
    if job in said and most >= 1 and not sharing:
        hint = f"gpus_per_task: {most} is the most for {job} there; or place some of its tasks elsewhere"
    summary = f"jobs.{job}: {fold(hosts)} has {has}{each}, too few for its tasks: {', '.join(due)}"
    findings.add(path, summary, hint, at_key=path[-1] == job)


def _path(job: str, findings: Findings) -> KeyPath:
    """The path of the job's `gpus_per_task`, or of the job if the file does not set it."""
    path: KeyPath = ("jobs", job, "gpus_per_task")
    return path if findings.document.find(path) == path else path[:2]


_WITH_PS = ("async-ps", "sync-ps", "ps-strategy")
_WITHOUT_PS = ("mirrored", "ddp")


def check_strategy(content: ClusterFile, findings: Findings) -> None:
    """Reports jobs that the strategy needs and the file lacks."""
    strategy, jobs = content.strategy, findings.names_in("jobs")
    if not jobs:
        return
    if strategy in _WITH_PS and PS not in jobs:
        summary = f"strategy is {strategy}, but there is no job '{PS}'"
        findings.add(("strategy",), summary, "write, for example, mirrored")
    if strategy in _WITHOUT_PS and PS in jobs:
        summary = f"strategy is {strategy}, which uses no ps, but there is a job '{PS}'"
        findings.add(("strategy",), summary, "write, for example, async-ps")
    if strategy == "ps-strategy" and not set(LEAD_JOBS) & set(jobs):
        summary = "strategy is ps-strategy, whose workers are led by a chief, but there is no job 'chief'"
        findings.add(("strategy",), summary, "write, for example, jobs: {chief: {hosts: [gpu-1]}}")


def check_kvstore(content: ClusterFile, findings: Findings) -> None:
    """Checks that MXNet's dist kvstore has a job of servers, which hold the parameters."""
    jobs = findings.names_in("jobs")
    if uses_mxnet(content) and not {SERVER, PS} & set(jobs):
        summary = f"the dialect mxnet needs a job '{SERVER}'"
        findings.add(("jobs",), summary, f"write, for example, {SERVER}: {{hosts: [gpu-1]}}", at_key=True)


def check_waits(content: ClusterFile, findings: Findings) -> None:
    """Checks that no job waits for itself, or for a job that does not exist."""
    for name, job in content.jobs.items():
        for index, other in enumerate(job.depends_on or ()):
            path = ("jobs", name, "depends_on", index)
            if other == name:
                findings.add(path, f"{findings.name(*path)} is {name} itself", "name the jobs that it waits for")
            else:
                _check_job(path, other, findings)


def check_data(content: ClusterFile, findings: Findings) -> None:
    """Reports data to be sent without a directory for it, or without a task that reads it."""
    if content.data.from_ is not None and content.dirs.data is None and not findings.has("dirs"):
        summary = "data.from is set, but dirs.data, where it is brought on the hosts, is not"
        findings.add(("data", "from"), summary, "write, for example, dirs: {data: /data/digits}")
    elif content.data.from_ is not None and is_storage_url(content.dirs.data or ""):
        summary = "dirs.data is a storage URL, which trainers open themselves: there is nothing to bring there"
        findings.add(("data", "from"), summary, "leave out data.from, or name a directory: dirs: {data: /data/digits}")
    if content.data.from_ is None and content.data.shard != "none" and not findings.has("data", "from"):
        summary = "data.shard deals out what dtctl brings to the hosts, but data.from is not set"
        findings.add(("data", "shard"), summary, "write, for example, from: ~/datasets/digits")
    for index, job in enumerate(content.data.jobs or ()):
        _check_job(("data", "jobs", index), job, findings)


def check_batch(content: ClusterFile, findings: Findings) -> None:
    """A trainer would be given the braces as they are."""
    used = [path for path, text in _filled(content) if "{batch_per_worker}" in text]
    if content.trainer.global_batch is None and used and not findings.has("trainer", "global_batch"):
        summary = f"{findings.name(*used[0])} has a share of trainer.global_batch, which is not set"
        findings.add(used[0], summary, "write, for example, trainer: {global_batch: 256}")


def _check_job(path: KeyPath, job: str, findings: Findings) -> None:
    jobs = findings.names_in("jobs")
    if job not in jobs:
        hint = did_you_mean(job, jobs) or f"jobs has {', '.join(jobs)}"
        findings.add(path, f"{findings.name(*path)} names {job}, which is not in jobs", hint)


def check_order(cluster: Cluster, findings: Findings) -> None:
    """Checks that no tasks wait for each other, because none of them would ever start."""
    ring = circle(waits(cluster))
    if not ring:
        return
    members = parties(cluster)
    said: list[str] = []
    usual: list[str] = []
    for name in ring:
        job = members[name][0].job
        (usual if cluster.jobs[job].depends_on is None else said).append(job)
    words = ", ".join(f"{name} waits for {other}" for name, other in zip(ring, (*ring[1:], ring[0]), strict=True))
    hint = f"write jobs.{usual[0]}.depends_on: []" if usual else "leave out one of them"
    path = ("jobs", said[0], "depends_on")
    findings.add(path, f"{findings.name(*path)} closes a cycle: {words}", hint, at_key=True)


_BUDGETS = ("max_restarts", "max_run_restarts")


def check_recovery(content: ClusterFile, findings: Findings) -> None:
    said = content.recovery
    for budget in _BUDGETS:
        if said.mode == "never" and budget in said.written and getattr(said, budget):
            path = ("recovery", budget)
            summary = f"recovery.{budget} is {getattr(said, budget)}, but recovery.mode is never"
            findings.add(path, summary, "leave out one of them")
    both = sorted(set(said.retry) & set(said.permanent))
    if both and {"retry", "permanent"} <= said.written:
        summary = f"recovery.permanent has {both[0]}, which recovery.retry has too"
        findings.add(("recovery", "permanent"), summary, "an exit code is tried again, or it is not")
    _check_replace(content, findings)
    if said.bad_host and said.mode == "never" and ("recovery", "bad_host") not in findings:
        summary = f"recovery.bad_host is {said.bad_host}, but recovery.mode is never"
        findings.add(("recovery", "bad_host"), summary, "leave out one of them")


def check_min_workers(cluster: Cluster, findings: Findings) -> None:
    """Checks that the run can train with fewer tasks, and that it will notice when to."""
    said, strategy, path = cluster.recovery, strategy_of(cluster), ("recovery", "min_workers")
    most = {name: job.replicas for name, job in cluster.jobs.items() if job.replicas is not None}
    fewest, size = said.min_workers, sum(task.index < most.get(task.job, task.index + 1) for task in trainers(cluster))
    if fewest is None:
        return
    what, least_s = f"recovery.min_workers is {fewest}", shortest_replace_s(cluster.grace_s)
    voting = {*(cluster.host_of(task).name for task in cluster.tasks()), *cluster.arbiters, *cluster.standby}
    if said.mode == "never":
        findings.add(path, f"{what}, but recovery.mode is never", "leave out one of them")
    elif fewest > size:
        findings.add(path, f"{what}, but {size} tasks train", f"take {size} at most")
    elif said.host_timeout_s is None:
        findings.add(path, f"{what}, but recovery.host_timeout is never", "write, for example, host_timeout: 5m")
    elif resizes(cluster) and said.host_timeout_s < least_s:
        least, after = duration_text(least_s), duration_text(said.host_timeout_s)
        summary = f"{what}, and host_timeout is {after}; a host that is cut off needs {least} to end its tasks first"
        findings.add(path, summary, f"write host_timeout: {least}, or a shorter grace")
    elif resizes(cluster) and len(voting) == 2:
        summary = f"{what}, but of two hosts neither knows whether the other one trains: the run waits"
        findings.doubt(path, summary, "add a third host to arbiters")
    elif not resizes(cluster) and strategy is not Strategy.ASYNC_PS:
        summary = f"{what}, but these tasks cannot start again with fewer"
        hint = "it needs tasks that train together, a dialect other than none, no data.shard and no tf_config.sparse"
        findings.add(path, summary, hint)


REPLACE_S = 300.0


def replace_after_s(content: ClusterFile) -> float | None:
    """When a spare takes the tasks of a host by itself; None: never. Tasks that are given up before are not moved."""
    said = content.recovery
    if not content.spares or said.mode == "never" or said.replace_s == 0:
        return None
    if said.replace_s is not None:
        return said.replace_s
    return auto_replace_s(content)


def auto_replace_s(content: ClusterFile | Cluster) -> float | None:
    """The same where the file sets no time."""
    said, auto_s = content.recovery, max(REPLACE_S, shortest_replace_s(content.grace_s))
    return auto_s if said.host_timeout_s is None or auto_s < said.host_timeout_s else None


def _check_replace(content: ClusterFile, findings: Findings) -> None:
    said, path = content.recovery, ("recovery", "replace")
    if not said.replace_s or path in findings:
        return
    after, least_s = f"recovery.replace is {duration_text(said.replace_s)}", shortest_replace_s(content.grace_s)
    if not content.spares and not findings.has("spares"):
        findings.add(path, f"{after}, but there are no spares", "write, for example, spares: [gpu-5]")
    elif said.mode == "never":
        findings.add(path, f"{after}, but recovery.mode is never", "leave out one of them")
    elif said.replace_s < least_s:
        least, grace = duration_text(least_s), duration_text(content.grace_s)
        summary = f"{after}; a host that is cut off needs {least} to end its tasks first, with grace: {grace}"
        findings.add(path, summary, f"write replace: {least}, or a shorter grace")
    elif said.host_timeout_s is not None and said.host_timeout_s <= said.replace_s:
        summary = f"{after}, but recovery.host_timeout gives the tasks up after {duration_text(said.host_timeout_s)}"
        findings.add(path, summary, "take a longer host_timeout, or a shorter replace")
