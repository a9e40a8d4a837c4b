"""The sources of published_sources.txt."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Published:
    kind: str
    title: str
    jobs: str
    """The tasks by job, or what refuses it."""
    text: str

    @property
    def refusal(self) -> str | None:
        words, _, why = self.jobs.partition("refused: ")
        return why if not words and why else None


def published(kind: str | None = None) -> list[Published]:
    parts = Path(__file__).with_name("published_sources.txt").read_text().split("\n---- ")[1:]
    found = []
    for part in parts:
        head, _, text = part.partition("\n")
        own, title, jobs = head.split(" | ")
        found.append(Published(own.strip(), title.strip(), jobs.strip(), text + "\n"))
    return [one for one in found if kind in (None, one.kind)]
