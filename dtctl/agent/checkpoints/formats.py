"""The formats of checkpoints, one row each: how one is recognised, when it is whole, its step, what is temporary, and
how a trainer finds the newest.

Each format is read without its library, by the module of its own name. Nothing is unpickled. A checkpoint is several
files with one beginning (TensorFlow), one file, or one directory; it is named by that.
"""

from __future__ import annotations

import os
import re
import struct
from contextlib import suppress

from ..host import files
from ..host.budget import Spent
from . import (
    deepspeed,
    huggingface,
    keras,
    mxnet,
    orbax,
    safetensors,
    spacy,
    state_file,
    torch_distributed,
    torch_files,
)
from .torch_files import STEP_IN_NAME
from .trees import Names, Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional, Sequence, Tuple

    from ..host.budget import Budget
    from ..records.checkpoints import Checkpoint, CheckpointKind

    Check = Callable[[], None]

Foreign = (torch_files.Foreign, mxnet.Foreign)
"""Raised for a file that has the name of a checkpoint, and is none."""


class Texts:
    """A row of the table in docs/checkpoints.md."""

    def __init__(self, recognised: str, whole: str, step: str, temporary: str, newest: str) -> None:
        self.recognised = recognised
        self.whole = whole
        self.step = step
        self.temporary = temporary
        self.newest = newest


class Inspected:
    """What one look shows of a checkpoint."""

    def __init__(
        self,
        problem: Optional[str],
        step: Optional[int],
        size_bytes: int,
        shards: int = 1,
        parts: Tuple[List[int], List[int]] = ([], []),
    ) -> None:
        self.problem = problem
        self.step = step
        self.size_bytes = size_bytes
        self.shards = shards
        self.held, self.lacking = parts
        """The numbers of the shards that are whole here, and of those that other hosts may hold."""


EPOCH_IN_NAME = r"(?:.*[^A-Za-z])?[Ee]pochs?[_=-]?([0-9]{1,9})(?![0-9])"
"""A number in a name that can only be an epoch: `epoch_3.pt`, `epoch=3.ckpt`, `epoch_3/`."""

ASIDE = "damaged"
"""The subdirectory to which damaged checkpoints are moved."""

ANY = "*"


class Route:
    """Names of directories from a searched one down to one with checkpoints; ANY is each that is no checkpoint.

    `home`: how many of them lead to the directory that a program is given, below which its library adds the others.
    """

    def __init__(self, *names: str, home: int = 0) -> None:
        self.names = names
        self.home = home

    def fits(self, parts: Sequence[str]) -> bool:
        pairs = zip(self.names, parts)
        return len(self.names) == len(parts) and all(name in (ANY, part) for name, part in pairs)


class Format:
    """A format. `resumes`: whether a training continues from it; others hold weights alone.

    `pointer`: the file beside it that names the one to restore. `numbered`: a trainer takes the one with the largest
    number, so that a damaged one is in the way of older ones. `newest_link`: names of files that may be links to the
    newest one. Of others the program knows the names. `is_repaired`: whether a damaged one is set aside. `routes`:
    where its library saves by default, if that is deeper than the searched directory and its subdirectories. `aside`:
    the subdirectory for damaged ones.
    """

    is_directory = False

    def __init__(
        self,
        kind: CheckpointKind,
        title: str,
        texts: Texts,
        *,
        resumes: bool = True,
        pointer: Optional[str] = None,
        numbered: bool = False,
        newest_link: Optional[str] = None,
        is_repaired: bool = True,
        temporary: Optional[str] = None,
        no_checksums: Optional[str] = None,
        routes: Tuple[Route, ...] = (),
        aside: str = ASIDE,
    ) -> None:
        self.kind = kind
        self.title = title
        self.texts = texts
        self.resumes = resumes
        self.pointer = pointer
        self.numbered = numbered
        self.newest_link = newest_link
        self.is_repaired = is_repaired
        self.temporary = temporary
        self.epoch_name = EPOCH_IN_NAME
        self.no_checksums = no_checksums
        self.routes = routes
        self.aside = aside

    def inspect(self, path: str, budget: Budget) -> Inspected:
        """Raises OSError, Spent, and one of Foreign."""
        raise NotImplementedError

    def damage(self, path: str, budget: Budget, *, part: bool = False) -> Tuple[List[str], Optional[str]]:
        """The damage by every byte, and why not all could be checked. Raises OSError, Spent, and one of Foreign.

        `part`: other hosts hold the rest of it, which is no damage.
        """
        raise NotImplementedError

    def companions(self, name: str) -> List[str]:
        """Files beside it that a trainer restores with it, by their names."""
        return []


