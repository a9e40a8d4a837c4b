"""Asking for consent to what a cluster file would start on this machine."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from dtctl.errors import DtctlError

if TYPE_CHECKING:
    from dtctl.config.cluster import Cluster, Hook


def require_consent(cluster: Cluster, overrides: Sequence[str] | None, *, local: bool, typed: bool = False) -> None:
    """Of what is about to start here: asks on a terminal, and raises PreflightError elsewhere; no hook is among it.

    `typed`: the command line itself says that it is to run here (`up --local`), which is consent. What `overrides` say
    is typed, too: the file is what is asked about.
    """
    from dtctl.operations.consent import Consents, programs_of_hosts
    from dtctl.render import starting as shown
    from dtctl.render.terminal import console

    consents = Consents()
    wanted = consents.missing(programs_of_hosts(cluster, overrides or (), local=local))
    if wanted and not typed:
        if not sys.stdin.isatty() or console.speaks_json():
            raise shown.not_allowed(cluster, wanted, local=local)
        shown.show_programs(wanted)
        console.confirm(f"Allow {cluster.file} to start this on this machine?", "nothing was started")
    consents.allow(wanted)


def allowed_hooks(cluster: Cluster | None, hooks: Sequence[Hook]) -> tuple[Hook, ...]:
    """Those of its commands that may run here; each of the others is reported in one line."""
    from dtctl.operations.consent import Consents, allow_command, hook_programs
    from dtctl.render.errors import note

    if cluster is None or not hooks:
        return ()
    programs = hook_programs(cluster)
    refusals = Consents().missing(programs)
    refused = [hook.name for hook, program in zip(hooks, programs, strict=True) if program in refusals]
    for name in refused:
        note(f"hook {name} will not run here, as you have not allowed it: {allow_command(cluster)}")
    return tuple(hook for hook in hooks if hook.name not in refused)


def is_allowed(cluster: Cluster | None, hook: Hook) -> bool:
    """Of a command, as it is now."""
    from dtctl.operations.consent import Consents, hook_programs

    programs = hook_programs(cluster) if cluster else ()
    this = [one for one in programs if one.what == f"hook {hook.name}"]
    try:
        return bool(this) and not Consents().missing(this)
    except DtctlError:  # others may write there now
        return False
