"""The table of docs/checkpoints.md, from the rows of dtctl/agent/checkpoints/formats.py."""

from __future__ import annotations

from dtctl.agent.checkpoints.formats import FORMATS

BEGIN = "<!-- docs/generate.py writes the table from dtctl/agent/checkpoints/formats.py. -->"
END = "<!-- The end of the table. -->"


def with_table(page: str) -> str:
    """The page with the table between its marks."""
    head, _, rest = page.partition(BEGIN)
    rows = [
        f"| {row.title} | {texts.recognised} | {texts.whole} | {texts.step} | {texts.temporary} | {texts.newest} |"
        for row in FORMATS
        for texts in [row.texts]
    ]
    titles = "| format | recognised by | complete when | step | temporary | the trainer finds the newest |"
    table = "\n".join([titles, "|---|---|---|---|---|---|", *rows])
    return f"{head}{BEGIN}\n\n{table}\n\n{END}{rest.partition(END)[2]}"