class FileFormat(Format):
    """One file is a checkpoint."""

    def __init__(
        self,
        kind: CheckpointKind,
        title: str,
        texts: Texts,
        *,
        names: str,
        problem: Callable[[str], Optional[str]],
        damage: Callable[[str, Check], Tuple[List[str], Optional[str]]],
        step: Callable[[str], Optional[int]] = lambda path: None,
        companions: Callable[[str], List[str]] = lambda name: [],
        resumes: bool = True,
        newest_link: Optional[str] = None,
        links: bool = False,
        routes: Tuple[Route, ...] = (),
        epoch_name: str = EPOCH_IN_NAME,
    ) -> None:
        super().__init__(
            kind, title, texts, resumes=resumes, newest_link=newest_link, is_repaired=resumes, routes=routes
        )
        self.epoch_name = epoch_name
        self.names = names
        self.links = links
        """Whether a link with such a name is listed; otherwise what it leads to is."""
        self._problem = problem
        self._damage = damage
        self._step = step
        self._companions = companions

    def inspect(self, path: str, budget: Budget) -> Inspected:
        budget.check()
        problem = self._problem(path)
        step = self._step(path) if problem is None else step_in_name(os.path.basename(path))
        return Inspected(problem, step, files.stat_regular(path).st_size)

    def damage(self, path: str, budget: Budget, *, part: bool = False) -> Tuple[List[str], Optional[str]]:
        return self._damage(path, budget.check)

    def companions(self, name: str) -> List[str]:
        return self._companions(name)


class DirectoryFormat(Format):
    """One directory is a checkpoint."""

    is_directory = True

    def __init__(
        self,
        kind: CheckpointKind,
        title: str,
        texts: Texts,
        *,
        recognises: Callable[[str, Names], bool],
        problem: Callable[[str, Tree], Optional[str]],
        step: Callable[[str, Tree], Optional[int]],
        marks: Tuple[str, ...],
        shards: Callable[[Tree], int] = lambda tree: 1,
        parts: Callable[[Tree], Tuple[List[int], List[int]]] = lambda tree: ([], []),
        shard_of: Optional[Callable[[int], str]] = None,
        pointer: Optional[str] = None,
        temporary: Optional[str] = None,
        no_checksums: Optional[str] = None,
        is_repaired: bool = True,
        resumes: bool = True,
        links: bool = False,
        aside: str = ASIDE,
        damage: Callable[[Tree, Check], Tuple[List[str], List[str]]] = Tree.damage,
    ) -> None:
        super().__init__(
            kind,
            title,
            texts,
            resumes=resumes,
            pointer=pointer,
            numbered=True,
            is_repaired=is_repaired and resumes,
            temporary=temporary,
            no_checksums=no_checksums,
            aside=aside,
        )
        self.marks = marks
        """Small files by which it is recognised and judged, the one that is written last before the others; the first
        may be of some versions alone.
        """
        self.links = links
        self._recognises = recognises
        self._problem = problem
        self._step = step
        self._shards = shards
        self._parts = parts
        self._damage = damage
        self.shard_of = shard_of
        """The name of the shard of a number; None where a host has all of it, or nothing."""

    def recognises(self, name: str, names: Names) -> bool:
        return self._recognises(name, names)

    def modified(self, path: str) -> float:
        """The time of its last change: that of its first mark that is there, else its own. Raises OSError."""
        for mark in self.marks:
            with suppress(FileNotFoundError, NotADirectoryError):
                return os.lstat(os.path.join(path, mark)).st_mtime
        return os.lstat(path).st_mtime

    def in_order(self, names: Sequence[str]) -> List[str]:
        """The files in the order in which they are copied: those by which it is judged come last."""
        last = {mark: -number for number, mark in enumerate(self.marks, 1)}
        return sorted(names, key=lambda name: (name in last, last.get(name, 0)))

    def inspect(self, path: str, budget: Budget) -> Inspected:
        tree, name = Tree(path, budget), os.path.basename(path)
        problem = self._problem(name, tree)
        parts = self._parts(tree) if problem is not None else ([], [])
        return Inspected(problem, self._step(name, tree), tree.size_bytes, self._shards(tree), parts)

    @staticmethod
    def files(path: str, budget: Budget) -> List[str]:
        """The paths of all files in it. Raises OSError, Spent."""
        return sorted(Tree(path, budget).sizes)

    def damage(self, path: str, budget: Budget, *, part: bool = False) -> Tuple[List[str], Optional[str]]:
        tree = Tree(path, budget)
        found = None if part else self._problem(os.path.basename(path), tree)
        problems, unread = ([found], []) if found is not None else self._damage(tree, budget.check)
        why = [*([self.no_checksums] if self.no_checksums else []), *dict.fromkeys(unread)]
        return problems, "; ".join(why) or None


