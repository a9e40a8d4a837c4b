"""Tries the mutants of one module: its tests are collected once, and each mutant is a fork that runs some of them."""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import resource
import select
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.making import Mutant, mutants_of

_MEMORY_BYTES = 1 << 30
_LONGEST_S = 60.0
"""Of a mutant for which the tests wait; one that computes for ever is ended by its own limit."""

MODULE_LIMIT_S = 3600.0


@dataclass
class TimedTest:
    """What one test did with the module as it is."""

    index: int
    seconds: float
    fails: bool = False
    lines: set[int] = field(default_factory=set)


@dataclass
class Result:
    """`problem` says why the mutants could not be tried at all."""

    module: str
    tried: int = 0
    survivors: list[Mutant] = field(default_factory=list)
    unseen: list[Mutant] = field(default_factory=list)
    """Survivors in a line that no test runs."""
    left_out: list[str] = field(default_factory=list)
    """Tests that fail without any fault, most likely because they are slower while they are watched."""
    problem: str = ""
    seconds: float = 0.0

    @property
    def survived(self) -> int:
        return len(self.survivors) + len(self.unseen)


def try_module(module: str, tests: Sequence[str]) -> Result:
    with tempfile.TemporaryDirectory() as directory:
        result = in_a_fork(lambda: _try_module(module, tests, directory), MODULE_LIMIT_S)
    return result if isinstance(result, Result) else Result(module, problem="it took too long, or broke")


def _try_module(module: str, tests: Sequence[str], directory: str) -> Result:
    """In a process of its own, because the tests stay imported.

    All temporary files are in `directory`: a fork that is killed removes none.
    """
    os.environ["TMPDIR"] = tempfile.tempdir = directory
    began = time.monotonic()
    trial = _Trial(module)
    with tempfile.TemporaryFile("w+") as output:
        options = ["-q", "-s", "-p", "no:cacheprovider", "-p", "no:randomly", f"--basetemp={directory}/tests"]
        with redirect_stdout(output):
            code = pytest.main([*options, *tests], plugins=[trial])
        output.seek(0)
        if code != pytest.ExitCode.OK and not trial.result.problem:
            trial.result.problem = output.read()[-3000:]
    trial.result.seconds = time.monotonic() - began
    return trial.result


class _Trial:
    """A plugin of pytest that does this in place of running the tests."""

    def __init__(self, module: str) -> None:
        self.result = Result(module)
        self._items: list[pytest.Item] = []

    def pytest_configure(self) -> None:
        """Before the tests are imported, and after pytest has taken hypothesis in."""
        from hypothesis import settings

        settings.register_profile("mutants", deadline=None, database=None, derandomize=True)
        settings.load_profile("mutants")

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.testsfailed:
            return None
        self._items = session.items
        gc.collect()
        gc.freeze()  # or every fork would copy what the collector touches
        module = importlib.import_module(self.result.module)
        file = Path(str(module.__file__))
        seen = in_a_fork(lambda: self._watch(str(file)), _LONGEST_S * 10)
        if not isinstance(seen, list):
            self.result.problem = "its tests break without any fault"
            return True
        self.result.left_out = [self._items[one.index].nodeid for one in seen if one.fails]
        seen = [one for one in seen if not one.fails]
        mutants = mutants_of(file.read_text())
        self.result.tried = len(mutants)
        for mutant in mutants:
            chosen = _chosen(seen, mutant)
            if self._survives(mutant, chosen or [one for one in seen if one.lines]):
                (self.result.survivors if chosen else self.result.unseen).append(mutant)
        return True

    def _watch(self, file: str) -> list[TimedTest]:
        """The tests in the order of their time, with the lines of the file that each has run."""
        seen = []
        for index, item in enumerate(self._items):
            one = TimedTest(index, 0.0)
            began = time.process_time()
            with _watched(file, one.lines):
                one.fails = not _passes(item)
            one.seconds = time.process_time() - began
            seen.append(one)
        return sorted(seen, key=lambda one: one.seconds)

    def _survives(self, mutant: Mutant, chosen: Sequence[TimedTest]) -> bool:
        cpu_s = 5 + int(5 * sum(one.seconds for one in chosen))

        def run() -> bool:
            resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
            graft(importlib.import_module(self.result.module), mutant.source)
            return all(_passes(self._items[one.index]) for one in chosen)

        return in_a_fork(run, _LONGEST_S + 5 * cpu_s) is True


