"""Reads the training step and the training loss from lines of a log, as programs and frameworks write them.

The last line that has a step counts; in that line a global step, or else the first that is named as the training's own.
"""

from __future__ import annotations

import re

from . import positions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet, Iterator, List, Match, Optional, Tuple

    Value = Tuple[int, bytes]
    """The offset of its line, and its digits."""


_STEP = rb"""(?x)(?:step|iteration|iter|num_updates|(?P<plural>(?:step|iter|iteration)s)(?=["']?[ \t]*[:=])|
            (?P<column>total_timesteps)(?=[ \t]*\|))
         (?:\(train\)|/max_steps)?["']?
         (?:[ \t]*[:=][ \t]*|\.\.\.[ \t]*\(?|[ \t]+[#|]?|\#|(?=\[[ \t]*[0-9]+/))["'\[]?[ \t]{0,8}
         ([0-9]{1,15})
         (?![\w%]|[.,-][0-9]|\.[a-z]|\ ?(?:[mu]?s|sec|seconds|minutes)\b)"""
_TOTAL = re.compile(rb"[ \t]{0,8}(?:/|of\b)[ \t]{0,8}([0-9]{1,15})(?![\w.])")
_TOTALS = re.compile(rb"(?:max|total)_(?:steps|iters|iterations)[\"']?[ \t]*[:=][ \t]*[\"']?([0-9]{1,15})(?![\w.])")
_RATE = re.compile(rb"global_step/sec:[ \t]*([0-9]{1,9}(?:\.[0-9]{1,9})?)(?![\w.])")
_SAVED = re.compile(
    rb"\b(?:sav(?:ed|ing)\b[^\n\r]{0,30}?\bcheckpoints?|checkpoint[ \t]{1,8}saved)\b"
    rb"(?:[ \t]{1,8}(?:at|for|from|of)(?:[ \t]{1,8}global)?(?:[ \t_]{0,8}(?:step|iteration))?"
    rb"[ \t:#]{0,8}([0-9]{1,15})(?![\w.]|[ \t]{1,8}epoch)"
    rb"|[ \t]{1,8}(?:(?:to|in|into|as)[ \t]{1,8})?[^ \t\n\r]{0,200}"
    rb"\b(?:checkpoint|ckpt|step|iter)[-_=]([0-9]{1,15})(?![0-9_]))"
)
"""A checkpoint that is saved shows a step that was made."""
_SHOWS_PROGRESS = re.compile(rb"loss|return|reward|fps")
"""Words of a line in which a number of steps is no option."""
_WRITER = rb"logging_writer\.py:[0-9]+\] \[([0-9]{1,15})\] "
"""clu.metric_writers, which the examples of Flax use."""
_BOOSTED = (
    rb"(?:(?<![^\n\] ])\[(?=[0-9]{1,15}\]\t[^\t\n:]{1,80}(?:-[\w@]{1,40}:|'s [\w@]{1,40}: ))"
    rb"|(?<![^\n])(?=[0-9]{1,15}:\tlearn: ))([0-9]{1,15})"
)
"""The iterations of XGBoost, LightGBM and CatBoost."""
_NAMELESS = (_WRITER, _BOOSTED)
"""Patterns of steps that no word names."""

_LOSS = rb"""(?x)loss(?:\ train)?(?:\ \(curr\))?["']?(?:[ \t]*[:=][ \t]*|[ \t]+(?:is[ \t]+)?)["']?
         ([-+]?(?:[0-9]{1,15}(?:\.[0-9]{0,15})?(?:e[-+]?[0-9]{1,3})?|nan|inf))(?![\w%]|\.\w)"""

_END = re.compile(rb"[\r\n]")
_COLORS = rb"\x1b\[[0-9;]*[a-z]"
_CLAUSE = rb"[^a-z_/. '\"@-]"
"""A character that no name goes across."""
_WORD = rb"[a-z]+"
_EVALUATION = rb"(?<![\w/.-])(?:val|valid|validation|eval|evaluat(?:e|ing|ion|or)|test|testing|dev)(?![\w/.-])"
_TRAINING = re.compile(rb"(?<![a-z])train(?:ing)?(?![a-z])")

