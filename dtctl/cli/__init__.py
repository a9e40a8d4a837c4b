"""The command line: each command is a module that reads options, calls one operation and shows its result."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Entry point of `dtctl`."""
    try:
        _main()
    except KeyboardInterrupt:  # so early or late that no command was there to say more
        sys.exit(130)


def _main() -> None:
    """The only place, besides the fan-out, where our errors are caught."""
    from dtctl.cli.app import app
    from dtctl.cli.bash import whole_words
    from dtctl.cli.machine import in_json, wants_json
    from dtctl.cli.shells import mended
    from dtctl.errors import DtctlError, ExitCode
    from dtctl.render.terminal.console import show_whatever_comes, speak_json

    terminated = False

    def on_sigterm(number: int, frame: FrameType | None) -> None:
        nonlocal terminated
        terminated = True
        raise KeyboardInterrupt("SIGTERM")  # nobody who could be asked has typed that

    signal.signal(signal.SIGTERM, on_sigterm)
    show_whatever_comes()
    speak_json(wants_json(sys.argv[1:]))
    try:
        with whole_words(os.environ), mended(os.environ):
            if wants_json(sys.argv[1:]):
                in_json(app)
            app(prog_name="dtctl")
    except DtctlError as error:
        from dtctl.render.errors import show_error

        show_error(error)
        sys.exit(error.exit_code)
    except SystemExit as ending:
        if terminated and ending.code == ExitCode.INTERRUPTED:
            sys.exit(ExitCode.TERMINATED)
        raise
