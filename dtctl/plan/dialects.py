"""How a trainer learns its place in the cluster: TensorFlow's flags, TF_CONFIG, or a template of words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from dtctl.errors import PreflightError
from dtctl.model import Launch, TaskId

ClusterSpec = Mapping[str, Sequence[str]]
"""Job name -> addresses in task order, as tf.train.ClusterSpec takes it."""

_FIELD = re.compile(r"\{(\w+)\}")


def tensorflow_flags(task: TaskId, spec: ClusterSpec) -> tuple[str, ...]:
    """Flags of TensorFlow's distributed trainers, jobs in the order of the cluster file."""
    hosts = (f"--{job}_hosts={','.join(addresses)}" for job, addresses in spec.items())
    return (*hosts, f"--job_name={task.job}", f"--task_index={task.index}")


def tf_config(task: TaskId, spec: ClusterSpec) -> str:
    """The value of TF_CONFIG (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py)."""
    cluster = {job: list(addresses) for job, addresses in spec.items()}
    return json.dumps({"cluster": cluster, "task": {"type": task.job, "index": task.index}})


def placement_words(launch: Launch, task: TaskId, spec: ClusterSpec, fields: Mapping[str, str]) -> tuple[str, ...]:
    """The words that follow a trainer's own arguments in its dialect."""
    if launch.dialect in ("tensorflow", "flags"):
        return tensorflow_flags(task, spec)
    if launch.dialect == "template":
        return tuple(_FIELD.sub(lambda match: _required(match[1], fields), word) for word in launch.template)
    return ()


def placement_env(launch: Launch, task: TaskId, spec: ClusterSpec) -> Mapping[str, str]:
    return {"TF_CONFIG": tf_config(task, spec)} if launch.dialect in ("tensorflow", "tf_config") else {}


def fill(text: str, fields: Mapping[str, str]) -> str:
    """`text` with the {fields} that dtctl knows; other braces are the user's own (JSON, say) and stay."""
    return _FIELD.sub(lambda match: fields.get(match[1], match[0]), text)


def _required(name: str, fields: Mapping[str, str]) -> str:
    if name not in fields:
        raise PreflightError(
            f"template field {{{name}}} has no value",
            hint=f"declare dirs.{name.removesuffix('_dir')} in the cluster file"
            if name.endswith("_dir")
            else f"fields with a value here: {', '.join(sorted(fields))}",
        )
    return fields[name]