_MOST_IN_LINE = 20
"""Steps, or losses, of one line that are looked at."""

_NAME_CHARACTERS = 80
"""The number of characters before a number that are searched for the words that name it."""

_STEP_PREFIXES = frozenset(b"global train training trainer current learner".split())
"""Words that may be joined to `step`, as in `train_step`."""

_OTHER_STEPS = frozenset(
    b"local micro inner next every until max maximum total of num last best final target warmup warm decay "
    b"eval evaluate evaluating evaluation val valid validation validating test testing save saves saved saving "
    b"checkpoint checkpoints log logging print since than cache trace skip skipping skipped per "
    b"profile profiling from initial".split()
)
"""Words after which the number is not the step of the training."""

_LOSS_PREFIXES = frozenset(b"train training total tot lm step average averaged avg mean running reduced".split())
_OTHER_LOSSES = frozenset(
    b"val valid validation eval evaluation test testing dev best min minimum max lowest last previous prev target "
    b"packet aux auxiliary".split()
)


class Table:
    """A header line: how its cells are divided, how many there are, and which hold the step and the loss."""

    __slots__ = ("cells", "divider", "loss", "step")

    def __init__(self, divider: bytes, cells: int, step: int, loss: Optional[int]) -> None:
        self.divider = divider
        self.cells = cells
        self.step = step
        self.loss = loss


class Reading:
    """`line` is the one in which the step was found, `loss` is in the digits of the log.

    `saved` is the step of a checkpoint, `rate` in steps per second. Without a step of the training there may be a
    `position` within an epoch.
    """

    __slots__ = ("has_loss", "line", "loss", "position", "rate", "saved", "step", "total")

    def __init__(self) -> None:
        self.step: Optional[int] = None
        self.total: Optional[int] = None
        self.saved: Optional[int] = None
        self.rate: Optional[float] = None
        self.position: Optional[positions.Reading] = None
        self.has_loss = False
        self.line = b""
        self.loss: Optional[str] = None


class StepReader:
    """Remembers the header of a table, which is written once."""

    def __init__(self) -> None:
        self._table: Optional[Table] = None
        self._epoch: Tuple[Optional[int], Optional[int]] = (None, None)
        """The last that was named in a line of its own, and how many there are."""

    def read(self, data: bytes) -> Reading:
        """The last step or position and the last loss of whole lines."""
        if b"\b" in data:
            data = re.sub(b"\b+", b"\r", data)
        if b"\x1b" in data:
            data = re.sub(_COLORS, b"", data, flags=re.I)
        lower = data.lower().replace(b"\r", b"\n")
        read, loss = _last_step(lower), _last_loss(lower)
        step = read[:2] if read is not None else None
        begin = step[0] if step is not None else 0
        header = _last_header(lower)
        if header is not None:
            begin, self._table = max(begin, header[0]), header[1]
        row = _last_row(lower, self._table, begin) if self._table is not None else None
        if row is not None:
            step, loss = row[0], row[1] or loss
        found = Reading()
        if step is not None:
            found.step = int(step[1])
            found.line = data[step[0] : _line_end(data, step[0])].strip()
            found.total = _total(lower, step[0], read[2]) if read is not None and read[0] == step[0] else None
        if loss is not None:
            found.loss = loss[1].decode()
        self._read_position(data, lower, found)
        for match in _SAVED.finditer(lower):
            found.saved = int(match.group(1) or match.group(2))
        for match in _RATE.finditer(lower):
            found.rate = float(match.group(1))
        return found

    def _read_position(self, data: bytes, lower: bytes, found: Reading) -> None:
        position = positions.read(lower) if found.step is None else None
        if position is not None and position.epoch is None:
            position.epoch, position.epochs = positions.last_header(lower, position.line) or self._epoch
        self._epoch = positions.last_header(lower, len(lower)) or self._epoch
        if position is None:
            return
        line = data[position.line : _line_end(data, position.line)].strip()
        found.line = line
        found.has_loss = positions.has_loss(line.lower())
        if position.is_step:
            found.step, found.total = position.at, position.of
        else:
            found.position = position


