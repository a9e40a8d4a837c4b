"""The experiments that prove `dtctl speed`: a cause made on purpose, the verdict that it must have, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.speed.causes import Cause, beside_others, links, loses, several, slow_directory, throttled

PS2 = {"ps": "gpu-[1-2]", "worker": "gpu-[3-4]"}
PS1 = {"ps": "gpu-1", "worker": "gpu-[2-4]"}
FED = {"worker": "gpu-[2-4]", "chief": "gpu-1"}


@dataclass(frozen=True)
class Case:
    """One run. `expected`: the kind of the first verdict; empty: nothing may stand out."""

    expected: str
    about: tuple[str, ...] = ()
    """The tasks or the hosts that the verdict must name; empty: any."""
    program: str = "stand-in"
    """`stand-in` (trainer.py), `tensorflow` (tensorflow_trainer.py), or the name of a template."""
    jobs: Mapping[str, str] = field(default_factory=lambda: PS2)
    strategy: str = "async-ps"
    args: Mapping[str, object] = field(default_factory=dict)
    before: Cause | None = None
    """Made before the run starts."""
    during: Cause | None = None
    """Made once all tasks train."""
    remedy_of: str = ""
    """The case whose verdict advises what is different here: its expected gain is compared with the measured one."""
    wider_than: str = ""
    """The case with fewer workers: what it is expected to gain with more is compared with what these all do."""
    quiet: bool = False
    """Whether the processors of the machine decide: it has to be quiet."""
    env: Mapping[str, str] = field(default_factory=dict)


def stand_in(expected: str, *about: str, **fields: object) -> Case:
    """`fields`: of Case, or arguments of the program."""
    own = {name: fields.pop(name) for name in tuple(fields) if name in Case.__dataclass_fields__}
    return Case(expected, about, args=fields, **own)  # type: ignore[arg-type]


def tensorflow(expected: str, *about: str, **fields: object) -> Case:
    return stand_in(expected, *about, program="tensorflow", **fields)


def template(name: str, **fields: object) -> Case:
    env = {"TF_NUM_INTRAOP_THREADS": "1"}
    return stand_in("", program=name, quiet=True, env=env, output_dir="{output_dir}", **fields)


KB = 1000
SLOW = links(20)

ALONE = {"ps": "gpu-1", "worker": "gpu-2"}
TEMPLATES: Mapping[str, Mapping[str, Any]] = {
    "ps-async": {"jobs": ALONE, "train_steps": 10**8, "log_steps": 10},
    "ps-sync": {"jobs": ALONE, "strategy": "sync-ps", "train_steps": 10**8, "log_steps": 10},
    "multi-worker-mirrored": {
        "jobs": {"worker": "gpu-[1-2]"},
        "strategy": "mirrored",
        "train_steps": 10**8,
        "log_steps": 10,
    },
    "supervisor": {"jobs": ALONE, "train_steps": 10**8, "log_steps": 10},
    "in-graph": {
        "jobs": {"ps": "gpu-1", "worker": "gpu-2", "chief": "gpu-3"},
        "strategy": "in-graph",
        "train_steps": 10**8,
        "log_steps": 10,
    },
}
"""Programs that compute on processors, with one thread each for an operation: two cores have room for few of them."""

CASES: Mapping[str, Case] = {
    # 1. one ps has the bytes: by size, or in parts, they are on both. 20 Mbit/s are 2.5 MB/s
    "all bytes on ps:0": stand_in("unbalanced", "ps:0", shards="800000,4000", gpu_s=0.4, before=SLOW),
    "all bytes on ps:0, synchronous": stand_in(
        "unbalanced", "ps:0", shards="800000,4000", gpu_s=0.4, sync=1, strategy="sync-ps", before=SLOW
    ),
    "half of the bytes on each ps": stand_in("", shards="402000,402000", gpu_s=1.8, before=SLOW),
    "half of the bytes on each ps, slow links": stand_in(
        "network", shards="402000,402000", gpu_s=0.4, before=SLOW, remedy_of="all bytes on ps:0"
    ),
    "all bytes on ps:0, three workers": stand_in(
        "unbalanced",
        "ps:0",
        jobs={"ps": "gpu-[1-2]", "worker": "gpu-[2-4]"},
        shards="600000,4000",
        gpu_s=0.8,
        before=links(20, "gpu-1"),
        wider_than="all bytes on ps:0, two workers",
    ),
    "all bytes on ps:0, two workers": stand_in(
        "unbalanced",
        "ps:0",
        jobs={"ps": "gpu-[1-2]", "worker": "gpu-[2-3]"},
        shards="600000,4000",
        gpu_s=0.8,
        before=links(20, "gpu-1"),
    ),
    "half of the bytes on each ps, synchronous": stand_in(
        "network",
        shards="402000,402000",
        gpu_s=0.4,
        sync=1,
        strategy="sync-ps",
        before=SLOW,
        remedy_of="all bytes on ps:0, synchronous",
    ),
    "tensorflow, weights on one ps": tensorflow(
        "unbalanced", "ps:1", large="400,400", gpu_s=0.4, save_secs=20, before=SLOW
    ),
    "tensorflow, greedy": tensorflow(
        "network",
        large="400,400",
        gpu_s=0.4,
        save_secs=20,
        placement="greedy",
        before=SLOW,
        remedy_of="tensorflow, weights on one ps",
    ),
    "tensorflow, one large variable": tensorflow(
        "unbalanced", "ps:1", large="800", gpu_s=0.4, save_secs=20, before=SLOW
    ),
    "tensorflow, partitioned": tensorflow(
        "network",
        large="800",
        gpu_s=0.4,
        save_secs=20,
        placement="partitioned",
        before=SLOW,
        remedy_of="tensorflow, one large variable",
    ),
    "tensorflow, synchronous, one large variable": tensorflow(
        "unbalanced", "ps:1", large="800", gpu_s=0.4, sync=1, strategy="sync-ps", before=SLOW
    ),
    # 2. the network
    "slow link of a ps": stand_in("network", "gpu-1", shards="200000,200000", gpu_s=0.2, before=links(10, "gpu-1")),
    "slow link of a ps, twice as fast": stand_in(
        "network", "gpu-1", shards="200000,200000", gpu_s=0.2, before=links(20, "gpu-1"), remedy_of="slow link of a ps"
    ),
    "slow link of a worker": stand_in("network", "gpu-4", shards="200000,200000", gpu_s=0.2, before=links(10, "gpu-4")),
    "slow link of a worker, synchronous": stand_in(
        "network", "gpu-4", shards="200000,200000", gpu_s=0.2, sync=1, strategy="sync-ps", before=links(10, "gpu-4")
    ),
    "slow link of the only ps": stand_in(
        "network",
        "gpu-1",
        jobs=PS1,
        shards="300000",
        gpu_s=0.3,
        before=links(20, "gpu-1"),
        wider_than="slow link of the only ps, one worker",
    ),
    "slow link of the only ps, one worker": stand_in(
        "network", jobs=ALONE, shards="300000", gpu_s=0.3, before=links(20, "gpu-1")
    ),
    "slow links of all": stand_in("network", shards="150000,150000", gpu_s=0.2, before=links(10)),
    "tensorflow, slow link of the only ps": tensorflow(
        "network", "gpu-1", jobs=PS1, large="300", gpu_s=0.3, before=links(20, "gpu-1")
    ),
    "a worker's host loses packets": stand_in(
        "loss", "gpu-4", shards="2000000,2000000", gpu_s=0.2, before=loses(15, "gpu-4")
    ),
    "a ps's host loses packets": stand_in(
        "loss", "gpu-1", shards="2000000,2000000", gpu_s=0.2, before=loses(15, "gpu-1")
    ),
    # 3. slow workers
    "half a core": stand_in(
        "throttled", "worker:1", shards="100000,100000", spin_s=0.1, during=throttled("worker:1", 0.25), quiet=True
    ),
    "half a core, synchronous": stand_in(
        "throttled",
        "worker:1",
        shards="100000,100000",
        spin_s=0.1,
        sync=1,
        strategy="sync-ps",
        during=throttled("worker:1", 0.25),
        quiet=True,
    ),
    "beside other programs": stand_in(
        "shared_cpu",
        "worker:1",
        jobs={"ps": "gpu-1", "worker": "gpu-[2-3]"},
        shards="100000",
        spin_s=0.1,
        during=beside_others("worker:1", 2),
        quiet=True,
    ),
    "beside other programs, synchronous": stand_in(
        "shared_cpu",
        "worker:1",
        jobs={"ps": "gpu-1", "worker": "gpu-[2-3]"},
        shards="100000",
        spin_s=0.1,
        sync=1,
        strategy="sync-ps",
        during=beside_others("worker:1", 2),
        quiet=True,
    ),
    "a slower GPU, synchronous": stand_in(
        "straggler",
        "worker:1",
        shards="100000,100000",
        gpu_s=0.1,
        slow="worker:1",
        times=3,
        sync=1,
        strategy="sync-ps",
    ),
    "a slower GPU, asynchronous": stand_in(
        "stale", "worker:1", shards="100000,100000", gpu_s=0.1, slow="worker:1", times=5
    ),
    "equal GPUs, synchronous": stand_in(
        "", shards="100000,100000", gpu_s=0.1, sync=1, strategy="sync-ps", remedy_of="a slower GPU, synchronous"
    ),
    "tensorflow, a slower GPU, synchronous": tensorflow(
        "straggler", "worker:1", large="100", gpu_s=0.1, slow="worker:1", times=4, sync=1, strategy="sync-ps"
    ),
    "tensorflow, a slower GPU, asynchronous": tensorflow(
        "stale", "worker:1", large="100", gpu_s=0.1, slow="worker:1", times=6
    ),
    "a busy ps": stand_in("busy_server", "ps:0", jobs=PS1, shards="50000", gpu_s=0.05, ps_spin_s=0.05, quiet=True),
    # 4. input
    "input that sleeps": stand_in("input", "worker:0", "worker:1", shards="50000,50000", gpu_s=0.1, input_s=0.4),
    "input in time": stand_in("", shards="50000,50000", gpu_s=0.1, input_s=0.0, remedy_of="input that sleeps"),
    "a slow directory": stand_in(
        "input",
        "worker:1",
        shards="50000,50000",
        gpu_s=0.1,
        input_files="~/data",
        before=several(slow_directory("gpu-4", "data", 5, 0.4), slow_directory("gpu-3", "data", 5, 0.0)),
    ),
    "tensorflow, input that sleeps": tensorflow("input", "worker:0", "worker:1", large="50", gpu_s=0.1, input_s=0.5),
    "a client that feeds all": stand_in(
        "feeder",
        "chief:0",
        jobs=FED,
        strategy="in-graph",
        feed_bytes=400000,
        gpu_s=0.1,
        before=links(20, "gpu-1"),
        wider_than="a client that feeds one",
    ),
    "a client that feeds one": stand_in(
        "feeder",
        "chief:0",
        jobs={"worker": "gpu-2", "chief": "gpu-1"},
        strategy="in-graph",
        feed_bytes=400000,
        gpu_s=0.1,
        before=links(20, "gpu-1"),
    ),
    "a client that makes all batches": stand_in(
        "feeder", "chief:0", jobs=FED, strategy="in-graph", feed_bytes=100000, gpu_s=0.1, spin_s=0.1, quiet=True
    ),
    # 5. saves
    "a save each 5 s": stand_in(
        "saves", "worker:0", shards="50000,50000", gpu_s=0.1, save_every_s=5, save_s=4, output_dir="{output_dir}"
    ),
    "a save each 5 s, synchronous": stand_in(
        "saves",
        "worker:0",
        shards="50000,50000",
        gpu_s=0.1,
        save_every_s=5,
        save_s=4,
        sync=1,
        strategy="sync-ps",
        output_dir="{output_dir}",
    ),
    "tensorflow, a save each 5 s": tensorflow(
        "saves",
        "worker:0",
        large="50",
        gpu_s=0.1,
        dormant_mb=300,
        save_secs=5,
        sync=1,
        strategy="sync-ps",
        before=links(2000),
        quiet=True,
    ),
    "a save each minute": stand_in(
        "",
        shards="50000,50000",
        gpu_s=0.1,
        save_every_s=60,
        save_s=2,
        output_dir="{output_dir}",
        remedy_of="a save each 5 s, synchronous",
    ),
    # 6. nothing is wrong
    "healthy, asynchronous": stand_in("", shards="100000,100000", gpu_s=0.2),
    "healthy, synchronous": stand_in("", shards="100000,100000", gpu_s=0.2, sync=1, strategy="sync-ps"),
    "healthy, unequal variables": stand_in("", shards="400000,4000", gpu_s=0.2),
    "healthy, one worker": stand_in("", jobs=ALONE, shards="100000", gpu_s=0.2),
    "healthy, three workers": stand_in("", jobs=PS1, shards="100000", gpu_s=0.2, wider_than="healthy, one worker"),
    "healthy, a fed cluster": stand_in("", jobs=FED, strategy="in-graph", feed_bytes=10000, gpu_s=0.2),
    "healthy, tensorflow": tensorflow("", large="100", gpu_s=0.2),
    "healthy, tensorflow, synchronous": tensorflow("", large="100", gpu_s=0.2, sync=1, strategy="sync-ps"),
    **{f"healthy, {name}": template(name, **fields) for name, fields in TEMPLATES.items()},
}
