"""The environment of trainers, and the marks of a spec that only the host can replace."""

from __future__ import annotations

import os

from ..host import paths
from ..records.values import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    import subprocess
    from typing import Any, Collection, Dict, List, Mapping, Match, Optional, Sequence

    from ..records.spec import Spec, TaskSpec
    from .gang import Gang

USUAL_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
LIMIT_S = 60.0
PROXIES = ("http_proxy", "https_proxy", "ftp_proxy", "all_proxy", "no_proxy", "grpc_proxy")


def base() -> Dict[str, str]:
    """The variables that every process of the agent inherits from the session, as in an ordinary login."""
    # not os.environ: its text depends on the locale of the session
    own = {_text(name): _text(value) for name, value in os.environb.items()}
    variables = {name: value for name, value in own.items() if not name.startswith("DTCTL_")}
    home = os.path.expanduser("~")
    variables.setdefault("HOME", home)
    directories = variables.get("PATH", "").split(":")
    directories += [directory for directory in USUAL_PATH if directory not in directories]
    variables["PATH"] = ":".join(entry for entry in directories if entry)
    return variables


def _text(value: bytes) -> str:
    return value.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The text as bytes for the system, in any locale."""
    return text.encode("utf-8", "surrogateescape")


def encoded(variables: Mapping[str, str]) -> Dict[bytes, bytes]:
    return {encode(name): encode(value) for name, value in variables.items()}


def spawn(argv: Sequence[str], variables: Mapping[str, str], cwd: str, **streams: Any) -> subprocess.Popen[bytes]:
    """Starts a program in a session of its own, without input unless `streams` sets it. Raises OSError, ValueError."""
    import subprocess

    return subprocess.Popen(
        list(map(encode, argv)),
        cwd=encode(cwd),
        env=encoded(variables),
        start_new_session=True,
        **{"stdin": subprocess.DEVNULL, **streams},
    )


def output_of(
    argv: Sequence[str], variables: Optional[Mapping[str, str]] = None, limit_s: float = LIMIT_S
) -> Optional[str]:
    """The output of a short program; None if it is missing, fails, or does not end."""
    import subprocess

    nothing, given = subprocess.DEVNULL, encoded(base() if variables is None else variables)
    try:
        done = subprocess.run(
            argv,
            stdin=nothing,
            stdout=subprocess.PIPE,
            stderr=nothing,
            cwd="/",
            env=given,
            timeout=limit_s,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def end_tree(child: subprocess.Popen[bytes], key: str) -> None:
    """Ends at once a program that `spawn` has started with this DTCTL_KEY, with all that it has started."""
    from ..host import processes

    shell = processes.identify(child.pid)
    processes.end(lambda: processes.tree(shell, [key]), 0.0)
    child.wait()


def without_proxies(variables: Mapping[str, str]) -> Dict[str, str]:
    return {name: value for name, value in variables.items() if name.lower() not in PROXIES}


def of_task(
    inherited: Mapping[str, str],
    spec: Spec,
    task: TaskSpec,
    secrets: Mapping[str, str],
    attempt: int,
    key: str,
) -> Dict[str, str]:
    """The whole environment of one attempt of a task, before marks are replaced."""
    variables = dict(inherited) if task["keep_proxy"] else without_proxies(inherited)
    variables.update(task["env"])
    variables.update({name: secrets[name] for name in task["secrets"] if name in secrets})
    variables.update(
        DTCTL_RUN=spec["run"],
        DTCTL_CLUSTER=spec["cluster"],
        DTCTL_HOST=spec["host"],
        DTCTL_TASK=task["id"],
        DTCTL_ATTEMPT=str(attempt),
        DTCTL_KEY=key,
    )
    revision = spec["revision"]
    if revision and revision["commit"]:
        variables.update(DTCTL_COMMIT=revision["commit"])
        # wandb reads them in place of the repository, which is not here (wandb/env.py).
        variables.setdefault("WANDB_GIT_COMMIT", revision["commit"])
        if revision["remote"]:
            variables.setdefault("WANDB_GIT_REMOTE_URL", revision["remote"])
    return variables


def code_directory(root: str, spec: Spec) -> Optional[str]:
    """The trainers' working directory with a copy of the code; None without code."""
    return None if spec["bundle"] is None else paths.working_directory(root, spec["cluster"])


def task_directory(root: str, spec: Spec, task: TaskSpec) -> str:
    """Where a task's program starts."""
    marks = Marks(code_directory(root, spec))
    return marks.code if task["code"] else marks.home


_SEPARATORS = {"HOSTS": ",", "QUOTED": '", "', "SPACED": " ", "WORDS": " "}


class Marks:
    """Replaces \\0HOME, \\0CODE, \\0PATH and \\0PYTHON, and the marks for other tasks of the run; text that a user
    wrote holds no NUL and is never changed.
    """

    def __init__(self, code: Optional[str], inherited: Optional[Mapping[str, str]] = None) -> None:
        self.home = os.path.expanduser("~")
        self.code = code or self.home
        inherited = inherited or base()
        self._values = {
            "HOME": self.home,
            "CODE": self.code,
            "PATH": inherited["PATH"],
            "PYTHON": inherited.get("DTCTL_PYTHON", "python3"),
        }
        self._gang: Optional[Gang] = None

    def of_task(self, spec: Spec, task: str, without: Collection[str]) -> Marks:
        """`without`: tasks that take no part in its attempt."""
        import copy

        from .gang import Gang  # what prepares a host needs neither

        marks = copy.copy(self)
        marks._gang = Gang(spec["roster"], spec["lead"], task, without)
        return marks

    def text(self, text: str) -> str:
        return MARK.sub(self._value, text)

    def expand(self, expand: List[str]) -> List[str]:
        return [text for word in expand for text in self._words(word)]

    def _words(self, word: str) -> List[str]:
        mark = MARK.fullmatch(word) if self._gang is not None else None
        if mark is not None and self._gang is not None and mark.group(4) == "WORDS":
            return self._gang.addresses(mark.group(5))
        return [self.text(word)]

    def values(self, variables: Mapping[str, str]) -> Dict[str, str]:
        return {name: self.text(value) for name, value in variables.items()}

    def _value(self, mark: Match[str]) -> str:
        name, part, task, what, job, batch = mark.groups()
        if name in self._values:
            return self._values[name]
        if self._gang is None:
            return ""
        if name is not None:
            return self._gang.name(name)
        if batch is not None:
            return self._gang.batch(int(batch))
        if job is not None:
            addresses = self._gang.addresses(job)
            return str(len(addresses)) if what == "COUNT" else _SEPARATORS[what].join(addresses)
        return self._gang.address(task, part)