def read(data: bytes) -> Reading:
    """Reads a piece of a log on its own."""
    return StepReader().read(data)


def _last_step(data: bytes) -> Optional[Tuple[int, bytes, int]]:
    """The offset of its line, its digits, and the offset behind them."""
    candidates = [*re.finditer(_STEP, data)]
    for mark, pattern in ((b"logging_writer", _WRITER), (b"]\t", _BOOSTED), (b":\tlearn: ", _BOOSTED)):
        if mark in data:
            candidates = sorted([*candidates, *re.finditer(pattern, data)], key=lambda one: one.start())
    for line, matches in _by_line(data, candidates):
        first = None
        for match in matches:
            words = [b"global"] if match.re.pattern in _NAMELESS else _step_words(data, line, match)
            if words and words[-1] == b"global":
                return line, _number(match), match.end()
            first = match if first is None and words is not None else first
        if first is not None:
            return line, _number(first), first.end()
    return None


def _number(match: Match[bytes]) -> bytes:
    return match.group(match.re.groups)


def _step_words(data: bytes, line: int, match: Match[bytes]) -> Optional[List[bytes]]:
    """The words that name this step; None where they name another number."""
    if match.group("column"):
        return []
    words = _name(data, line, match, _STEP_PREFIXES)
    if words is None or not _OTHER_STEPS.isdisjoint(words):
        return None
    if match.group("plural") and (_is_option(data, line, match, words) or _is_of_epoch(data, line, match, words)):
        return None
    if words[-1:] != [b"global"] and _is_position(data, line, match):
        return None
    return words if words[-1:] == [b"global"] or not _is_of_evaluation(data[line : match.start()]) else None


def _is_position(data: bytes, line: int, match: Match[bytes]) -> bool:
    """Whether it counts the steps of an epoch, whose number is before it and whose length after it."""
    return _TOTAL.match(data, match.end()) is not None and positions.names_epoch(data[line : match.start()])


def _is_of_epoch(data: bytes, line: int, match: Match[bytes], words: List[bytes]) -> bool:
    """Whether the steps are those of an epoch, which the line names: not of all epochs together."""
    has_total = _TOTAL.match(data, match.end()) is not None
    return not words and not has_total and positions.names_epoch(data[line : _line_end(data, line)])


def _is_option(data: bytes, line: int, match: Match[bytes], words: List[bytes]) -> bool:
    """Whether a number of steps in the plural is not of those that were made."""
    if words:
        return words[-1] not in _STEP_PREFIXES or words[-1] in (b"train", b"training", b"trainer")
    text = data[line : _line_end(data, line)]
    return _TOTAL.match(data, match.end()) is None and _SHOWS_PROGRESS.search(text) is None


def _total(data: bytes, line: int, end: int) -> Optional[int]:
    """The number of steps of the whole training, which follows the step, or has a name in its line."""
    total = _TOTAL.match(data, end) or _TOTALS.search(data, line, _line_end(data, end))
    return int(total.group(1)) if total is not None else None


def _last_loss(data: bytes) -> Optional[Value]:
    """The last loss. In a line with several, the training or total loss; or one without a name; or the first."""
    for line, matches in _by_line(data, [*re.finditer(_LOSS, data)]):
        first, first_words = None, [b""]
        for match in matches:
            words = _name(data, line, match, _LOSS_PREFIXES)
            if words is None or not _OTHER_LOSSES.isdisjoint(words):
                continue
            if {b"train", b"training", b"total"} & set(words[-2:]):
                return line, match.group(1)
            better = first is None or (bool(first_words) and not words)
            if better and not _is_of_evaluation(data[line : match.start()]):
                first, first_words = match, words
        if first is not None:
            return line, first.group(1)
    return None


