"""What `dtctl checkpoints push` does."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from dtctl.errors import UsageError

if TYPE_CHECKING:
    from dtctl.cli.scope import Scope

AGAIN = "dtctl checkpoints push    the same once more goes on from there"


def push(scope: Scope, word: str, *, into: str | None, local: bool, output: str) -> None:
    """Brings the checkpoint that `word` names to where the next run of the cluster file restores it."""
    from dtctl.operations.checkpoints import push
    from dtctl.operations.checkpoints.local import find, read
    from dtctl.operations.history.record import record_of
    from dtctl.operations.up.launch import controller_name, make_plan
    from dtctl.operations.up.local import make_local
    from dtctl.render import checkpoints as shown
    from dtctl.render import errors
    from dtctl.render.machine import checkpoints as machine
    from dtctl.render.machine import document
    from dtctl.render.progress import UpProgress

    if scope.run is not None:
        raise UsageError("push is for the next run, so it takes no --run", hint="dtctl checkpoints push PATH")
    cluster = scope.cluster()
    plan = make_plan(make_local(cluster) if local else cluster, scope.transport.hostname)
    record, last = record_of(plan), scope.memory.newest_of(cluster.file)
    if last is not None and last.is_local and not record.is_local:
        errors.note("the last run of this file was on this machine; this goes to its hosts", "--local    keeps it here")
    where = push.targets(plan, into)
    prefix = find(Path(word))
    shown.show_reading(prefix)
    own = read(prefix)
    if own.unread:
        errors.note(f"not all of it was checked: {own.unread}")
    with (
        scope.left("what has arrived is kept beside its place, without its name", AGAIN),
        UpProgress([one.host for one in where], quiet=output == "json") as progress,
    ):
        pushed = push.push(record, scope.transport, own, where, controller_name(), progress)
    if output == "json":
        document.print_json("CheckpointPush", machine.pushed(pushed))
    else:
        shown.show_pushed(pushed)
