"""up: prepares everything, starts when the controller sends `start`, and is rolled back unless the run is kept."""

from __future__ import annotations

import os
import time
from contextlib import suppress

from .. import rooms
from ..bundles import store, working
from ..conversation import Aborted, Gone
from ..host import outputs as owners
from ..host import paths, ports, processes
from ..host.errors import Refused
from ..records.kinds import InvalidValue, made
from ..records.reasons import because, fact
from ..records.run_state import REPLACED, How
from ..records.spec import (
    check_absent,
    coordinates,
    hosts_of,
    inventory_of,
    is_alone,
    kept_by_coordinator,
    link_port,
    ports_of,
)
from ..records.values import FINAL, MOST_FILES, MOST_RUNS, brief
from ..run import environment, intents
from ..run.runfiles import RunFiles
from ..survival import reboot, systemd
from . import cluster_lock, down, readmit, run_handles, runs, setup, starting, stop, unended

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Mapping, Optional, Set

    from ..conversation import Conversation
    from ..records.answers import Facts, Joining, Prepared, Started, TakenPort, UpResult
    from ..records.run_state import IntentFile
    from ..records.spec import Spec
    from ..records.starting import StartMessage, UpRequest

_END_LIMIT_S = 1.0
"""How long an agent may take to end after a rollback."""

_OTHERS_LIMIT_S = 20.0
"""How long a session waits for reports of other hosts after the controller has disconnected."""


class InDoubt(Gone):
    """The controller has disconnected, and the coordinator, which knows whether the run is kept, is unreachable."""


def up(talk: Conversation, request: UpRequest) -> UpResult:
    spec = request["spec"]
    lock = cluster_lock.hold(talk, request, spec["controller"])
    try:
        current = runs.find(talk, spec["cluster"], spec["host"], None)
        old = current if current is not None and current.live() else None
        if old is not None and old.spec["digest"] == spec["digest"]:
            return _unchanged(talk, old, spec["controller"])
        if old is not None and not request["replace"]:
            raise Refused(
                "changed_run",
                "another run of %s is live on this host: %s" % (spec["cluster"], old.id),
                "it was started by %s, %s" % (old.spec["controller"], _difference(old.spec, spec)),
                "give --replace to stop it and start the new one",
            )
        readmit.refuse(talk, spec["cluster"], spec["host"], current)
        return _new(talk, request, current)
    except Aborted:
        raise Refused("rolled_back", "cancelled and cleaned up") from None
    finally:
        lock.release()


def _unchanged(talk: Conversation, run: runs.Run, by: str) -> UpResult:
    """The same conversation about a run that is there already: nothing is started, and nothing is undone."""
    run.supervise()
    prepared = {"unchanged": True, "run": run.id, "current": run.id, "replaces": None, "joining": _joining(run)}
    talk.send("prepared", prepared)
    while True:
        if talk.expect("start", "keep") == "start":
            handle = run_handles.reached(talk, run)
            if handle.why_waiting():  # a coordinator that waits, as it may have been replaced, receives that it was not
                handle.post_restart([], by)
            started: Started = {"run": run.id, "tasks": run.state()["tasks"]}
            talk.send("started", started)
        else:
            return _kept(talk, run, unchanged=True)


