"""dtctl explain"""

from __future__ import annotations

from typing import Annotated

import typer

from dtctl.cli.options import OutputOption


def _complete(incomplete: str) -> list[str]:
    from dtctl.render.manual.topics import names

    return [name for name in sorted(names()) if name.startswith(incomplete)]


def explain(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]",
            help="A key of cluster.yaml (trainer.command), an exit code (5), an answer of a host (port_taken), or a "
            "word (lead); all are listed if it is omitted.",
            autocompletion=_complete,
        ),
    ] = None,
    output: OutputOption = "text",
) -> None:
    """Explain a key of cluster.yaml, an exit code or a word."""
    import dataclasses

    from dtctl.render import explain
    from dtctl.render.machine import document
    from dtctl.render.manual.topics import find, listed

    if not topic:
        if output == "json":
            document.print_json("Explanations", {"topics": listed()})
        else:
            explain.show_list(listed())
        return
    found = find(topic)
    if output == "json":
        document.print_json("Explanation", {"topics": [dataclasses.asdict(one) for one in found]})
    else:
        explain.show(found)
