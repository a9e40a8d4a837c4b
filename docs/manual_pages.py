"""The pages that are made from what `dtctl explain` knows: exit codes, troubleshooting, the glossary."""

from __future__ import annotations

from collections.abc import Iterable

from dtctl.operations.diagnosis.table import SIGNATURES
from dtctl.render.health.findings import pattern_of
from dtctl.render.manual.answers import ANSWERS
from dtctl.render.manual.exits import EXITS
from dtctl.render.manual.glossary import STATES, WORDS
from dtctl.render.manual.trouble import Trouble

_WRITTEN = "<!-- Written by docs/generate.py from dtctl/render/manual; change it there. -->"


def exit_codes() -> str:
    rows = (f"| {trouble.name} | {trouble.meaning} |" for trouble in EXITS)
    after = (
        "`dtctl exec` exits with the highest exit status among its commands; a command that signal n killed counts as "
        "128 + n. [Troubleshooting](troubleshooting.md) has the causes of each code and what to do, and so has "
        "`dtctl explain 5`."
    )
    return _page("# Exit codes", _WRITTEN, "\n".join(["| code | meaning |", "|---|---|", *rows]), after)


def troubleshooting() -> str:
    return _page(
        "# Troubleshooting",
        _WRITTEN,
        "What to do when something goes wrong. Every error of dtctl says what was tried, where, what came back, and "
        "what to type next; start there. This page goes by the exit code (`echo $?`) and by the answers of hosts. "
        "`dtctl explain 5` and `dtctl explain port_taken` show the same in the terminal, and so does "
        "`dtctl explain` with the words of an error: `dtctl explain 'it lacks numpy'`.",
        "`dtctl status` says on top what is most wrong with a run, why, and what to type; `dtctl diagnose` asks every "
        "host once (processes, ports, connections between the hosts, disks, memory, versions, ends of logs) and tells "
        "all that it finds. `dtctl events` tells what happened, and why, `dtctl logs TASK -n all` what the trainer "
        "said. `-v` shows each step on each host.",
        "## By exit code",
        *_sections(trouble for trouble in EXITS if trouble.causes),
        "## By what `dtctl diagnose` finds",
        "The most important comes first, and stands in `dtctl status`; the name of each is its `signature` with "
        "`-o json`. A task that others wait for is told with them: `worker:0 has waited 40s for ps:1 on ps-b:2223, "
        "which exited 1 at 10:02:11: ModuleNotFoundError: No module named 'sklearn'`.",
        *_signatures(),
        "## By a host's answer",
        "With `-o json` each error of a host has its answer as `code`.",
        _answers(),
    )


def _answers() -> str:
    rows = []
    for trouble in ANSWERS:
        why = "; ".join(cause.sign for cause in trouble.causes)
        remedy = "; ".join(cause.remedy for cause in trouble.causes)
        rows.append(f"| `{trouble.name}` | {trouble.meaning} | {why} | {remedy} |")
    return "\n".join(["| answer | means | why | what to do |", "|---|---|---|---|", *rows])


def _signatures() -> Iterable[str]:
    for one in SIGNATURES:
        rows = [f"- seen: {one.seen}", *([f"- read beside it: {one.joins}"] if one.joins else [])]
        rows += [f"- it means: {pattern_of(one.means)}"]
        rows += ["- what to do: " + "; ".join(map(_typed, one.remedy))]
        yield f"### {one.name}"
        yield "\n".join(rows)


def _typed(remedy: str) -> str:
    """A command as such, and what is said of it."""
    words, _, about = pattern_of(remedy).partition("    ")
    if not words.startswith("dtctl "):
        return words
    return f"`{words}`" + (f" {about}" if about else "")


def _sections(troubles: Iterable[Trouble]) -> Iterable[str]:
    for trouble in troubles:
        yield f"### {trouble.name}: {_title(trouble.meaning)}"
        if _title(trouble.meaning) != trouble.meaning:
            yield f"{trouble.meaning[0].upper()}{trouble.meaning[1:]}."
        rows = (f"| {cause.sign} | {cause.remedy} |" for cause in trouble.causes)
        yield "\n".join(["| seen | what to do |", "|---|---|", *rows])


def _title(meaning: str) -> str:
    """A few words of it."""
    for end in (" (", ";", ". ", ", which", ", refuse", ", or", " or a command"):
        meaning = meaning.partition(end)[0]
    return meaning


def glossary() -> str:
    return _page(
        "# Glossary",
        _WRITTEN,
        "One word, one thing. TensorFlow's own words where it has them. `dtctl explain WORD` shows them too; "
        "[concepts](concepts.md) explains what is behind them.",
        "\n".join(["| word | means |", "|---|---|", *(f"| **{word}** | {text} |" for word, text in WORDS.items())]),
        "## States of a task",
        "\n".join(["| state | means |", "|---|---|", *(f"| `{state}` | {text} |" for state, text in STATES.items())]),
    )


def _page(*parts: str) -> str:
    return "\n\n".join(parts) + "\n"
