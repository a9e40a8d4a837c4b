"""Random faults, one after the other, from a seed."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator

from tests.faults import scenarios
from tests.faults.scene import Scene

Action = tuple[str, Callable[[Scene], None]]


def actions(tasks: dict[str, str]) -> list[Action]:
    """All that may happen to a run of these tasks ({task: host}), each with its name."""
    used = sorted(set(tasks.values()))
    return [
        *((f"kill -9 of {task}", scenarios.kill(task)) for task in tasks),
        *((f"kill -9 of {task} and its agent", scenarios.kill_agent_and_task(task)) for task in tasks),
        *((f"{task} is frozen", scenarios.freeze(task)) for task in tasks),
        *((f"kill -9 of the agent of {host}", scenarios.kill_agent(host)) for host in used),
        *((f"{host} loses files of its run", scenarios.lose_files(host, kill=False)) for host in used),
        *((f"{host} loses files of its run and its agent", scenarios.lose_files(host, kill=True)) for host in used),
        *((f"kill -9 of all on {host}", scenarios.kill_everything(host)) for host in used),
        *((f"{host} is cut off", scenarios.cut(host, 5)) for host in used),
        *((f"{host} reboots", scenarios.reboot(host)) for host in used),
        *((f"{host} hears nothing", scenarios.cut_one_way(host, 12, deaf=True)) for host in used),
        *((f"{host} is not heard", scenarios.cut_one_way(host, 12, deaf=False)) for host in used),
    ]


def faults_until(deadline: float, seed: int, tasks: dict[str, str]) -> Iterator[Action]:
    """Until the monotonic clock shows `deadline`."""
    rng = random.Random(seed)
    every = actions(tasks)
    while time.monotonic() < deadline:
        yield rng.choice(every)
