"""Finds names in a program that TensorFlow 1 has and TensorFlow 2 lacks. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dtctl.dataclass import dataclass

GONE = ("contrib", "examples")
"""Parts of `tensorflow` that `tensorflow.compat.v1` lacks, too."""

_MOVED = """
app flags gfile logging layers placeholder placeholder_with_default Session InteractiveSession ConfigProto
GPUOptions RunOptions RunMetadata GraphDef GraphKeys AUTO_REUSE Summary get_variable get_variable_scope
variable_scope global_variables global_variables_initializer local_variables local_variables_initializer
initialize_all_variables tables_initializer get_default_graph reset_default_graph get_default_session get_collection
add_to_collection set_random_seed random_normal random_uniform truncated_normal random_shuffle assign assign_add
assign_sub py_func read_file decode_csv parse_single_example FixedLenFeature log div Print to_float to_int32
to_int64 trainable_variables TFRecordReader TextLineReader disable_eager_execution disable_v2_behavior
train.replica_device_setter train.Server train.Supervisor train.MonitoredTrainingSession train.MonitoredSession
train.Saver train.Scaffold train.StopAtStepHook train.LoggingTensorHook train.CheckpointSaverHook
train.SessionRunHook train.SyncReplicasOptimizer train.Optimizer train.GradientDescentOptimizer train.AdamOptimizer
train.AdagradOptimizer train.MomentumOptimizer train.RMSPropOptimizer train.FtrlOptimizer train.get_global_step
train.get_or_create_global_step train.create_global_step train.global_step train.exponential_decay
train.shuffle_batch train.batch train.string_input_producer train.start_queue_runners train.write_graph
nn.dynamic_rnn nn.static_rnn nn.rnn_cell nn.softmax_cross_entropy_with_logits_v2 summary.FileWriter summary.merge
summary.merge_all losses.softmax_cross_entropy losses.sparse_softmax_cross_entropy losses.mean_squared_error
metrics.accuracy image.resize_images
"""
MOVED = frozenset(_MOVED.split())
"""Names of `tensorflow.compat.v1` that `tensorflow` 2 lacks and that programs for ps and workers use."""


@dataclass(frozen=True)
class OldName:
    """A name, such as tf.app, and the first line that uses it."""

    name: str
    line: int

    @property
    def part(self) -> str:
        """The part of a TensorFlow name after `tf.`, down to the name that decides."""
        return self.name.partition(".")[2]


def old_names(tree: ast.Module) -> tuple[OldName, ...]:
    """Each name once, with its first line. None if the program itself distinguishes TensorFlow 1 from 2.

    What stands in a `try`, or below an `if` about the version, may be made for both.
    """
    modules = _bound(tree)
    found: dict[str, OldName] = {}
    for node in _reached(tree.body):
        for name in _imported(node):
            found.setdefault(name, OldName(name, node.lineno))  # type: ignore[attr-defined]
        if isinstance(node, ast.Attribute) and (dotted := _dotted(node)) is not None:
            module, _, part = dotted.partition(".")
            if module in modules and (part in MOVED or part in GONE):
                found.setdefault(f"tf.{part}", OldName(f"tf.{part}", node.lineno))
    return tuple(sorted(found.values(), key=lambda one: one.line))


def _bound(tree: ast.Module) -> set[str]:
    """Names bound to `tensorflow` only, as opposed to `tensorflow.compat.v1`."""
    plain: set[str] = set()
    others: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                top = alias.name == "tensorflow" or (alias.asname is None and name == "tensorflow")
                (plain if top else others).add(name)
        elif isinstance(node, ast.ImportFrom):
            others.update(alias.asname or alias.name for alias in node.names)
        elif isinstance(node, ast.arg):
            others.add(node.arg)
        elif isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
            # `tf = tf.compat.v1` makes it another module, and `tf.app = ...` gives it what it lacks
            owner = node.id if isinstance(node, ast.Name) else getattr(node.value, "id", "")
            others.add(owner)
    return plain - others


def _imported(node: ast.AST) -> Iterator[str]:
    names: Iterable[str] = ()
    if isinstance(node, ast.Import):
        names = (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module == "tensorflow":
        names = (f"tensorflow.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
        names = (node.module,)
    for name in names:
        top, _, rest = name.partition(".")
        if top == "tensorflow" and (rest.partition(".")[0] in GONE or rest in MOVED):
            yield f"tf.{rest.partition('.')[0] if rest not in MOVED else rest}"


def _reached(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    for node in body:
        if isinstance(node, ast.Try):
            yield from _reached([*node.orelse, *node.finalbody])
        elif not (isinstance(node, (ast.If, ast.IfExp)) and _is_about_versions(node.test)):
            yield node
            yield from _reached(ast.iter_child_nodes(node))


def _is_about_versions(test: ast.expr) -> bool:
    text = ast.unparse(test).lower()
    return "version" in text or "hasattr" in text or "tf2" in text or "tf1" in text


def _dotted(node: ast.expr) -> str | None:
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else None