def epoch_in_name(kind: CheckpointKind, name: str) -> Optional[int]:
    """The number in a name that can only be an epoch, where the format's own step is not known."""
    found = re.match(BY_KIND[kind].epoch_name, name)
    return next((int(number) for number in found.groups() if number), None) if found else None


def step_in_name(name: str) -> Optional[int]:
    """The number in a name that can only be a step."""
    found = re.match(STEP_IN_NAME, name)
    return int(found.group(1)) if found else None


def _torch_damage(path: str, check: Check) -> Tuple[List[str], Optional[str]]:
    found, unread = torch_files.damage(path, check)
    return [] if found is None else [found], unread


def _keras_damage(path: str, check: Check) -> Tuple[List[str], Optional[str]]:
    return keras.damage(path, check), None if path.endswith(".keras") else keras.NO_CHECKSUMS


def _keras_companions(name: str) -> List[str]:
    second = keras.SECOND if name.endswith(keras.SECOND) else ""
    return [keras.BACKUP_METADATA + second] if name.endswith(".h5" + second) else []


def _length(
    problem: Callable[[str], Optional[str]], unread: str
) -> Callable[[str, Check], Tuple[List[str], Optional[str]]]:
    """The damage of a format that has no checksums."""

    def damage(path: str, check: Check) -> Tuple[List[str], Optional[str]]:
        found = problem(path)
        return ([], unread) if found is None else ([found], None)

    return damage


_BY_NAME = "the program names it"
_ZIP_WHOLE = "the archive's table of contents, at its end, is there and reaches to its beginning"
_TORCH_STEP = "a number after `step` or `iter` in the name, else `global_step`, `step` or `iteration` in its pickle"
_EVERY_PART = "every file in it is whole by its own format"

_OF_LOGGERS = (
    Route(ANY, ANY, "checkpoints"),
    Route(ANY, "lightning_logs", ANY, "checkpoints", home=1),
    Route(ANY, "checkpoints"),
)
"""NAME/VERSION/checkpoints of the first logger (lightning/pytorch/callbacks/model_checkpoint.py, __resolve_ckpt_dir)
below the directory that the Trainer is given, or, with the usual name, below one in it; and VERSION/checkpoints."""

TENSORFLOW = Format(
    "tensorflow",
    "TensorFlow 1 and 2",
    Texts(
        "`NAME.index` and `NAME.data-00000-of-00001`",
        "the index is sound, and every shard is there and long enough",
        "the variable that counts it, else the number in the name",
        "`NAME_temp...`, `workertemp_N`, `tmp_worker_N`",
        "the file `checkpoint` names it",
    ),
    pointer=state_file.STATE_FILE,
    temporary=r".*_temp(?:_[0-9a-f]{32})?|workertemp_[0-9]+|tmp_worker_[0-9]+",
)

FILES = (
    FileFormat(
        "keras",
        "Keras",
        Texts(
            "`*.keras`, `*.weights.h5`; the second backup of `BackupAndRestore`, `*.weights.h5.bkp`",
            "an archive as below; an HDF5 file is as long as it says",
            "none",
            "none",
            "`BackupAndRestore` reads `latest.weights.h5`, or the second one if that is damaged; else "
            "the program names it",
        ),
        names=keras.NAME,
        problem=keras.problem,
        damage=_keras_damage,
        companions=_keras_companions,
        resumes=False,
        links=True,
    ),
    FileFormat(
        "safetensors",
        "safetensors",
        Texts(
            "`*.safetensors`", "it is as long as its header says", "a number after `step` in the name", "none", _BY_NAME
        ),
        names=safetensors.NAME,
        problem=safetensors.problem,
        damage=_length(safetensors.problem, safetensors.NO_CHECKSUMS),
        step=lambda path: step_in_name(os.path.basename(path)),
        resumes=False,
    ),
    FileFormat(
        "mxnet",
        "MXNet",
        Texts("`*.params`", "it ends with the name of its last array", "none: names count epochs", "none", _BY_NAME),
        names=mxnet.NAME,
        problem=mxnet.problem,
        damage=_length(mxnet.problem, mxnet.NO_CHECKSUMS),
        companions=mxnet.companions,
        resumes=False,
        epoch_name=mxnet.EPOCH_IN_NAME,
    ),
    FileFormat(
        "lightning",
        "Lightning",
        Texts(
            "`*.ckpt`, written by `torch.save`, also in `NAME/VERSION/checkpoints/` below, as its loggers choose it",
            _ZIP_WHOLE,
            "`step=N` in the name, else `global_step` in its pickle",
            "none",
            '`ckpt_path="last"` takes the newest `last*.ckpt`; else the program names it',
        ),
        names=torch_files.LIGHTNING_NAME,
        newest_link=r"last(?:-v[0-9]+)?\.ckpt\Z",
        routes=_OF_LOGGERS,
        problem=torch_files.problem,
        damage=_torch_damage,
        step=torch_files.step,
    ),
    FileFormat(
        "torch",
        "PyTorch, `torch.save`",
        Texts("`*.pt`, `*.pth`, `*.pth.tar`, `pytorch_model.bin`", _ZIP_WHOLE, _TORCH_STEP, "none", _BY_NAME),
        names=torch_files.NAME,
        epoch_name=r"(?:%s|checkpoint-([0-9]{1,9})\.pth\.tar\Z)" % EPOCH_IN_NAME,  # timm/utils/checkpoint_saver.py
        problem=torch_files.problem,
        damage=_torch_damage,
        step=torch_files.step,
    ),
)

