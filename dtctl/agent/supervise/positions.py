"""Reads positions within an epoch, as programs and progress bars write them, and counts them as steps over epochs.

A position is a batch of an epoch, or an example of it, often with the length of the epoch. A line shows one by an
epoch with a number, by a bar, or by the word batch. Lines of evaluations, of downloads and of other work have none.
"""

from __future__ import annotations

import re

from ..records.kinds import MOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Iterator, Match, Optional, Tuple

    from ..records.run_state import Position

_MOST_LINES = 300
_LONGEST = 600
"""Lines from the end that are searched, and the characters of each."""

# Each pattern does a bounded amount of work at each character, as a program may write anything: a run of blanks has at
# most eight, no two runs are adjacent, and a run without a limit begins at one place only.

_OF = rb"[ \t]{0,8}(?:/|of)[ \t]{0,8}"
_PAIR = re.compile(
    rb"(?<![\w./-])([0-9]{1,12})" + _OF + rb"([0-9]{1,12}|\?)(?![\w/]|\.[0-9]|[ \t]{0,8}(?:[kmgt]i?b|images)\b)"
)

_EPOCH = re.compile(
    rb"(?<![a-z_/])epoch(?:[ \t]{0,8}\(train\))?[\"']?[ \t]{0,8}(?:(?:\.\.\.|[:#=|])[ \t]{0,8})?"
    rb"(?:[\[(\"'][ \t]{0,8})?([0-9]{1,7})"
    rb"(?:" + _OF + rb"([0-9]{1,7}))?(?![\w%]|\.[0-9])"
)
_OTHER_EPOCHS = re.compile(rb"(?:best|num|max|total|last|of|from|every|until)[ \t_]{0,8}\Z")
_OF_TRAINER = re.compile(rb"(?:learning_rate|train_runtime|eval_runtime|grad_norm)[\"']: ")
"""The Trainer of Hugging Face, since 5.0, prints '2' after two whole epochs and '2.01' a step later: of no use here."""
_EPOCH_FIRST = re.compile(
    rb"[ \t]{0,8}([0-9]{1,7})/([0-9]{1,7})[ \t]{1,8}(?:[0-9.]{1,12}g[ \t]|\*[ \t]{0,8}epoch\b)"  # ultralytics, Catalyst
    rb"|(?:.{0,200}[\])>:][ \t]{0,8})?([0-9]{1,7})epoch:train"  # ESPnet
    rb"|.{0,200}?\btrain:[ \t]{0,8}([0-9]{1,7})[ \t]{1,8}(?=\[)"  # timm
    rb"|.{0,200}?\[[ \t]{0,8}([0-9]{1,7})/([0-9]{1,7})\][ \t]{0,8}(?=\[[ \t]{0,8}[0-9]{1,12}/[0-9])"
    rb"|\W{0,3}\[([0-9]{1,7}),(?=[ \t]{0,8}[0-9]{1,12}\][ \t]{0,8}loss)"  # the tutorials of PyTorch
)
_HEADER = re.compile(
    rb"^[^\w\n\r]{0,20}epoch[ \t]{0,8}(?::[ \t]{0,8})?\[?([0-9]{1,7})(?:" + _OF + rb"([0-9]{1,7}))?\]?[^\w\n\r]{0,10}$",
    re.M,
)
"""A line that names an epoch alone, before the bars of it."""

_BATCH = re.compile(
    rb"\bbatch[:#=]?[ \t]{0,8}\[?(?:[0-9]{1,12}-)?([0-9]{1,12})(?![\w/]|\.[0-9]|" + _OF + rb"[0-9])"
    rb"|\b(?:[0-9]{1,12}-)?([0-9]{1,12})batch\b"
    rb"|\[[0-9]{1,12},[ \t]{0,8}([0-9]{1,12})\][ \t]{0,8}loss"
)
_STEPS = re.compile(
    rb"(?<![\w.-])(?:steps|iters|iterations)[\"']?[ \t]{0,8}[:=][ \t]{0,8}([0-9]{1,12})(?![\w/%]|\.[0-9])"
)
"""The steps of an epoch that the line names."""
_BAR = re.compile(
    rb"(?:[%:][ \t]{0,8}\|[^|]{0,200}\|[ \t]{0,8}|"
    rb"(?<![\x80-\xbf])(?:\xe2[\x94\x95][\x80-\xbf]){3,}[ \t]{0,80})(?=[0-9]{1,12}/)"
)
"""The bars of tqdm, of rich, and of ultralytics, before the numbers."""
_KERAS = re.compile(
    rb"^\W{0,20}([0-9]{1,12})/([0-9]{1,12})[ \t]{1,8}(?:\[[=>. ]|\xe2\x94\x81|-[ \t]{1,8}[0-9]{1,12}m?s[ \t])"
)
_SHOWN_BY_WORDS = re.compile(
    rb"\bbatch(?:es)?[ \t:#=]{0,8}(?:[\[(][ \t]{0,8})?(?=[0-9]{1,12}[ \t]{0,8}/)"
    rb"|(?<!val_)loss[:=]?[ \t]{0,8}[-+0-9.e]{1,24}[ \t]{1,8}\[[ \t]{0,8}(?=[0-9]{1,12}/)"
)
_OF_LIGHTNING = re.compile(rb"\bv_num[=:]")
"""Lightning shows the version of its logger behind its bars."""
_LOSS = re.compile(
    rb"(?<![a-z_])(?:(?:train(?:ing)?|tot(?:al)?|avg|average|mean)[_ -])?loss"
    rb"[\"']?[ \t]{0,8}(?:[:=][ \t]{0,8}|is[ \t]{1,8}|[ \t])[\"']?[-+0-9]"
)
_REPORTED = re.compile(rb"\b(?:finished|completed|done|train-acc\w*)\b")
_SCORE = re.compile(
    rb"epoch[ \t]{1,8}[0-9]{1,7}:[ \t]{1,8}"
    rb"(?:[0-9]{1,6}\.[0-9]{1,8}[ \t]{0,8}\Z|\{'[a-z0-9][a-z0-9_]{1,40}':[ \t]{1,8}[0-9])"
)
"""The examples of accelerate print the score of an epoch, and nothing else."""

