"""How SSH logins start on this host: the shell and its start-up files, and the server's limits."""

from __future__ import annotations

import os
import pwd
import re
import signal
import subprocess
import tempfile
import time
from contextlib import suppress

from ...host import machine, processes
from ...records.kinds import made
from ...run import environment
from ..network.records import SshFacts, SshQuestion

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Optional, Tuple

    from ...conversation import Conversation

START_UP_S = 10.0
_MOST_NOISE = 1000
_MOST_FILES = 50
_MOST_BYTES = 1 << 20
_CONFIGURATION = "/etc/ssh/sshd_config"
_STARTUPS = re.compile(r"\[listener\] \d+ of (\d+)-(\d+) startups")
"""The limits in the title of sshd's own process (since OpenSSH 8.2), which all users may read."""
_FILE = re.compile(r"(?:^|\s)-f\s?(\S+)")
_DEFAULTS = {"maxstartups": "10:30:100", "maxsessions": "10"}
"""sshd_config(5)"""


def ssh_facts(talk: Conversation, question: SshQuestion) -> SshFacts:
    """The facts of a conversation over SSH; of any other only the machine is known."""
    answer = made(SshFacts, shell=_shell(), machine=machine.identity()[:4096])
    if "SSH_CONNECTION" not in os.environ:
        return answer
    if question["start_up"]:
        _start(answer)
    listener = _listener()
    answer["machine"] = ("%s %s" % (machine.identity(), os.environ["SSH_CONNECTION"].split()[-1]))[:4096]
    limits, answer["limits_from"] = _limits(listener)  # type: ignore[typeddict-item]
    answer["max_startups"] = limits.get("maxstartups", "")[:100] or None
    sessions = limits.get("maxsessions", "")
    answer["max_sessions"] = int(sessions) if sessions.isdigit() and len(sessions) < 10 else None
    return answer


def _shell() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_shell or "/bin/sh"
    except KeyError:
        return ""  # a container without that user


def _start(answer: SshFacts) -> None:
    """Runs the login shell for a command that does nothing; bash reads its files when SSH_CLIENT is set."""
    if not answer["shell"]:
        return
    variables = {name: value for name, value in environment.base().items() if name != "SHLVL"}
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        try:
            child = environment.spawn([answer["shell"], "-c", "true"], variables, ".", stdout=output, stderr=output)
        except OSError as error:
            answer["problem"] = str(error)[:4096]
            return
        try:
            code = child.wait(START_UP_S)
            answer["problem"] = "exit code %d" % code if code else ""
        except subprocess.TimeoutExpired:
            answer["problem"] = "no end within %.0f s" % START_UP_S
            with suppress(OSError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        answer["start_up_s"] = round(time.monotonic() - began, 4)
        answer["noise_bytes"] = output.seek(0, os.SEEK_END)
        output.seek(0)
        answer["noise"] = output.read(_MOST_NOISE).decode("utf-8", "replace")[:_MOST_NOISE]


def _listener() -> Optional[str]:
    """The title of the sshd that this conversation came through; empty where there is none above it. None: /proc hides
    a process above this one (hidepid), and that one may be it.
    """
    pid = os.getpid()
    for _ in range(20):
        process = processes.Process.read(pid)
        if process is None:
            return None
        if process.parent < 1:
            break
        pid = process.parent
        title = processes.proc_text(pid, "cmdline").replace("\0", " ").strip()
        if "[listener]" in title or re.match(r"\S*/sshd(\s|$)", title):
            return title
    return ""


def _limits(listener: Optional[str]) -> Tuple[Dict[str, str], str]:
    """MaxStartups and MaxSessions, and the source of them; none if it is unknown with which file sshd runs."""
    if listener is None:
        return {}, ""
    file = _FILE.search(listener)
    limits, limits_from = _asked(file[1] if file else None), "sshd"
    if not limits:
        lines = _lines(file[1] if file else _CONFIGURATION, [])
        read = settings(lines or [])
        limits = {} if lines is None else {**_DEFAULTS, **read}
        limits_from = "" if lines is None else "file" if read else "default"
    title = _STARTUPS.search(listener)
    if title:
        words = limits.get("maxstartups", "").split(":")
        rate = words[1] if len(words) == 3 else "30"
        limits, limits_from = {**limits, "maxstartups": "%s:%s:%s" % (title[1], rate, title[2])}, limits_from or "sshd"
    return limits, limits_from


def _asked(file: Optional[str]) -> Dict[str, str]:
    """The settings that `sshd -T` prints, usually only for root."""
    if os.geteuid() != 0:
        return {}
    for program in ("/usr/sbin/sshd", "/usr/local/sbin/sshd"):
        if os.path.exists(program):
            words = [program, "-T"] + (["-f", file] if file else [])
            return settings((environment.output_of(words, limit_s=5.0) or "").splitlines())
    return {}


def _lines(path: str, seen: List[str]) -> Optional[List[str]]:
    """The lines of a file, with those of included files in their place; None if it is unreadable."""
    import glob

    if path in seen or len(seen) > _MOST_FILES:
        return []
    seen.append(path)
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            lines = file.read(_MOST_BYTES).splitlines()
    except OSError:
        return None
    found: List[str] = []
    for line in lines:
        word, value = _setting(line)
        if word == "match":
            break  # what follows holds for some logins only
        if word == "include":
            for pattern in value.split():
                for name in sorted(glob.glob(os.path.join("/etc/ssh", pattern))):
                    found += _lines(name, seen) or []
        else:
            found.append(line)
    return found


def settings(lines: List[str]) -> Dict[str, str]:
    """The limits in lines of sshd_config(5); the first of a kind applies."""
    named = [_setting(line) for line in reversed(lines)]
    return {word: value.strip('"') for word, value in named if word in _DEFAULTS}


def _setting(line: str) -> Tuple[str, str]:
    word, _, value = line.strip().replace("=", " ", 1).partition(" ")
    return word.lower(), value.strip()
