"""A task's flags, and the common needs of all strategies: pace, log, checkpoints, and the request to stop."""

from __future__ import annotations

import argparse
import json
import mmap
import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from . import checkpoint
from .network import Peer

BATCH = bytes(256 * 1024)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="trainer", allow_abbrev=False)
    add = parser.add_argument
    add("--ps_hosts", default="")
    add("--chief_hosts", default="")
    add("--worker_hosts", default="")
    add("--job_name", default="")
    add("--task_index", type=int, default=0)
    add("--way", choices=["async", "sync", "ps-strategy", "collective"], default="async")
    add("--train_steps", type=int, default=1000)
    add("--steps_per_s", type=float, default=50.0, help="of all workers together")
    add("--until_file", type=Path, help="training goes on until the chief sees it, and at least to the last step")
    add("--output_dir", type=Path, default=Path("output"))
    add("--save_s", type=float, default=1.0)
    add("--keep", type=int, default=5, help="checkpoints")
    add("--shards", type=int, default=2)
    add("--poll_s", type=float, default=0.2, help="between a worker's looks at the ps tasks (TensorFlow's: 30)")
    add("--heartbeat_s", type=float, default=20.0, help="a frozen peer of a collective is noticed after this")
    add("--start_s", type=float, default=0.0, help="what an import of TensorFlow takes")
    add("--close_s", type=float, default=0.0, help="what the chief takes to end after its last save")
    add("--swallow_sigterm", action="store_true")
    add("--crash", action="append", default=[], metavar="TASK:STEP:CODE", help="exit so on reaching the step")
    options = parser.parse_args()
    if not options.job_name:
        _read_tf_config(options)
    return options


def _read_tf_config(options: argparse.Namespace) -> None:
    config = json.loads(os.environ["TF_CONFIG"])
    cluster = {job: ",".join(addresses) for job, addresses in config["cluster"].items()}
    for job in ("ps", "chief", "worker"):
        setattr(options, f"{job}_hosts", cluster.get(job, ""))
    options.job_name, options.task_index = config["task"]["type"], int(config["task"]["index"])


class Place:
    """This task's place among the others."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.name = f"{options.job_name}:{options.task_index}"
        self.ps, chiefs, workers = (
            [address for address in hosts.split(",") if address]
            for hosts in (options.ps_hosts, options.chief_hosts, options.worker_hosts)
        )
        self.driven = workers
        """The tasks that a separate chief drives."""
        self.workers = [*chiefs, *workers]
        self.address = {"ps": self.ps, "chief": chiefs, "worker": workers}[options.job_name][options.task_index]
        self.is_chief = self.name == ("chief:0" if chiefs else "worker:0")
        self.stopping = False
        self._saved_at = time.monotonic()
        self._next_line = 0.0
        self.wants_end = options.until_file is None
        """Whether the chief has seen the file."""
        self.enough = self.wants_end
        """Whether all have been told to end; they end at the same step if they step together."""
        crashes = (crash.rsplit(":", 2) for crash in options.crash)
        self._crash = next(((int(step), int(code)) for task, step, code in crashes if task == self.name), None)

    def hang_if_asked(self, when: str) -> None:
        """Hangs once, silently, if a file in the output directory is named so for it; `when`: start or step."""
        asked = self.options.output_dir / f"hang-{when}-{self.name}"
        if asked.exists():
            asked.unlink()
            self._asleep()

    def _asleep(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(3600)

    def listen_to_signals(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal may be held
        if self.options.swallow_sigterm:
            signal.signal(signal.SIGTERM, lambda *_: print("W preemption_notifier.cc] SIGTERM caught"))
        elif self.options.job_name == "ps":
            signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        else:
            signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def peers(self, addresses: list[str]) -> list[Peer]:
        return [Peer(address, self.name) for address in addresses]

    def finished(self, step: int) -> bool:
        return self.stopping or (self.enough and step >= self.options.train_steps)

    def pace(self, workers: int) -> None:
        """Waits for as long as a step of this worker takes."""
        time.sleep(workers / self.options.steps_per_s)

    def reached(self, step: int) -> None:
        """Reports the step at most five times per second, saves sometimes if this is the chief, fails if requested."""
        now = time.monotonic()
        if now >= self._next_line:
            self.hang_if_asked("step")
            self._next_line = now + 0.2
            self.wants_end = self.wants_end or (self.is_chief and self.options.until_file.exists())
            print(f"step {step}  loss {loss(step):.3f}")
            with mmap.mmap(-1, len(BATCH)) as memory:  # temporary memory of a step
                memory.write(BATCH)
        if self.is_chief and now >= self._saved_at + self.options.save_s:
            self.save(step)
        if self._crash and step >= self._crash[0]:
            print("ValueError: broken on purpose")
            os._exit(self._crash[1])

    def act(self, what: str) -> None:
        """Records what it does for the whole run, with the time of the clock that all hosts of a fleet share."""
        line = f"{time.monotonic():.3f} {self.name} {os.uname().nodename}-{os.getpid()} {what}\n"
        with suppress(OSError), (self.options.output_dir / "acts").open("a") as file:
            file.write(line)

    def save(self, step: int) -> None:
        self.act(f"saves step {step}")
        checkpoint.save(self.options.output_dir, step, self.options.shards, self.options.keep)
        self._saved_at = time.monotonic()

    def restore(self) -> int:
        """The step of the newest checkpoint; 0 without one."""
        step = checkpoint.restore(self.options.output_dir, self.options.shards)
        print("no checkpoint: starts from step 0" if step is None else f"restored model.ckpt-{step}")
        return step or 0

    def end(self, step: int) -> None:
        """Does what a trainer does after its loop."""
        if self.is_chief:
            self.save(step)
            time.sleep(self.options.close_s)
        word = "stopped at" if step < self.options.train_steps else "done:"
        print(f"{word} step {step}  loss {loss(step):.3f}")


def loss(step: int) -> float:
    return 2.3 * 0.998**step + 0.01