_EVALUATION = re.compile(
    rb"(?<![\w/.-])(?:val|valid|validation|eval|evaluat(?:e|ing|ion|or)|test|testing|dev|sanity|predict(?:ing|ion)?|"
    rb"inference|validating)(?![\w/.-])"
)
_TRAINING_WORDS = frozenset(
    b"train training epoch step steps iter iters iteration iterations batch batches loss".split()
)
_OTHER_WORDS = frozenset(b"map filter split dataset datasets files shards images cache weights epochs".split())
_NOT_TIMES = re.compile(
    rb"(?:acc|accuracy|correct|rank|gpu|memory|mem|fold|node|nodes)[\"']?[ \t:=]{0,8}(?:[\[(][ \t]{0,8})?\Z"
)
_BRACKETS = re.compile(rb"\([^)]{0,200}\)|\[(?![ \t]{0,8}epoch)[^\]]{0,200}\]")


def has_loss(line: bytes) -> bool:
    return _LOSS.search(line) is not None


class Reading:
    """`is_step`: what is counted are steps of the training, not batches of an epoch.

    `from_zero`: the program is known to number its epochs from 0, and to print the last number as their total.
    """

    __slots__ = ("at", "epoch", "epochs", "from_zero", "is_step", "line", "of")

    def __init__(
        self, line: int, at: Optional[int], of: Optional[int], epoch: Tuple[Optional[int], Optional[int]]
    ) -> None:
        self.line = line
        self.at = at
        self.of = of
        self.epoch, self.epochs = epoch
        self.is_step = False
        self.from_zero = False


def read(data: bytes) -> Optional[Reading]:
    """The last position in whole lines of lower case, which end in `\n`. An epoch named above them is not added."""
    for number, (begin, line) in enumerate(_lines_backwards(data)):
        if number >= _MOST_LINES:
            return None
        found = _of_line(line[:_LONGEST], begin)
        if found is not None:
            return found
    return None


def last_header(data: bytes, before: int) -> Optional[Tuple[int, Optional[int]]]:
    """The epoch that a line names alone, and how many there are."""
    found = None
    for match in _HEADER.finditer(data, 0, before):
        found = (int(match.group(1)), int(match.group(2)) if match.group(2) else None)
    return found


def _lines_backwards(data: bytes) -> Iterator[Tuple[int, bytes]]:
    last = len(data)
    while last > 0:
        begin = data.rfind(b"\n", 0, last) + 1
        if begin < last:
            yield begin, data[begin:last]
        last = begin - 1


def _of_line(line: bytes, begin: int) -> Optional[Reading]:
    if b"/" not in line and b"epoch" not in line and b"] loss" not in line:
        return None
    epoch, after = _epoch(line)
    bar = next((match for match in _BAR.finditer(line)), None)
    if _EVALUATION.search(line, 0, bar.start() if bar is not None else after) or _is_evaluated(line, after, bar):
        return None
    if bar is not None:
        return _of_bar(line, begin, bar, epoch)
    if epoch[0] is not None:
        return _of_epoch(line, begin, epoch, after)
    keras = _KERAS.match(line)
    if keras is not None:
        return Reading(begin, int(keras.group(1)), int(keras.group(2)), epoch) if has_loss(line) else None
    shown = _SHOWN_BY_WORDS.search(line)
    pair = _PAIR.match(line, shown.end()) if shown is not None else None
    return _reading(begin, pair, epoch) if pair is not None else None


def _is_evaluated(line: bytes, after: int, bar: Optional[Match[bytes]]) -> bool:
    """Whether the line is of an evaluation after its epoch, and has no loss of the training before that."""
    spoken = _EVALUATION.search(line, after)
    loss = _LOSS.search(line)
    return bar is None and spoken is not None and not (loss is not None and loss.start() < spoken.start())