DIRECTORIES = (
    DirectoryFormat(
        "orbax",
        "Orbax (JAX)",
        Texts(
            "a directory with `_CHECKPOINT_METADATA`, `_METADATA` or `commit_success.txt`",
            "it has `commit_success.txt`, or the time of its end in `_CHECKPOINT_METADATA`",
            "the number in the name, as in `100` and `checkpoint_100`",
            "a name that ends in `.orbax-checkpoint-tmp`",
            "the largest number",
        ),
        recognises=orbax.recognises,
        problem=orbax.problem,
        step=orbax.step,
        marks=orbax.MARKS,
        no_checksums=orbax.NO_CHECKSUMS,
        damage=orbax.damage,
        is_repaired=False,  # its CheckpointManager ignores what has not ended, and removes it
        links=True,
    ),
    DirectoryFormat(
        "huggingface",
        "Hugging Face Trainer",
        Texts(
            "`checkpoint-N/`, or a directory with `trainer_state.json`",
            "`trainer_state.json`, which is written last, can be read, a model is there, and " + _EVERY_PART,
            "the number in the name, else `global_step` in `trainer_state.json`",
            "`tmp-checkpoint-N`",
            "`resume_from_checkpoint=True` takes the largest number, whole or not",
        ),
        recognises=huggingface.is_trainers,
        problem=huggingface.trainers_problem,
        step=huggingface.trainers_step,
        marks=(huggingface.STATE,),
        temporary=r"tmp-checkpoint-[0-9]+",
    ),
    DirectoryFormat(
        "accelerate",
        "accelerate, `save_state`",
        Texts(
            "a directory with `random_states_N.pkl` or `optimizer.bin`; an empty `step_N`",
            "`random_states_N.pkl`, which is written last, and a model are there, and " + _EVERY_PART,
            "the number of `step_N`; that of `checkpoint_N` counts checkpoints",
            "none",
            "`load_state()` takes the largest number; else the program names it",
        ),
        recognises=huggingface.is_accelerates,
        problem=huggingface.accelerates_problem,
        step=huggingface.accelerates_step,
        marks=("random_states_0.pkl",),
        # `load_state()` takes what has the largest number in its name, whatever it is, and fails on a name without one.
        aside="damaged-0",
    ),
    DirectoryFormat(
        "deepspeed",
        "DeepSpeed",
        Texts(
            "a directory with `mp_rank_00_model_states.pt` or `*_optim_states.pt`",
            "no rank's part is missing before the last one, " + _EVERY_PART + ", and `latest` names no earlier one",
            "`global_stepN` in the name",
            "none",
            "the file `latest` names it",
        ),
        recognises=deepspeed.recognises,
        problem=deepspeed.problem,
        step=deepspeed.step,
        marks=("mp_rank_00_model_states.pt",),
        shards=deepspeed.shards,
        pointer=deepspeed.LATEST,
    ),
    DirectoryFormat(
        "dcp",
        "PyTorch, distributed (DCP)",
        Texts(
            "a directory with `__RANK_FILE.distcp`, or with a `.metadata` of torch.distributed.checkpoint; an "
            "empty `step-N`",
            "`.metadata` (or each `__RANK.metadata`), which is written last, is there, and every shard that it names, "
            "whole",
            "a number after `step` or `iter` in the name",
            "`.metadata.tmp`",
            _BY_NAME + ", usually by the largest number",
        ),
        recognises=torch_distributed.recognises,
        problem=torch_distributed.problem,
        step=torch_distributed.step,
        marks=(torch_distributed.METADATA,),
        shards=torch_distributed.shards,
        parts=torch_distributed.parts,
        shard_of=torch_distributed.shard_of,
    ),
    DirectoryFormat(
        "spacy",
        "spaCy",
        Texts(
            "a directory with `meta.json`, `config.cfg` and `vocab/`, such as `model-best` and `model-last`",
            "`vocab/strings.json`, which is written after the components, and `meta.json` can be read",
            "none",
            "none",
            _BY_NAME,
        ),
        recognises=spacy.recognises,
        problem=spacy.problem,
        step=spacy.step,
        marks=(spacy.LAST, spacy.META),
        no_checksums=spacy.NO_CHECKSUMS,
        resumes=False,
    ),
)
"""What is more special comes first: a directory of the Trainer may contain one of DeepSpeed."""

