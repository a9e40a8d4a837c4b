"""What is kept of measurements: three rings of slots, which a crash, a full disk and a trainer may damage."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.records.kinds import made
from dtctl.agent.rooms.speed.adding import added
from dtctl.agent.rooms.speed.records import Flow, Sample, TaskUse
from dtctl.agent.rooms.speed.ring import FILE, SPANS, Ring

BEGIN = 1_800_000_000.0


def sample(time: float, seconds: float = 10.0, **fields: Any) -> Sample:
    use = made(TaskUse, seconds=seconds, cpu_s=seconds / 2, thread_s=seconds / 4, thread="main", step=int(time - BEGIN))
    flow = made(Flow, task="worker:0", peer="ps:0", host="h2", sent_bytes=100 * seconds, busy_s=1.0)
    given = {"cpus": 4, "busy_s": seconds, "tasks": {"worker:0": use}, "flows": [flow]}
    return made(Sample, time=time, seconds=seconds, **{**given, **fields})


def filled(directory: Path, seconds: int) -> Ring:
    ring = Ring(str(directory), 1)
    for passed in range(10, seconds + 1, 10):
        ring.add(sample(BEGIN + passed))
    return ring


def test_time_spans_are_added_up() -> None:
    whole = added([sample(BEGIN), sample(BEGIN + 10, swapped_bytes=5, waited_s={"cpu": 2.0})])
    assert whole is not None
    assert (whole["time"], whole["seconds"], whole["busy_s"]) == (BEGIN + 10, 20.0, 20.0)
    assert whole["tasks"]["worker:0"]["cpu_s"] == 10.0
    assert whole["tasks"]["worker:0"]["step"] == 10
    assert [flow["sent_bytes"] for flow in whole["flows"]] == [2000]
    assert (whole["swapped_bytes"], whole["waited_s"]) == (5, {"cpu": 2.0})
    assert added([]) is None


def test_the_newest_minutes_are_given_first_and_older_ones_from_the_longer_ring(tmp_path: Path) -> None:
    minutes = filled(tmp_path, 3600).minutes(30)
    assert [one["seconds"] for one in minutes] == [60.0] * 30
    times = [one["time"] for one in minutes]
    assert times == sorted(times, reverse=True)
    assert times[0] == BEGIN + 3600
    assert times[-1] <= BEGIN + 3600 - 29 * 60


def test_all_that_is_kept_is_added_up_once(tmp_path: Path) -> None:
    whole, since = filled(tmp_path, 2 * 3600 + 30).whole()
    assert whole is not None
    assert whole["seconds"] == pytest.approx(2 * 3600 + 30, abs=20)
    assert since == pytest.approx(BEGIN, abs=20)
    assert whole["flows"][0]["sent_bytes"] == pytest.approx(100 * whole["seconds"], rel=0.01)


def test_the_file_keeps_its_size_and_survives_the_agent(tmp_path: Path) -> None:
    ring = filled(tmp_path, 1200)
    for passed in range(1210, 2400, 10):
        ring = Ring(str(tmp_path), 1)  # a new agent each time
        ring.add(sample(BEGIN + passed))
    assert ring.whole()[0] is not None
    assert ring.minutes(20)[-1]["seconds"] == 60.0
    assert (tmp_path / FILE).stat().st_size <= ring.most_bytes == sum(count for _, count in SPANS) * 8192
    assert (tmp_path / FILE).stat().st_mode & 0o777 == 0o600


def test_damaged_slots_are_skipped(tmp_path: Path) -> None:
    ring = filled(tmp_path, 300)
    data = bytearray((tmp_path / FILE).read_bytes())
    slot = 8192 * int((BEGIN + 300) // 10 % 90)
    data[slot + 20] ^= 255
    (tmp_path / FILE).write_bytes(bytes(data))
    assert ring.minutes(1)[0]["time"] == BEGIN + 290
    (tmp_path / FILE).write_bytes(os.urandom(100_000))
    assert ring.minutes(5) == []
    assert ring.whole() == (None, None)


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_bytes(b"")
    (tmp_path / FILE).symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="is a link"):
        Ring(str(tmp_path), 1).add(sample(BEGIN))


def test_what_does_not_fit_into_a_slot_is_kept_without_its_smallest_flows(tmp_path: Path) -> None:
    ends = [(f"ps:{number}", os.urandom(8).hex()) for number in range(900)]
    flows = [made(Flow, task="worker:0", peer=one, host=host, sent_bytes=n) for n, (one, host) in enumerate(ends)]
    ring = Ring(str(tmp_path), 1)
    ring.add(sample(BEGIN, flows=flows))
    (kept,) = ring.minutes(1)
    assert 50 < len(kept["flows"]) < 900
    assert kept["flows_omitted"] == 900 - len(kept["flows"])
    assert kept["flows"][0]["sent_bytes"] == 899
