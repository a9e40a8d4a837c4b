"""A host of its own for a test: an agent's root in a directory, spoken to through the real loader over pipes."""

from __future__ import annotations

import dataclasses
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

from dtctl.agent.host import wake
from dtctl.agent.records.kinds import checked, made
from dtctl.agent.records.spec import VERSION, Spec
from dtctl.agent.rooms import EXCHANGES, FRAMES, load
from dtctl.agent.run import intents
from dtctl.agent.run.runfiles import RunFiles
from dtctl.operations.credentials import Authority
from dtctl.transport.payload import LOADER, agent_program, opening, whole
from tests.hosts.once import once
from tests.hosts.processes import command, marked
from tests.waiting import PATIENCE_S, eventually

Fields = dict[str, Any]


class Ended(Exception):
    """The agent has closed the conversation."""


class AgentRefused(Exception):
    """An error frame; `frame` is all of it."""

    def __init__(self, frame: Fields) -> None:
        super().__init__(f"{frame['code']}: {frame['summary']} {frame['detail']}")
        self.frame = frame
        self.code = frame["code"]


class Conversation:
    """The controller's side of one session process."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self.process = process
        self._to, self._from = process.stdin, process.stdout
        self.noise = b""
        self._asked = ""
        self._to.write(opening())
        self._to.flush()
        while (byte := self._from.read(1)) != b"\x1e":
            if not byte:
                raise Ended(self.noise)
            self.noise += byte
        self.greeting = self.receive()
        self.lacked = self.greeting["type"] == "lacking"
        """Whether the program had to be sent."""
        if self.lacked:
            self.write(whole())
            self.greeting = self.receive()

    def send(self, type_: str, payload: bytes = b"", **fields: Any) -> None:
        fields["type"] = type_
        if type_ in EXCHANGES:
            self._asked = type_
        if payload:
            fields["bytes"] = len(payload)
        self.write(json.dumps(fields).encode() + b"\n" + payload)

    def write(self, data: bytes) -> None:
        self._to.write(data)
        self._to.flush()

    def receive(self) -> Fields:
        line = self._from.readline()
        if not line:
            raise Ended
        frame: Fields = json.loads(line)
        self._hold(frame)
        frame["payload"] = self._from.read(frame.get("bytes", 0))
        if frame["type"] == "error":
            raise AgentRefused(frame)
        return frame

    def _hold(self, frame: Fields) -> None:
        """Whatever an agent says in whatever test is what its records say, and nothing else."""
        own = frame["type"] == "result"
        record: Any = load(EXCHANGES[self._asked].result if own else FRAMES[frame["type"]])
        assert frame.keys() - {"type", "bytes"} <= checked(record, frame).keys(), frame

    def await_type(self, type_: str) -> Fields:
        """The next frame of a type; progress on the way is passed over."""
        while (frame := self.receive())["type"] != type_:
            assert frame["type"] in ("progress", "output", "states", "stopping", "beat"), frame
        return frame

    def ask(self, type_: str, **fields: Any) -> Fields:
        self.send(type_, **fields)
        return self.await_type("result")

    def start(self) -> Fields:
        """The words that follow `prepared`, to the end of `up`; what was started."""
        self.send("start")
        started = self.await_type("started")
        self.send("keep")
        self.await_type("result")
        return started

    def close(self) -> None:
        """As when the SSH connection is lost."""
        self.hang_up()
        self.process.wait(PATIENCE_S)

    def hang_up(self) -> None:
        """Both pipes end."""
        for stream in (self._to, self._from):
            with suppress(BrokenPipeError):
                stream.close()

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


COMPILE_ALL = """
import runpy, sys
runpy.run_path(sys.argv[1] + "/__main__.py")["imports"](sys.argv[1])
import dtctl_agent
modules = dtctl_agent.__loader__
for name in modules._index:
    modules.get_code(name)
