"""The posts of a run: events go to each hook in order, and delivered.json records their delivery."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

from ..host import errors, paths, programs
from ..records import kinds
from ..records.hooks import MOST_DELIVERED, Delivered, HookDeliveries, HookFile, Post, Sent
from ..records.kinds import InvalidValue, checked, made
from ..records.reasons import Fact, fact
from ..run import environment, run_events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, List, Mapping, Optional

    from ..records.whole_run import RunView
    from ..run.run_events import RunEvent
    from ..run.runfiles import RunFiles

    Report = Callable[[List[Fact]], None]


PAUSES_S = (1.0, 5.0, 20.0)
"""The pauses before each further attempt."""

MOST_WAITING = 50
"""The most waiting events; of more the oldest are dropped."""

_KINDS = {"answer": "hook_refused", "redirect": "hook_redirects", "unreachable": "hook_unreached"}


class Hook:
    """Sends one hook one event after another, with a few attempts each, until it is accepted or given up.

    `record` is its part of delivered.json, which is written between `step` and `begin`.
    """

    def __init__(
        self, post: Post, cluster: str, inherited: Mapping[str, str], known: Optional[Delivered], report: Report
    ) -> None:
        self.name = post["name"]
        self.record: Delivered = known or made(Delivered)
        self._post = post
        self._cluster = cluster
        self._inherited = inherited
        self._report = report
        self._waiting: List[RunEvent] = []
        self._current: Optional[RunEvent] = None
        """The event that is being sent."""
        self._delivery: Optional[Delivery] = None
        self._try_at = 0.0
        self._done = set(self.record["events"])

    @property
    def settled(self) -> bool:
        return not self._waiting

    def step(self, found: List[RunEvent], now: float) -> bool:
        """Listens, and chooses what to send next; returns whether `record` has changed."""
        before = (len(self._done), self.record["tries"])
        sent = self._delivery.update(now) if self._delivery is not None else None
        if sent is not None:
            self._delivery = None
            self._finish(sent, now)
        self._update_waiting(found)
        if self._current is None and self._waiting and now >= self._try_at:
            # counted before the attempt: an agent that is killed repeatedly does not post forever
            self._current = self._waiting[0]
            self.record["tries"] += 1
        return before != (len(self._done), self.record["tries"])

    def begin(self, now: float) -> None:
        if self._current is None or self._delivery is not None:
            return
        body = run_events.payload(self._current, self._cluster, rfc3339(self._current.time))
        try:
            self._delivery = Delivery(self._post, body, self._inherited, now)
        except OSError as error:  # too many processes, or no memory
            self._finish({"problem": "unreachable", "text": error.strerror or "", "again": True}, now)

    def pass_over(self, sent: List[RunEvent]) -> None:
        """Another host has sent these, or given them up."""
        self._mark_done([one for one in sent if one.id not in self._done])

    def readers(self) -> List[int]:
        return [] if self._delivery is None else [self._delivery.reader]

    def due(self) -> Optional[float]:
        if self._delivery is not None:
            return self._delivery.deadline
        return self._try_at if self._waiting else None

    def give_up(self) -> bool:
        """The run ends without the rest; whether there was any."""
        if not self._waiting:
            return False
        self.close()
        self._fail(fact("hook_unreached", what=self.name, text="no answer before the end of the run"))
        self._mark_done(self._waiting)
        return True

    def close(self) -> None:
        if self._delivery is not None:
            self._delivery.end()
        self._delivery = self._current = None

    def _update_waiting(self, found: List[RunEvent]) -> None:
        wanted, known = self._post["on"], {one.id for one in found}
        self.record["events"] = [one for one in self.record["events"] if one in known]
        self._waiting = [one for one in found if one.id not in self._done and any(kind in wanted for kind in one.kinds)]
        if self._current is None and len(self._waiting) > MOST_WAITING:
            left_out = self._waiting[:-MOST_WAITING]
            self._report([fact("hook_behind", what=self.name, count=len(left_out))])
            self._mark_done(left_out)

    def _finish(self, sent: Sent, now: float) -> None:
        assert self._current is not None
        answer, self._current = self._current, None
        if sent["problem"] is None:
            if self.record["broken"]:
                self._report([fact("hook_works", what=self.name)])
            self.record["broken"] = False
            self._mark_done([answer])
        elif sent["again"] and self.record["tries"] <= len(PAUSES_S):
            self._try_at = now + PAUSES_S[self.record["tries"] - 1]
        else:
            self._fail(fact(_KINDS[sent["problem"]], what=self.name, text=sent["text"]))
            self._mark_done([answer])

    def _fail(self, why: Fact) -> None:
        """The first time after it has worked."""
        if not self.record["broken"]:
            tries = self.record["tries"]
            self._report([why, *([fact("hook_tried", count=tries)] if tries > 1 else [])])
        self.record["broken"] = True

    def _mark_done(self, done: List[RunEvent]) -> None:
        """Marks events as done, so that they are no longer sent."""
        ids = [one.id for one in done]
        self._done.update(ids)
        self.record["events"] = [*self.record["events"], *ids][-MOST_DELIVERED:]
        self.record["tries"] = 0
        self._try_at = 0.0
        self._waiting = [one for one in self._waiting if one.id not in self._done]


def rfc3339(epoch_s: float) -> str:
    whole = int(epoch_s)
    return "%s.%03dZ" % (time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)), int((epoch_s - whole) * 1000))


_START_S = 5.0
"""The time that Python may take to start on a busy host."""
_REAP_S = 0.2
_MOST_BYTES = 65536
_PASSED_ON = {"PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", *environment.PROXIES}


class Delivery:
    """A sender at work: started, listened to without waiting, and ended when it is late.

    Raises OSError where no process can be started.
    """

    def __init__(self, post: Post, body: Dict[str, Any], inherited: Mapping[str, str], now: float) -> None:
        self.deadline = now + post["timeout_s"] + _START_S
        self._timeout_s = post["timeout_s"]
        self._answer = b""
        self._process = subprocess.Popen(
            [sys.executable, "-IS", programs.directory(), "post"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment.encoded({name: inherited[name] for name in inherited if {name, name.lower()} & _PASSED_ON}),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {"url": post["url"], "headers": post["headers"], "timeout_s": post["timeout_s"], "body": body}
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # it has ended already
            pipe.write(json.dumps(given).encode())  # less than a pipe holds: it does not block
        self.reader = self._process.stdout.fileno()
        os.set_blocking(self.reader, False)

    def update(self, now: float) -> Optional[Sent]:
        """The sender's result; None while it is unknown."""
        if not self._has_ended():
            if now < self.deadline:
                return None
            self.end()
            return _failed("no answer within %g s" % self._timeout_s)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)
        self.end()
        try:
            return checked(Sent, kinds.parse_json(self._answer))
        except (InvalidValue, ValueError):
            late = self._process.returncode == -signal.SIGALRM  # by its own clock
            return _failed("no answer within %g s" % self._timeout_s if late else "its sender has failed")

    def end(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel; then it is reaped later
            self._process.wait(_REAP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _has_ended(self) -> bool:
        while len(self._answer) < _MOST_BYTES:
            try:
                data = os.read(self.reader, 4096)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._answer += data
        return True


def _failed(text: str) -> Sent:
    return made(Sent, problem="unreachable", text=text, again=True)


OTHERS_S = 60.0
"""Events that the coordinator on another host had this long to send are not sent again by the newly elected one."""

LAST_WORDS_S = 15.0
"""The end of a run waits for its last posts, but no longer than this."""


class Posting:
    """Sends all hooks. Its `step` never waits: a hook that hangs delays neither the run nor another hook.

    `report` adds to the run's history, once for a hook that fails. Times: `now` monotonic.
    """

    def __init__(self, files: RunFiles, cluster: str, report: Report) -> None:
        self._path = files.path("delivered.json")
        self._give_up_at: Optional[float] = None
        known, inherited = self._read()["hooks"], files.inherited()
        self._hooks = [Hook(post, cluster, inherited, known.get(post["name"]), report) for post in _posts(files)]
        self._book: HookDeliveries = {"hooks": {hook.name: hook.record for hook in self._hooks}}

    @property
    def settled(self) -> bool:
        """Whether there is nothing left to send."""
        return all(hook.settled for hook in self._hooks)

    def step(self, view: RunView, *, over: bool, now: float) -> None:
        """`over`: nothing more happens to the run."""
        if over and self._give_up_at is None:
            self._give_up_at = now + LAST_WORDS_S
        found = run_events.events_of(view)
        changes = [hook.step(found, now) for hook in self._hooks]
        if self._give_up_at is not None and now >= self._give_up_at:
            changes += [hook.give_up() for hook in self._hooks]
        if any(changes):
            self._save()
        for hook in self._hooks:
            hook.begin(now)

    def take_over(self, view: RunView) -> None:
        """`view`: as another host's coordinator has left it. What is newer may be sent twice, rather than never."""
        sent = [one for one in run_events.events_of(view) if one.time < view["time"] - OTHERS_S]
        for hook in self._hooks:
            hook.pass_over(sent)
        self._save()

    def readers(self) -> List[int]:
        return [reader for hook in self._hooks for reader in hook.readers()]

    def due(self) -> Optional[float]:
        times = [self._give_up_at if not self.settled else None, *(hook.due() for hook in self._hooks)]
        return min((at for at in times if at is not None), default=None)

    def close(self) -> None:
        for hook in self._hooks:
            hook.close()

    def _read(self) -> HookDeliveries:
        try:
            return paths.read_record(self._path, HookDeliveries) or {"hooks": {}}
        except (paths.Damaged, OSError) as damage:  # then some is sent twice, rather than never
            errors.note("hooks: %s" % damage)
            with suppress(OSError):
                paths.put_aside(self._path)
            return {"hooks": {}}

    def _save(self) -> None:
        try:
            paths.write_json(self._path, self._book)
        except OSError as error:  # a full disk: then the next agent sends some of it once more
            errors.note("hooks: %s" % error)


def _posts(files: RunFiles) -> List[Post]:
    """The hooks of the cluster file; empty if there are none, or if they can no longer be read."""
    try:
        found = paths.read_record(files.path("hooks.json"), HookFile)
    except (paths.Damaged, OSError) as problem:
        errors.note("hooks: %s" % problem)
        return []
    return found["posts"] if found is not None else []
