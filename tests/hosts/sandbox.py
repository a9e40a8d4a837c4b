"""A program with its own mounts, pids and users, as root: what it leaves running ends with it.

The users and their homes exist only inside, so nothing of the machine's own files is touched. With a network
namespace and its own host name the same thing is a host of a fleet (see fleet.py).
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.waiting import PATIENCE_S, eventually

FIRST_UID = 64100
NEEDED = ("unshare", "nsenter", "setpriv", "mount")


def missing() -> str:
    """Why sandboxes cannot be made here; empty if they can."""
    if not sys.platform.startswith("linux"):
        return "namespaces need Linux"
    if os.geteuid() != 0:
        return "namespaces need root"
    absent = [tool for tool in NEEDED if shutil.which(tool) is None]
    return f"{', '.join(absent)} not found" if absent else ""


@dataclass(frozen=True)
class User:
    name: str
    uid: int
    home: Path
    """Where the home's files really lie; inside it is /home/NAME."""
    shell: str = "/bin/bash"

    @property
    def home_inside(self) -> str:
        return f"/home/{self.name}"

    def passwd(self) -> str:
        return f"{self.name}:x:{self.uid}:{self.uid}::{self.home_inside}:{self.shell}\n"


def make_user(name: str, index: int, home: Path, shell: str = "/bin/bash") -> User:
    user = User(name, FIRST_UID + index, home, shell)
    home.mkdir(parents=True, exist_ok=True)
    os.chown(home, user.uid, user.uid)
    home.chmod(0o700)
    return user


