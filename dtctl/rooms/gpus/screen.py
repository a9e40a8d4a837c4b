"""The GPUs of hosts as one table, a line for the hosts without any, and the number of those that are free."""

from __future__ import annotations

from collections.abc import Mapping

from dtctl.agent.records.vitals import Gpu, Gpus, GpuUser
from dtctl.agent.rooms.gpus.records import GpusResult
from dtctl.model import grouped
from dtctl.render import gpus as cells
from dtctl.render.format import summarize_hosts
from dtctl.render.terminal import console
from dtctl.rooms.gpus.operation import is_free

_MOST_USERS = 3
"""The most users in a cell; JSON has all."""


def show_gpus(answers: Mapping[str, GpusResult]) -> None:
    rows = [(host, gpu) for host, answer in answers.items() for gpu in answer["gpus"]["each"]]
    if rows:
        columns = {
            "HOST": [host for host, _ in rows],
            "GPU": [str(gpu["index"]) for _, gpu in rows],
            "MODEL": [gpu["name"] for _, gpu in rows],
            "GPU USE": [cells.use([gpu]) for _, gpu in rows],
            "GPU MEMORY": [cells.memory([gpu]) for _, gpu in rows],
            "USED BY": [_used_by(gpu) for _, gpu in rows],
        }
        console.print_table(console.table(columns, dropped=("MODEL", "GPU USE", "GPU MEMORY")))
    bare = {host: answer["gpus"] for host, answer in answers.items() if not answer["gpus"]["each"]}
    for why, hosts in grouped((_why_none(known), host) for host, known in bare.items()).items():
        console.say(f"{summarize_hosts(hosts)}: {why}")
    if not rows:
        return
    free = sum(is_free(gpu) for _, gpu in rows)
    console.say(f"{free} of {len(rows)} GPUs {'is' if free == 1 else 'are'} free")


def _used_by(gpu: Gpu) -> str:
    if gpu["lost"] or is_free(gpu):
        return ""
    users = list(dict.fromkeys(map(_user, gpu["users"])))
    more = f" and {len(users) - _MOST_USERS} more" if len(users) > _MOST_USERS else ""
    return ", ".join(users[:_MOST_USERS]) + more or "unknown"


def _user(one: GpuUser) -> str:
    """A task with its run, where dtctl has started it; else who runs which program."""
    if one["run"]:
        return f"{one['task']} of {one['run']}"
    name = one["name"] or f"process {one['pid']}"
    return f"{name} of {one['user']}" if one["user"] else name


def _why_none(known: Gpus) -> str:
    """The hosts of one sentence share a line; without a driver there is nothing else to say."""
    return _WHY_NONE.get(known["problem"], f"its GPUs are unknown: {known['text']}")


_WHY_NONE = {"": "no GPUs", "no_driver": "no GPUs", "silent": "its GPUs are unknown, as their driver does not answer"}
