"""A compromised host that votes, in place of its agent: `evil_voter.py HOST RUN_DIRECTORY TERM GROWTH SECONDS`.

It has the host's genuine credentials. Whatever it is asked, it answers that it coordinates in a term after TERM, and it
orders every agent that connects to it to stop its tasks. By itself it connects to the other voters, requests their
votes in such a term, and reports as the agent of its host. The term grows by GROWTH with each claim; 0: it repeats what
was true in an old term. It reads the FIFO of the agent: a command that asks the host, or cron, would otherwise start an
honest agent, which contradicts it.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dtctl.agent.host import wake
from dtctl.agent.link.dialer import Dialer
from dtctl.agent.link.hub import Hub
from dtctl.agent.link.tls import Identity
from dtctl.agent.records.messages import PROTOCOL

LARGEST = 2**53
ACTS_EVERY_S = 1.0


class EvilVoter:
    def __init__(self, own: str, directory: Path, term: int, growth: int) -> None:
        self.own, self.term, self.growth = own, term, growth
        read = {name: json.loads((directory / f"{name}.json").read_text()) for name in ("spec", "state", "intent")}
        self.spec, self.state, self.intents = read["spec"], read["state"], read["intent"]["tasks"]
        identity = Identity(str(directory), self.spec["run"])
        now = time.monotonic()
        voters = {voter["host"]: voter for voter in self.spec["voters"]}
        own_place = voters.pop(own)
        self.links = {
            host: Dialer(place["address"], host, identity, now, random.random) for host, place in voters.items()
        }
        self.hub = Hub(
            own_place["address"], own_place["port"], identity, [], lambda hello: ([], False), now, stance=self.claim
        )
        self.poke = 0
        self.act_at = now

    def claim(self) -> dict[str, Any]:
        self.poke += 1
        return {"term": min(self.term + self.growth * self.poke, LARGEST), "backs": self.own, "elected": True}

    def step(self) -> None:
        now = time.monotonic()
        for host, link in self.links.items():
            for message in link.step(now):
                self.answer(host, message)
        for host, asked in self.hub.step(now):
            self.serve(host, asked)
        if now >= self.act_at:
            self.act_at = now + ACTS_EVERY_S
            self.act()

    def answer(self, host: str, message: Any) -> None:
        link = self.links[host]
        if message["type"] == "connected":
            link.send(self.hello())
        elif message["type"] == "lease":
            link.send({"type": "granted", **self.claim(), "beat": message["beat"], "memo": message["memo"], "lines": 0})

    def serve(self, host: str, asked: Any) -> None:
        if asked["type"] == "canvass":
            vote = {"asked": asked["term"], "trial": asked["trial"], "granted": False}
            self.hub.send(host, {"type": "vote", **self.claim(), **vote})
        elif asked["type"] == "ping":
            self.hub.send(host, {"type": "pong", "n": asked["n"]})
        elif asked["type"] == "hello":
            term = self.claim()["term"]
            welcome = {"type": "welcome", "v": PROTOCOL, "events_from": asked["events"], "term": term}
            self.hub.send(host, {**welcome, "progress": True, "may_start": True, "moved": {}})
            stops = {
                task: {**intent, "want": "stop", "version": intent["version"] + 1, "by": "stop"}
                for task, intent in asked["intents"].items()
            }
            self.hub.send(host, {"type": "orders", "intents": stops, "recovering": False, "over": True})
            memo = {"beat": 1, "memo": [term, 1], "lines": 0}
            self.hub.send(host, {"type": "lease", "term": term, **memo})

    def act(self) -> None:
        claim = self.claim()
        for link in self.links.values():
            canvass = {"type": "canvass", "term": claim["term"], "memo": [LARGEST, 0]}
            link.send({**canvass, "trial": False})
            link.send({**canvass, "trial": True, "term": 3 if self.growth else self.term})
            link.send({"type": "granted", **claim, "beat": 1, "memo": [0, 0], "lines": 0})

    def hello(self) -> dict[str, Any]:
        return {
            "type": "hello",
            "v": PROTOCOL,
            "run": self.spec["run"],
            "host": self.own,
            "agent": self.state["agent"],
            "events": 0,
            "state": self.state,
            "intents": self.intents,
            "kept": True,
            "lost_session": False,
            "moved": self.spec["moved"]["number"],
        }


@contextmanager
def lying(
    host: str, directory: Path, term: int, seconds: int, *, growth: int = 20, inside: Sequence[str] = ()
) -> Iterator[None]:
    """Runs it for a host on which nothing else of the run does. `inside`: a command that enters the host's network."""
    argv = [*inside, sys.executable, __file__, host, str(directory), str(term), str(growth), str(seconds)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(Path.cwd())}) as liar:
        try:
            assert liar.stdout is not None
            assert liar.stdout.readline() == b"ready\n"
            yield
        finally:
            liar.kill()


def main() -> None:
    own, directory, term, growth, seconds = sys.argv[1:]
    voter = EvilVoter(own, Path(directory), int(term), int(growth))
    wake.show_work(wake.listen(str(Path(directory) / "wake")))
    print("ready", flush=True)
    end = time.monotonic() + float(seconds)
    while time.monotonic() < end:
        voter.step()
        time.sleep(0.005)


if __name__ == "__main__":
    main()
