"""The posts of a run: what happens is told to each hook in order, and what becomes of that is kept in told.json."""

from __future__ import annotations

from contextlib import suppress

from ..host import log, paths
from ..records.hooks import HookFile, ToldBook
from ..run import telling
from .hook import Hook

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Callable, List, Optional

    from ..records.hooks import Post
    from ..records.reasons import Fact
    from ..records.whole_run import RunView
    from ..run.runfiles import RunFiles

    Tell = Callable[[List[Fact]], None]

LAST_WORDS_S = 15.0
"""The end of a run waits for its last posts, but no longer than this."""


def posts_of(files: RunFiles) -> List[Post]:
    """What the cluster file says; empty where it has no hooks, or where they cannot be read any more."""
    try:
        found = paths.read_record(files.path("hooks.json"), HookFile)
    except (paths.Damaged, OSError) as problem:
        log.note("hooks: %s" % problem)
        return []
    return found["posts"] if found is not None else []


class Posting:
    """Its `step` never waits: a hook that hangs holds up neither the run nor another hook.

    `tell` adds to the run's story, which is told once of a hook that fails. Times: `now` monotonic.
    """

    def __init__(self, files: RunFiles, cluster: str, posts: List[Post], tell: Tell) -> None:
        self._path = files.path("told.json")
        self._give_up_at: Optional[float] = None
        book = self._read()
        inherited = files.inherited()
        self._hooks = [Hook(post, cluster, inherited, book["hooks"].get(post["name"]), tell) for post in posts]
        self._book: ToldBook = {"hooks": {hook.name: hook.told for hook in self._hooks}}

    @property
    def settled(self) -> bool:
        """Nobody is still to be told of anything."""
        return all(hook.settled for hook in self._hooks)

    def step(self, view: RunView, *, over: bool, now: float) -> None:
        """`over`: nothing more happens to the run."""
        if over and self._give_up_at is None:
            self._give_up_at = now + LAST_WORDS_S
        found = telling.happened(view)
        changes = [hook.step(found, now) for hook in self._hooks]
        if self._give_up_at is not None and now >= self._give_up_at:
            changes += [hook.give_up() for hook in self._hooks]
        if any(changes):
            self._save()
        for hook in self._hooks:
            hook.begin(now)

    def readers(self) -> List[int]:
        return [reader for hook in self._hooks for reader in hook.readers()]

    def due(self) -> Optional[float]:
        times = [self._give_up_at if not self.settled else None, *(hook.due() for hook in self._hooks)]
        return min((at for at in times if at is not None), default=None)

    def close(self) -> None:
        for hook in self._hooks:
            hook.close()

    def _read(self) -> ToldBook:
        try:
            return paths.read_record(self._path, ToldBook) or {"hooks": {}}
        except (paths.Damaged, OSError) as damage:  # then some is told twice, rather than never
            log.note("hooks: %s" % damage)
            with suppress(OSError):
                paths.put_aside(self._path)
            return {"hooks": {}}

    def _save(self) -> None:
        try:
            paths.write_json(self._path, self._book)
        except OSError as error:  # a full disk: then the next agent tells some of it once more
            log.note("hooks: %s" % error)