@dataclass
class Sandbox:
    """A sandbox, which is not started until `start`; `kill` is a crash: no process inside can clean up."""

    directory: Path
    """The directory for its own files; the users inside must be able to read it."""
    users: Sequence[User]
    hostname: str = ""
    netns: str = ""
    """Name of an existing network namespace; empty: that of this machine."""
    overlays: Mapping[str, Path] = field(default_factory=dict)
    """{path inside: file or directory that is seen there}."""
    visible: Sequence[Path] = ()
    """Directories below /root and /home that the users inside may read; the rest of these two is hidden."""
    daemons: Sequence[str] = ()
    """Commands that go to the background by themselves, started before the first process."""
    process: subprocess.Popen[bytes] | None = None

    def start(self, command: Sequence[str]) -> None:
        """Runs `command` as the init of the sandbox."""
        script = "\n".join([*self._set_up(), *self.daemons, "exec " + shlex.join(command)])
        enter = ["nsenter", f"--net=/run/netns/{self.netns}"] if self.netns else []
        namespaces = ["--mount", "--pid", "--ipc", *(["--uts"] if self.hostname else [])]
        # A killed test process must not leave hosts behind: the kernel tells unshare, and unshare its child.
        guard = ["setpriv", "--pdeathsig", "KILL", *enter]
        unshare = ["unshare", *namespaces, "--fork", "--kill-child", "--mount-proc"]
        self.process = subprocess.Popen(
            [*guard, *unshare, "sh", "-euc", script], stdin=subprocess.DEVNULL, start_new_session=True
        )

    def _set_up(self) -> list[str]:
        passwd, group = self.directory / "passwd", self.directory / "group"
        passwd.write_text(Path("/etc/passwd").read_text() + "".join(user.passwd() for user in self.users))
        group.write_text(
            Path("/etc/group").read_text() + "".join(f"{user.name}:x:{user.uid}:\n" for user in self.users)
        )
        for file in (passwd, group):
            file.chmod(0o644)
        lines = [f"hostname {shlex.quote(self.hostname)}"] if self.hostname else []
        lines += [*self._hide_homes(), "mount -t tmpfs -o mode=755 none /run", "mkdir /run/sshd"]
        for user in self.users:
            lines += [f"mkdir {user.home_inside}", f"mount --bind {shlex.quote(str(user.home))} {user.home_inside}"]
        overlays = {"/etc/passwd": passwd, "/etc/group": group, **self._cron(), **self.overlays}
        return lines + [f"mount --bind {shlex.quote(str(real))} {inside}" for inside, real in overlays.items()]

    def _cron(self) -> dict[str, Path]:
        """Crontabs of its own, which outlive a crash: else a `crontab` inside would change those of the machine."""
        tables, rules = Path("/var/spool/cron/crontabs"), Path("/etc/pam.d/cron")
        own = {path: self.directory / f"cron-{path.name}" for path in (tables, rules) if path.exists()}
        if tables in own and not own[tables].exists():
            own[tables].mkdir()
            os.chown(own[tables], tables.stat().st_uid, tables.stat().st_gid)
            own[tables].chmod(stat.S_IMODE(tables.stat().st_mode))
        if rules in own:  # the machine's own want the user to be in its /etc/shadow
            own[rules].write_text(
                "".join(f"{kind} required pam_permit.so\n" for kind in ("auth", "account", "session"))
            )
        return {str(path): copy for path, copy in own.items()}

    def _hide_homes(self) -> list[str]:
        """Hides /root and /home except for what is `visible`, which is first bound elsewhere to stay in reach."""
        below = sorted({path for path in self.visible if path.is_dir() and path.parts[1] in ("root", "home")})
        below = [path for path in below if not any(other in path.parents for other in below)]
        stages = [(shlex.quote(str(self.directory / f"visible-{n}")), shlex.quote(str(p))) for n, p in enumerate(below)]
        return [
            *(f"mkdir -p {stage}; mount --bind {path} {stage}" for stage, path in stages),
            "mount -t tmpfs -o mode=755 none /root",
            "mount -t tmpfs -o mode=755 none /home",
            *(f"mkdir -p {path}; mount --bind {stage} {path}" for stage, path in stages),
        ]

    @property
    def init(self) -> int:
        """The pid, seen from here, of the sandbox's first process; 0 when it is not alive."""
        if self.process is None or self.process.poll() is not None:
            return 0
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int((children.read_text().split() or ["0"])[0])

    def run(self, argv: Sequence[str], user: User | None = None, timeout_s: float = PATIENCE_S) -> str:
        """Standard output of a command inside, as root or a user, in the home; raises CalledProcessError."""
        become: list[str] = []
        if user is not None:
            become = ["setpriv", f"--reuid={user.uid}", f"--regid={user.uid}", "--clear-groups"]
        home = user.home_inside if user else "/root"
        environment = {"HOME": home, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
        answer = subprocess.run(
            ["nsenter", "--target", str(self.init), "--all", *become, "env", f"--chdir={home}", *argv],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            timeout=timeout_s,
        )
        return answer.stdout.decode(errors="replace")

    def kill(self) -> None:
        if self.process is None:
            return
        init = self.init
        self.process.kill()
        self.process.wait()
        if init:
            eventually(lambda: not Path(f"/proc/{init}").exists(), what="the end of the sandbox's init")
        self.process = None


_NAME = re.compile(r"dtctl-[a-z]+-(?P<owner>[0-9a-z]{9})-\w+")


def make_directory(kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"dtctl-{kind}-{owner()}-"))


def sweep_directories() -> None:
    for directory in Path(tempfile.gettempdir()).glob("dtctl-*"):
        if (match := _NAME.fullmatch(directory.name)) and not is_alive(match["owner"]):
            _unmount_below(directory)
            shutil.rmtree(directory, ignore_errors=True)


def _unmount_below(directory: Path) -> None:
    """Unmounts what a killed test process has mounted there."""
    places = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for place in places:
        if Path(place).is_relative_to(directory):
            subprocess.run(["umount", "--lazy", place], check=False)


def owner() -> str:
    """The name of this process in what it makes: pid and start time, so that no later process is taken for it."""
    return _base36(os.getpid(), 5) + _base36(_start_time(os.getpid()), 4)


def is_alive(owner: str) -> bool:
    born = _start_time(int(owner[:5], 36))
    return born != 0 and _base36(born, 4) == owner[5:9]


def _base36(number: int, width: int) -> str:
    """The last digits."""
    digits = ""
    while len(digits) < width:
        number, digit = divmod(number, 36)
        digits = "0123456789abcdefghijklmnopqrstuvwxyz"[digit] + digits
    return digits


def _start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 if there is no such process, and where there is no /proc."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    except OSError:
        return 0
