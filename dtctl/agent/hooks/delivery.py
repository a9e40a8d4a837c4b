"""A sender at work, as the agent sees it: started, listened to without waiting, and ended when it is late."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress

from ..host import programs
from ..records import json_text
from ..records.hooks import Sent
from ..records.kinds import Wrong, checked, made
from ..run import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Mapping, Optional

    from ..records.hooks import Post

_START_S = 5.0
"""What Python may take to start on a host that is busy."""
_REAP_S = 0.2
_MOST_BYTES = 65536
_PASSED_ON = ("PATH", "HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", *environment.PROXIES)


class Delivery:
    """Raises OSError where no process can be started."""

    def __init__(self, post: Post, body: Dict[str, Any], inherited: Mapping[str, str], now: float) -> None:
        self.deadline = now + post["timeout_s"] + _START_S
        self._timeout_s = post["timeout_s"]
        self._heard = b""
        self._process = subprocess.Popen(
            [sys.executable, "-IS", programs.directory(), "post"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment.encoded({name: value for name, value in inherited.items() if _is_passed_on(name)}),
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        given = {"url": post["url"], "headers": post["headers"], "timeout_s": post["timeout_s"], "body": body}
        with suppress(BrokenPipeError), self._process.stdin as pipe:  # it has ended already
            pipe.write(json.dumps(given).encode())  # less than a pipe holds: nobody is waited for
        self.reader = self._process.stdout.fileno()
        os.set_blocking(self.reader, False)

    def look(self, now: float) -> Optional[Sent]:
        """What has become of it; None while nobody knows."""
        if not self._has_ended():
            if now < self.deadline:
                return None
            self.end()
            return _failed("no answer within %g s" % self._timeout_s)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_REAP_S)
        self.end()
        try:
            return checked(Sent, json_text.parse(self._heard))
        except (Wrong, ValueError):
            late = self._process.returncode == -signal.SIGALRM  # by its own clock
            return _failed("no answer within %g s" % self._timeout_s if late else "its sender has failed")

    def end(self) -> None:
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):  # it hangs in the kernel; then it is reaped later
            self._process.wait(_REAP_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _has_ended(self) -> bool:
        while len(self._heard) < _MOST_BYTES:
            try:
                data = os.read(self.reader, 4096)
            except BlockingIOError:
                return False
            if not data:
                return True
            self._heard += data
        return True


def _failed(text: str) -> Sent:
    return made(Sent, problem="unreachable", text=text, again=True)


def _is_passed_on(name: str) -> bool:
    return name in _PASSED_ON or name.lower() in _PASSED_ON
