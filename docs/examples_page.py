"""docs/examples.md: the files of `examples`, each with what it is for."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

_TITLES = {
    "async-ps": "Asynchronous, with parameter servers",
    "sync-ps": "Synchronous, with parameter servers",
    "ps-strategy": "ParameterServerStrategy",
    "mirrored": "Mirrored, without parameter servers",
    "behind-a-jump-host": "Machines behind a jump host",
}


def examples() -> str:
    parts = [
        "# Examples",
        "<!-- Written by docs/generate.py from examples/*.yaml; change it there. -->",
        "Whole cluster files for the four usual strategies, and one for machines behind a jump host. Each goes "
        "with a trainer of `dtctl init`; to use one, write the trainer, put the file in the place of its "
        "`cluster.yaml`, and change hosts and paths. [Concepts](concepts.md) says when to choose which way; "
        "`dtctl explain KEY` describes a key.",
    ]
    for name, title in _TITLES.items():
        text = (EXAMPLES / f"{name}.yaml").read_text("utf-8")
        about, _, rest = text.partition("\n#\n")
        parts += [f"## {title}", about.removeprefix("# "), f"```yaml\n# {rest.removeprefix('# ').rstrip()}\n```"]
    return "\n\n".join(parts) + "\n"
