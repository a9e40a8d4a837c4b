"""The speed with which the host and its GPUs multiply matrices, and facts that may explain it."""

from __future__ import annotations

import os
import re
import threading
import time

from ...host import machine
from ...records.kinds import made
from ...vitals.gpus import Reader
from ...vitals.machine_load import MachineLoad
from ...vitals.usage import Others
from .records import GpuSpeed, SpeedFacts, SpeedQuestion
from .software import Python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

    from ...conversation import Conversation
    from ...records.vitals import Gpu


_GOVERNOR = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
"""A virtual machine has none."""

_PATIENCE_S = 60.0
"""The time allowed beyond the measurement: for the import, and for one multiplication on a very slow host."""

_MULTIPLY = """\
limit = asked
def rate(work, unit, limit):
    work()
    began = now = time.time()
    done = 0
    while now - began < limit:
        work()
        done += unit
        now = time.time()
    return done / (now - began)
try:
    import numpy
    kind, size = "numpy", 768
    one = numpy.random.rand(size, size).astype("float32")
    two = one.copy()
    flops = rate(lambda: one.dot(two), 2.0 * size ** 3, 0.8 * limit)
    source = numpy.zeros(8 << 20, "uint8")
    copied = rate(lambda: source.copy(), float(source.nbytes), 0.2 * limit)
except ImportError:
    kind, size = "python", 40
    one = [[1.0 / (row + column + 1) for column in range(size)] for row in range(size)]
    def multiply():
        return [[sum(a * b for a, b in zip(row, column)) for column in zip(*one)] for row in one]
    flops = rate(multiply, 2.0 * size ** 3, 0.8 * limit)
    source = bytes(8 << 20)
    copied = rate(lambda: bytearray(source), float(len(source)), 0.2 * limit)
answer = {"kind": kind, "flops": flops, "copied_bytes": copied}
"""


def speed_facts(talk: Conversation, question: SpeedQuestion) -> SpeedFacts:
    python = Python(talk.root, question["python"])
    load, others = MachineLoad(), Others(time.monotonic())
    load.sample(time.time())
    answer = python.run(_MULTIPLY, question["seconds"], question["seconds"] + _PATIENCE_S) or {}
    shares = load.sample(time.time())
    takers, problem = others.busy(time.monotonic(), {os.getpid()}), python.found["problem"]
    gpus, gpu_problem = _measure_gpus(python, question["framework"], question["seconds"] / 2)
    return {
        "kind": answer.get("kind", ""),
        "flops": answer.get("flops", 0.0),
        "copied_bytes": answer.get("copied_bytes", 0.0),
        "model": _model(),
        "governor": machine.text(_GOVERNOR).strip()[:4096],
        "machine": shares,
        "busy": takers,
        "problem": problem,
        "gpus": gpus,
        "gpu_problem": gpu_problem,
    }


def _model() -> str:
    """The processors' model, `model name` of proc(5) on x86; others have their kind only in the greeting."""
    found = re.search(r"^model name\s*:(.*)$", machine.text("/proc/cpuinfo"), re.MULTILINE)
    return found[1].strip()[:4096] if found else ""


_GPU_PATIENCE_S = 240.0
"""The time limit for the import, and until the driver has set up all GPUs."""
_DRIVER_S = 15.0
_LOOK_EVERY_S = 1.0

_GPU_MULTIPLY = """\
framework, limit = asked
size = 4096
def rate(work):
    work()
    began = now = time.time()
    done = 0
    while now - began < limit:
        work()
        done += 2.0 * size ** 3
        now = time.time()
    return done / (now - began)
if framework == "torch":
    import torch
    count = torch.cuda.device_count()
    def multiplication(number):
        one = torch.rand(size, size, device="cuda:%d" % number)
        def work():
            torch.mm(one, one)
            torch.cuda.synchronize(number)
        return work
else:
    import tensorflow as tf
    devices = tf.config.list_physical_devices("GPU")
    count = len(devices)
    for device in devices:
        tf.config.experimental.set_memory_growth(device, True)
    def multiplication(number):
        with tf.device("/GPU:%d" % number):
            one = tf.random.uniform((size, size))
        def work():
            with tf.device("/GPU:%d" % number):
                tf.matmul(one, one)[0, 0].numpy()
        return work
answer = [rate(multiplication(number)) for number in range(count)]
"""


def _measure_gpus(python: Python, framework: str, seconds: float) -> Tuple[List[GpuSpeed], str]:
    """The speeds of the GPUs, measured one after the other, and why existing GPUs were not measured."""
    there = Reader().wait(_DRIVER_S)["each"]
    if not there or not framework:
        return [], ""
    states = _States()
    # numbers as the driver has them, not the fastest first
    answer = python.run(
        _GPU_MULTIPLY, [framework, seconds], _GPU_PATIENCE_S + seconds * len(there), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    )
    known = states.end()
    if answer is None:
        return [], python.found["problem"]
    if not answer:
        return [], "%s sees none of them" % framework
    return [
        {**_highest(known.get(number, [])), "gpu": number, "flops": flops} for number, flops in enumerate(answer)
    ], ""


class _States:
    """The driver's data about each GPU while they multiply."""

    def __init__(self) -> None:
        self._found: Dict[int, List[Gpu]] = {}
        self._over = threading.Event()
        self._reader = Reader(every_s=_LOOK_EVERY_S)
        self._reader.start(time.monotonic())  # before the thread: it forks
        self._thread = threading.Thread(target=self._inspect, daemon=True)
        self._thread.start()

    def end(self) -> Dict[int, List[Gpu]]:
        self._over.set()
        self._thread.join()
        return self._found

    def _inspect(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            known = self._reader.read(time.monotonic())
            for gpu in known["each"] if known is not None else ():
                self._found.setdefault(gpu["index"], []).append(gpu)
        self._reader.close()


def _highest(samples: List[Gpu]) -> GpuSpeed:
    """The highest of each figure."""
    found: GpuSpeed = made(GpuSpeed, gpu=0, name=samples[-1]["name"] if samples else "")
    for one in samples:
        for name in ("clock_mhz", "degrees", "lanes"):
            found[name] = max(found[name] or 0, one[name] or 0) or None
    return found
