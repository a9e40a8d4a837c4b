"""The answers of a genuine host, of a small run that has ended. Standard library only: it runs on hosts.

The run has a task on each of the hosts `a`, where the coordinator is, and `b`; `c` is a spare.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from dtctl.agent.records.reasons import said

Fields = dict[str, Any]
Answer = Iterator[tuple[Fields, bytes]]

CLUSTER, RUN, CREATED = "demo", "demo-1", 1000.0
OTHER_RUN = "demo-0"
"""The run that commands compare it with: the same except its name."""

ROSTER = {"worker:0": "a", "worker:1": "b"}
MARK = "as seen on host"
"""Followed by the host's name. Every answer to a command that `shows` has it in a text that is shown."""


class GoneError(Exception):
    """The controller has disconnected."""


def greeting(host: str) -> Fields:
    return {
        "type": "greeting", "protocol": 2, "python": "3.11.7", "hostname": host, "user": "train", "home": "/home/train",
        "root": "/home/train/.dtctl", "pid": 7, "time": 2000.0, "free_bytes": 1 << 40, "cpus": 8,
        "system": f"Debian GNU/Linux 12, Linux 6.1.0, x86_64 {MARK} {host}", "memory_bytes": 1 << 36,
    }  # fmt: skip


def tasks_on(host: str) -> list[str]:
    return [task for task, place in ROSTER.items() if place == host]


def inventory() -> Fields:
    roster = [
        {
            "task": task, "host": host, "address": "192.0.2.9", "role": "lead" if task == "worker:0" else "worker",
            "scope": "gang", "vital": True, "decides": task == "worker:0", "serves": False,
        }
        for task, host in ROSTER.items()
    ]  # fmt: skip
    names = {"cluster": CLUSTER, "run": RUN, "created": CREATED, "lead": "worker:0", "success": "lead"}
    return {**names, "roster": roster, "replaced": {}}


def entry(state: str = "succeeded") -> Fields:
    ended = {"code": 0, "signal": None, "error": None, "ended": 1900.0, "retry": False, "tail": "done\n"}
    return {
        "state": state, "attempt": 1, "pid": None, "since": 1900.0, "ready": False, "step": 1000, "step_time": 1899.0,
        "exit": ended, "why": said("exit code 0"),
        "history": [{"attempt": 1, "started": 1001.0, "ended": 1900.0, "asked": False, "code": 0}],
    }  # fmt: skip


def state(host: str) -> Fields:
    agent = {"pid": 8, "start_time": 9, "boot_id": "b", "since": 1001.0}
    return {
        "version": 1, "serial": 9, "run": RUN, "host": host, "agent": agent, "finished": True,
        "tasks": {task: entry() for task in tasks_on(host)},
    }  # fmt: skip


def view() -> Fields:
    contact = {"connected": False, "heard": 1950.0, "over": True}
    incident = {
        "id": 1, "task": "worker:1", "host": "b", "noticed": 1100.0, "scope": "gang",
        "why": [{"kind": "killed", "signal": 9}], "tasks": ["worker:0", "worker:1"],
        "collateral": [{"task": "worker:0", "why": [{"kind": "said", "text": "gone"}]}],
        "step": 400, "back_to": 300, "begun": 1101.0, "recovered": 1110.0, "given_up": None,
        "steps_at_restart": {"worker:1": 300}, "attempt": 1, "ended": 1100.0, "own": False,
    }  # fmt: skip
    condition = {"type": "Succeeded", "why": said("worker:0 has succeeded"), "cause": "worker:0", "since": 1900.0}
    return {
        "version": 1, "serial": 5, "run": RUN, "time": 2000.0, "phase": "ended", "condition": condition,
        "conditions": [{**condition, "type": "Running", "since": 1001.0}],
        "alerts": [{"why": said("its disk is nearly full")}],
        "hosts": {host: {**contact, "state": state(host)} for host in ROSTER.values()}, "intents": {},
        "incidents": [incident], "restarts": 1, "request_serial": 0, "waits_for": {"why": []},
        "elapsed_s": 900.0, "deaf": None,
    }  # fmt: skip


def checkpoints(host: str) -> list[Fields]:
    newest = {
        "prefix": f"/data/model.ckpt-1000 {MARK} {host}", "step": 1000, "time": 1890.0, "size_bytes": 1 << 20,
        "shards": 1, "complete": True, "problem": None,
    }  # fmt: skip
    return [{"dir": "/data", "newest_complete": newest, "incomplete": [], "all": [newest], "problem": None}]