modules.save()
"""


@cache
def compiled_program(python: str) -> Path:
    """The directory of programs after a first session of this Python, all compiled, so that not every host does it."""
    return once(f"program{python.replace('/', '-')}", partial(_compile, python)) / "agent"


def _compile(python: str, directory: Path) -> None:
    directory.mkdir(mode=0o700)
    env = {"PATH": "/usr/bin:/bin", "HOME": str(directory), "DTCTL_ROOT": str(directory)}
    command = [python, *shlex.split(LOADER)[1:]]
    subprocess.run(command, input=opening() + whole(), stdout=subprocess.DEVNULL, env=env, check=True)
    program = directory / "agent" / agent_program().sha256
    subprocess.run([python, "-ISc", COMPILE_ALL, program], env=env, check=True)


class AgentHost:
    """`name` in the inventory, for cluster `c`; `env` is what sshd would give to the session."""

    def __init__(
        self, directory: Path, python: str, name: str = "h1", root: Path | None = None, *, is_new: bool = False
    ) -> None:
        self.directory = directory
        self.name = name
        self.root = root or directory / "root"
        self._python = python
        self._is_new = is_new
        """The first session has to be sent the agent's program, and compiles it."""
        self.home = directory / "home"
        self.mark = f"TEST_MARK={uuid.uuid4().hex}"
        self._open: list[Conversation] = []
        binaries = directory / "bin"
        for place in (directory, self.home, binaries):
            place.mkdir(exist_ok=True)
        wrapper = binaries / "python3"
        wrapper.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        wrapper.chmod(0o755)
        name_, _, value = self.mark.partition("=")
        self.env = {"PATH": f"{binaries}:/usr/bin:/bin", "HOME": str(self.home), "DTCTL_ROOT": str(self.root)}
        self.env[name_] = value

    def open(self, **env: str) -> Conversation:
        if not self._is_new and not os.path.lexists(self.root):
            self.root.mkdir(mode=0o700)
            shutil.copytree(compiled_program(self._python), self.root / "agent")
        process = subprocess.Popen(
            ["/bin/sh", "-c", LOADER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**self.env, **env},
            start_new_session=True,
        )
        try:
            conversation = Conversation(process)
        except BaseException:
            for stream in (process.stdin, process.stdout):
                assert stream
                stream.close()
            process.wait(PATIENCE_S)
            raise
        self._open.append(conversation)
        return conversation

    def ask(self, type_: str, **fields: Any) -> Fields:
        """One request in a conversation of its own, about this host and cluster c unless said otherwise."""
        with self.open() as talk:
            return talk.ask(type_, **self.about(fields))

    def about(self, fields: Mapping[str, Any]) -> Fields:
        return {"cluster": "c", "host": self.name, "run": None, **fields}

    def spec(self, *tasks: Fields, **fields: Any) -> Fields:
        """A run on this host alone, which it coordinates: it ends when all its tasks have, or one has failed."""
        run = fields.get("run") or f"r-{uuid.uuid4().hex[:8]}"
        spec = {
            "version": VERSION,
            "run": run,
            "cluster": "c",
            "host": self.name,
            "digest": run,
            "created": time.time(),
            "controller": "ada@laptop",
            "coordinator": {"host": self.name, "address": "127.0.0.1:2221", "port": 2221},
            "lead": tasks[0]["id"] if tasks else "worker:0",
            "roster": [{"task": each["id"], "host": self.name, "decides": True} for each in tasks],
            "tasks": list(tasks),
            "recovery": {"max_restarts": 0, "backoff_min_s": 0.05, "backoff_max_s": 1.0, "reset_after_s": 600},
            "grace_s": 10,
        }
        return {**made(Spec, **{**spec, **fields})}

    def decided_by(self, lead: str, *tasks: Fields) -> Fields:
        """Fields of a spec: what becomes of other tasks than `lead` is nothing to the run."""
        own = {each["id"]: each["id"] == lead for each in tasks}
        roster = [{"task": each, "host": self.name, "decides": leads, "vital": leads} for each, leads in own.items()]
        return {"lead": lead, "roster": roster}

    def led_from_elsewhere(self, *tasks: Fields, **fields: Any) -> Fields:
        """A spec of tasks whose coordinator nobody reaches: a test says by `want` what it would order."""
        roster = [{"task": each["id"], "host": self.name} for each in tasks]
        lead = {"task": "chief:0", "host": "elsewhere", "decides": True}
        place = {"host": "elsewhere", "address": "127.0.0.1:1", "port": 1}
        return self.spec(*tasks, **{"coordinator": place, "lead": "chief:0", "roster": [*roster, lead], **fields})

    def up_by_order(self, spec: Fields) -> Fields:
        """`up` of a run that is led from elsewhere; version 2 of the intents lets its tasks run."""
        credentials = dataclasses.asdict(Authority(spec["run"]).issue(self.name, coordinates=False))
        with self.open() as talk:
            self.prepare(talk, spec, credentials=credentials)
            talk.send("start")
            talk.await_type("started")
            self.want(spec, *(each["id"] for each in spec["tasks"]), want="run")
            talk.send("keep")
            talk.await_type("result")
        return self.begun(spec)

    def prepare(self, talk: Conversation, spec: Fields, **fields: Any) -> Fields:
        request = {"cluster": spec["cluster"], "host": spec["host"], "run": None, "bundle": spec["bundle"], **fields}
        talk.send("up", **{"secrets": {}, "replace": False, **request, "spec": spec})
        return talk.await_type("prepared")

    def up(self, spec: Fields, **fields: Any) -> Fields:
        """The whole of `up`; the state once all has begun."""
        with self.open() as talk:
            self.prepare(talk, spec, **fields)
            talk.start()
        return self.begun(spec)

    def started(self, *tasks: Fields, **fields: Any) -> Fields:
        """The spec of a run on this host alone whose tasks have begun."""
        spec = self.spec(*tasks, **fields)
        self.up(spec)
        return spec

    def running(self, first: Fields, *others: Fields, **fields: Any) -> tuple[Fields, int]:
        """As `started`, with the pid of the first task."""
        spec = self.spec(first, *others, **fields)
        return spec, int(self.up(spec)["tasks"][first["id"]]["pid"])

    def finished(self, *tasks: Fields, **fields: Any) -> Fields:
        """The spec of a run that has ended, all its processes too."""
        spec = self.started(*tasks, **fields)
        eventually(lambda: self.state(spec)["finished"])
        eventually(lambda: not self.processes(), what=f"the end of {self.remains()}")
        return spec

    def begun(self, spec: Fields) -> Fields:
        """The state once every task has begun, and is ready if others need it, or one has failed."""

        def state() -> Fields | None:
            found = self.state(spec)
            return found if has_begun(found, spec) else None

        return eventually(state, what="the start of the tasks") or {}

    def want(self, spec: Fields, *tasks: str, **fields: Any) -> None:
        """Changes what is wanted of these tasks, as a session or an order of the coordinator does."""
        files = RunFiles(str(self.run_directory(spec)))
        with files.intent_lock():
            intent = files.intent()
            for each in tasks:
                intents.change(intent["tasks"][each], **fields)
            intent["serial"] += 1
            files.write_intent(intent)
        wake.ring(files.wake_path)

    # what is on the disk

    def run_directory(self, spec: Fields) -> Path:
        return self.root / "runs" / str(spec["run"]) / str(spec["host"])

    def state(self, spec: Fields) -> Fields:
        state: Fields = json.loads((self.run_directory(spec) / "state.json").read_text())
        return state

    def attempt(self, spec: Fields, task: str, number: int = 1) -> Path:
        return self.run_directory(spec) / "tasks" / task.replace(":", "-") / f"attempt-{number}"

    def log(self, spec: Fields, task: str, number: int = 1) -> str:
        path = self.attempt(spec, task, number) / "log"
        return path.read_text() if path.exists() else ""

    def start_record(self, spec: Fields, task: str, number: int = 1) -> Fields:
        record: Fields = json.loads((self.attempt(spec, task, number) / "start.json").read_text())
        return record

    def events(self, spec: Fields, task: str) -> list[tuple[str, str]]:
        """The task's transitions so far."""
        lines = (self.run_directory(spec) / "events.jsonl").read_text().splitlines()
        return [(event["from"], event["to"]) for event in map(json.loads, lines) if event["task"] == task]

    def wait_entry(self, spec: Fields, task: str, what: Callable[[Fields], Any], described: str = "") -> Fields:
        """The task's entry in state.json, once it is so."""

        def entry() -> Fields | None:
            found: Fields = self.state(spec)["tasks"][task]
            return found if what(found) else None

        return eventually(entry, what=described or f"{task} to be as wanted: {self.state(spec)['tasks'][task]}") or {}

    def wait_state(self, spec: Fields, task: str, *states: str, attempt: int = 0) -> Fields:
        """The task's entry once it is in one of these states (in that attempt or a later one)."""

        def arrived(entry: Fields) -> bool:
            return entry["state"] in states and entry["attempt"] >= attempt

        return self.wait_entry(spec, task, arrived, f"{task} to be {' or '.join(states)}")

    # what runs

    def processes(self) -> list[int]:
        """Every live process that descends from a session of this host, whatever it has become since."""
        return marked(self.mark)

    def remains(self) -> str:
        return "\n".join(f"{pid}: {command(pid)}" for pid in self.processes())

    def supervisor(self, spec: Fields) -> int:
        return int(self.state(spec)["agent"]["pid"])

    def clean_up(self) -> None:
        """Ends everything, and again what was started in the meantime by what had not ended yet."""
        for conversation in self._open:
            conversation.close()
        eventually(self._kill_all, what=f"the end of {self.remains()}")

    def _kill_all(self) -> bool:
        """True when there was nothing to kill."""
        left = self.processes()
        for pid in left:
            kill(pid)
        return not left


