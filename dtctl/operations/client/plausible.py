"""Checks that a host's answer matches the request, and is about things that the host may report. Each rule raises
InvalidValue.

That a record has its form was checked before (transport/wire.py).
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from typing import TYPE_CHECKING

from dtctl.agent.records.kinds import InvalidValue
from dtctl.agent.records.spec import Inventory, added_by, hosts_of, job_of
from dtctl.agent.records.values import is_storage_url

if TYPE_CHECKING:
    from dtctl.agent.records.answers import RestartResult, States, StatusResult, StopResult, Survivor
    from dtctl.agent.records.checkpoints import CheckpointReport
    from dtctl.agent.records.run_state import State
    from dtctl.agent.records.whole_run import Account, RunView
    from dtctl.model import Host
    from dtctl.operations.run_record import RunRecord


def wrong(field: str, expected: str, found: object) -> InvalidValue:
    """The error for a field, named as in `state.host`."""
    error = InvalidValue(expected, found)
    error.path = [field]
    return error


def check_run(cluster: str, asked: str | None, reported: str, field: str = "run") -> None:
    """Checks the run's id: the one that was asked for, or else one with the form of an id of this cluster
    (up.launch.run_id).
    """
    if asked is not None and reported != asked:
        raise wrong(field, asked, reported)
    if not reported.startswith(f"{cluster}-"):
        raise wrong(field, f"a run of {cluster}", reported)


def check_tasks(field: str, reported: Iterable[str], known: Container[str]) -> None:
    for task in reported:
        if task not in known:
            raise wrong(f"{field}.{task}", "a task that was asked for", task)


def check_survivors(reported: Iterable[Survivor], known: Container[str]) -> None:
    check_tasks("survivors", (one["task"] for one in reported if one["task"] is not None), known)


def check_state(field: str, state: State, run: str, host: str, tasks: Container[str]) -> None:
    """Checks that a host reports its own tasks of the run only."""
    if state["run"] != run:
        raise wrong(f"{field}.run", run, state["run"])
    if state["host"] != host:
        raise wrong(f"{field}.host", host, state["host"])
    check_tasks(f"{field}.tasks", state["tasks"], tasks)


def check_states(reported: States, host: str, tasks: Container[str]) -> State:
    """The state of the host's own tasks, in a frame that says how they have changed."""
    if reported["state"] is None:
        raise wrong("state", f"that of {host}", None)
    check_state("state", reported["state"], reported["run"], host, tasks)
    return reported["state"]


def check_directories(field: str, reported: Iterable[CheckpointReport]) -> None:
    """Checks that a host names directories of its own: storage URLs come from the cluster file alone.

    The controller opens them itself, with the user's credentials.
    """
    for index, report in enumerate(reported):
        if is_storage_url(report["dir"]):
            raise wrong(f"{field}.{index}.dir", "a directory of the host", report["dir"])


def check_status(cluster: str, host: str, answer: StatusResult) -> None:
    check_directories("checkpoints", answer["checkpoints"])
    run = answer["run"]
    if run is None:
        return
    inventory, state = answer["inventory"], answer["state"]
    if inventory is None:
        raise wrong("inventory", "that of the run", None)
    if state is None:
        raise wrong("state", f"that of {host}", None)
    check_inventory(inventory, cluster, run)
    check_state("state", state, run, host, tasks_of(inventory).get(host, ()))
    check_tasks("intents", answer["intents"], tasks_of(inventory).get(host, ()))
    if answer["coordination"] is not None:
        check_coordinator(host, inventory)
        check_view(answer["coordination"], run, possible_tasks(inventory))


def check_part(record: RunRecord, host: Host, answer: StopResult | RestartResult) -> Collection[str]:
    """Checks the tasks that a host reports when it was asked to act: all of the run's as its coordinator, or its
    own.
    """
    inventory = answer["inventory"]
    check_inventory(inventory, record.cluster, answer["run"])
    tasks = tasks_of(inventory)
    for name in answer["unreached"]:
        if name not in tasks:
            raise wrong("unreached", "hosts of the run", name)
    if answer["coordination"] is not None:
        check_coordinator(host.name, inventory)
        return [task for named in tasks.values() for task in named]
    own = tasks.get(host.name, ())
    if record.run is not None:
        check_tasks("inventory.roster", own, record.names_on(host.name))
    return own


def check_coordinator(host: str, inventory: Inventory) -> None:
    """Checks that the lead's host, or an elected one, reports the whole run; no other host may do so."""
    if host != inventory["elected"] and all(
        (one["task"], one["host"]) != (inventory["lead"], host) for one in inventory["roster"]
    ):
        raise wrong("coordination", f"nothing, as {inventory['lead']} is not on {host}", "that of a whole run")


def check_inventory(inventory: Inventory, cluster: str, run: str) -> None:
    if inventory["cluster"] != cluster:
        raise wrong("inventory.cluster", cluster, inventory["cluster"])
    if inventory["run"] != run:
        raise wrong("inventory.run", run, inventory["run"])


def check_view(view: RunView, run: str, tasks: Mapping[str, Collection[str]]) -> None:
    """Checks that a coordinator reports hosts and tasks of its run only. `tasks`: host -> its tasks."""
    if view["run"] != run:
        raise wrong("coordination.run", run, view["run"])
    every = {task for named in tasks.values() for task in named}
    jobs = set(map(job_of, every))
    every |= {one["task"] for one in added_by(view["moved"]) if job_of(one["task"]) in jobs}  # the same of its tasks
    for host, contact in view["hosts"].items():
        if host not in tasks and host not in view["moved"]["joined"]:  # its own host may not follow that yet
            raise wrong(f"coordination.hosts.{host}", "a host of the run", host)
        if contact["state"] is not None:
            check_state(f"coordination.hosts.{host}.state", contact["state"], run, host, tasks.get(host, ()))
    check_tasks("coordination.intents", view["intents"], every)
    for condition in (view["condition"], *view["conditions"]):
        check_tasks("coordination.condition.cause", filter(None, [condition["cause"]]), every)
    for number, incident in enumerate(view["incidents"]):
        named = (incident["task"], *incident["tasks"], *(one["task"] for one in incident["collateral"]))
        check_tasks(f"coordination.incidents.{number}.tasks", named, every)
    if view["account"] is not None:
        check_account(view["account"])


def check_account(account: Account) -> None:
    """Checks an account of time: spans follow one another without a gap, and end by now."""
    end_s = sum(account["before"].values())
    for number, one in enumerate(account["spans"]):
        if not end_s - 1.0 <= one["end_s"] <= account["seconds"] + 1.0:
            raise wrong(f"coordination.account.spans.{number}", f"from {end_s:g} s on, by now", one["end_s"])
        end_s = one["end_s"]
    if end_s > account["seconds"] + 1.0:
        raise wrong("coordination.account.before", f"no more than {account['seconds']:g} s", end_s)


def tasks_of(inventory: Inventory) -> Mapping[str, Collection[str]]:
    """Host -> the tasks that it may speak of: its own, and those that it had before another took its place."""
    found: dict[str, list[str]] = {host: [] for host in hosts_of(inventory)}
    for member in inventory["roster"]:
        for host in {member["host"], member["slot"] or member["host"]}:
            found[host].append(member["task"])
    return found


def possible_tasks(inventory: Inventory) -> Mapping[str, Collection[str]]:
    """Host -> the tasks that it has, or has had since the start: a spare may have had any that it can take."""
    found = dict(tasks_of(inventory))
    for host, spare in inventory["spares"].items():
        found[host] = {*found[host], *spare["addresses"]}
    return found