def _name(data: bytes, line: int, match: Match[bytes], prefixes: FrozenSet[bytes]) -> Optional[List[bytes]]:
    """The words before a match, up to where another value ends; None where it is the end of another word."""
    begin = max(line, match.start() - _NAME_CHARACTERS)
    clause = re.split(_CLAUSE, data[begin : match.start()])[-1]
    attached = clause.rpartition(b" ")[2].strip(b"'\"")
    if attached and (attached[-1:].isalpha() or not prefixes.issuperset(re.findall(_WORD, attached))):
        return None
    return re.findall(_WORD, clause)


def _is_of_evaluation(before: bytes) -> bool:
    """Whether a line speaks of an evaluation, and no more of the training after that."""
    spoken = [*re.finditer(_EVALUATION, before)]
    return bool(spoken) and _TRAINING.search(before, spoken[-1].end()) is None


def _by_line(data: bytes, matches: List[Match[bytes]]) -> Iterator[Tuple[int, List[Match[bytes]]]]:
    """The offset of each line with matches, and its matches; the last line first."""
    while matches:
        line = _line_begin(data, matches[-1].start())
        same = [matches.pop()]
        while matches and matches[-1].start() >= line:
            same.append(matches.pop())
        yield line, same[::-1][:_MOST_IN_LINE]


def _line_begin(data: bytes, at: int) -> int:
    return data.rfind(b"\n", 0, at) + 1


def _line_end(data: bytes, at: int) -> int:
    found = _END.search(data, at)
    return found.start() if found is not None else len(data)


def _lines_backwards(data: bytes, first: int) -> Iterator[Tuple[int, bytes]]:
    last = len(data)
    while last > first:
        begin = max(_line_begin(data, last), first)
        yield begin, data[begin:last]
        last = begin - 1


_COLUMN = rb"(?:step|iteration|iter|(?<=  )#)(?:[ \t]{0,8}[\t|,]|  )(?![ \t]{0,8}[0-9])"
_NUMBER = rb"[0-9]{1,15}\Z"
_LONGEST_HEADER = 1000
# spaCy's table begins with `E    #`: epochs and steps.
_STEP_COLUMNS = (b"step", b"global_step", b"global step", b"iter", b"iteration")
_LOSS_COLUMNS = (b"loss", b"total_loss", b"train_loss", b"training loss", b"train loss", b"total loss")
_BLANKS = b"  "
_DIVIDERS = (b"|", b"\t", _BLANKS, b",")


def _last_header(data: bytes) -> Optional[Tuple[int, Table]]:
    """The offset of the rows below the last header line, and its table."""
    for line, _ in _by_line(data, [*re.finditer(_COLUMN, data)]):
        end = _line_end(data, line)
        table = _table(data[line:end]) if end - line <= _LONGEST_HEADER else None
        if table is not None:
            return end, table
    return None


def _last_row(data: bytes, table: Table, first: int) -> Optional[Tuple[Value, Optional[Value]]]:
    """The step and the loss of the last row that begins after `first`."""
    for at, line in _lines_backwards(data, first):
        cells = _cells(line, table.divider)
        if len(cells) != table.cells or not re.match(_NUMBER, cells[table.step]):
            continue
        loss = re.match(_LOSS, b"loss " + cells[table.loss]) if table.loss is not None else None
        return (at, cells[table.step]), ((at, loss.group(1)) if loss is not None else None)
    return None


def _table(line: bytes) -> Optional[Table]:
    for divider in _DIVIDERS:
        cells = _cells(line, divider)
        steps = [at for at, cell in enumerate(cells) if cell in _STEP_COLUMNS or (cell == b"#" and cells[0] == b"e")]
        if len(cells) > 1 and len(steps) == 1 and all(cell[:1].isalpha() or cell == b"#" for cell in cells):
            losses = (at for at, cell in enumerate(cells) if cell in _LOSS_COLUMNS)
            return Table(divider, len(cells), steps[0], next(losses, None))
    return None


def _cells(line: bytes, divider: bytes) -> List[bytes]:
    row = line.strip(b" \t|")
    return [cell.strip(b" \t") for cell in (re.split(rb" {2,}", row) if divider == _BLANKS else row.split(divider))]
