"""The command line: each command reads options, calls one operation and shows its result."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

OTHERS_OPTIONS = frozenset({"ssh"})
"""Commands behind which stand the options of another program."""

_FORMS = ("json", "jsonl")
_COLLECTED_AFTER = 100_000
"""Python's own 700 have the garbage collector search all imported modules, in vain, for a tenth of a command's time."""


def main() -> None:
    """Entry point of `dtctl`."""
    gc.set_threshold(_COLLECTED_AFTER)
    _spare_imports()
    try:
        _main()
    except KeyboardInterrupt:  # so early or late that no command was there to say more
        sys.exit(130)
    finally:
        gc.freeze()  # or Python searches them all once more before it ends


def _spare_imports() -> None:
    """Invoke, which Fabric and paramiko import, takes 80 ms more for what its own users test and configure it with."""
    for name in ("unittest.mock", "invoke.vendor.yaml"):
        unused = ModuleType(name)
        unused.__dict__["Mock"] = None
        sys.modules.setdefault(name, unused)
    metadata = sys.modules.setdefault("importlib.metadata", _Metadata("importlib.metadata"))
    importlib.__dict__.setdefault("metadata", metadata)


class _Metadata(ModuleType):
    """For paramiko, which reads its own version on import: with parsers of mail and archives, 15 ms. The first other
    use brings the module itself."""

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
    from dtctl.errors import DtctlError, ExitCode
    from dtctl.render.terminal.console import show_whatever_comes, speak_json

    terminated = False

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt("SIGTERM")  # it comes from no terminal where a question could be asked

    signal.signal(signal.SIGTERM, on_sigterm)
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
    except SystemExit as ending:
        if terminated and ending.code == ExitCode.INTERRUPTED:
            sys.exit(ExitCode.TERMINATED)
        raise


def wants_json(args: Sequence[str]) -> bool:
    """By the words of a command line, which may make no sense otherwise."""
    own = list(args[: args.index("--")]) if "--" in args else list(args)
    if next((arg for arg in own if not arg.startswith("-")), None) in OTHERS_OPTIONS:
        return False
    pairs = zip(own, [*own[1:], ""], strict=False)  # no words at all make no pair
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
    stderr.end(ended)
    sys.exit(ended)
