"""Why a run is not faster: each rule over measurements made for it, and those of healthy runs, which none must fit."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.speed.records import Flow, Interface, Parameters, Sample, Save, TaskUse
from dtctl.rooms.speed.expected import faster, holders, share_by_greedy
from dtctl.rooms.speed.facts import Facts, Minute, merged
from dtctl.rooms.speed.verdict import Verdict
from dtctl.rooms.speed.verdict_screen import sentences
from dtctl.rooms.speed.verdicts import judged

M = 1e6


def use(cpu: float, thread: float | None = None, **fields: Any) -> TaskUse:
    """A task that kept so many processors busy for a minute; `thread`: the share of its busiest thread."""
    thread_s = 60.0 * (min(1.0, cpu) if thread is None else thread)
    given = {"seconds": 60.0, "cpu_s": 60.0 * cpu, "thread_s": thread_s, "waits_s": 0.0, "step": 100, "rate": 10.0}
    return made(TaskUse, **{**given, **fields})


def flow(task: str, peer: str, host: str, sent: float = 0.0, received: float = 0.0, busy: float = 0.0) -> Flow:
    """Bytes a second, and the share of time with data under way."""
    carried = {"sent_bytes": 60 * sent, "received_bytes": 60 * received, "busy_s": 60 * busy}
    return made(Flow, task=task, peer=peer, host=host, connections=1, **carried)


def both(one: str, other: str, sent: float, received: float, busy: tuple[float, float]) -> list[tuple[str, Flow]]:
    """A flow as both of its ends report it, by task; tasks of a name with the index N are on host hN or pN."""
    return [
        (one, flow(one, other, place(other), sent, received, busy[0])),
        (other, flow(other, one, place(one), received, sent, busy[1])),
    ]


def place(task: str) -> str:
    job, _, index = task.partition(":")
    return f"{ {'ps': 'p', 'chief': 'c'}.get(job, 'h') }{index}"


def minute(tasks: dict[str, TaskUse], flows: list[tuple[str, Flow]], **hosts: dict[str, Any]) -> Minute:
    """Each task on a host of its own with 4 processors."""
    found: dict[str, Sample] = {}
    for task, own in tasks.items():
        fields = hosts.get(place(task), {})
        busy_s = own["cpu_s"] + 60 * fields.pop("others", 0.0)
        mine = [one for owner, one in flows if owner == task]
        given = {"cpus": 4, "busy_s": busy_s, "tasks": {task: own}, "flows": mine, "waited_s": {"io": 0.0}}
        found[place(task)] = made(Sample, time=2e9, seconds=60.0, **{**given, **fields})
    return Minute(found)


def of_two(ps: tuple[float, float], workers: float, busy: tuple[float, float]) -> Minute:
    """Two ps tasks that carry so many MB/s each, and two workers that keep so many processors busy."""
    tasks = {"ps:0": use(0.3), "ps:1": use(0.1), "worker:0": use(workers), "worker:1": use(workers)}
    flows = []
    for worker in ("worker:0", "worker:1"):
        for server, carried, share in zip(("ps:0", "ps:1"), ps, busy, strict=True):
            flows += both(server, worker, carried * M / 4, carried * M / 4, (share / 2, share / 2))
    return minute(tasks, flows)


HEALTHY = of_two((4.0, 4.0), 3.5, (0.1, 0.1))


def kinds(*minutes: Minute) -> list[str]:
    return [verdict.kind for verdict in judged(minutes)]


def only(*minutes: Minute) -> Verdict:
    (found,) = judged(minutes)
    return found


@pytest.mark.parametrize(
    "healthy",
    [
        HEALTHY,
        of_two((4.0, 4.0), 1.0, (0.1, 0.1)),
        of_two((90.0, 10.0), 3.0, (0.1, 0.02)),  # unequal, and nobody waits for it
        minute({"worker:0": use(0.1, gpu_s=58.0)}, []),  # a GPU computes
        minute({"worker:0": use(4.0, waits_s=20.0)}, []),
        minute({"worker:0": use(2.0)}, [], h0={"others": 1.5}),  # there is room for others
    ],
)
def test_a_healthy_run_is_not_accused(healthy: Minute) -> None:
    assert kinds(healthy, healthy) == []


def test_nothing_is_judged_without_workers() -> None:
    assert kinds(minute({"ps:0": use(1.0, 1.0)}, [])) == []
    assert kinds() == []


def test_a_server_with_most_of_the_bytes_is_named_with_the_share_of_the_wait() -> None:
    found = only(of_two((110.0, 2.0), 0.4, (0.7, 0.02)))
    assert (found.kind, found.tasks, found.hosts) == ("unbalanced", ("ps:0",), ("p0",))
    assert found.figures["share"] == pytest.approx(110 / 112)
    assert found.figures["waits"] == pytest.approx(0.7)
    assert found.expected is not None
    assert found.expected.least == 1.0
    assert 1.5 < found.expected.most < 1.6
    together = only(of_two((110.0, 2.0), 0.4, (0.7, 0.02))._replace(strategy="sync-ps"))
    assert together.expected is not None
    assert 1.1 < together.expected.least < 1.3


def test_a_variable_that_is_larger_than_a_fair_share_is_named() -> None:
    shards = [{"size_bytes": 412 * M, "variables": 3}, {"size_bytes": 8 * M, "variables": 3}]
    largest = [{"name": "dense/kernel", "size_bytes": 398 * M, "shard": 0}]
    parameters = made(Parameters, prefix="/x", shards=shards, largest=largest)
    assert share_by_greedy(parameters, 2)[0] == pytest.approx(398 / 420)
    found = only(of_two((110.0, 2.0), 0.4, (0.7, 0.02))._replace(parameters=parameters))
    assert found.figures["largest"]["name"] == "dense/kernel"
    assert holders(parameters, ["ps:0", "ps:1"]) == {"ps:0": (412 * M, 3), "ps:1": (8 * M, 3)}
    assert holders(parameters, ["ps:0"]) == {}


def test_the_parts_of_a_checkpoint_are_in_the_order_of_device_names() -> None:
    shards = [{"size_bytes": 10.0, "variables": 1}, *({"size_bytes": 1e6 * n, "variables": n} for n in range(1, 12))]
    parameters = made(Parameters, prefix="/x", shards=shards, largest=[])
    held = holders(parameters, [f"ps:{index}" for index in range(11)])
    assert [held[task][1] for task in ("ps:0", "ps:1", "ps:10", "ps:2")] == [1, 2, 3, 4]


def test_a_server_whose_one_thread_is_busy_is_named() -> None:
    tasks = {"ps:0": use(1.0, 0.97), "worker:0": use(0.5), "worker:1": use(0.5)}
    found = only(minute(tasks, both("ps:0", "worker:0", 5 * M, 5 * M, (0.1, 0.1))))
    assert (found.kind, found.tasks) == ("busy_server", ("ps:0",))


def test_a_server_whose_threads_run_in_turn_is_named_unless_its_workers_are_busy() -> None:
    tasks = {"ps:0": use(0.95, 0.3, threads=4), "worker:0": use(0.2), "worker:1": use(0.2)}
    flows = both("ps:0", "worker:0", 5 * M, 5 * M, (0.1, 0.1))
    found = only(minute(tasks, flows))
    assert (found.kind, found.tasks) == ("busy_server", ("ps:0",))
    assert "its 4 threads keep one processor busy 95 %" in sentences(found, Facts(minute(tasks, flows)))[1][0]
    assert "busy_server" not in kinds(minute({**tasks, "worker:1": use(0.75)}, flows))
    assert "busy_server" not in kinds(minute({**tasks, "ps:0": use(1.6, 0.3, threads=4)}, flows))


def test_a_link_of_a_known_speed_is_full() -> None:
    tasks = {"ps:0": use(0.2), "worker:0": use(0.3), "worker:1": use(0.3)}
    flows = [one for worker in ("worker:0", "worker:1") for one in both("ps:0", worker, 6 * M, 6 * M, (0.6, 0.1))]
    link = made(Interface, sent_bytes=60 * 12 * M, received_bytes=60 * 12 * M, bits_a_second=100e6)
    found = only(minute(tasks, flows, p0={"interfaces": {"eth0": link}}))
    assert (found.kind, found.hosts) == ("network", ("p0",))
    assert found.figures["bits"] == pytest.approx(96e6)


def linked(shares: dict[tuple[str, str], float], workers: float = 0.2, **fields: Any) -> Minute:
    """Data is under way between two ps tasks and two workers for these shares of time, each way."""
    tasks = {"ps:0": use(0.1), "ps:1": use(0.1), "worker:0": use(workers), "worker:1": use(workers)}
    flows = []
    for (server, worker), share in shares.items():
        flows += both(server, worker, M / 2, M / 2, (share, share))
    return minute(tasks, flows, **fields)


EVERY = {(server, worker): 0.3 for server in ("ps:0", "ps:1") for worker in ("worker:0", "worker:1")}


@pytest.mark.parametrize(("slow", "host"), [("ps:0", "p0"), ("worker:1", "h1")])
def test_the_host_at_which_data_is_under_way_the_longest_is_named(slow: str, host: str) -> None:
    shares = {pair: 0.4 if slow in pair else 0.05 for pair in EVERY}
    found = only(linked(shares)._replace(strategy="sync-ps"))
    assert (found.kind, found.hosts) == ("network", (host,))
    assert found.figures["speed"] > 8 * M


def test_no_host_is_named_where_all_links_are_equally_slow() -> None:
    found = only(linked(EVERY))
    assert (found.kind, found.tasks, found.hosts) == ("network", (), ("h0", "h1", "p0", "p1"))
    assert found.figures["waits"] == pytest.approx(0.6)


def test_workers_that_compute_meanwhile_do_not_wait_for_the_network() -> None:
    assert kinds(of_two((60.0, 60.0), 0.5, (0.5, 0.5))) == ["network"]
    assert kinds(of_two((60.0, 60.0), 0.9, (0.5, 0.5))) == []


def test_small_messages_that_are_acknowledged_late_are_no_slow_network() -> None:
    late = {task: use(1.0) for task in ("ps:0", "worker:0")}
    assert kinds(minute(late, both("ps:0", "worker:0", 3e4, 3e4, (0.45, 0.45)))) == []


def test_a_host_that_loses_packets_is_named_with_the_share() -> None:
    sick = linked({pair: 0.4 if "worker:1" in pair else 0.1 for pair in EVERY})
    for sample in sick.hosts.values():
        for one in sample["flows"]:
            one["resent"] = 1000 if one["peer"] == "worker:1" else 0
    found = only(sick)
    assert (found.kind, found.hosts) == ("loss", ("h1",))
    assert 0.02 < found.figures["share"] < 0.03


def gpus(*shares: float, strategy: str = "sync-ps", **fields: Any) -> Minute:
    """Workers whose GPUs compute so much of the time, and a ps that each of them exchanges as much with."""
    tasks = {f"worker:{index}": use(0.1, gpu_s=60 * share, **fields) for index, share in enumerate(shares)}
    flows = [one for task in tasks for one in both("ps:0", task, M, M, (0.02, 0.02))]
    return minute({"ps:0": use(0.1), **tasks}, flows)._replace(strategy=strategy)


def test_the_slowest_of_synchronous_workers_is_named_with_what_a_backup_brings() -> None:
    found = only(gpus(0.9, 0.3, 0.45))
    assert (found.kind, found.tasks) == ("straggler", ("worker:0",))
    assert found.figures["median"] == pytest.approx(1 / (1 - (0.9 - 0.375)))
    assert found.figures["backup"] == pytest.approx(1 / (1 - (0.9 - 0.45)))
    assert found.expected is not None
    assert found.expected.least < found.figures["backup"] < found.expected.most
    assert kinds(gpus(0.9, 0.85, 0.8)) == []
    assert "straggler" not in kinds(gpus(0.9, 0.3, 0.45, strategy="async-ps"))


def test_an_independent_worker_that_makes_few_steps_trains_on_stale_parameters() -> None:
    tasks = {"ps:0": use(0.1), **{f"worker:{index}": use(0.1, gpu_s=54.0) for index in range(3)}}
    flows = [
        one for index, rate in enumerate((10, 10, 2)) for one in both("ps:0", f"worker:{index}", rate * M, M, (0, 0))
    ]
    found = only(minute(tasks, flows)._replace(strategy="async-ps"))
    assert (found.kind, found.tasks) == ("stale", ("worker:2",))
    assert found.figures["between"] == pytest.approx(25 / 3 - 1)
    assert found.figures["usual"] == 2
    assert kinds(minute(tasks, flows)._replace(strategy="ps-strategy")) == []


@pytest.mark.parametrize(("strategy", "costs"), [("sync-ps", 0.5), ("async-ps", 0.25)])
def test_saves_cost_all_workers_only_if_they_wait_for_each_other(strategy: str, costs: float) -> None:
    tasks = {"worker:0": use(0.2, gpu_s=25.0, saving_s=30.0), "worker:1": use(0.2, gpu_s=25.0)}
    saves = [made(Save, time=2e9 - 8.0 * number, size_bytes=4e8) for number in range(3)]
    found = only(minute(tasks, [])._replace(strategy=strategy, saves=saves))
    assert (found.kind, found.tasks, found.costs) == ("saves", ("worker:0",), costs)
    assert (found.figures["every"], found.figures["takes"]) == (8.0, pytest.approx(4.0))


def test_one_client_that_deals_out_all_data_is_named() -> None:
    tasks = {"chief:0": use(0.9), "worker:0": use(0.1, gpu_s=6.0), "worker:1": use(0.1, gpu_s=6.0)}
    flows = [one for index in (0, 1) for one in both("chief:0", f"worker:{index}", 5 * M, 1e3, (0.4, 0.0))]
    found = only(minute(tasks, flows)._replace(strategy="in-graph"))
    assert (found.kind, found.tasks) == ("feeder", ("chief:0",))
    assert found.figures["idle"] == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("kind", "slow", "host"),
    [
        ("throttled", use(0.5, throttled_s=30.0), {}),
        ("shared_cpu", use(1.0, waits_s=60.0), {"others": 3.0}),
        ("swapping", use(0.5, faults=6000), {"swapped_bytes": 600 * M}),
        ("stolen", use(2.0), {"stolen_s": 60.0}),
        ("oversubscribed", use(3.9, waits_s=400.0, threads=64), {}),
    ],
)
def test_a_slow_worker_is_named_with_the_reason(kind: str, slow: TaskUse, host: dict[str, Any]) -> None:
    found = only(minute({"worker:0": use(3.0), "worker:1": slow}, [], h1=host))
    assert (found.kind, found.tasks, found.hosts) == (kind, ("worker:1",), ("h1",))


def test_tasks_that_other_programs_leave_hardly_any_processor_do_not_want_too_many() -> None:
    """Two tasks with 200 threads on a machine that other programs fill: measured with real TensorFlow."""
    starved = use(0.08, 0.02, waits_s=75.0, threads=104)
    found = only(minute({"ps:0": starved, "worker:0": starved}, [], p0={"others": 3.7}, h0={"others": 0.1}))
    assert (found.kind, found.tasks, found.hosts) == ("shared_cpu", ("ps:0",), ("p0",))
    assert found.figures["waits"] == pytest.approx(0.94, abs=0.01)


def test_tasks_that_want_hardly_any_processor_are_not_short_of_it() -> None:
    found = only(minute({"worker:0": use(0.02, waits_s=8.0)}, [], h0={"others": 3.9}))
    assert (found.kind, found.tasks) == ("input", ("worker:0",))


def test_a_task_that_is_throttled_is_not_said_to_share_its_processors() -> None:
    tasks = {"ps:0": use(0.1), "worker:0": use(0.9), "worker:1": use(0.25, waits_s=45.0, throttled_s=45.0)}
    assert kinds(minute(tasks, [], h1={"others": 0.6})) == ["throttled"]


def test_workers_that_do_nothing_wait_for_their_input() -> None:
    tasks = {"ps:0": use(0.05), "worker:0": use(0.1, read_bytes=60 * M), "worker:1": use(0.1)}
    found = only(minute(tasks, both("ps:0", "worker:0", M, M, (0.02, 0.02))))
    assert (found.kind, found.tasks) == ("input", ("worker:0", "worker:1"))
    assert found.figures["idle"] == pytest.approx(0.88, abs=0.03)
    assert found.figures["read"] == pytest.approx(M)


def test_a_cause_that_does_not_last_is_not_reported() -> None:
    sick = of_two((110.0, 2.0), 0.4, (0.7, 0.02))
    assert kinds(sick, HEALTHY) == []
    assert kinds(sick, sick, HEALTHY) == ["unbalanced"]
    assert only(sick, sick, HEALTHY).minutes == 2


def test_the_end_that_knows_of_more_counts_and_each_byte_once() -> None:
    facts = Facts(of_two((8.0, 8.0), 1.0, (0.1, 0.1)))
    assert facts.matrix["ps:0", "worker:0"] == pytest.approx(2 * M)
    assert facts.carried("ps:0") == pytest.approx(8 * M)
    assert merged([]) is None


def test_a_range_is_between_half_and_all_of_what_is_removed() -> None:
    assert tuple(faster(0.5)) == pytest.approx((1 / 0.75, 2.0))
    assert tuple(faster(0.0)) == (1.0, 1.0)
    assert faster(7.0).most == 20.0