def _new(talk: Conversation, request: UpRequest, current: Optional[runs.Run]) -> UpResult:
    spec, secrets = request["spec"], request["secrets"] or {}
    old = current if current is not None and current.live() else None
    directory = paths.run_directory(talk.root, spec["run"], spec["host"])
    if os.path.exists(directory):
        raise Refused("bad_request", "run %s exists on this host already" % spec["run"])
    systemd.refuse_if_doomed()
    variables = _prepare(talk, spec, secrets)
    outputs = environment.Marks(None).expand(request["outputs"])
    prepared = _found(talk, request, outputs, current, old)
    files = RunFiles(directory)
    staged: Optional[RunFiles] = None
    before = runs.current(talk.root, spec["cluster"], spec["host"])[0]
    ended: List[runs.Run] = []
    try:
        withheld = {*secrets, *request["withheld"]}
        inherited = {name: value for name, value in variables.items() if name not in withheld}
        staged = files.stage(spec, secrets, inherited, processes.myself(), request["credentials"], request["hooks"])
        talk.send("prepared", prepared)
        begin = _until_start(talk)
        _go_without(spec, begin["absent"])
        if old is not None:
            how = made(How, by=spec["controller"], ends_as=REPLACED, **because([fact("makes_room")]))
            with talk.at("stop"):
                stop.stop_run(old, how)
        ended = _end_coordinators(talk, spec, old, replace=request["replace"])
        ports.let_go(talk.held)
        starting.refuse_taken_ports(spec)
        aside = _lay_out(talk, spec)
        owners.write(talk.root, outputs, spec["cluster"], spec["run"], spec["controller"], request["file"], time.time())
        staged.keep_for_pending_hosts(begin["pending_hosts"])
        files.begin(staged, spec)
        runs.set_current(talk.root, spec["cluster"], spec["host"], spec["run"])
        run = runs.Run(talk, directory)
        run.supervise()
        started: Started = {"run": run.id, "tasks": run.state()["tasks"]}
        talk.send("started", started)
        _await_keep(talk, run)
    except InDoubt:  # its agent continues to query it
        raise
    except BaseException as error:
        _roll_back(talk, spec, directory, staged, before, is_abandoned=isinstance(error, Gone))
        for other in ended:
            other.keep_supervised()
        raise
    with suppress(OSError):  # a full disk: the next session will see to it
        for other in ended:
            unended.note_taken_over(other)
            other.finish()
    return {**_kept(talk, run, unchanged=False), "aside": aside[:MOST_FILES]}


def _found(
    talk: Conversation, request: UpRequest, outputs: List[str], current: Optional[runs.Run], old: Optional[runs.Run]
) -> Prepared:
    """The facts that the controller needs before it continues."""
    spec = request["spec"]
    earlier, saved = starting.checkpoints(talk, request)
    return {
        "unchanged": False,
        "run": spec["run"],
        "current": current.id if current else None,
        "replaces": old.id if old else None,
        "checkpoints": earlier,
        "saved": saved,
        "outputs": owners.found(talk.root, outputs, lambda: starting.live_runs(talk)),
        "taken": _taken_ports(talk, spec, old, replace=request["replace"]),
        "free_from": ports.free_from(starting.most_ports(spec)),
        "joining": None,
        "left_open": unended.left_open(talk, spec["cluster"], spec["host"], time.time()) if old is None else None,
        **_inspected(talk, request["ask"]),
    }


def _inspected(talk: Conversation, asked: Optional[Mapping[str, object]]) -> Facts:
    """What the controller asks on the way, as `check` would; nothing where this agent has no checks."""
    began = time.monotonic()
    facts = rooms.load(rooms.INSPECTS)(talk, asked) if asked is not None and rooms.INSPECTS is not None else None
    return {"facts": facts, "facts_s": time.monotonic() - began}


def _until_start(talk: Conversation) -> StartMessage:
    """Answers further questions until the controller sends `start`. Raises as Conversation.expect.

    Resources of the checks, such as ports that are listened on, are released when it returns.
    """
    try:
        while True:
            message = talk.receive("start", "look")
            if message["type"] == "start":
                return message  # type: ignore[return-value]  # by the table of messages
            talk.send("looked", _inspected(talk, message["ask"]))
    finally:
        talk.leave()


def _joining(run: runs.Run) -> Optional[Joining]:
    """The data with which hosts join that the run was started without."""
    kept = run.files.pending_hosts()
    return {"inventory": inventory_of(run.files.original()), "credentials": kept} if kept else None


def _go_without(spec: Spec, absent: List[str]) -> None:
    """Writes the absent hosts into the spec. A host that joins later receives them from the controller."""
    if absent:
        try:
            check_absent(spec, absent)
        except InvalidValue as wrong:
            raise Refused("bad_request", "start: %s" % wrong) from None
        spec["absent"] = absent


