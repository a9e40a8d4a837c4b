"""Directories that Hugging Face's libraries write: `checkpoint-N` of the Trainer, and those of accelerate's save_state.

The Trainer writes the model first and `trainer_state.json` last, and resumes from the directory with the largest N,
whatever is in it (transformers/trainer_utils.py, get_last_checkpoint). accelerate writes `random_states_0.pkl` of the
main process after the model, the optimizer and the schedulers (accelerate/checkpointing.py); other processes write
their own `random_states_N.pkl`.
"""

from __future__ import annotations

import re

from .torch_files import STEP_IN_NAME
from .trees import INTERRUPTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    from .trees import Names, Tree

STATE = "trainer_state.json"

_NAME = r"checkpoint-([0-9]{1,15})\Z"
_TRAINERS = (
    r"(?s)(?:trainer_state\.json|(?:adapter_|generation_)?config\.json|training_args\.bin|rng_state.*\.pth|optimizer\.pt"
    r"|scheduler\.pt)\Z"
)
_MODEL = r"(?s)(?:model|adapter_model|pytorch_model)(?:[-_.].*)?\.(?:safetensors|bin|pt|distcp)\Z"
_ANY_MODEL = (
    r"(?s)(?:(?:.*_)?(?:model|pytorch_model)[-_.].*\.(?:bin|pt)|.*model_states\.pt|.+\.(?:safetensors|distcp))\Z"
)
"""Files that hold a model, also those that DeepSpeed and DCP write into a directory in it."""

_NUMBERED = r"(?:checkpoint|step|epoch)_[0-9]{1,15}\Z"
_STATES = r"random_states_[0-9]+\.pkl\Z"
_ACCELERATES = r"(?:random_states_[0-9]+\.pkl|optimizer(?:_[0-9]+)?\.bin|scheduler(?:_[0-9]+)?\.bin)\Z"


def is_trainers(name: str, names: Names) -> bool:
    """Whether the Trainer would resume from it, as it does from a directory that a kill has left empty."""
    return names.has(STATE) or (
        re.match(_NAME, name) is not None and (names.has_any(_TRAINERS) or names.has_any(_MODEL) or names.is_empty())
    )


def trainers_step(name: str, tree: Tree) -> Optional[int]:
    found = re.match(_NAME, name)
    if found:
        return int(found.group(1))
    state = tree.json(STATE) if STATE in tree.sizes else None
    step = state.get("global_step") if isinstance(state, dict) else None
    return step if type(step) is int else None


def trainers_problem(name: str, tree: Tree) -> Optional[str]:
    if STATE not in tree.sizes:
        return "%s is missing: %s" % (STATE, INTERRUPTED)
    state = tree.json(STATE)
    if not isinstance(state, dict) or type(state.get("global_step")) is not int:
        return "%s is damaged" % STATE
    if not tree.matching(_ANY_MODEL):
        return "it has no model"
    return tree.problem()


def is_accelerates(name: str, names: Names) -> bool:
    """Whether it is one of save_state, or is about to become one: a kill may leave an empty directory, which a program
    that takes the largest number loads.
    """
    numbered = re.match(_NUMBERED, name) is not None
    return names.has_any(_ACCELERATES) or (numbered and (names.has_any(_MODEL) or names.is_empty()))


def accelerates_step(name: str, tree: Tree) -> Optional[int]:
    """That of `step_500`, as its examples name them; the number of `checkpoint_3` counts the checkpoints."""
    found = re.match(STEP_IN_NAME, name)
    return int(found.group(1)) if found else None


def accelerates_problem(name: str, tree: Tree) -> Optional[str]:
    if not tree.matching(_STATES):
        return "random_states_0.pkl is missing: %s" % INTERRUPTED
    if not tree.matching(_ANY_MODEL):
        return "it has no model"
    return tree.problem()