class Host:
    """`listen` returns the next frame of the controller, or raises GoneError."""

    def __init__(self, name: str, listen: Any) -> None:
        self.name = name
        self._listen = listen

    def answer(self, request: Fields) -> Answer:
        """The frames of the answer with their payloads; a refusal is the last of them."""
        if request.get("whole") and not self._coordinates:
            yield _error("not_coordinator", "this host does not coordinate the run"), b""
            return
        is_other = request.get("run") == OTHER_RUN
        for fields, payload in self._answer(request):
            yield json.loads(json.dumps(fields).replace(RUN, OTHER_RUN)) if is_other else fields, payload

    def _answer(self, request: Fields) -> Answer:
        from tests import of_rooms  # imported late: its files import this one

        name = request["type"]
        answers = getattr(self, f"_{name}", None)
        yield from answers(request) if answers is not None else of_rooms.table("ANSWERS")[name](self, request)

    def _status(self, request: Fields) -> Answer:
        result = {
            "run": RUN, "time": 2000.0, "agent_alive": False, "inventory": inventory(), "state": state(self.name),
            "coordination": view() if self._coordinates else None, "checkpoints": checkpoints(self.name),
            "problem": None,
        }  # fmt: skip
        yield {"type": "result", **result}, b""

    def _watch(self, request: Fields) -> Answer:
        reported = {"state": state(self.name), "coordination": view() if self._coordinates else None}
        yield {"type": "states", "run": RUN, **reported}, b""
        yield {"type": "result", "run": RUN}, b""

    def _logs(self, request: Fields) -> Answer:
        for task in request["tasks"]:
            text = f"line 1 of {task}\nline 2 of {task} {MARK} {self.name}\n".encode()
            yield {"type": "log", "task": task, "attempt": 1, "offset": 0, "end": len(text), "time": 1900.0}, text
        yield {"type": "result", "run": RUN}, b""

    def _events(self, request: Fields) -> Answer:
        for number in range(3):
            reported = {"n": number, "time": 1001.0 + number, "kind": "task", "host": self.name, "attempt": 1}
            moved = {"task": tasks_on(self.name)[0], "from": "pending", "to": "starting", "by": "train@desk"}
            yield {"type": "event", **reported, **moved, "why": said(f"{MARK} {self.name}")}, b""
        yield {"type": "result", "run": RUN, "next": 3, "passed_over": 0}, b""

    def _metrics(self, request: Fields) -> Answer:
        loss = {"tag": "loss", "count": 2, "least": "0.25", "most": "0.5", "steps": [1, 2], "times": [1001.0, 1002.0]}
        train = {"dir": f"/data {MARK} {self.name}", "name": "train", "identity": "7-events"}
        folders = [{**train, "series": [{**loss, "values": ["0.5", "0.25"]}]}]
        if request["follow"]:
            yield {"type": "points", "run": RUN, "folders": folders}, b""
        reported = {"run": RUN, "time": 2000.0, "dirs": ["/data"], "problems": [], "unread_bytes": 0, "omitted": 0}
        yield {"type": "result", **reported, "folders": [] if request["follow"] else folders}, b""

    def _dump(self, request: Fields) -> Answer:
        for task in request["tasks"]:
            call = {"function": f"train {MARK} {self.name}", "file": "/home/ada/train.py", "line": 7}
            main = {"thread": "0xff", "name": "MainThread", "tid": 77, "main": True, "active": True, "gil": True}
            own = {"tid": 77, "name": "python", "state": "S (sleeping)", "wchan": "futex_wait", "kernel": []}
            process = {"pid": 77, "command": "python train.py", "way": "py-spy", "threads": [own]}
            process["stacks"] = [{**main, "frames": [call], "omitted": 0}]
            yield {"type": "dump", "task": task, "attempt": 1, "state": "running", "processes": [process]}, b""
        yield {"type": "result", "run": RUN}, b""

    def _speed(self, request: Fields) -> Answer:
        tasks = tasks_on(self.name)
        use = {"seconds": 60.0, "cpu_s": 50.0, "thread_s": 40.0, "thread": f"python {MARK} {self.name}", "threads": 9}
        flow = {"task": tasks[0], "peer": "worker:1", "host": "b", "sent_bytes": 6e7, "received_bytes": 1e6}
        flow = {**flow, "busy_s": 30.0, "connections": 1}
        sample = {"time": 1990.0, "seconds": 60.0, "cpus": 4, "busy_s": 60.0, "flows": [flow]}
        sample["interfaces"] = {"eth0": {"sent_bytes": 6e7, "received_bytes": 1e6, "bits_a_second": 1e9}}
        sample["tasks"] = dict.fromkeys(tasks, use)
        shards = [{"size_bytes": 4e8, "variables": 3}]
        largest = [{"name": f"dense/kernel {MARK}", "size_bytes": 3e8, "shard": 0}]
        parameters = {"prefix": f"/data/model.ckpt-9 {MARK}", "step": 9, "shards": shards, "largest": largest}
        found = {"minutes": [sample], "whole": sample, "since": 1900.0, "parameters": parameters}
        yield {"type": "result", "run": RUN, "time": 2000.0, **found}, b""

    def _code(self, request: Fields) -> Answer:
        text = f"{MARK} {self.name}".encode()
        file = ["train.py", 0o644, len(text), hashlib.sha256(text).hexdigest()]
        manifest = json.dumps({"version": 1, "files": [file], "links": [], "dirs": []}).encode()
        yield {"type": "code_part", "file": None}, manifest
        yield {"type": "code_part", "file": 0}, text
        yield {"type": "result", "run": RUN, "bundle": hashlib.sha256(manifest).hexdigest()}, b""

    def _event_dirs(self, request: Fields) -> Answer:
        folder = {"dir": "/data", "name": "train", "identity": "7-events"}
        found = {"folders": [folder], "sizes": {"files": 1, "bytes": 4096}}
        python = {"tensorboard": "/home/train/venv/bin/python", "tried": []}
        yield {"type": "result", "run": RUN, "dirs": [f"/data {MARK} {self.name}"], **found, **python}, b""

    def _event_files(self, request: Fields) -> Answer:
        file = {"dir": "/data", "name": "train", "identity": "7-events", "file": "events.out.tfevents.1", "inode": "5"}
        yield {"type": "event_file", **file, "offset": 0}, b"points"
        yield {"type": "caught_up", "files": 1}, b""
        while self._listen()["type"] != "abort":
            pass
        yield {"type": "result", "run": RUN}, b""

    def _tensorboard(self, request: Fields) -> Answer:
        python = "/home/train/venv/bin/python"
        yield {"type": "tensorboard_ready", "dirs": [f"/data {MARK} {self.name}"], "python": python}, b""
        while self._listen()["type"] != "abort":
            pass
        yield {"type": "result", "run": RUN, "end": "asked", "said": ""}, b""

    def _diagnose(self, request: Fields) -> Answer:
        machine = {"time": 2000.0, "cpus": 8, "load": 0.5, "memory_bytes": 1 << 34, "available_bytes": 1 << 33}
        disk = {"path": f"/data {MARK} {self.name}", "free_bytes": 0, "size_bytes": 1 << 40}
        tasks = {task: {"python": "/usr/bin/python3"} for task in tasks_on(self.name)}
        reported = {"run": RUN, "time": 2000.0, "machine": {**machine, "waiting": {}}, "disks": [disk], "tasks": tasks}
        yield {"type": "result", **reported}, b""

    def _check(self, request: Fields) -> Answer:
        yield {"type": "result", "time": 2000.0, "facts": self._facts(request["ask"])}, b""

    def _facts(self, questions: Fields) -> Fields:
        return {name: getattr(self, f"_facts_of_{name}")(asked) for name, asked in questions.items() if asked}

    def _facts_of_software(self, asked: Fields) -> Fields:
        reported = {"path": "/usr/bin/python3", "version": f"3.11.7 {MARK} {self.name}", "libc": "glibc 2.36"}
        packages = {"packages": {"tensorflow": "2.21.0"}}
        return {"pythons": [{"program": one["program"], **reported, **packages} for one in asked["pythons"]]}

    def _facts_of_machine(self, asked: Fields) -> Fields:
        machine = {"time": 2000.0, "cpus": 8, "load": 0.5, "memory_bytes": 1 << 34, "available_bytes": 1 << 33}
        disk = {"path": f"/data {MARK} {self.name}", "free_bytes": 1 << 30, "size_bytes": 1 << 40, "free_files": None}
        return {"machine": {**machine, "waiting": {}}, "disks": [disk]}

    def _facts_of_storage(self, asked: Fields) -> Fields:
        written = [{"path": path, "at": path, "free_bytes": 1 << 40} for path in asked["write"]]
        looked = [{"path": one["path"], "seen": one["hosts"]} for one in asked["look"]]
        return {"written": written, "looked": looked}

    def _facts_of_data(self, asked: Fields) -> Fields:
        return {"at": [self._held(path) for path in asked["dirs"]]}

    def _held(self, path: str) -> Fields:
        return {"dir": path, "there": True, "bundle": "0" * 64, "files": 3, "size_bytes": 1 << 30}

    def _facts_of_network(self, asked: Fields) -> Fields:
        bound = [{"whose": slot["whose"], "port": slot["port"] or 9, "state": "bound"} for slot in asked["listen"]]
        own = [{"name": name, "addresses": ["10.0.0.1"], "own": True} for name in asked["names"]]
        reached = [{"whose": one["whose"], "host": one["host"], "place": "10.0.0.1"} for one in asked["reach"]]
        proxies = {"http_proxy": f"http://proxy {MARK} {self.name}"} if asked["names"] else {}
        return {"bound": bound, "resolved": own, "reached": reached, "proxies": proxies}

    def _facts_of_ssh(self, asked: Fields) -> Fields:
        return {"shell": f"/bin/sh {MARK} {self.name}", "start_up_s": 0.1, "max_startups": "10:30:100", "machine": "m"}

    def _verify(self, request: Fields) -> Answer:
        sound: Fields = {"problems": [], "unread": None, "tensors": 1, "read_bytes": 8, "seconds": 0.1}
        yield {"type": "result", "run": RUN, "verified": [{**one, **sound} for one in request["wanted"]]}, b""

    def _fetch(self, request: Fields) -> Answer:
        reported = []
        for file in (one for one in request["files"] if not one.endswith(".meta")):
            data = b"index" if file.endswith(".index") else b"12345678"
            yield {"type": "part", "name": file, "offset": 0, "total": len(data), "identity": "7-8-9"}, data
            reported.append({"name": file, "size": len(data), "sha256": hashlib.sha256(data).hexdigest()})
        yield {"type": "result", "run": RUN, "files": reported}, b""

    def _store(self, request: Fields) -> Answer:
        landing = {"dir": request["dir"], "token": hashlib.md5(self.name.encode()).hexdigest(), "there": False}
        yield {"type": "landing", **landing, "have": [], "owners": []}, b""
        if self._listen()["type"] == "abort":
            yield _error("rolled_back", "cancelled by the controller"), b""
            return
        left = sum(one["size"] for one in request["files"])
        while left > 0:
            left -= self._listen().get("bytes", 1)
        yield {"type": "stored"}, b""
        if self._listen()["type"] == "keep":
            yield {"type": "result", "dir": request["dir"], "prefix": request["name"]}, b""

    def _data_push(self, request: Fields) -> Answer:
        yield from self._bundle()
        yield {"type": "result", "bundle": request["bundle"], "sent_files": 1}, b""

    def _data_status(self, request: Fields) -> Answer:
        yield {"type": "result", "at": [self._held(path) for path in request["dirs"]]}, b""

    def _data_verify(self, request: Fields) -> Answer:
        yield {"type": "progress", "phase": "verify", "done_bytes": 1, "total_bytes": 2}, b""
        yield from self._data_status(request)

    def _data_drop(self, request: Fields) -> Answer:
        gone = {"removed_files": 3, "freed_bytes": 1 << 30, "kept_files": 1}
        yield {"type": "result", "at": [{"dir": path, **gone} for path in request["dirs"]]}, b""

    def _prune(self, request: Fields) -> Answer:
        gone = checkpoints(self.name)[0]["all"]
        reported = {"removed": gone, "kept": [], "freed_bytes": 8, "problem": None, "listed": True}
        yield {"type": "result", "run": RUN, "directories": [{"dir": one, **reported} for one in request["dirs"]]}, b""

    def _runs(self, request: Fields) -> Answer:
        own = dict.fromkeys(tasks_on(self.name), "succeeded")
        known = {"run": RUN, "cluster": CLUSTER, "host": self.name, "created": CREATED, "live": False, "tasks": own}
        foreign = [{"run": "letters-1", "account": "bob"}]
        yield {"type": "result", "runs": [known], "omitted": 0, "damaged": [], "foreign": foreign}, b""

    def _stop(self, request: Fields) -> Answer:
        reported = {"stopped": self._own(request), "already": [], "survivors": [], "unreached": []}
        yield {"type": "result", "run": RUN, **reported, **self._about_the_run()}, b""

    def _restart(self, request: Fields) -> Answer:
        tasks = {task: entry("running") for task in self._own(request)}
        yield {"type": "result", "run": RUN, "tasks": tasks, "unreached": [], **self._about_the_run()}, b""

    def _drain(self, request: Fields) -> Answer:
        yield from self._stop({"tasks": tasks_on(request["drained"])})

    def _undrain(self, request: Fields) -> Answer:
        yield from self._restart({"tasks": tasks_on(request["drained"])})

    @property
    def _coordinates(self) -> bool:
        return ROSTER.get("worker:0") == self.name

    def _own(self, request: Fields) -> list[str]:
        """The tasks of a request that this host answers for."""
        own = list(ROSTER) if self._coordinates else tasks_on(self.name)
        return [task for task in own if request["tasks"] is None or task in request["tasks"]]

    def _about_the_run(self) -> Fields:
        return {"inventory": inventory(), "coordination": view() if self._coordinates else None}

    def _down(self, request: Fields) -> Answer:
        reported = {"stopped": [], "already": tasks_on(self.name), "survivors": [], "removed": [RUN]}
        path = f"/home/ada/.dtctl/work/demo/tree {MARK} {self.name}"
        kept = {"cluster": CLUSTER, "id": self.name, "path": path, "files": 1, "size_bytes": 4096}
        yield {"type": "result", **reported, "kept": [kept]}, b""

    def _exec(self, request: Fields) -> Answer:
        yield {"type": "output", "stream": 1}, f"hello {MARK} {self.name}\n".encode()
        yield {"type": "output", "stream": 2}, b"and a warning\n"
        yield {"type": "result", "exit_code": 0, "signal": None}, b""

    def _setup_logs(self, request: Fields) -> Answer:
        log = {"path": "/home/train/.dtctl/environments/uv-1.log", "text": f"installed {MARK} {self.name}\n"}
        yield {"type": "result", "logs": [log]}, b""

    def _gc(self, request: Fields) -> Answer:
        dead = {"run": "demo-0", "cluster": CLUSTER, "host": self.name, "why": said("is not the current run")}
        orphan = {"pid": 77, "command": f"python train.py {MARK} {self.name}", "run": "demo-0"}
        reported = {"processes": [orphan], "survivors": [], "runs": [dead], "bundles": ["0" * 64]}
        rest = {"files": ["/home/train/.dtctl/agent/old"], "omitted": 0, "freed_bytes": 4096}
        yield {"type": "result", "dry_run": bool(request["dry_run"]), **reported, **rest}, b""

    def _bundle(self) -> Answer:
        yield {"type": "need", "manifest": True, "files": []}, b""
        self._listen()
        yield {"type": "need", "manifest": False, "files": [0]}, b""
        while not self._listen().get("last", True):
            pass

    def _push(self, request: Fields) -> Answer:
        yield from self._bundle()
        yield {"type": "result", "bundle": request["bundle"], "sent_files": 1}, b""

    def _up(self, request: Fields) -> Answer:
        spec = request["spec"]
        run, own = spec["run"], {task["id"]: entry("running") for task in spec["tasks"]}
        yield from self._bundle()
        yield {"type": "progress", "phase": "setup", "text": f"{MARK} {self.name}\n"}, b""
        found = checkpoints(self.name)
        yield {"type": "prepared", "unchanged": False, "run": run, "current": None, "replaces": None,
               "checkpoints": found, "facts": self._facts(request.get("ask") or {})}, b""  # fmt: skip
        while (word := self._listen())["type"] == "look":
            yield {"type": "looked", "facts": self._facts(word["ask"]), "facts_s": 0.1}, b""
        if word["type"] == "start":
            yield {"type": "started", "run": run, "tasks": own}, b""
            if self._listen()["type"] == "keep":
                kept = {"unchanged": False, "reboot": "cron", "reboot_why": None, "reboot_unsure": None, "pruned": []}
                yield {"type": "result", "run": run, **kept}, b""
                return
        yield _error("rolled_back", "cancelled by the controller"), b""


def _error(code: str, summary: str) -> Fields:
    return {"type": "error", "code": code, "summary": summary, "detail": "", "hint": ""}
