"""The command line: each command reads options, calls one operation and shows its result."""

from __future__ import annotations

import _thread
import atexit
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Sequence
from types import FrameType, ModuleType

OTHERS_OPTIONS = frozenset({"ssh"})
"""Commands behind which stand the options of another program."""

_FORMS = ("json", "jsonl")
_COLLECTED_AFTER = 100_000
"""Python's own 700 have the garbage collector search all imported modules, in vain, for a tenth of a command's time."""


_INTERRUPTED = 130
_ENDS = {signal.SIGHUP: 129, signal.SIGTERM: 143}
"""Exit codes as in errors.ExitCode, which is not imported so early."""

_ended_by: int | None = None
"""The signal of _ENDS that came first."""

_is_over = False
"""The command has ended, and its exit code is decided."""


def program() -> None:
    """Entry point of the program `dtctl`: an interrupted command ends at once, when it has cleared away.

    Python itself would wait for threads that still dial hosts, print what an interrupt makes of that, and, where an
    `exec` of a library was interrupted, end by SIGINT instead of with the exit code.
    """
    try:
        main()
    except SystemExit as ending:
        if ending.code not in (_INTERRUPTED, *_ENDS.values()):
            raise
        atexit._run_exitfuncs()  # the registered function restores a terminal
        os._exit(int(ending.code))  # the console has flushed its output


def main() -> None:
    """The command; raises SystemExit unless it exits with 0."""
    global _ended_by, _is_over
    _ended_by, _is_over = None, False
    gc.set_threshold(_COLLECTED_AFTER)
    signal.signal(signal.SIGTERM, _interrupt)
    hang_up = signal.getsignal(signal.SIGHUP)
    if hang_up is signal.SIG_DFL:  # nohup ignores it
        signal.signal(signal.SIGHUP, _interrupt)
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    try:
        _spare_imports()
        _main()
    except (KeyboardInterrupt, RuntimeError) as error:
        # A RuntimeError ("release unlocked lock") is what an interrupt makes of a lock that is taken just then.
        if isinstance(error, RuntimeError) and not isinstance(error.__context__, KeyboardInterrupt):
            raise
        from dtctl.render.errors import note

        note("interrupted")  # so early or late that no command could report more
        sys.exit(_interrupted())
    except SystemExit as ending:
        if ending.code == _INTERRUPTED:
            sys.exit(_interrupted())
        raise
    except OSError as error:
        from dtctl.render.terminal.console import reader_gone
        from dtctl.render.terminal.moving import is_dead_terminal

        if not is_dead_terminal(error):
            raise
        reader_gone(stderr=True)
        reader_gone(stderr=False, code=_ENDS[signal.SIGHUP])
    finally:
        _is_over = True
        signal.signal(signal.SIGHUP, hang_up)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # no traceback from Python's shutdown
        signal.signal(signal.SIGINT, before)
        gc.freeze()  # otherwise Python searches all of them once more before it ends


def _interrupted() -> int:
    """The exit code of an interrupted command."""
    return _INTERRUPTED if _ended_by is None else _ENDS[signal.Signals(_ended_by)]


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handles SIGTERM, SIGHUP and SIGINT.

    An import is not interrupted: its callbacks would print the exception and lose it. A closed terminal may send SIGHUP
    twice, by the shell and by the kernel; the second one would interrupt what the first one has left to do. A command
    that is over keeps its exit code.
    """
    global _ended_by
    if _is_over:
        return
    if number in _ENDS:
        _ended_by = _ended_by or number
    while frame is not None:
        if frame.f_code.co_filename.startswith(_IMPORTS):
            _thread.start_new_thread(_signal_again, (number,))
            return
        frame = frame.f_back
    if number == signal.SIGHUP:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if number in _ENDS:
        raise KeyboardInterrupt(signal.Signals(number).name)  # there is no terminal to ask on
    raise KeyboardInterrupt


_IMPORTS = "<frozen importlib"
_AGAIN_S = 0.02


def _signal_again(number: int) -> None:
    time.sleep(_AGAIN_S)
    os.kill(os.getpid(), number)


def _spare_imports() -> None:
    """Spares the import of Invoke's parts that Fabric and paramiko do not use, which takes 80 ms."""
    for name in ("unittest.mock", "invoke.vendor.yaml"):
        unused = ModuleType(name)
        unused.__dict__["Mock"] = None
        sys.modules.setdefault(name, unused)
    metadata = sys.modules.setdefault("importlib.metadata", _Metadata("importlib.metadata"))
    importlib.__dict__.setdefault("metadata", metadata)


class _Metadata(ModuleType):
    """Stands in for importlib.metadata when paramiko reads its own version on import, which saves the 15 ms for parsers
    of mail and archives. The first other use imports the module itself."""

    def version(self, package: str) -> str:
        from pathlib import Path

        file = getattr(sys.modules.get(package), "__file__", None)
        found = [one.stem for one in Path(file).parents[1].glob(f"{package}-*.dist-info")] if file else []
        return found[0].partition("-")[2] if len(found) == 1 else str(self._itself().version(package))

    def __getattr__(self, name: str) -> object:
        return getattr(self._itself(), name)

    def _itself(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


def _main() -> None:
    """The only place, besides the fan-out, where our errors are caught."""
    from dtctl.cli.app import app
    from dtctl.cli.completion import whole_words
    from dtctl.errors import DtctlError
    from dtctl.render.terminal.console import show_whatever_comes, speak_json

    show_whatever_comes()
    in_json = wants_json(sys.argv[1:])
    if in_json:
        from dtctl.render.machine import stderr
    speak_json(stderr.note if in_json else None)
    try:
        check_working_directory()
        with whole_words(os.environ):
            if in_json:
                _run_in_json()
            app(prog_name="dtctl")
    except DtctlError as error:
        from dtctl.render.errors import show_error

        show_error(error)
        sys.exit(error.exit_code)


def wants_json(args: Sequence[str]) -> bool:
    """Whether the words of a command line ask for JSON; they may be invalid otherwise."""
    own = list(args[: args.index("--")]) if "--" in args else list(args)
    if next((arg for arg in own if not arg.startswith("-")), None) in OTHERS_OPTIONS:
        return False
    pairs = zip(own, [*own[1:], ""], strict=False)  # an empty command line makes no pair
    return any(
        (arg in ("-o", "--output") and value in _FORMS)
        or arg in [f"{option}{form}" for option in ("-o", "--output=") for form in _FORMS]
        for arg, value in pairs
    )


def check_working_directory() -> None:
    from pathlib import Path

    try:
        Path.cwd()
    except FileNotFoundError:
        from dtctl.errors import UsageError

        raise UsageError("the current directory was removed", hint="cd to a directory that exists") from None


def _run_in_json() -> None:
    """Runs the command, and ends the process as it does by itself, except that its end is reported in JSON."""
    from typer import Abort

    from dtctl.cli.app import app
    from dtctl.errors import ExitCode
    from dtctl.render.machine import stderr

    stderr.begin()
    try:
        code = app(prog_name="dtctl", standalone_mode=False)
    except Abort:
        sys.exit(ExitCode.RUN_FAILED)
    ended = code if isinstance(code, int) else int(ExitCode.OK)
    if ended == ExitCode.INTERRUPTED:
        ended = _interrupted()
    stderr.end(ended)
    sys.exit(ended)
