"""Writes what is made from the code: pages of docs, and what `share` holds.

It fills the lines of every page, too.

python docs/generate.py            write them
python docs/generate.py --check    exit 1 if they are not in step
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import checkpoint_formats
import examples_page
import manual_pages
import prose
import python_reference
import rooms_on_pages
import shipped
import typer.main

from dtctl.cli.app import app
from dtctl.cli.options import ACCESS
from dtctl.cli.table import COMMANDS, Effect
from dtctl.config.reference import markdown

DOCS = Path(__file__).resolve().parent
PAGES = [*(DOCS.parent / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG")), *sorted(DOCS.glob("*.md"))]


def commands_markdown() -> str:
    """The reference of the command line, from the commands themselves."""
    group: Any = typer.main.get_command(app)
    parts = [
        "# Commands",
        "<!-- Written by docs/generate.py from the commands; change them there. -->",
        "`dtctl [OPTIONS] COMMAND`. What each command exits with: [exit-codes.md](exit-codes.md).",
        "Every command that works on a run finds it in this order: `--run ID`; `--cluster NAME`; the cluster file of "
        "`-c FILE` or `$DTCTL_CONFIG`; the `cluster.yaml` here or, in a repository, above. Where none of them says "
        "which cluster is meant, a command that changes something names the runs that were started from this machine, "
        "with the command to type for each, does nothing, and exits with 2. What it is about to end it names before.",
        _effects(),
        "How a host is reached is said by the options of the command, then by the cluster file, which may have changed "
        "since `up`, and then, where the file is gone, has mistakes or has not got the host any more, by what this "
        "machine remembers of the run.",
        "With `-o json` every reason comes twice: as the sentence of the text output (`reason`, and `message` in "
        "`conditions`), and as facts for programs (`why`): a list of objects, each with a `kind` and the fields of "
        'that kind, as in `[{"kind": "exited", "code": 3}]`; a kind `said` has nothing but a `text`.',
        "## Options before the command\n\n" + _table(group.params),
        "## Options of every command on hosts\n\n" + _table(_shared(group)),
    ]
    for name, command in group.commands.items():
        arguments = [param for param in command.params if param.param_type_name == "argument"]
        usage = " ".join(["dtctl", name, "[OPTIONS]", *(param.metavar for param in arguments)])
        text = [f"## dtctl {name}", command.help.strip(), f"    {usage}"]
        described = [f"- `{param.metavar}`: {param.help}" for param in arguments if param.help]
        text += ["\n".join(described)] if described else []
        own = [param for param in command.params if param.name not in ACCESS]
        text += [_table(own)] if _table(own) else []
        parts.append("\n\n".join(text))
    return "\n\n".join(parts) + "\n"


def _effects() -> str:
    rows = [
        f"| {', '.join(f'`{name}`' for name, its in COMMANDS.items() if its.effect is effect)} | {effect.value} |"
        for effect in Effect
    ]
    return "\n".join(["| commands | what they do |", "|---|---|", *rows])


def _shared(group: Any) -> list[Any]:
    return [param for param in group.commands["up"].params if param.name in ACCESS]


def _table(params: list[Any]) -> str:
    rows = []
    for param in params:
        if param.param_type_name != "option" or param.hidden or param.name in ("install_completion", "show_completion"):
            continue
        names = ", ".join(f"`{option}`" for option in param.opts)
        value = "" if param.is_flag or param.metavar is None else f" {_code(param.metavar)}"
        default = "" if param.default in (None, False) or callable(param.default) else f" (default: {param.default})"
        rows.append(f"| {names}{value} | {param.help or ''}{default} |")
    return "\n".join(["| option | meaning |", "|---|---|", *rows]) if rows else ""


def _code(text: str) -> str:
    """The text as code in a cell: no Markdown reads an entity between backticks."""
    return f"<code>{text.replace('|', '&#124;')}</code>" if "|" in text else f"`{text}`"


def pages() -> dict[Path, str]:
    """Every page as it has to be."""
    texts = {path: path.read_text("utf-8") for path in PAGES if path.is_file()}
    texts[DOCS / "commands.md"] = commands_markdown()
    texts[DOCS / "cluster-yaml.md"] = markdown()
    texts[DOCS / "exit-codes.md"] = manual_pages.exit_codes()
    texts[DOCS / "troubleshooting.md"] = manual_pages.troubleshooting()
    texts[DOCS / "check.md"] = manual_pages.checks()
    texts[DOCS / "glossary.md"] = manual_pages.glossary()
    texts[DOCS / "examples.md"] = examples_page.examples()
    texts[DOCS / "python-api.md"] = python_reference.python_api(texts[DOCS / "python-api.md"])
    texts[DOCS / "checkpoints.md"] = checkpoint_formats.with_table(texts[DOCS / "checkpoints.md"])
    texts[DOCS / "architecture.md"] = rooms_on_pages.with_names(texts[DOCS / "architecture.md"])
    texts[DOCS / "agent.md"] = rooms_on_pages.with_requests(texts[DOCS / "agent.md"])
    return {**{path: prose.filled(text) for path, text in texts.items()}, **shipped.files()}


def main() -> None:
    wanted = pages()
    stale = [path for path, text in wanted.items() if not path.is_file() or path.read_text("utf-8") != text]
    if sys.argv[1:] == ["--check"]:
        for path in stale:
            print(f"{path.relative_to(DOCS.parent)} is not in step with the code: make docs")
        sys.exit(1 if stale else 0)
    for path in stale:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(wanted[path], "utf-8")
        print(f"wrote {path.relative_to(DOCS.parent)}")


if __name__ == "__main__":
    main()
