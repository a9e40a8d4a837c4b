"""The pages that are made from what `dtctl explain` knows: exit codes, troubleshooting, the glossary."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dtctl.operations.findings import Cost, Signature, fails
from dtctl.render.findings import pattern_of
from dtctl.render.manual import ANSWERS, EXITS, STATES, WORDS, Trouble
from dtctl.rooms.check import Topic, found
from dtctl.rooms.check.checking import topics
from dtctl.rooms.diagnose.signatures import SIGNATURES

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
        "host once (processes, ports, connections between the hosts, disks, memory, versions, ends of logs) and "
        "reports all that it finds. `dtctl events` shows what happened, and why, `dtctl logs TASK -n all` what the "
        "trainer printed. `-v` shows each step on each host.",
        "## By exit code",
        *_sections(trouble for trouble in EXITS if trouble.causes),
        "## By what `dtctl diagnose` finds",
        "The most important comes first, and stands in `dtctl status`; the name of each is its `signature` with "
        "`-o json`. A task that others wait for is shown with them: `worker:0 has waited 40s for ps:1 on ps-b:2223, "
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
    "Each host listens on the ports of its tasks for some seconds, the lead's host also on the coordinator's. Every "
    "other host connects to them at the address that the tasks will use, and verifies that the right host answers, "
    "with more bytes than fit into one packet. Ports of a live run are connected to and not touched. The result is the "
    "cause that explains most failures, not a table. Above 4,000 connections (while a run starts, above 16 a host) a "
    "sample is tried, and the output says how many.",
    "- `--deep` lets hosts exchange data in pairs, with several partners each. A host counts as slow if it stays below "
    "0.8 of the median with its best partner (far below, if the others differ much). Four to eight seconds, with the "
    "network fully loaded. With two hosts the slow one cannot be identified.\n"
    "- `--print-firewall nftables` (or `iptables`, `ufw`) contacts no host. It prints, for each host, rules that admit "
    "the cluster's hosts to the tasks' ports and no other machines, and the commands that remove them. They admit the "
    "addresses that tasks are given, so run `dtctl check` once they are loaded. See "
    "[Security](security.md#the-ports-of-tasks), also for `dtctl up --require-private`.",
)
_SSH = (
    "The login shell is started once on each host, as sshd starts it for a command. `MaxStartups` and `MaxSessions` "
    "come from `sshd -T` if you log in as root, else from the configuration file of this sshd if you may read it; "
    "otherwise they are unknown.",
)
_SPEED = (
    "Only with `--deep`. Each host multiplies matrices for some seconds, with NumPy on all processors, and with "
    "TensorFlow or PyTorch on each GPU if the programs import them. A host below 0.8 of the median (far below, if the "
    "others differ much) is named, with what is different there. The GPU part was tested with stand-ins for "
    "NVML and the framework, not on a GPU. For slow networks see [network](#network).",
)
_URLS = (
    "The trainers' own Python is asked to write, read, list and remove at the storage URLs of the run, with the "
    "trainers' variables and secrets: see [Storage in a bucket](storage-urls.md#before-the-start). `dtctl up` asks "
    "this, too.",
)
_INTRODUCED = {"network": _NETWORK, "urls": _URLS, "ssh": _SSH, "speed": _SPEED}
"""What stands above the signatures of a topic."""


def _topic(topic: Topic[Any, Any]) -> tuple[str, ...]:
    return (f"## {topic.name}", *_INTRODUCED.get(topic.name, ()), *map(_row, topic.rows))


def checks() -> str:
    return _page(
        "# Check hosts before the start",
        "<!-- Written by docs/generate.py from dtctl/rooms/check; change it there. -->",
        "    dtctl check             every host of the cluster file here\n"
        "    dtctl check --local     this machine in place of all hosts\n"
        "    dtctl check --deep      also real imports, slow hosts and slow networks",
        "`dtctl check` asks all hosts of a cluster file at once, over one connection each. It prints the facts, with "
        "equal hosts on one line, then what is wrong, why, and what to type:",
        _CHECKED,
        "A **problem** would make the run fail or go wrong; the exit code is 5. A **warning** leaves it at 0. "
        "`-o json` has every finding with its name (`signature`, the headings below) and its fields. Nothing is "
        "installed, started or changed. Shared directories are recognised by small files `.dtctl-check-...`, which "
        "the check removes, or, if it was killed, the next one.",
        "`dtctl up` applies the same rules, and asks only what costs the hosts next to nothing: versions, disks, "
        "clocks, the tasks' ports, and who sees the checkpoints. What only `check` asks is marked below. `up` warns "
        "and starts all the same, except where tasks are certain to fail (a missing Python, module or GPU, a syntax "
        "error, a bucket that cannot be used) or no host would have a whole checkpoint; then it prints the ways "
        "out. `dtctl up --force` starts all the same, `dtctl up --no-check` asks nothing, and "
        "`recovery.allow_scratch: true` accepts that a lost task starts over from nothing.",
        *(part for topic in topics() for part in _topic(topic)),
    )


def _row(one: Signature) -> str:
    level = "Problem" if fails(found(one.name, ())) else "Warning"
    remedies = "\n".join(f"- {_typed(remedy)}" for remedy in one.remedy)
    asked = _ASKED[one.cost]
    return f"### {one.name}\n\n**{level}{asked}:** {pattern_of(one.means)}\n\n{remedies}"


_ASKED = {Cost.START: "", Cost.CHECK: ", by `dtctl check`", Cost.DEEP: ", by `dtctl check --deep`"}
"""Who asks the hosts for it; also `up` if that is empty."""


def _answers() -> str:
    rows = []
    for trouble in ANSWERS:
        why = "; ".join(trouble.causes)
        remedy = "; ".join(trouble.causes.values())
        rows.append(f"| `{trouble.name}` | {trouble.meaning} | {why} | {remedy} |")
    return "\n".join(["| answer | means | why | what to do |", "|---|---|---|---|", *rows])


def _signatures() -> Iterable[str]:
    for one in SIGNATURES:
        rows = [f"- seen: {one.seen}", *([f"- also checked: {one.beside}"] if one.beside else [])]
        rows += [f"- it means: {pattern_of(one.means)}"]
        rows += ["- what to do: " + "; ".join(map(_typed, one.remedy))]
        yield f"### {one.title} (`{one.name}`)"
        yield "\n".join(rows)


def _typed(remedy: str) -> str:
    """A command as such, and what is said of it."""
    words, _, about = pattern_of(remedy).partition("    ")
    if words.startswith("dtctl "):
        return f"`{words}` {about}".rstrip()
    return f"{words} ({about})" if about else words


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
