"""up: prepares everything, starts on the controller's word, and is undone until the controller has said `keep`."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from . import (
    bundles,
    checkpoints,
    checks,
    environment,
    intents,
    logind,
    old_runs,
    paths,
    policy,
    processes,
    reboot,
    runs,
    setup,
    starting,
    stop,
    whole_run,
)
from .conversation import Aborted, field
from .errors import Refused
from .runfiles import RunFiles, RunRemoved

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional

    from .conversation import Conversation

_END_LIMIT_S = 1.0
"""Of an agent whose tasks have been taken back. A coordinator would wait for hosts that take back theirs as well."""


def up(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    spec = field(request, "spec", dict)
    checks.check_spec(spec, request)
    secrets = field(request, "secrets", dict, type(None)) or {}
    checks.check_variables(secrets, "secrets")
    checks.check_credentials(field(request, "credentials", dict, type(None)), spec)
    lock = stop.hold_cluster(talk, request, spec["controller"])
    try:
        current = runs.find(talk, dict(request, run=None))
        old = current if current is not None and current.live() else None
        if old is not None and old.spec["digest"] == spec["digest"]:
            return _unchanged(talk, old)
        if old is not None and not request.get("replace"):
            raise Refused(
                "changed_run",
                "another run of %s is live on this host: %s" % (spec["cluster"], old.id),
                "it was started by %s, %s" % (old.spec["controller"], _difference(old.spec, spec)),
                "give --replace to stop it and start the new one",
            )
        return _new(talk, request, spec, secrets, current)
    except Aborted:
        raise Refused("rolled_back", "given up, and nothing is left of it") from None
    finally:
        lock.release()


def push(talk: Conversation, request: Mapping[str, Any]) -> Dict[str, Any]:
    bundle = field(request, "bundle", str)
    return {"bundle": bundle, "sent_files": bundles.obtain(talk.root, bundle, talk.wire)[1]}


def _unchanged(talk: Conversation, run: runs.Run) -> Dict[str, Any]:
    """The same conversation about a run that is there already: nothing is started, and nothing is undone."""
    run.supervise()
    talk.send("prepared", unchanged=True, run=run.id, current=run.id, replaces=None)
    while True:
        word = talk.expect("start", "keep", "abort")["type"]
        if word == "start":
            talk.send("started", run=run.id, tasks=run.state()["tasks"])
        elif word == "keep":
            return _kept(talk, run, unchanged=True)
        else:
            raise Aborted()


def _new(
    talk: Conversation,
    request: Mapping[str, Any],
    spec: Dict[str, Any],
    secrets: Mapping[str, str],
    current: Optional[runs.Run],
) -> Dict[str, Any]:
    old = current if current is not None and current.live() else None
    directory = paths.run_directory(talk.root, spec["run"], spec["host"])
    if os.path.exists(directory):
        raise Refused("bad_request", "there is a run %s on this host already" % spec["run"])
    bundle = field(request, "bundle", str, type(None))
    if bundle != spec.get("bundle"):
        raise Refused("bad_request", "the spec is of another bundle")
    logind.refuse_if_doomed()
    code = bundles.ensure(talk.root, bundle, talk.wire) if bundle else None
    marks = environment.Marks(code)
    setup.make_directories(spec, marks)
    setup.run_setup(talk, spec, code, marks)
    setup.look_for(marks.words(spec.get("brought_along", ())))
    names = {"current": current.id if current else None, "replaces": old.id if old else None}
    earlier = checkpoints.report(marks.words(spec["checkpoint_dirs"])) if _leads(spec) else []
    talk.send("prepared", unchanged=False, run=spec["run"], checkpoints=earlier, **names)
    if talk.expect("start", "abort")["type"] == "abort":
        raise Aborted()
    if old is not None:
        how = {"reason": "replaced by run %s" % spec["run"], "by": spec["controller"], "grace_s": None}
        stop.stop_run(talk, old, how)
    before = paths.read_text(runs.current_path(talk.root, spec["cluster"], spec["host"]))
    files = RunFiles(directory)
    ended = _end_coordinators(talk, spec, old)
    try:
        starting.refuse_taken_ports(spec)
        inherited = {name: value for name, value in environment.base().items() if name not in secrets}
        files.create(spec, secrets, inherited, processes.myself(), request.get("credentials"))
        runs.set_current(talk.root, spec["cluster"], spec["host"], spec["run"])
        run = runs.Run(talk, directory)
        run.supervise()
        talk.send("started", run=run.id, tasks=starting.wait(talk, run)["tasks"])
        if talk.expect("keep", "abort")["type"] == "abort":
            raise Aborted()
        run.change(_keep)
    except BaseException:
        _roll_back(talk, spec, directory, before)
        for other in ended:
            other.keep_supervised()
        raise
    with suppress(OSError):  # a full disk: the next session will see to it
        for other in ended:
            other.finish()
    return _kept(talk, run, unchanged=False)


def _leads(spec: Mapping[str, Any]) -> bool:
    """Whether the lead task, which restores and saves, is on this host."""
    coordinator = spec.get("coordinator")
    return coordinator is not None and bool(coordinator["host"] == spec["host"])


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str:
    if old["bundle"] != new.get("bundle"):
        return "with other code than what is asked for"
    return "with the same code, but other settings than what is asked for"


def _end_coordinators(talk: Conversation, spec: Mapping[str, Any], old: Optional[runs.Run]) -> List[runs.Run]:
    """Those of earlier runs of the cluster, as the new one wants their port and takes over what they wait for.

    That of the run that has just been stopped gets time to tell the others. Returns those that were not done.
    """
    if not _leads(spec):
        return []
    ended = []
    for run in runs.every(talk, spec["cluster"]):
        has_port = whole_run.coordinates(run) and run.spec["coordinator"]["port"] == spec["coordinator"]["port"]
        if has_port and run.spec["host"] == spec["host"] and not (run.live() or run.finished()):
            run.end_supervisor(runs.SUPERVISOR_END_LIMIT_S if old and run.id == old.id else _END_LIMIT_S)
            ended.append(run)
    return [run for run in ended if not run.finished()]


def _kept(talk: Conversation, run: runs.Run, unchanged: bool) -> Dict[str, Any]:
    """The answer to `keep`, with what the host does by itself from now on. The run goes on whatever becomes of this."""
    wanted = run.spec["recovery"]["reboot"] == "auto"
    told = reboot.offer(talk.root) if wanted else {"reboot": None, "reboot_why": "recovery.reboot is never"}
    return dict(told, run=run.id, unchanged=unchanged, pruned=old_runs.prune(talk, run))


def _keep(intent: Dict[str, Any]) -> None:
    intent["session"] = None


def _roll_back(talk: Conversation, spec: Mapping[str, Any], directory: str, before: Optional[str]) -> None:
    """Ends what was started and removes every trace of the run. Does not listen to the controller."""
    try:
        run = runs.Run(talk, directory)
    except RunRemoved:  # nothing has been started
        _remove_unborn(directory)
    else:
        if run.state()["agent"] is not None:
            run.change(_stop_at_once)
            deadline = time.monotonic() + 30.0
            while not _all_ended(run) and time.monotonic() < deadline:
                run.keep_supervised()
                time.sleep(0.02)
            run.end_supervisor(_END_LIMIT_S)
        run.remove()
    runs.set_current(talk.root, spec["cluster"], spec["host"], before)


def _all_ended(run: runs.Run) -> bool:
    return all(task["state"] in policy.FINAL for task in run.state()["tasks"].values())


def _remove_unborn(directory: str) -> None:
    import shutil

    shutil.rmtree(directory, ignore_errors=True)
    with suppress(OSError):  # never made, or also that of another host of the inventory
        os.rmdir(os.path.dirname(directory))


def _stop_at_once(intent: Dict[str, Any]) -> None:
    for task in intent["tasks"].values():
        intents.change(task, want="stop", grace_s=0, reason="rolled back")
