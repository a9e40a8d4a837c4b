"""The pages that are made from what `dtctl explain` knows: exit codes, troubleshooting, the glossary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dtctl.operations.checks.checking import TOPICS
from dtctl.operations.checks.topic import Topic, fails, found
from dtctl.operations.diagnosis.signature import Signature
from dtctl.operations.diagnosis.signatures import SIGNATURES
from dtctl.render.diagnosis import pattern_of
from dtctl.render.manual import ANSWERS, EXITS, STATES, WORDS, Trouble

_WRITTEN = "<!-- Written by docs/generate.py from dtctl/render/manual.yaml; change it there. -->"


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
        "`dtctl explain` with the words of an error: `dtctl explain 'No module named numpy'`.",
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


_CHECKED = """\
    storage
      checkpoints: ~/saved is on gpu-1 alone
    software
      Python      3.11.7
      tensorflow  gpu-[1-7]: 2.21.0; gpu-8: 2.19.0
    machine
      memory      67.4 GB
      clock       right

    problem: tensorflow is not the same everywhere: 2.19.0 on gpu-8, 2.21.0 on gpu-[1-7]. Its ...
      dtctl exec @gpu-8 -- /usr/bin/python3 -m pip install tensorflow==2.21.0

    gpu-[1-8] checked in 1.9 s: 1 problem"""


_NETWORK = (
    "Each host listens on the ports of its tasks, and the lead's on the coordinator's too, for some seconds. Every "
    "other host connects to them at the address that the tasks are given, and makes sure that the right host answers, "
    "and with more bytes than fit into one packet. A port of a live run is not touched, but connected to. What does "
    "not work is told as the cause that explains most of it, and not as a table. Above 4,000 connections a part is "
    "tried: each host tries others, and is tried by others, at evenly spread distances, and the ps and the "
    "coordinator are tried by more; how many were tried is said. While a run starts, a part is tried above "
    "16 connections a host.",
    "`--network-speed` measures latency and bandwidth between workers and ps, so that no host takes part in two "
    "measurements at a time, and tells what that means for a step: the bytes of the newest checkpoint, shared among "
    "the ps, there and back. Each measurement takes about a second.",
    "`--deep` lets the hosts exchange data in pairs, three times, with another partner each time. A host counts as fast"
    " as with the best of its partners, so a slow one makes none of them look slow; who was slow with all of them "
    "meets fast ones up to three times more, while nobody else sends. That takes four to eight seconds, and as much of "
    "the network as there is. What is below 0.8 of the middle of the others is slow; where the others differ much "
    "among themselves, as on machines that are busy, only what is far below. Of two hosts nobody can tell which one "
    "is slow.",
    "`--print-firewall nftables` (or `iptables`, `ufw`) contacts nobody. It prints rules for each host by which the "
    "cluster's hosts reach the ports of its tasks, and nobody else does, and the commands that take them away; "
    "[security](security.md#the-ports-of-tasks) says why, and what `dtctl up --require-private` does. They let hosts "
    "in by the addresses that the tasks are given: one that connects from another of its addresses is shut out. Look "
    "with `dtctl check` when they are loaded.",
)
_SSH = (
    "The login shell is started once on each host, as sshd starts it for a command. `MaxStartups` and `MaxSessions` "
    "are what `sshd -T` tells, where the login is root's; else what the file says that this sshd was started with, if "
    "it can be read. Else they are not known.",
)
_SPEED = (
    "With `--deep` alone. Each host multiplies matrices for some seconds, by NumPy on all its processors; where the "
    "programs import TensorFlow or PyTorch and `nvidia-smi` tells of GPUs, by that on each GPU, too. What is slower "
    "than 0.8 of the middle of the others (or far slower, where those differ much) is named, with what is different "
    "there. (The part with GPUs has been tried "
    "with a stand-in for `nvidia-smi` and for the framework, and never on a GPU.) Which host is slow to exchange data "
    "is told under [network](#network).",
)
_INTRODUCED = {"network": _NETWORK, "ssh": _SSH, "speed": _SPEED}
"""What stands above the signatures of a topic."""


def _topic(topic: Topic[Any, Any]) -> tuple[str, ...]:
    return (f"## {topic.name}", *_INTRODUCED.get(topic.name, ()), *map(_row, topic.rows))


def checks() -> str:
    return _page(
        "# Checks before the start",
        "<!-- Written by docs/generate.py from dtctl/operations/checks; change it there. -->",
        "    dtctl check             every host of the cluster file here\n"
        "    dtctl check --local     this machine, as if it were all of them\n"
        "    dtctl check --deep      also real imports, and which host computes slowly or has a slow network",
        "`dtctl check` looks at every host of a cluster file before anything starts there, at all side by side, by one "
        "connection and one process each. It tells what is so, hosts that have the same in one word, then what "
        "is wrong, why, and what to type:",
        _CHECKED,
        "A **problem** is what the run would fail of, or not do what it was started for; the exit code is 5 then. A "
        "**warning** leaves it at 0. `--local` checks this machine as the place of all hosts; `--deep` also does what "
        "takes seconds and loads the hosts; `-o json` tells all of it to programs, each finding with its name "
        "(`signature`) and its fields. Nothing is installed, started or changed. What is written for a moment, to see "
        "who else sees it, is a file `.dtctl-check-...` in the directories that the run writes to; it goes with the "
        "check, and what a killed one has left is removed by a later one.",
        "`dtctl up` checks by the way what costs next to nothing: versions (by the names of directories), disks, "
        "memory and clocks, in the very words by which it makes the hosts ready; and, when all are ready, the ports "
        "of the tasks from every other host, which takes one more round trip, and 1.5 s where connections are lost. "
        "It warns of what it finds, and starts all the same; `dtctl up --no-check` asks for none of it.",
        *(part for topic in TOPICS for part in _topic(topic)),
    )


def _row(one: Signature) -> str:
    rows = [
        f"### {one.name}",
        f"- {'problem' if fails(found(one.name, ())) else 'warning'}: {one.seen}",
        *([f"- read: {one.beside}"] if one.beside else []),
        f"- it says: {pattern_of(one.means)}",
        "- what to do: " + "; ".join(map(_typed, one.remedy)),
    ]
    return rows[0] + "\n\n" + "\n".join(rows[1:])


def _answers() -> str:
    rows = []
    for trouble in ANSWERS:
        why = "; ".join(trouble.causes)
        remedy = "; ".join(trouble.causes.values())
        rows.append(f"| `{trouble.name}` | {trouble.meaning} | {why} | {remedy} |")
    return "\n".join(["| answer | means | why | what to do |", "|---|---|---|---|", *rows])


def _signatures() -> Iterable[str]:
    for one in SIGNATURES:
        rows = [f"- seen: {one.seen}", *([f"- read beside it: {one.beside}"] if one.beside else [])]
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
        rows = (f"| {sign} | {remedy} |" for sign, remedy in trouble.causes.items())
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
