"""How a trainer learns its place in the cluster: TensorFlow's flags, TF_CONFIG, or a template of words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dtctl.config.fields import FIELD, SPACE
from dtctl.errors import PreflightError
from dtctl.strategies import EVALUATOR, PS

if TYPE_CHECKING:
    from dtctl.model import Launch, TaskId, TfConfig

ClusterSpec = Mapping[str, Sequence[str]]
"""Job name -> addresses in task order, as tf.train.ClusterSpec takes it."""

_FIELD = re.compile(r"\{(\w+)\}")


def tensorflow_flags(task: TaskId, spec: ClusterSpec) -> tuple[str, ...]:
    """Flags of TensorFlow's distributed trainers, jobs in the order of the cluster file."""
    hosts = (f"--{job}_hosts={','.join(addresses)}" for job, addresses in spec.items())
    return (*hosts, f"--job_name={task.job}", f"--task_index={task.index}")


@dataclass(frozen=True)
class TfConfigs:
    """The values of TF_CONFIG (tensorflow/python/distribute/cluster_resolver/tfconfig_cluster_resolver.py).

    `spec` is of all jobs. An evaluator reads checkpoints and talks to nobody, so it has no place in the cluster.
    """

    spec: ClusterSpec
    lead: TaskId
    said: TfConfig

    def of(self, task: TaskId) -> str:
        more = {"environment": self.said.environment, "rpc_layer": self.said.rpc_layer}
        rest = {
            "task": {"type": task.job, "index": task.index},
            **{name: value for name, value in more.items() if value is not None},
        }
        cluster = self._seen_by(task) if self.said.sparse else self._whole
        return f'{{"cluster": {cluster}, {json.dumps(rest)[1:]}'

    @cached_property
    def _whole(self) -> str:
        """Made once: a thousand tasks each have the addresses of all."""
        return json.dumps({job: list(addresses) for job, addresses in self._named.items() if addresses})

    def _seen_by(self, task: TaskId) -> str:
        # A job of which not all tasks are named is a mapping by index (tf.train.ClusterSpec).
        seen = {job: _sparse(job, task, self.lead, addresses) for job, addresses in self._named.items()}
        return json.dumps({job: tasks for job, tasks in seen.items() if tasks})

    @cached_property
    def _named(self) -> ClusterSpec:
        return {job: each for job, each in self.spec.items() if job != EVALUATOR or self.said.evaluator_in_cluster}


def _sparse(job: str, task: TaskId, lead: TaskId, addresses: Sequence[str]) -> list[str] | dict[str, str]:
    """What a worker has to see of a job: of the workers the lead and itself. Who serves or leads them sees all."""
    if task == lead or task.job in (PS, EVALUATOR) or job in (PS, EVALUATOR):
        return list(addresses)
    wanted = {other.index for other in (task, lead) if other.job == job}
    return {str(index): address for index, address in enumerate(addresses) if index in wanted}


def placement_words(launch: Launch, task: TaskId, spec: ClusterSpec, fields: Mapping[str, str]) -> tuple[str, ...]:
    """The words that follow a trainer's own arguments in its dialect."""
    if launch.dialect in ("tensorflow", "flags"):
        return tensorflow_flags(task, spec)
    if launch.dialect == "template":
        return tuple(filled for word in launch.template for filled in _template_words(word, fields))
    return ()


def placement_env(launch: Launch, task: TaskId, configs: TfConfigs) -> Mapping[str, str]:
    return {"TF_CONFIG": configs.of(task)} if launch.dialect in ("tensorflow", "tf_config") else {}


def fill(text: str, fields: Mapping[str, str]) -> str:
    """`text` with the {fields} that dtctl knows; other braces are the user's own (JSON, say) and stay."""
    return _FIELD.sub(lambda match: fields.get(match[1], match[0]), text)


def _template_words(word: str, fields: Mapping[str, str]) -> Sequence[str]:
    """A list that spaces join is a word for each address, where it is not a part of a word."""
    whole = FIELD.fullmatch(word)
    if whole and whole[2]:
        return _required(whole[1], fields).split(",")
    return [FIELD.sub(lambda found: _joined(_required(found[1], fields), found[2]), word)]


def _joined(value: str, joiner: str | None) -> str:
    return value.replace(",", " ") if joiner == SPACE else value


def _required(name: str, fields: Mapping[str, str]) -> str:
    if name not in fields:
        raise PreflightError(
            f"template field {{{name}}} has no value",
            hint=f"declare dirs.{name.removesuffix('_dir')} in the cluster file"
            if name.endswith("_dir")
            else f"fields with a value here: {', '.join(sorted(fields))}",
        )
    return fields[name]
