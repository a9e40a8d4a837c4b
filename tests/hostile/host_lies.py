"""False answers of a host: one line each. Standard library only, as the liar runs on hosts.

Each makes, from the answer of a genuine host, the bytes that are sent in its place; None is endless silence.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from dtctl.agent.records.reasons import said
from tests.hostile.saying import (
    MANY,
    START,
    Change,
    Chunks,
    Fields,
    Lie,
    after,
    before,
    forever,
    instead,
    line,
    of_size,
    once,
    only,
    payload,
    put,
    replaced,
    reported,
    told_many,
    values,
    within,
    without,
)

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x1b]52;c;ZXZpbA==\x07\x1bP+q\x1b\\\x9b31m\x9d0;x\x9c\r\x08\x00\x7f"
FREE = ("reason", "summary", "detail", "hint", "by", "problem", "command", "text", "prefix", "dir", "tail", "missing",
        "deaf", "reboot_why", "reboot_unsure", "error", "python", "hostname", "user", "home", "root", "path",
        "phase", "from", "to", "function", "wchan", "said", "version", "libc", "program", "at", "digest")  # fmt: skip
"""Fields of any text; others have a form."""


def escaped(fields: Fields) -> None:
    for name, value in fields.items():
        if name in FREE and isinstance(value, str):
            fields[name] = value + ESCAPES
        elif isinstance(value, dict):
            escaped(value)
        elif name in ("warnings", "bundles", "problems") or (name == "files" and isinstance(value, list)):
            fields[name] = [ESCAPES, *value]
        elif isinstance(value, list):
            for one in value:
                if isinstance(one, dict):
                    escaped(one)


RESULTS = "* result"
RUNS_OF = "status result, stop result, restart result, drain result, undrain result"
"""Answers that report a run with its inventory."""
BAIT = 2
"""A port that nothing has a reason to dial."""

PATH = "../../victim"
NOWHERE = "elsewhere"
FOREIGN = {"task": "ps:7", "host": "b", "address": "192.0.2.66"}


FOREIGN_LOOK = {"path": "/" + ESCAPES, "seen": ["evil"]}


FOREIGN_BOUND = [{"whose": "worker:7", "port": 22, "state": "bound"}, {"whose": "ps:0", "port": 22, "state": "live"}]
FOREIGN_REACHED = [{"whose": "ps:7", "host": "b", "place": "192.0.2.66", "problem": "timeout"}]


def other_run(frame: Fields) -> None:
    frame.update(replaced(frame, lambda value: "demo-2" if value == "demo-1" else value))


def dial(frame: Fields) -> None:
    """An inventory of an older version, which contained the settings for reaching hosts."""
    ssh = {"target": "127.0.0.1", "port": BAIT, "user": "root", "host_keys": "accept-new", "known_hosts": "~/.bashrc"}
    hosts = [
        {"name": name, "ssh": {**ssh, "jump": f"127.0.0.1:{BAIT}"}, "address": None} for name in ("a", "b", "evil")
    ]
    for place in (frame, frame.get("inventory") or {}):
        place.update(hosts=hosts, file="/nowhere/passwd", transport="ssh", others=hosts)


def dial_here(frame: Fields) -> None:
    """The same with agents on the controller itself."""
    hosts = [{"name": name, "ssh": None, "address": None} for name in ("a", "b", "evil")]
    for place in (frame, frame.get("inventory") or {}):
        place.update(hosts=hosts, local=True, is_local=True)


def moved_to(host: str) -> Change:
    """The run and its coordinator have moved there."""

    def change(frame: Fields) -> None:
        for member in (frame.get("inventory") or {}).get("roster", []):
            member["host"] = host

    return change


def inventory(**fields: Any) -> Change:
    return lambda frame: frame["inventory"].update(fields) if frame.get("inventory") else None


def view(**fields: Any) -> Change:
    return lambda frame: frame["coordination"].update(fields) if frame.get("coordination") else None


def entry(**fields: Any) -> Change:
    def change(frame: Fields) -> None:
        states = [frame.get("state"), *((frame.get("coordination") or {}).get("hosts") or {}).values()]
        for state in filter(None, states):
            for one in (state.get("state") or state)["tasks"].values():
                one.update(fields)
        for one in frame["tasks"].values() if frame["type"] == "started" else ():
            one.update(fields)

    return change


def gpus(*each: Fields | str, problem: str = "") -> Change:
    """The GPUs in the host's sample, in its state and in the coordinator's view."""

    def change(frame: Fields) -> None:
        held = [frame.get("state"), *((frame.get("coordination") or {}).get("hosts") or {}).values()]
        for state in filter(None, held):
            sample = {"time": 2000.0, "cpus": 1, "load": 0, "memory_bytes": 9, "available_bytes": 9, "waiting": {}}
            sample["gpus"] = {"each": [*each], "problem": problem, "text": ESCAPES}
            (state.get("state") or state)["machine"] = sample

    return change


FOREIGN_USER = {"pid": 1, "name": ESCAPES[:99], "user": ESCAPES[:99], "run": "demo-2", "task": "ps:7"}
FOREIGN_GPU = {"index": 0, "name": ESCAPES, "driver": ESCAPES[:99], "given": ["worker:1", "ps:7"], "xid": 79}
STATES = "status result, states, started, stop result"
VIEWS = "status result, states, stop result"
BEAT = line(type="beat", at="bundle", for_s=1e9)
PROGRESS = line(type="progress", phase="setup", text="still at it\n")
LOG = {"type": "log", "attempt": 1, "offset": 0, "end": 9, "time": 1.0}
EVENT = {"type": "event", "n": 0, "time": 1.0, "kind": "task", "host": "b", "task": "worker:1", "why": said("lie")}
DUMP = {"type": "dump", "task": "worker:1", "attempt": 1, "state": "running", "processes": []}
PROFILE = {"type": "profile", "task": "worker:1", "attempt": 1, "state": "running"}
METRICS = "points, metrics result"
DOORS = "prepared, need, log, event, points, part, output, states, dump, profile, tensorboard_ready, " + RESULTS
"""Points at which a conversation may stop."""


def _drops() -> Iterator[bytes]:
    while True:
        yield b"x"
        time.sleep(0.1)


def _gone() -> Chunks:
    raise OSError("it hangs up")


LIES: dict[str, Lie] = {
    # the identity
    "a greeting of another protocol": reported("greeting", put(protocol=99)),
    "a greeting without a protocol": reported("greeting", without("protocol")),
    "a greeting of other kinds": values("greeting", lambda value: [] if isinstance(value, int | float) else value),
    "a greeting that is a result": reported("greeting", put(type="result")),
    "a greeting with escapes": reported("greeting", escaped),
    "a greeting twice": after("greeting", once(line(type="greeting", protocol=2))),
    "noise without end before the greeting": instead("greeting", forever(b"Welcome to Ubuntu!\n" * 500)),
    "no start before the greeting": instead("greeting", once(b'{"type":"greeting"}\n', None)),
    "silence in place of the greeting": instead("greeting", once(None)),
    "silence after the greeting": instead("*", once(None)),
    "an error in place of the greeting": instead("greeting", once(START + line(type="error", code="x", summary="x"))),
    # the routes to the run's hosts
    "an inventory that says how hosts are reached": reported(RUNS_OF, dial),
    "an inventory of agents on the controller": reported(RUNS_OF, dial_here),
    "a roster with a host of its own": reported(RUNS_OF, moved_to("evil")),
    "a roster with all on the liar and none elsewhere": reported(RUNS_OF, moved_to("a")),
    "a roster with all on the other host": reported(RUNS_OF, moved_to("b")),
    "a roster on the spare": reported(RUNS_OF, moved_to("c")),
    "a roster on a path": reported(RUNS_OF, moved_to(PATH)),
    "a roster on an option of ssh": reported(RUNS_OF, moved_to("-oProxyCommand=touch${IFS}hit")),
    "a roster of a foreign task": reported(RUNS_OF, within("inventory.roster", [FOREIGN])),
    "a roster with a task twice": reported(RUNS_OF, within("inventory.roster", [FOREIGN, FOREIGN])),
    "a roster of nothing": reported(RUNS_OF, inventory(roster=[])),
    "a roster of a million": told_many(RUNS_OF, inventory(roster=[MANY]), lambda: [FOREIGN] * 300_000),
    "a lead that is nobody": reported(RUNS_OF, inventory(lead="ps:9")),
    "a place taken by a path": reported(RUNS_OF, inventory(replaced={"a": PATH})),
    "a place taken by the liar": reported(RUNS_OF, inventory(replaced={"b": "a", "c": "a"})),
    "no inventory": reported(RUNS_OF, put(inventory=None)),
    # the run
    "a run that is a path": reported("*", put(run=PATH)),
    "a run that is absolute": reported("*", put(run="/nowhere/passwd")),
    "a run of another cluster": reported("*", put(run="other-1")),
    "another run of the cluster": reported("*", put(run="demo-2")),
    "another run, in every field": reported("*", other_run),
    "a run from the future": reported(RUNS_OF, inventory(created=9e11)),
    "a run from before all times": reported(RUNS_OF, inventory(created=-1)),
    "a run that is null": reported("*", put(run=None)),
    "an inventory of another cluster": reported(RUNS_OF, inventory(cluster="other")),
    "runs that are paths": reported("runs result", within("runs.0.run", PATH)),
    "runs of another host": reported("runs result", within("runs.0.host", "b")),
    "a damaged run that is a path": reported(
        "runs result", put(damaged=[{"run": PATH, "host": "a", "cluster": None, "problem": ESCAPES}])
    ),
    "a removed run that is a path": reported("down result", put(removed=[PATH])),
    "a removed run of everybody": reported("down result", put(removed=["demo-1", "demo-0", "other-1", "victim"])),
    "an awaited run that is a path": reported("down result", put(awaits={PATH: ["z"]})),
    "an awaited run of another cluster": reported("down result", put(awaits={"other-1": ["z"]})),
    "an awaited host that has answered": reported("down result", put(awaits={"demo-1": ["b", "a"]})),
    "an open run of another cluster": reported(
        "prepared", put(left_open={"run": "other-1", "hosts": ["z"], "wait_s": 5})
    ),
    "an open run that takes for ever": reported(
        "prepared", put(left_open={"run": "demo-0", "hosts": ["z"], "wait_s": 1e9})
    ),
    "a run to be replaced that is a path": reported("prepared", put(replaces=PATH, current=PATH)),
    "a run to be replaced of another cluster": reported("prepared", put(replaces="other-1")),
    "a run that goes on unchanged": reported("prepared", put(unchanged=True, run="demo-9", current="demo-9")),
    # the owner of tasks
    "a state of another host": reported(STATES, within("state.host", NOWHERE)),
    "a state of a foreign task": reported(STATES, within("state.tasks.ps:7", {"state": "failed"})),
    "a state without its tasks": reported(STATES, within("state.tasks", {})),
    "tasks that were started and are others": reported("started", put(tasks={"ps:7": {}})),
    "a view of a foreign host": reported(VIEWS, within("coordination.hosts.evil", {"connected": True})),
    "a view of foreign tasks": reported(VIEWS, view(intents={"ps:7": {"want": "stop"}})),
    "a view caused by a foreign task": reported(VIEWS, within("coordination.condition.cause", "ps:7")),
    "a view of foreign incidents": reported(VIEWS, within("coordination.incidents.0.tasks", ["ps:7"])),
    "a view from whoever does not coordinate": reported(
        VIEWS, lambda frame: frame.update(coordination={"run": "demo-1"})
    ),
    "survivors of a foreign task": reported(
        "stop result, down result, drain result", put(survivors=[{"task": "ps:7", "pid": 1, "command": "init"}])
    ),
    "survivors of nobody": reported("stop result, down result", put(survivors=[{"pid": 1, "command": ESCAPES}])),
    "survivors without end": reported(
        "stop result, down result", put(survivors=[{"pid": 1, "command": "x" * 4000}] * 5000)
    ),
    "hosts that are away and foreign": reported(
        "stop result, restart result, drain result, undrain result", put(unreached=["evil", "b"])
    ),
    "tasks stopped that are foreign": reported("stop result, down result, drain result", put(stopped=["ps:7"])),
    "tasks restarted that are foreign": reported("restart result, undrain result", put(tasks={"ps:7": {}})),
    # the kinds of values
    "texts that are numbers": values("*", only(str, 7)),
    "numbers that are texts": values("*", lambda value: "7" if type(value) in (int, float) else value),
    "numbers below zero": values("*", only(int, -1)),
    "numbers without end": values("*", lambda value: 10**18 if type(value) in (int, float) else value),
    "times at the end of all times": values("*", only(float, 1e12)),
    "true in place of numbers": values("*", only(int, True)),
    "lists that are objects": values("*", only(list, {})),
    "objects that are lists": values("*", only(dict, [])),
    "nothing at all": values("*", lambda value: None),
    "texts of a megabyte": values("*", lambda value: value + "x" * 500_000 if value == "demo" else value),
    "frames without any field": reported(
        "*", lambda frame: [frame.pop(name) for name in list(frame) if name != "type"]
    ),
    "states of a kind of their own": reported(STATES, entry(state="exploded")),
    "steps and attempts out of range": reported(STATES, entry(step=2**53, attempt=2**53, restarts=2**53)),
    "exit codes out of range": reported("exec result", put(exit_code=100_000, signal=4000)),
    "exit codes that are none": reported("exec result", put(exit_code=None, signal=None)),
    "GPUs of escapes that foreign tasks use": reported(STATES, gpus({**FOREIGN_GPU, "users": [FOREIGN_USER] * 9})),
    "a driver that says escapes": reported(STATES, gpus(problem="error")),
    "GPUs that are busier than can be": reported(STATES, gpus({"index": 0, "busy": 7.0})),
    "a GPU that is held back by words of its own": reported(STATES, gpus({"index": 0, "throttled": [ESCAPES]})),
    "a million GPUs": told_many(STATES, gpus(MANY), lambda: ({"index": n} for n in range(1_000_000))),
    "GPUs that runs of nowhere have taken": reported(
        "check result", within("facts.machine.gpus_taken", [{"gpu": 0, "cluster": ESCAPES, "run": PATH, "task": "x"}])
    ),
    "an exit that is text": reported(STATES, entry(exit="boom")),
    "a phase and an outcome of its own": reported(VIEWS, view(phase="partying")),
    "checkpoints without end": reported(
        "status result, prepared",
        put(checkpoints=[{"dir": "/x", "newest_complete": None, "incomplete": [], "all": []}] * 5000),
    ),
    "checkpoints of the future": reported(
        "status result, prepared", within("checkpoints.0.newest_complete.time", 1e12)
    ),
    "checkpoints at a server of this machine": reported(
        "status result, prepared", within("checkpoints.0.dir", "webhdfs://127.0.0.1:9870/x")
    ),
    "checkpoints that are paths": reported("status result", within("checkpoints.0.newest_complete.prefix", PATH)),
    "a checkpoint of another": reported("verify result", within("verified.0.prefix", PATH)),
    "files that are paths": reported("part", put(name=PATH)),
    "files of another checkpoint": reported("part", put(name="checkpoint")),
    "a shard that another was asked for": reported("part", put(name="model.ckpt-1000.data-00001-of-00002")),
    "a file that fits on no disk": reported("part", put(total=1 << 60)),
    "files that begin in the middle": reported("part", put(offset=1 << 40)),
    "files that are not what was sent": reported("fetch result", within("files.0.sha256", "0" * 64)),
    "files without end": before("fetch result", forever(b"x" * 65536)),
    "files that had come before": reported("landing", put(have=[{"name": PATH, "size": 8}])),
    "files that had come, and more": reported("landing", put(have=[{"name": "model.ckpt-100.index", "size": 2**40}])),
    "a place of its own": reported("store result", put(dir=ESCAPES, prefix=PATH)),
    "only half of a checkpoint": reported("fetch result", put(files=[])),
    "removed where nobody asked": reported("prune result", within("directories.0.dir", PATH)),
    "a cleaning that was not asked for": reported(
        "gc result", lambda frame: frame.update(dry_run=not frame["dry_run"])
    ),
    "code of another bundle": reported("code result", put(bundle="0" * 64)),
    "code beyond the manifest": reported("code_part", put(file=7)),
    "code that lands elsewhere": payload(
        "code_part",
        b'{"dirs":[],"files":[["../../evil.py",420,1,"%s"]],"links":[],"version":1}' % (b"0" * 64),
    ),
    "bundles that are paths": reported("gc result", put(bundles=[PATH, ESCAPES], files=["/" + ESCAPES])),
    # unrequested frames
    "a frame of no type": instead("*", once(b"{}\n")),
    "a frame of its own type": before("*", once(line(type="shutdown"))),
    "a type that is a list": before("*", once(line(type=["result"]))),
    "a result twice": after(RESULTS, once(line(type="result", run="demo-1"))),
    "a result before all else": before("*", once(line(type="result", run="demo-1", exit_code=0, signal=None))),
    "output after the result": after("exec result", forever(line(type="output", stream=1, bytes=2) + b"x\n")),
    "output on a stream of its own": reported("output", put(stream=7)),
    "logs of a foreign task": reported("log", put(task="ps:7")),
    "logs whose offsets run backwards": reported("log", put(offset=10**9, end=3, attempt=10**9)),
    "logs of a line of ten megabytes": payload("log", b"x" * (4 << 20) + ESCAPES.encode(), 3),
    "logs of gigabytes": payload("log", b"a line of a log\n" * 65536, 4000),
    "logs of bytes that are no text": payload("log", bytes(range(256)) * 40 + b"\n"),
    "logs with escapes": payload("log, output", f"{ESCAPES}\n{ESCAPES}".encode()),
    "events of a kind of their own": reported("event", put(kind="party", task="ps:7")),
    "events of foreign hosts": reported("event", put(host="evil", task="ps:7")),
    "events whose numbers run backwards": after("event", lambda: [line(**{**EVENT, "n": n}) for n in range(9, 0, -1)]),
    "events without end": before("event", forever(line(**EVENT) * 100)),
    "a diagnosis of another run": reported("diagnose result", put(run="demo-2")),
    "a diagnosis of foreign tasks": reported("diagnose result", put(tasks={"ps:7": {"frozen": True}})),
    "a disk of escapes": reported("diagnose result", within("disks.0.path", ESCAPES)),
    "a machine beyond all": reported("diagnose result", within("machine.load", 1e9)),
    "a machine without memory": reported("diagnose result", within("machine.memory_bytes", 0)),
    "facts that were not asked for": reported("check result", within("facts.machine", None)),
    "disks of escapes": reported("check result", within("facts.machine.disks.0.path", ESCAPES)),
    "no Python at all": reported("check result", within("facts.software.pythons", [])),
    "packages of escapes": reported(
        "check result", within("facts.software.pythons.0.packages", {ESCAPES[:50]: ESCAPES})
    ),
    "a million modules": reported("check result", within("facts.software.pythons.0.missing", ["x"] * 1_000_000)),
    "what another host has written": reported("check result", within("facts.storage.looked", [FOREIGN_LOOK])),
    "ports of tasks that others have": reported("check result", within("facts.network.bound", FOREIGN_BOUND)),
    "connections that were not requested": reported("check result", within("facts.network.reached", FOREIGN_REACHED)),
    "a look around without facts": reported("looked", put(facts=None)),
    "a look at what nobody asked for": reported("looked", within("facts.network.reached", FOREIGN_REACHED)),
    "a look that takes for ever": reported("looked", put(facts_s=1e9)),
    "addresses of escapes": reported("check result", within("facts.network.resolved.0.addresses", [ESCAPES[:99]])),
    "proxies of escapes": reported("check result", within("facts.network.proxies", {"http_proxy": ESCAPES})),
    "a shell of escapes": reported(
        "check result", within("facts.ssh", {"shell": ESCAPES, "noise": ESCAPES, "noise_bytes": 9})
    ),
    "a clock of no time": reported("check result", put(time=1e12)),
    "points without end": before("points", forever(line(type="points", run="demo-1", folders=[]) * 100)),
    "points of another run": reported("points, metrics result", put(run="demo-2")),
    "points of no length": reported(METRICS, within("folders.0.series.0.values", ["0.5"])),
    "values that are formulas": reported(METRICS, within("folders.0.series.0.values", ["=1+1", "0.5"])),
    "values beyond all": reported(METRICS, within("folders.0.series.0.values", ["1e308", "-1e308"])),
    "values that are no numbers": reported(METRICS, within("folders.0.series.0.values", ["nan", "-inf"])),
    "steps that run backwards": reported(METRICS, within("folders.0.series.0.steps", [2**53, 0])),
    "a tag of escapes": reported(METRICS, within("folders.0.series.0.tag", ESCAPES)),
    "a tag that is a formula": reported(METRICS, within("folders.0.series.0.tag", "=cmd|' /C calc'!A0")),
    "the directory of another host": reported(METRICS, within("folders.0.dir", f"/data as seen on host {NOWHERE}")),
    "stacks of a foreign task": reported("dump", put(task="ps:7")),
    "stacks without end": before("dump", forever(line(**DUMP) * 100)),
    "a process of no number": reported("dump", within("processes.0.pid", 0)),
    "a thread that is a path": reported("dump", within("processes.0.stacks.0.thread", PATH)),
    "observation of a foreign task": reported("profiling", put(tasks=["ps:7"])),
    "the profile of a foreign task": reported("profile", put(task="ps:7")),
    "a profile of another request": reported("profile", within("file.path", "/data/1999_01_01_00_00_00/a.xplane.pb")),
    "a profile that is another file": reported("profile", within("file.path", "/etc/passwd")),
    "a profile of no size": reported("profile", within("file.size_bytes", -1)),
    "more stacks than samples": reported("profile", put(samples=1)),
    "samples without a source": reported("profile", put(way=None)),
    "samples of no number": reported("profile", within("stacks.0.samples", 0)),
    "a call of escapes": reported("profile", within("stacks.0.frames.0.function", ESCAPES[:199])),
    "a program of escapes": reported("profile", put(command=ESCAPES)),
    "profiles without end": before("profile", forever(line(**PROFILE) * 100)),
    "measurements of a foreign task": reported("speed result", within("minutes.0.flows.0.task", "ps:7")),
    "traffic with a task of no run": reported("speed result", within("minutes.0.flows.0.peer", "worker:99")),
    "traffic with a host of no run": reported("speed result", within("whole.flows.0.host", NOWHERE)),
    "a minute of no time": reported("speed result", within("minutes.0.seconds", 0)),
    "a host of no processors": reported("speed result", within("minutes.0.cpus", 0)),
    "traffic beyond all": reported("speed result", within("minutes.0.flows.0.sent_bytes", 1e300)),
    "an interface of escapes": reported("speed result", within("minutes.0.interfaces", {ESCAPES: {}})),
    "a variable of escapes": reported("speed result", within("parameters.largest.0.name", ESCAPES)),
    "shards without bytes": reported("speed result", within("parameters.shards", [])),
    "a checkpoint of no time": reported("speed result", within("saves", [{"size_bytes": 1}])),
    "a strategy of escapes": reported("speed result", within("strategy", ESCAPES)),
    "event files of nowhere": reported("event_dirs result", put(folders=[], dirs=[])),
    "no TensorBoard anywhere": reported("event_dirs result", put(tensorboard=None, tried=[ESCAPES])),
    "bytes of a connection that nobody opened": after(
        "tensorboard_ready", once(line(type="piece", channel=7, bytes=1) + b"x")
    ),
    "the end of a connection that nobody opened": after("tensorboard_ready", once(line(type="closed", channel=0))),
    "bytes of a connection before there is a server": before(
        "tensorboard_ready", forever(line(type="piece", channel=0, bytes=65536) + b"x" * 65536)
    ),
    "a server that listens again and again": before(
        "tensorboard_ready", forever(line(type="tensorboard_ready", dirs=[], python="x") * 10)
    ),
    "event files below a directory of the longest name": reported("event_file", put(dir="/" + "x" * 255)),
    "event files below half a character": reported("event_file", put(name="\ud800")),
    "event files named by half a character": reported("event_file", put(file="tfevents\ud800")),
    "event files that lead elsewhere": reported("event_file", put(name=PATH)),
    "event files that begin in the middle": reported("event_file", put(offset=1 << 40)),
    "event files without end": before("caught_up", forever(line(type="caught_up", files=1) * 100)),
    "an event of the last number": reported("event", put(n=2**53)),
    "states without end": before("states", forever(line(type="states", run="demo-1") * 100)),
    "beats for ever": before(DOORS, forever(BEAT * 10)),
    "progress for ever": before("prepared, push result", forever(PROGRESS * 10)),
    "progress of escapes": before("prepared, push result", once(line(type="progress", phase=ESCAPES, text=ESCAPES))),
    "progress of four thousand megabytes": before(
        "prepared, push result", once(line(type="progress", phase="send", done_bytes=2**53, total_bytes=1))
    ),
    "a manifest that is refused for ever": instead("need", forever(line(type="need", manifest=True, files=[]))),
    "a need of a file that is not there": reported("need", put(files=[10**9])),
    "a need of a file below zero": reported("need", put(files=[-1])),
    "a need of one file a thousand times": reported("need", put(files=[0] * 1000)),
    "a need of ten million files": instead("need", of_size(b'{"type":"need","files":[0', b",0", 12 << 20, b"]}\n")),
    # errors
    "an error of escapes": instead("*", once(line(type="error", code=ESCAPES, summary=ESCAPES, detail=ESCAPES))),
    "an error of megabytes": instead("*", once(line(type="error", code="x", summary="x" * (8 << 20)))),
    "an error of sixty thousand lines": instead(
        "*", once(line(type="error", code="x", summary="x", detail="\n" * 60000))
    ),
    "an error of an unknown code": instead("*", once(line(type="error", code="party", summary="x", hint="rm -rf ~"))),
    "an error of no code": instead("*", once(line(type="error", summary=7))),
    "an error that the run is not there": instead("*", once(line(type="error", code="no_run", summary="no run"))),
    "an error that it does not coordinate": instead(
        "*", once(line(type="error", code="not_coordinator", summary="not here"))
    ),
    "an error that all was rolled back": instead("*", once(line(type="error", code="rolled_back", summary="gone"))),
    # bytes that are not frames
    "a line of sixty megabytes": instead("*", of_size(b'{"type":"result","x":"', b"x", 60 << 20, b'"}\n')),
    "a line one byte below the limit": instead(
        "*", of_size(b'{"type":"result","x":"', b"x", (16 << 20) - 65536, b'"}\n')
    ),
    "a line of a million empty objects": instead("*", of_size(b'{"type":"result","x":[{}', b",{}", 15 << 20, b"]}\n")),
    "a line of a million empty names": instead("*", of_size(b'{"type":"result","x":[[]', b",[]", 15 << 20, b"]}\n")),
    "a line without an end": instead("*", forever(b"x" * 65536)),
    "brackets without end": instead("*", once(b'{"type":"result","x":' + b"[" * 900_000 + b"\n")),
    "a number of a million digits": instead("*", once(b'{"type":"result","run":' + b"9" * 1_000_000 + b"}\n")),
    "a number that is none": instead("*", once(b'{"type":"result","time":NaN}\n')),
    "a number beyond all": instead("*", once(b'{"type":"result","time":1e999}\n')),
    "half a character": instead("*", once(b'{"type":"result","run":"\\ud800"}\n')),
    "texts of half characters": reported(
        "*", lambda frame: frame.update(why=said("\ud800"), summary="\udfff", problem="\ud9ff")
    ),
    "bytes that are no UTF-8": instead("*", once(b'{"type":"result","run":"\xff\xfe"}\n')),
    "no JSON": instead("*", once(b"HTTP/1.1 200 OK\r\n\r\n")),
    "a payload that never comes": instead("*", once(line(type="log", bytes=4096), None)),
    "a payload of a terabyte": reported("*", put(bytes=1 << 40)),
    "a payload below zero": reported("*", put(bytes=-1)),
    "a payload where none belongs": payload("greeting, " + DOORS, ESCAPES.encode()),
    "half a frame and then silence": Lie("*", lambda said: [said.encoded()[:20], None]),
    "a byte now and then": Lie("*", lambda said: _drops()),
    "silence before the end": before(RESULTS, once(None)),
    "an end in the middle": instead(DOORS, _gone),
    # texts
    "escapes in every text": reported("*", escaped),
    "texts as long as they may be": values("*", lambda value: value * 400 if value == "exit code 0" else value),
}