def _prepare(talk: Conversation, spec: Spec, secrets: Mapping[str, str]) -> Dict[str, str]:
    """Prepares all that the tasks need except ports. Returns the variables that they inherit."""
    code = None
    if spec["bundle"] is not None:
        with talk.at("bundle"):
            code = store.ensure(talk.root, spec["bundle"], talk.wire)
    marks = environment.Marks(code)
    starting.make_directories(spec, marks)
    variables = setup.prepare(talk, spec, code, secrets)
    starting.look_for(marks.expand(spec["brought_along"]))
    return variables


def _taken_ports(talk: Conversation, spec: Spec, old: Optional[runs.Run], *, replace: bool) -> List[TakenPort]:
    """Ports of the new run that others have.

    Several hosts of the file may be addresses of this machine: what the replaced run has on the others is released,
    too. Their records are read only if a port is taken, as hosts that are other machines may share this directory.
    """
    given_up = _given_up(talk, spec, old)
    taken = starting.taken_ports(spec, given_up)
    if not taken:
        return taken
    neighbours = _neighbours(talk, spec, every=replace)
    released = {one["port"] for one in taken if any(_releases(run, one["port"]) for run in neighbours)}
    return starting.taken_ports(spec, given_up | released) if released else taken


def _neighbours(talk: Conversation, spec: Spec, *, every: bool) -> List[runs.Run]:
    """Parts of the cluster's runs that other hosts have below the same root, and that give way to the new run.

    `every`: also those of a host that it does not use, whose run its controller replaces; else that may go on.
    """
    others = {*hosts_of(inventory_of(spec))} - {spec["host"]}
    parts = [run for run in runs.every(talk, spec["cluster"]) if run.spec["host"] != spec["host"]]
    return [run for run in parts if every or run.spec["host"] in others]


def _releases(run: runs.Run, port: int) -> bool:
    """Whether a process of this part, which is live or waits for others, listens there on this machine."""
    try:
        return port in ports_of(run.spec) and (run.live() or _waits(run)) and run.listens_on(port)
    except paths.Damaged:
        return False


def _given_up(talk: Conversation, spec: Spec, old: Optional[runs.Run]) -> Set[int]:
    """Ports in use by earlier runs of the cluster, which will release them, and those that are held for this one.

    A port of the live run that a foreign process has taken is not released when that run ends.
    """
    waiting = filter(_waits, runs.every(talk, spec["cluster"], spec["host"]))
    given_up = {link_port(run.spec) for run in waiting}
    own = {port for port in ports_of(old.spec) if not old.has_lost(port)} if old is not None else set()
    held = {one.getsockname()[1] for one in talk.held}
    return own | held | {port for port in given_up if port is not None}


def _lay_out(talk: Conversation, spec: Spec) -> List[str]:
    """Puts the code into the trainers' working directory, after all processes of earlier runs there have ended."""
    if spec["bundle"] is None:
        return []
    with talk.at("working directory"):
        return working.lay_out(talk.root, spec["cluster"], spec["run"], spec["bundle"])


def _difference(old: Spec, new: Spec) -> str:
    if old["bundle"] != new["bundle"]:
        return "with different code"
    return "with the same code, but different settings"


def _end_coordinators(talk: Conversation, spec: Spec, old: Optional[runs.Run], *, replace: bool) -> List[runs.Run]:
    """Ends earlier runs' coordinators, because the new run needs their port and takes over their waiting.

    The coordinator of the run that was just stopped gets time to inform the others. Returns unfinished runs.
    """
    port = link_port(spec)
    ended = []
    if port is None:
        return []
    here = runs.every(talk, spec["cluster"], spec["host"])
    if ports.listening(port) and port not in {link_port(run.spec) for run in here if _waits(run)}:
        here += [run for run in _neighbours(talk, spec, every=replace) if _releases(run, port)]
    for run in here:
        if link_port(run.spec) == port and _waits(run):
            run.end_supervisor(runs.SUPERVISOR_END_LIMIT_S if old and run.id == old.id else _END_LIMIT_S)
            ended.append(run)
    return [run for run in ended if not run.finished()]


