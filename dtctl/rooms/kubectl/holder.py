"""The command of a pod's container: it starts the agent of its host by the plan, and ends as the run ends.

    python3 -IS PLAN/holder.py PLAN KEYS CODE HOST

PLAN is a directory with the files of a ConfigMap: `plan.json` (the request `up` to each host, in two parts), `opening`
and `agent` (the agent's program, as it is sent to a host over SSH), `manifest.json` (of the code). KEYS is the file
with the host's credentials, CODE the directory of the image that has the code.

It holds a conversation with a session of the agent as a controller would, which starts the run's part here; from then
on it waits, and reaps what is left to it as the first process of the container. It imports nothing of dtctl.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any, NoReturn

READ = 'import sys;i=sys.stdin.buffer;exec(compile(i.read(int(i.readline())),"dtctl","exec"))'
FAILED = 70
"""The exit code of a run that has failed, and is not to be started again."""
REFUSED = 71
"""The exit code where the agent refuses the plan."""
POLL_S = 0.5


def say(text: str) -> None:
    print(f"dtctl: {text}", flush=True)


def refuse(text: str) -> NoReturn:
    say(text)
    sys.exit(REFUSED)


def read(*parts: str) -> bytes:
    with open(os.path.join(*parts), "rb") as file:
        return file.read()


def read_json(path: str) -> Any:
    """The content of a file of the run; None while it is not there or not whole."""
    try:
        return json.loads(read(path))
    except (OSError, ValueError):
        return None


def request(plan: Any, host: str, keys: str) -> Any:
    """The request `up` of this host. Values of secrets are in the container's environment."""
    own = plan["hosts"][host]
    found = dict(plan["shared"], **own["request"])
    found["spec"] = dict(plan["shared"]["spec"], **own["spec"])
    found["credentials"] = json.loads(read(keys)) if own["has_credentials"] else None
    missing = [name for name in plan["secrets"] if name not in os.environ]
    if missing:
        names = ", ".join(missing)
        refuse(f"the Secret of the pods has no {names}")
    found["secrets"] = {name: os.environ[name] for name in plan["secrets"]}
    return found


def lay_out(manifest: bytes, code: str, base: str) -> None:
    """The bundle of the code, from the image: the agent verifies each file before a task starts."""
    if os.path.exists(os.path.join(base, "manifest.json")):
        return
    said = json.loads(manifest)
    tree = os.path.join(base, "tree")
    shutil.rmtree(base, ignore_errors=True)
    os.makedirs(tree, 0o700)
    os.chmod(base, 0o700)
    for path, _ in said["dirs"]:
        os.mkdir(os.path.join(tree, path), 0o700)
    for path, mode, _, _ in said["files"]:
        try:
            shutil.copyfile(os.path.join(code, path), os.path.join(tree, path), follow_symlinks=False)
        except OSError as error:
            refuse(f"the image has no {path} of this code: {error.strerror}")
        os.chmod(os.path.join(tree, path), mode)
    for path, target in said["links"]:
        os.symlink(target, os.path.join(tree, path))
    for path, mode in reversed(said["dirs"]):
        os.chmod(os.path.join(tree, path), mode)
    with open(os.path.join(base, "manifest.new"), "wb") as file:
        file.write(manifest)
    os.rename(os.path.join(base, "manifest.new"), os.path.join(base, "manifest.json"))


class Conversation:
    """A conversation with a session of the agent, in a process of its own."""

    def __init__(self, plan: str) -> None:
        self.sent = b""
        self.process = subprocess.Popen(
            [sys.executable, "-ISc", READ], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.input, self.output = self.process.stdin, self.process.stdout
        self.agent = read(plan, "agent")
        self.write(read(plan, "opening"))
        if self.output.read(1) != b"\x1e":
            refuse("the agent does not start")

    def write(self, data: bytes) -> None:
        self.input.write(data)
        self.input.flush()

    def send(self, fields: Any) -> None:
        self.sent = json.dumps(fields).encode() + b"\n"
        self.write(self.sent)

    def receive(self, *types: str) -> Any:
        """The next frame of one of these types."""
        while True:
            line = self.output.readline()
            if not line:
                refuse("the agent ends before it has started the run")
            frame = json.loads(line)
            self.output.read(frame.get("bytes", 0))
            if frame["type"] == "lacking":
                self.write(self.agent + self.sent)
            elif frame["type"] == "error":
                said = [frame["summary"], frame.get("detail", ""), frame.get("hint", "")]
                refuse("\n".join(filter(None, said)))
            elif frame["type"] == "need":
                refuse("the image has other code than this plan: build it anew, or export again")
            elif frame["type"] in types:
                return frame

    def close(self) -> None:
        self.input.close()
        self.process.wait()


def start(plan: str, asked: Any) -> None:
    talk = Conversation(plan)
    talk.send(asked)
    talk.receive("greeting")
    prepared = talk.receive("prepared")
    if prepared.get("unchanged"):
        say("the run is here already")
    talk.send({"type": "start"})
    talk.receive("started")
    talk.send({"type": "keep"})
    talk.receive("result")
    talk.close()


class Ending:
    """What ends the pod: the run has ended here, or the pod is to end."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.asked = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self.ask)

    def ask(self, *_: object) -> None:
        """Has the agent end its tasks, as when a host shuts down: both of its processes are told."""
        self.asked = True
        for pid in self.agents():
            with suppress(OSError):
                os.kill(pid, signal.SIGTERM)

    def agents(self) -> list[int]:
        """The processes of the run's agent: the supervisor and its guard."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                words = read("/proc", name, "cmdline").split(b"\0")
                if b"supervise" in words and os.fsencode(self.directory) in words:
                    found.append(int(name))
        return found

    def wait(self) -> int:
        """The exit code."""
        while True:
            reap()
            state = read_json(os.path.join(self.directory, "state.json"))
            if state and state["finished"]:
                return self.code()
            if self.asked and not self.agents():
                return 128 + signal.SIGTERM
            time.sleep(POLL_S)

    def code(self) -> int:
        """That of the run, where it is decided here; else that of a part that has ended as it should."""
        view = read_json(os.path.join(self.directory, "cluster.json"))
        if view is None:
            return 0
        condition = view["condition"]["type"]
        say(f"the run has ended: {condition}")
        return 0 if condition == "Succeeded" else FAILED


def reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def main() -> None:
    plan_directory, keys, code, host = sys.argv[1:]
    plan = json.loads(read(plan_directory, "plan.json"))
    root = os.path.join(os.path.expanduser("~"), ".dtctl")
    os.makedirs(os.path.join(root, "bundles"), 0o700, exist_ok=True)
    os.chmod(root, 0o700)
    asked = request(plan, host, keys)
    run = asked["spec"]["run"]
    if asked["bundle"]:
        lay_out(read(plan_directory, "manifest.json"), code, os.path.join(root, "bundles", asked["bundle"]))
    ending = Ending(os.path.join(root, "runs", run, host))
    start(plan_directory, asked)
    say(f"{host} runs its part of run {run}")
    sys.exit(ending.wait())


if __name__ == "__main__":
    main()
