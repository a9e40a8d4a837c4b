"""Identifies this machine, as several may share a home directory, and with it the files of runs."""

from __future__ import annotations

import os
import pwd
import re


def text(path: str) -> str:
    """A file of the system's; empty where it cannot be read, or there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError:
        return ""


def identity() -> str:
    """The same after every start of this machine, and another on every other one."""
    return "%s %s" % (machine_id() or "-", os.uname().nodename)


def machine_id() -> str:
    """The machine-id(5); empty if there is none."""
    return text("/etc/machine-id").strip()


def system() -> str:
    """The operating system, such as: Debian GNU/Linux 12 (bookworm), Linux 6.1.0, x86_64."""
    uname = os.uname()
    return ", ".join(filter(None, [_distribution(), "%s %s" % (uname.sysname, uname.release), uname.machine]))[:1000]


def _distribution() -> str:
    """The distribution's name by os-release(5); empty if unknown."""
    lines = text("/etc/os-release").splitlines()
    named = (line.partition("=")[2].strip("\"' ") for line in lines if line.startswith("PRETTY_NAME="))
    return next(named, "")


def user_name() -> str:
    return name_of_user(os.geteuid())


def name_of_user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)  # a container without that user


def home_is_the_accounts() -> bool:
    """Whether HOME is the account's home. If it was changed, programs that the machine starts for this user differ."""
    try:
        return os.path.samefile(pwd.getpwuid(os.geteuid()).pw_dir, os.path.expanduser("~"))
    except (KeyError, OSError):
        return False


class Lacking(Exception):
    """This machine lacks something that is needed; the text names it."""


def oom_kills() -> int:
    """The number of processes that the kernel has killed for lack of memory since its start; 0 before Linux 4.13."""
    found = re.search(r"^oom_kill (\d+)$", text("/proc/vmstat"), re.MULTILINE)
    return int(found[1]) if found else 0
