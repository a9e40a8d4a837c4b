"""What more workers or more ps tasks would bring, from what was measured of those there are."""

from __future__ import annotations

import pytest

from dtctl.rooms.speed.document import speed as document
from dtctl.rooms.speed.facts import Facts, Minute
from dtctl.rooms.speed.growth import expected_gain, growth
from dtctl.rooms.speed.operation import Speed
from dtctl.rooms.speed.telling_screen import growth_lines
from tests.unit.test_speed_verdicts import M, both, minute, of_two, use


def test_workers_that_hardly_wait_grow_almost_in_proportion() -> None:
    found = growth(Facts(of_two((4.0, 4.0), 3.5, (0.1, 0.1))))
    assert found is not None
    assert [one.tasks for one in found.workers] == [3, 4]
    least, most = found.workers[0].gain
    assert 1.3 < least < most == pytest.approx(1.5)
    assert found.servers == ()


def test_a_ps_that_is_busy_most_of_the_time_limits_any_number_of_workers() -> None:
    found = growth(Facts(of_two((110.0, 2.0), 0.4, (0.9, 0.02))))
    assert found is not None
    assert found.limited_by == "ps:0"
    assert found.limit is not None
    assert found.limit.least == pytest.approx(1 / 0.9)
    assert all(one.gain.least < 1.1 for one in found.workers)
    (servers,) = found.servers
    assert servers.tasks == 4
    assert servers.gain.least == 1.0
    assert servers.gain.most > 1.8


def test_a_thread_that_is_always_busy_lets_no_worker_add_anything() -> None:
    tasks = {"ps:0": use(1.0), "worker:0": use(0.2), "worker:1": use(0.2)}
    found = growth(Facts(minute(tasks, both("ps:0", "worker:0", M, M, (0.1, 0.1)))))
    assert found is not None
    assert [one.gain for one in found.workers] == [(1.0, 1.0), (1.0, 1.0)]


def test_more_workers_in_a_ring_exchange_more_bytes_each() -> None:
    two = minute({"worker:0": use(0.5), "worker:1": use(0.5)}, both("worker:0", "worker:1", 10 * M, 10 * M, (0.2, 0.2)))
    gain = expected_gain(Facts(two), 4)
    assert gain is not None
    assert gain.least == pytest.approx(2 / 1.2)
    assert gain.most == 2.0


@pytest.mark.parametrize("tasks", [{"worker:0": use(0.5)}, {"ps:0": use(0.1)}])
def test_nothing_is_expected_of_a_lone_worker_or_without_workers(tasks: dict[str, object]) -> None:
    found = growth(Facts(minute(tasks, [])))  # type: ignore[arg-type]
    assert found is None or found.workers == ()


def test_what_more_tasks_bring_is_on_the_screen_and_in_the_machine_form() -> None:
    speed = measured(of_two((110.0, 2.0), 0.4, (0.9, 0.02)))
    assert growth_lines(speed) == [
        "with more tasks, each on a host of its own:",
        "  3 workers: 1.0 to 1.5 times the examples/s",
        "  4 workers: 1.1 to 2.0 times the examples/s",
        "  4 ps tasks, the variables spread evenly: 1.0 to 3.0 times",
        "  any number of workers: 1.1 to 2.2 times at most, because ps:0 is busy all the time",
    ]
    found = document(speed)["growth"]
    assert [one["tasks"] for one in found["workers"]] == [3, 4]
    assert found["limitedBy"] == "ps:0"


def measured(one: Minute) -> Speed:
    facts = Facts(one)
    return Speed("digits-1", (), 1, facts, 1.0, 99.0, growth(facts))
