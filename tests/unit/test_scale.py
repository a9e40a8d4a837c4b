"""Commands for a run in memory: what one costs in messages and connections does not depend on the number of hosts."""

from __future__ import annotations

from functools import partial

import pytest

from tests.scale import bench
from tests.unit.agent.coordinate.counting import executed

OF_ONE_HOST = ("status", "restart worker:3", "drain host-7", "undrain host-7", "stop worker:4", "restart worker:4")


def costs(hosts: int) -> dict[str, tuple[int, int, int, list[str]]]:
    """Of each command: its exit code, the messages of the coordinator, how often it was saved, and whom it asked."""
    found = {}
    with bench(hosts) as desk:
        for command in OF_ONE_HOST:
            saved, asked = len(desk.written), len(desk.transport.opened)
            one = desk.type(command)
            found[command] = one.code, one.messages, len(desk.written) - saved, desk.transport.opened[asked:]
    return found


def test_command_about_one_host_costs_the_same_messages_among_40_hosts_as_among_10() -> None:
    few, many = costs(10), costs(40)
    assert few == many
    assert {code for code, *_ in few.values()} == {0}
    assert {tuple(asked) for *_, asked in few.values()} == {("host-0",)}, "the coordinator alone is asked"


@pytest.mark.parametrize("command", ["status", "status -o json", "events", "scale worker=5", "stop"])
def test_command_executes_four_times_as_much_for_four_times_as_many_hosts(command: str) -> None:
    lines = []
    for hosts in (16, 64):
        with bench(hosts) as desk:
            desk.type(command if command.startswith("status") else "status")  # what is imported and cached once
            lines.append(executed(partial(desk.type, command)))
    assert lines[1] <= 4.4 * lines[0]


@pytest.mark.parametrize("hosts", [10, 40])
def test_stop_sends_each_host_what_it_has_to_end_and_that_it_may_leave(hosts: int) -> None:
    with bench(hosts) as desk:
        stopped = desk.type("stop")
    assert stopped.code == 0, stopped.text
    assert stopped.messages <= 6 * hosts