def _chosen(seen: Iterable[TimedTest], mutant: Mutant) -> list[TimedTest]:
    """The tests that run the changed statement; all, first those of the module, when it is in no function.

    None where only the import runs it.
    """
    if mutant.last < mutant.first:
        return sorted(seen, key=lambda one: not one.lines)
    return [one for one in seen if any(mutant.first <= line <= mutant.last for line in one.lines)]


def _passes(item: pytest.Item) -> bool:
    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


@contextmanager
def _watched(file: str, lines: set[int]) -> Iterator[None]:
    """Notes the lines of one file that are run."""

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        if frame.f_code.co_filename != file:
            return None
        lines.add(frame.f_lineno)
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    yield
    sys.settrace(None)
    threading.settrace(None)


def in_a_fork(work: Callable[[], object], limit_s: float) -> object:
    """What it returns; None when it died, raised, or took too long."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _answer(work, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        data = b""
        deadline = time.monotonic() + limit_s
        while select.select([answer], [], [], max(0.0, deadline - time.monotonic()))[0]:
            piece = os.read(answer.fileno(), 1 << 16)
            if not piece:
                break
            data += piece
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    try:
        return pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        return None


def _answer(work: Callable[[], object], writing: int) -> None:
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    try:
        result = pickle.dumps(work())
        with os.fdopen(writing, "wb") as pipe:
            pipe.write(result)
    finally:
        os._exit(0)


_DATA = (bool, int, float, str, bytes, tuple, list, dict, set, frozenset)


def graft(module: ModuleType, source: str) -> None:
    """What the module is now is what `source` says; who has imported a part of it has the new one."""
    fresh = ModuleType(module.__name__)
    fresh.__dict__.update({name: value for name, value in vars(module).items() if name.startswith("__")})
    exec(compile(source, str(module.__file__), "exec"), fresh.__dict__)
    for name, new in vars(fresh).items():
        old = vars(module).get(name)
        if name.startswith("__") or old is new:
            continue
        if isinstance(old, type) and isinstance(new, type):
            if old.__module__ == module.__name__:
                _graft_class(old, vars(new))
        elif isinstance(new, _DATA):
            if old != new:
                _replace(name, old, new)
        elif is_dataclass(old):
            _graft_fields(old, new)
        else:
            _graft_function(old, new)


def _graft_fields(old: Any, new: Any) -> None:
    """Functions that are told by name stay who they are: they have their new code."""
    for one in fields(old):
        was, now = getattr(old, one.name), getattr(new, one.name)
        if was != now and getattr(was, "__qualname__", was) != getattr(now, "__qualname__", now):
            object.__setattr__(old, one.name, now)


def _replace(name: str, old: object, new: object) -> None:
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and name in vars(module) and vars(module)[name] is old:
            setattr(module, name, new)


def _graft_class(old: type, new: Mapping[str, Any]) -> None:
    for name, value in new.items():
        known = vars(old).get(name)
        if isinstance(value, property) and isinstance(known, property):
            _graft_function(known.fget, value.fget)
        elif isinstance(value, _DATA) and not name.startswith("__") and known != value:
            setattr(old, name, value)
        else:
            _graft_function(known, value)


def _graft_function(old: object, new: object) -> None:
    one, other = _bare(old), _bare(new)
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        one.__code__ = other.__code__
        one.__defaults__ = other.__defaults__
        one.__kwdefaults__ = other.__kwdefaults__


def _bare(function: Any) -> object:
    """Without the decorators of functools, contextlib and classes."""
    function = function.func if isinstance(function, cached_property) else getattr(function, "__func__", function)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function