def _epoch(line: bytes) -> Tuple[Tuple[Optional[int], Optional[int]], int]:
    first = _EPOCH_FIRST.match(line)
    if first is not None:
        numbers = [int(number) for number in first.groups() if number is not None]
        return (numbers[0], numbers[1] if len(numbers) > 1 else None), first.end()
    match = _named_epoch(line)
    if match is None:
        return (None, None), 0
    return (int(match.group(1)), int(match.group(2)) if match.group(2) else None), match.end()


def _named_epoch(line: bytes) -> Optional[Match[bytes]]:
    for match in _EPOCH.finditer(line):
        is_fraction = line[match.start(1) - 1 : match.start(1)] in (b"'", b'"') and _OF_TRAINER.search(line) is not None
        if not is_fraction and not _OTHER_EPOCHS.search(line, max(0, match.start() - 8), match.start()):
            return match
    return None


def _of_epoch(line: bytes, begin: int, epoch: Tuple[Optional[int], Optional[int]], after: int) -> Optional[Reading]:
    for pair in _PAIR.finditer(line, after):
        if not _NOT_TIMES.search(line, max(0, pair.start() - 20), pair.start()):
            return _reading(begin, pair, epoch)
    batch = _BATCH.search(line)
    if batch is not None:
        return Reading(begin, int(next(filter(None, batch.groups()))), None, epoch)
    steps = _STEPS.search(line)
    if steps is not None:
        return Reading(begin, int(steps.group(1)), None, epoch)
    ended = has_loss(line) or _REPORTED.search(line) is not None or _SCORE.match(line) is not None
    return Reading(begin, None, None, epoch) if ended else None


def _of_bar(
    line: bytes, begin: int, bar: Match[bytes], epoch: Tuple[Optional[int], Optional[int]]
) -> Optional[Reading]:
    pair = _PAIR.match(line, bar.end())
    if pair is None:
        return None
    label = _BRACKETS.sub(b" ", line[: bar.start()])
    words = re.findall(rb"[a-z]+", label.rpartition(b" - ")[2].rpartition(b" >> ")[2])
    if epoch[0] is None and words:
        if _TRAINING_WORDS.isdisjoint(words) or not _OTHER_WORDS.isdisjoint(words):
            return None
        if any(word.endswith(b"ing") and word != b"training" for word in words) or words == [b"epoch"]:
            return None
    found = _reading(begin, pair, epoch)
    found.is_step = epoch[0] is None and words[-1:] in ([b"step"], [b"steps"])
    found.from_zero = epoch[0] is not None and _OF_LIGHTNING.search(line, pair.end()) is not None
    return found


def _reading(begin: int, pair: Match[bytes], epoch: Tuple[Optional[int], Optional[int]]) -> Reading:
    return Reading(begin, int(pair.group(1)), None if pair.group(2) == b"?" else int(pair.group(2)), epoch)


def names_epoch(text: bytes) -> bool:
    """Whether the text around a number names an epoch by its number, so that the number counts within the epoch."""
    return _named_epoch(text[-_LONGEST:]) is not None


class Counter:
    """Counts positions over the epochs of an attempt."""

    def __init__(self, first_epoch: int = 1) -> None:
        self.first_epoch = first_epoch
        """The number of the first epoch, 0 or 1."""
        self.step: Optional[int] = None
        self.total: Optional[int] = None
        self.position: Optional[Position] = None
        self._rank = -1
        self._of: Optional[int] = None
        self._at = 0
        self._longest = 0
        self._passed = 0
        """Epochs without a number that have ended."""

    def add(self, found: Reading, *, has_loss: bool) -> bool:
        """Counts a position; False where it belongs to other work than the one that is counted."""
        rank = 2 if found.epoch is not None else int(has_loss)
        if self._rank > rank or (self._rank == rank == 0 and self._of is not None and (found.of or 0) < self._of):
            return False
        if rank > self._rank or (rank < 2 and found.of != self._of):
            self._passed = self._at = self._longest = 0
        self._rank = rank
        if found.epoch == 0 or found.from_zero:
            self.first_epoch = 0
        at = found.at
        if found.epoch is None and at is not None and at < self._at:
            self._passed += 1
        self._of = found.of if found.of is not None or at is not None else self._of
        if at is not None:
            self._at = at
            self._longest = max(self._longest, at)
        self._count(found)
        return True

    def _count(self, found: Reading) -> None:
        passed = max(0, found.epoch - self.first_epoch) if found.epoch is not None else self._passed
        length = self._of or (self._longest if passed else None)
        self.position = {
            "epoch": found.epoch,
            "epochs": found.epochs,
            "batch": found.at,
            "batches": found.of,
            "first_epoch": self.first_epoch,
        }
        epochs = found.epochs + found.from_zero if found.epochs is not None else None
        self.total = length * epochs if length and epochs else None
        if found.epoch is None and self._of is not None and not self._passed:
            self.total = self._of
        if found.at is None:
            self.step = (passed + 1) * (length or 1)
            self.total = self.total or epochs
        elif found.at or passed or self.step is not None:
            self.step = passed * (length or 0) + found.at
        self.step, self.total = _countable(self.step), _countable(self.total)


def _countable(number: Optional[int]) -> Optional[int]:
    return number if number is not None and number <= MOST else None
