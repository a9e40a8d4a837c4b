"""Where TensorBoard is to run: on the host that has all event files, or here on copies of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from dtctl.agent.records.tensorboard import EventDirsResult
from dtctl.errors import DtctlError, PreflightError
from dtctl.operations.client.conversation import Request, ask, knows_no_run
from dtctl.operations.client.plausible import check_run
from dtctl.operations.history.record import RunRecord
from dtctl.transport.seam import Transport

Key = tuple[str, str, str]
"""A directory, the name below it, and what makes it the same on all hosts that share it."""

Choice = Literal["asked", "no_tensorboard", "several_hosts", "one_host", "no_files", "not_here"]
"""Why it runs where it does: `asked` for copies; the files are on `one_host`; they are on `several_hosts`, or that
host has `no_tensorboard`; there are `no_files` yet; they are on several hosts, and there is no TensorBoard here
(`not_here`)."""


@dataclass(frozen=True)
class Looked:
    """What the hosts have told; `run` None: none of them has one."""

    run: str | None
    answers: Mapping[str, EventDirsResult]
    errors: Mapping[str, DtctlError]


@dataclass(frozen=True)
class Place:
    """`host` None: here, on copies from `sources`. `left_out`: hosts whose event files are not shown."""

    host: str | None
    choice: Choice
    sources: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def look(record: RunRecord, transport: Transport) -> Looked:
    """By one connection to each host."""
    wanted = Request(
        "event_dirs", EventDirsResult, check=lambda _, answer: check_run(record.cluster, record.run, answer["run"])
    )
    outcomes = ask(record, transport, wanted)
    results = outcomes.results
    runs = [results[host]["run"] for host in sorted(results, key=lambda name: name != record.coordinator)]
    run = runs[0] if runs else None
    answers = {host: answer for host, answer in results.items() if answer["run"] == run}
    return Looked(run, answers, {host: error for host, error in outcomes.errors.items() if not knows_no_run(error)})


def choose(looked: Looked, coordinator: str, *, copy: bool, here: bool) -> Place:
    """`here`: this machine has TensorBoard. Raises PreflightError where there is none that could show them."""
    order = sorted(looked.answers, key=lambda host: (host != coordinator, host))
    every = {key for host in order for key in keys_of(looked.answers[host])}
    whole = [host for host in order if keys_of(looked.answers[host]) == every]
    able = [host for host in whole if looked.answers[host]["tensorboard"]]
    if copy:
        if not here:
            raise none_here()
        return Place(None, "asked", _sources(looked, order))
    if able:
        return Place(able[0], "one_host" if every else "no_files")
    if here:
        return Place(None, "no_tensorboard" if whole else "several_hosts", _sources(looked, order))
    return _some(looked, order)


def _some(looked: Looked, order: list[str]) -> Place:
    """On the host that can show the most of them. Raises PreflightError where none can."""
    with_it = [host for host in order if looked.answers[host]["tensorboard"]]
    if not with_it:
        tried = [
            f"{host} has none in {', '.join(answer['tried']) or 'any Python'}"
            for host, answer in looked.answers.items()
        ]
        raise PreflightError(
            "neither the hosts nor this machine have TensorBoard",
            detail="\n".join(tried[:10]),
            hint="pip install tensorboard    here, beside dtctl, or in the environment that trains",
        )
    host = max(with_it, key=lambda name: len(keys_of(looked.answers[name])))
    own = keys_of(looked.answers[host])
    return Place(host, "not_here", left_out=tuple(one for one in order if keys_of(looked.answers[one]) - own))


def none_here() -> PreflightError:
    return PreflightError(
        "this machine has no TensorBoard that could show copies",
        hint="pip install tensorboard    in the environment of dtctl, or in the active one",
    )


def _sources(looked: Looked, order: list[str]) -> tuple[str, ...]:
    """The hosts to copy from; not those that have files, and none but those of an earlier one."""
    seen: set[Key] = set()
    chosen = []
    for host in order:
        own = keys_of(looked.answers[host])
        if not own or own - seen:
            chosen.append(host)
        seen |= own
    return tuple(chosen)


def keys_of(answer: EventDirsResult) -> set[Key]:
    return {(one["dir"], one["name"], one["identity"]) for one in answer["folders"]}
