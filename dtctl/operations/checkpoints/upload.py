"""A checkpoint of this machine is written to a storage URL, while no host of the cluster may start a run."""

from __future__ import annotations

import hashlib
import time

from dtctl.agent.checkpoints import formats
from dtctl.errors import PreflightError
from dtctl.operations.checkpoints.delivery import Delivery
from dtctl.operations.checkpoints.local import OwnFile
from dtctl.operations.client.conversation import Progress
from dtctl.operations.storage import PATIENCE_S, Object, Place, label


class Upload(Delivery):
    """The conversation with a host that restores from there. The index comes last, as when TensorFlow saves."""

    def send(self) -> None:
        """All but the index. Raises PreflightError where another checkpoint has its name."""
        self._place = Place(self._target.directory, PATIENCE_S)
        self._below = f"{self._target.below}/" if self._target.below else ""
        depth = 1 if self._below else 0
        there = {one.name: one for one in self._place.objects(depth, lambda name: name != self._target.below)}
        *others, index = self._own.files
        self._index = None if self._at(index) in there else index
        for one in others:
            if self._index is not None:  # what is there is of a push that was cut off: without an index it is nothing
                self._upload(one)
        if self._index is None:
            self._refuse_other(there)
        super().send()

    def keep(self) -> None:
        if self._index is not None:
            self._upload(self._index)
        state = f"{self._below}{formats.STATE_FILE}"
        text = self._place.whole(state).decode("utf-8", "surrogateescape")
        named = formats.with_newest(text, self._own.name, time.time())
        self._place.write(state, named.encode("utf-8", "surrogateescape"))
        super().keep()

    def _at(self, file: OwnFile) -> str:
        return f"{self._below}{file.path.name}"

    def _upload(self, file: OwnFile) -> None:
        bucket, before = label(self._place.url), self._sent_bytes

        def report(done: int) -> None:
            self._report(Progress(bucket, "send", before + done, self._own.size_bytes))

        self._place.upload(self._at(file), file.path, report)
        self._sent_bytes = before + file.size

    def _refuse_other(self, there: dict[str, Object]) -> None:
        for one in self._own.files:
            found = there.get(self._at(one))
            if one.path.name.endswith(".meta"):  # the graph is none of its values
                continue
            if found is None or found.size != one.size or self._digest(found) != one.sha256:
                raise PreflightError(
                    f"another checkpoint is called {self._own.name} in {self._place.url}",
                    detail=f"{self._at(one)} differs from what was to be stored; it was not touched",
                    hint="give yours another name, or move that one away",
                )

    def _digest(self, one: Object) -> str:
        found = hashlib.sha256()
        for _, data in self._place.pieces(one):
            found.update(data)
        return found.hexdigest()