def _waits(run: runs.Run) -> bool:
    """Whether it has ended here while its agent has not. False for a damaged one, which cannot be taken over."""
    try:
        return not run.live() and (run.supervised() or not run.finished())
    except paths.Damaged:
        return False


def _kept(talk: Conversation, run: runs.Run, unchanged: bool) -> UpResult:
    """The answer to `keep`, after the host's own follow-up work. The run continues even if that fails."""
    wanted = run.spec["recovery"]["reboot"] == "auto"
    kind, why, new = reboot.offer(talk.root) if wanted else (None, "recovery.reboot is never", False)
    with talk.at("old runs"):
        pruned = down.prune(talk, run)
    return {
        "run": run.id,
        "unchanged": unchanged,
        "reboot": kind,
        "reboot_new": new,
        "reboot_why": "" if kind else brief(why),
        "reboot_unsure": brief(why) if kind else "",
        "pruned": pruned[:MOST_RUNS],
        "aside": [],
    }


def _await_keep(talk: Conversation, run: runs.Run) -> None:
    """Returns when the run is kept. The coordinator's host decides that for all, and gets `keep` before the others.

    Raises InDoubt if the decision is unknown; after any other exception nothing of the run may stay.
    """
    is_decided_here = not kept_by_coordinator(run.spec)
    try:
        talk.expect("keep")
    except Gone:
        if is_decided_here:
            raise
        return _await_decision(run)
    try:
        run.change(_keep)
    except (OSError, paths.Damaged, Refused):
        if is_decided_here:
            raise  # else its agent writes that: the coordinator sends it the same


def _keep(intent: IntentFile) -> None:
    intent["session"] = None


def _await_decision(run: runs.Run) -> None:
    deadline = time.monotonic() + _OTHERS_LIMIT_S
    while time.monotonic() < deadline:
        with suppress(paths.Damaged, Refused):  # its agent repairs the files, or cannot be started now
            intent = run.intent()
            if intent["session"] is None:
                return
            if intents.is_cancelled(intent["tasks"]):
                raise Gone()
            run.keep_supervised()
        time.sleep(0.05)
    raise InDoubt()


def _roll_back(
    talk: Conversation,
    spec: Spec,
    directory: str,
    staged: Optional[RunFiles],
    before: Optional[str],
    *,
    is_abandoned: bool,
) -> None:
    """Ends what was started and removes every trace of the run. Does not listen to the controller.

    A coordinator that could not inform all others that it had been in touch with stays, as that of any run that ended.
    """
    leads_others = coordinates(spec) and not is_alone(spec)
    stays = False
    try:
        run = runs.Run(talk, directory)
    except paths.RunRemoved:  # nothing has been started
        if staged is not None:
            staged.remove()
        with suppress(OSError):  # never made, or also that of another host of the inventory
            os.rmdir(os.path.dirname(directory))
    else:
        if run.state()["agent"] is not None:

            def stop_at_once(intent: IntentFile) -> None:
                why = because([fact("session_lost" if is_abandoned else "rolled_back")])
                ends_as = intents.ABANDONED if is_abandoned else intents.CANCELLED
                how = made(How, by=spec["controller"], grace_s=0.0, ends_as=ends_as, **why)
                ends_run = how if leads_others else None
                for task in intent["tasks"].values():
                    intents.change(task, want="stop", grace_s=0, ends_as=ends_as, ends_run=ends_run, **why)
                if not intent["tasks"]:
                    intent["ends_run"] = how

            run.change(stop_at_once)
            deadline = time.monotonic() + 30.0
            while not all(task["state"] in FINAL for task in run.state()["tasks"].values()):
                if time.monotonic() > deadline:
                    break
                run.keep_supervised()
                time.sleep(0.02)
            stays = leads_others and not run.ends_within(_OTHERS_LIMIT_S)
            if not stays:
                run.end_supervisor(_END_LIMIT_S)
        if not stays:
            run.remove()
    if before is not None:
        runs.set_current(talk.root, spec["cluster"], spec["host"], before)
    with suppress(OSError):  # as it was before, as far as it was empty then
        down.clear_working_directory(talk, spec["cluster"])
