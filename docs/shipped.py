"""What an installed dtctl brings along in `share`: its manual page, and what shells complete its words by."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

import typer.main

from dtctl.cli.app import app
from dtctl.cli.options import ACCESS
from dtctl.render.manual import EXITS

SHARE = Path(__file__).resolve().parents[1] / "share"

_DESCRIPTION = """\
dtctl starts, watches, recovers and stops distributed training on plain SSH machines. One file, cluster.yaml, says which
machines, which groups of tasks and which program. The hosts need sshd and python3: no root, no daemon, no containers.
Once a run has started, it goes on without the machine where dtctl was typed."""

_EXAMPLE = """\
dtctl init digits && cd digits
dtctl up \\-\\-local \\-f
dtctl trust && dtctl up
dtctl logs worker:1 \\-f
dtctl stop"""

_FILES = {
    "cluster.yaml": "the cluster; dtctl explain KEY describes a key",
    ".dtctlignore": "which files stay at home, in the syntax of .gitignore",
    "~/.ssh/config": "honoured: aliases, users, ports, keys, jump hosts",
    "~/.local/state/dtctl": "the runs that were started here ($XDG_STATE_HOME)",
    "~/.dtctl": "on the hosts: runs, their logs, and the pushed code",
    "~/dtctl/NAME": "on the hosts: what trainers write, where dirs has relative paths",
}

_VARIABLES = {
    "DTCTL_CONFIG": "the cluster file, where none is named",
    "VIRTUAL_ENV, CONDA_PREFIX": "the environment whose Python trains under --local, where the file names none",
    "NO_COLOR": "no colours",
}


def files() -> dict[Path, str]:
    scripts = {
        "bash-completion/completions/dtctl": _completion("bash"),
        "zsh/site-functions/_dtctl": _autoloaded(_completion("zsh")),
        "fish/vendor_completions.d/dtctl.fish": _completion("fish"),
    }
    return {SHARE / name: text for name, text in {"man/man1/dtctl.1": man_page(), **scripts}.items()}


def man_page() -> str:
    group: Any = typer.main.get_command(app)
    parts = [
        '.TH DTCTL 1 "" "dtctl" "User Commands"',
        f".SH NAME\ndtctl \\- {_escaped('distributed training on plain SSH machines')}",
        ".SH SYNOPSIS\n.B dtctl\n[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]",
        f".SH DESCRIPTION\n{_escaped(_DESCRIPTION)}",
        ".SH OPTIONS\n" + _options(group.params),
        ".SH COMMANDS\n" + "\n".join(_command(name, command) for name, command in group.commands.items()),
        ".SH OPTIONS OF EVERY COMMAND ON HOSTS\n"
        + _options([param for param in group.commands["up"].params if param.name in ACCESS]),
        ".SH EXIT STATUS\n" + _tagged({trouble.name: trouble.meaning for trouble in EXITS}),
        ".SH ENVIRONMENT\n" + _tagged(_VARIABLES),
        ".SH FILES\n" + _tagged(_FILES),
        f".SH EXAMPLE\n.nf\n{_EXAMPLE}\n.fi",
        ".SH SEE ALSO\n.BR ssh (1),\n.BR ssh_config (5)",
    ]
    return "\n".join(parts) + "\n"


def _command(name: str, command: Any) -> str:
    arguments = [param for param in command.params if param.param_type_name == "argument"]
    words = " ".join(["dtctl", name, "[OPTIONS]", *(param.metavar for param in arguments)])
    own = [param for param in command.params if param.name not in ACCESS]
    described = {param.metavar: param.help for param in arguments if param.help}
    return "\n".join(
        filter(None, [f".SS {_escaped(words)}", _escaped(command.help.strip()), _tagged(described), _options(own)])
    )


def _options(params: list[Any]) -> str:
    shown = {}
    for param in params:
        if param.param_type_name != "option" or param.hidden or "completion" in param.name:
            continue
        value = "" if param.is_flag else f" {param.metavar}"
        shown[", ".join(param.opts) + value] = param.help or ""
    return _tagged(shown)


def _tagged(entries: dict[str, str]) -> str:
    return "\n".join(f".TP\n.B {_escaped(name)}\n{_escaped(text)}" for name, text in entries.items())


def _escaped(text: str) -> str:
    """As roff reads it: no line begins a request, and a hyphen is one that can be copied."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


def _completion(shell: str) -> str:
    """What the command itself prints for the shell."""
    variable = "_DTCTL_COMPLETE"
    said = io.StringIO()
    os.environ[variable] = f"source_{shell}"
    try:
        with contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
            app(prog_name="dtctl")
    finally:
        del os.environ[variable]
    text = said.getvalue().strip()
    assert "dtctl" in text, shell
    return text + "\n"


def _autoloaded(script: str) -> str:
    """zsh takes the whole file for the function `_dtctl`: the first call of it has to complete, too."""
    return script + 'if [ "$funcstack[1]" = "_dtctl" ]; then\n  _dtctl_completion "$@"\nfi\n'
