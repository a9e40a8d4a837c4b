"""The batch file of a cluster for Slurm. Pure."""

from __future__ import annotations

import dataclasses
import re
import shlex
from collections import Counter

from dtctl.agent.host.secrets import hide_variable
from dtctl.agent.records.values import CODE, HOME, PATH, PYTHON
from dtctl.config.cluster import Cluster
from dtctl.model import CHOSEN_PORT
from dtctl.plan import RunPlan, TaskPlan
from dtctl.plan.hosts import visible_gpus
from dtctl.plan.run import plan_run
from dtctl.rooms.export.pods import running

FREE_PORT = 20000
_NODE = "dtctl-node-{}"
_NODES = re.compile(r"dtctl-node-(\d+)(?!\d)")
_MARKS = {CODE: "${code}", HOME: "${HOME}", PYTHON: "python3", PATH: "${PATH}"}

_ENDING = """\
# Tasks that still run are asked to end, and may save; srun itself would kill them at once.
end() {{
    steps=$(jobs -p)
    [[ $steps ]] || return
    trap '' TERM
    scancel --signal=TERM "$SLURM_JOB_ID"
    {{ sleep {grace_s}; kill $steps; }} 2>/dev/null &
    wait $steps
    kill $!
}}
"""

_END = """\
# The run ends well when the tasks that decide have; it fails with the first other that fails.
while ((${#deciding[@]})); do
    wait -n -p ended && code=0 || code=$?
    task=${task_of[$ended]}
    if ((code)) && [[ -v vital[$task] ]]; then
        echo "$task failed with exit code $code" >&2
        exit "$code"
    fi
    ((code)) || unset "deciding[$task]"
done
"""


def planned(cluster: Cluster) -> RunPlan:
    """The plan with the nodes of an allocation as hosts."""
    names = list(dict.fromkeys(cluster.host_of(task).name for task in running(cluster)))
    hosts = {
        name: dataclasses.replace(
            host, address=_NODE.format(names.index(name)) if name in names else "unused", python=None
        )
        for name, host in cluster.hosts.items()
    }
    jobs = {name: dataclasses.replace(job, ports=_known(job.ports)) for name, job in cluster.jobs.items()}
    trainer = dataclasses.replace(cluster.trainer, environment=None)
    changed = dataclasses.replace(cluster, hosts=hosts, jobs=jobs, trainer=trainer, spares=(), arbiters=())
    return plan_run(changed, {}, local_python="python3")


def _known(ports: tuple[int, ...]) -> tuple[int, ...]:
    """The ports; nobody can ask a node for a free one."""
    return tuple(FREE_PORT + at if port == CHOSEN_PORT else port for at, port in enumerate(ports))


def batch(cluster: Cluster, plan: RunPlan, header: list[str], code_id: str) -> str:
    tasks = [task for task in plan.tasks if task.id in running(cluster)]
    nodes = list(dict.fromkeys(task.host for task in tasks))
    shares = visible_gpus(cluster)
    gpus = max((cluster.hosts[node].gpus for node in nodes), default=0)
    lines = [
        "#!/bin/bash",
        *header,
        f"#SBATCH --job-name={cluster.name}",
        f"#SBATCH --nodes={len(nodes)}",
        f"#SBATCH --ntasks-per-node={max(Counter(task.host for task in tasks).values())}",
        *([f"#SBATCH --gpus-per-node={gpus}"] if gpus else []),
        *([f"#SBATCH --time={max(1, round(cluster.active_deadline_s / 60))}"] if cluster.active_deadline_s else []),
        f"#SBATCH --signal=B:TERM@{max(1, round(cluster.grace_s))}",
        "set -u",
        f"code=${{CODE:-$SLURM_SUBMIT_DIR}}    # the code, {code_id[:12]}, on a file system that all nodes share",
        'mapfile -t nodes < <(scontrol show hostnames "$SLURM_JOB_NODELIST")',
        "declare -A task_of deciding vital",
        "trap 'exit 143' TERM",
        "trap end EXIT",
        *_ENDING.format(grace_s=max(1, round(cluster.grace_s))).splitlines(),
    ]
    for task in tasks:
        lines += ["", f"# {task.id}", *_step(task, nodes.index(task.host), len(shares[task.id] or ()))]
    return "\n".join([*lines, "", _END])


def _step(task: TaskPlan, node: int, gpus: int) -> list[str]:
    hidden = ("CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER") if gpus else ()
    known = {name: value for name, value in task.env.items() if hide_variable(name, value) == value}
    env = [f"{name}={value}" for name, value in known.items() if name not in hidden]
    words = " ".join(map(_quoted, ["env", *env, *task.argv]))
    name = shlex.quote(str(task.id))
    share = f" --gpus={gpus}" if gpus else ""
    found = [
        f'srun --exact --nodes=1 --ntasks=1{share} --nodelist="${{nodes[{node}]}}" --chdir="$code" '
        f"--output={name.replace(':', '-')}-%j.log \\",
        f"    {words} &",
        f"task_of[$!]={name}",
    ]
    found += [f"deciding[{name}]=1"] if task.decides else []
    return found + ([f"vital[{name}]=1"] if task.vital else [])


def _quoted(word: str) -> str:
    """A word for bash, in which nodes and directories are filled in."""
    safe = re.sub(r'([\\"$`])', r"\\\1", word)
    for mark, text in _MARKS.items():
        safe = safe.replace(mark, text)
    filled = _NODES.sub(r"${nodes[\1]}", safe)
    return filled if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", filled) else f'"{filled}"'