FORMATS = (TENSORFLOW, *FILES, *DIRECTORIES)
BY_KIND = {row.kind: row for row in FORMATS}
ASIDES = {row.aside for row in FORMATS}

ROUTES = tuple(route for row in FORMATS for route in row.routes)

PASSING = r"(?s)(?:%s)\Z" % "|".join([*(row.temporary for row in FORMATS if row.temporary), r"\..*\.part"])
"""Names of what no save has finished, and of checkpoints that arrive."""


def _route(parts: Sequence[str]) -> Optional[Route]:
    return next((route for route in ROUTES if route.fits(parts)), None)


def is_searched(below: str) -> bool:
    """Whether checkpoints are searched for in this directory, by its path below a directory of them."""
    parts = below.split("/") if below else []
    sound = not any(part in ("", ".", "..") or "\0" in part for part in parts)
    return sound and (len(parts) <= 1 or _route(parts) is not None)


def may_lead(below: str) -> bool:
    """Whether checkpoints may lie in this directory, or in one in it, by the routes of the formats."""
    parts = below.split("/")
    return any(Route(*route.names[: len(parts)]).fits(parts) for route in ROUTES)


def home(below: str) -> str:
    """The directory that a program was given to save in this one, by their paths below a directory of checkpoints."""
    parts = below.split("/")
    route = _route(parts) if len(parts) > 1 else None
    return below if route is None else "/".join(parts[: route.home])


_NUMBERED_VERSION = r"(?<![^/])version_[0-9]+(?=/checkpoints\Z)"


def any_version(below: str) -> str:
    """The same for directories of which a library begins a new one at each start: a program looks for its newest
    checkpoint in all of them.
    """
    return re.sub(_NUMBERED_VERSION, "version_#", below)


def of_file(name: str) -> Optional[FileFormat]:
    """The format of a file with this name."""
    return next((row for row in FILES if re.match(row.names, name)), None)


def of_directory(path: str) -> Optional[DirectoryFormat]:
    """The format of a directory, by its name and what is in it."""
    return of_names(os.path.basename(path), Names(path))


def of_names(name: str, names: Names) -> Optional[DirectoryFormat]:
    """The same where `names` lists what is in it."""
    return next((row for row in DIRECTORIES if row.recognises(name, names)), None)


def series(one: Checkpoint) -> Optional[Tuple[str, str, str]]:
    """The same for checkpoints of which a trainer restores the newest: their directory, their kind, and of files their
    names without numbers. None for one that is not of several: it has a name of its own, or is not to be moved.
    """
    row, (below, name) = BY_KIND[one["kind"]], os.path.split(one["prefix"])
    if not row.is_repaired or (row.newest_link and re.match(row.newest_link, name)):
        return None
    if row.numbered or row.pointer or row.newest_link:
        return below, row.kind, ""
    without = re.sub("[0-9]+", "#", name)
    return (below, row.kind, without) if without != name else None


def of(path: str) -> Format:
    """The format of a checkpoint that was found, by its path."""
    if os.path.isdir(path):
        found: Optional[Format] = of_directory(path)
    else:
        found = of_file(os.path.basename(path))
    return found or TENSORFLOW


def damage(path: str, row: Format, budget: Budget, *, part: bool = False) -> Tuple[List[str], Optional[str]]:
    """The damage by every byte, and why not all could be checked, for any reason."""
    try:
        return row.damage(path, budget, part=part)
    except Spent as spent:
        return [], "not all of it was read: %s" % spent
    except FileNotFoundError:
        return ["it is missing"], None
    except files.Unfit as unfit:
        return ["it %s" % unfit.strerror], None
    except OSError as error:
        return ["it cannot be read: %s" % error.strerror], None
    except Foreign:
        return ["it is no checkpoint of %s" % row.title], None
    except struct.error:
        return ["it is damaged"], None