def has_begun(state: Fields, spec: Fields) -> bool:
    states = [entry["state"] for entry in state["tasks"].values()]
    if "starting" in states or "failed" in states:
        return "starting" not in states
    needed = {task for stage in spec["stages"] for index in stage["after"] for task in spec["stages"][index]["tasks"]}
    return not any(_is_to_come(entry, task in needed) for task, entry in state["tasks"].items())


def _is_to_come(entry: Fields, is_needed: bool) -> bool:
    early = bool(entry["history"]) and entry["history"][-1]["early"]
    if entry["state"] == "pending" or (entry["state"] == "backoff" and early):
        return True
    return is_needed and not (entry["ready"] or entry["state"] in ("succeeded", "failed", "stopped"))


def budget(max_restarts: int, **fields: float) -> Fields:
    return {"max_restarts": max_restarts, "backoff_min_s": 0.05, "backoff_max_s": 0.2, "reset_after_s": 600, **fields}


def task(id_: str, *argv: str, **fields: Any) -> Fields:
    return {"id": id_, "argv": list(argv), "env": {}, "secrets": [], "code": False, **fields}


def shell(id_: str, script: str, **fields: Any) -> Fields:
    return task(id_, "/bin/sh", "-c", script, **fields)


def python_task(id_: str, script: str, **fields: Any) -> Fields:
    return task(id_, sys.executable, "-uISc", script, **fields)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
