"""How fast the host multiplies matrices, and what may explain that."""

from __future__ import annotations

import os
import time

from ..run import environment
from ..vitals.machine_load import MachineLoad
from ..vitals.neighbours import Others
from . import gpu_speed
from .pythons import Python

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ..protocol.conversation import Conversation
    from ..records.checks import SpeedFacts, SpeedQuestion

_PATIENCE_S = 60.0
"""Beyond the time of the measurement: for the import, and for one multiplication on a host that is very slow."""

_MULTIPLY = """\
import sys
if sys.path[:1] == [""]:
    del sys.path[0]
import json, time
limit = json.loads(sys.argv[1])
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
print("\\n" + json.dumps({"kind": kind, "flops": flops, "copied_bytes": copied}))
"""


def look(talk: Conversation, question: SpeedQuestion) -> SpeedFacts:
    python = Python(question["python"], environment.Marks(None))
    load, others = MachineLoad(), Others(time.monotonic())
    load.look(time.time())
    told = python.run(_MULTIPLY, question["seconds"], question["seconds"] + _PATIENCE_S) or {}
    shares = load.look(time.time())
    takers, problem = others.busy(time.monotonic(), {os.getpid()}), python.found["problem"]
    path = environment.base()["PATH"]
    gpus, gpu_problem = gpu_speed.measured(python, question["framework"], path, question["seconds"] / 2)
    return {
        "kind": told.get("kind", ""),
        "flops": told.get("flops", 0.0),
        "copied_bytes": told.get("copied_bytes", 0.0),
        "model": _model(),
        "governor": _line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "machine": shares,
        "busy": takers,
        "problem": problem,
        "gpus": gpus,
        "gpu_problem": gpu_problem,
    }


def _model() -> str:
    """proc(5): `model name` on x86; other processors tell their kind in the greeting alone."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            named = (line.partition(":")[2].strip() for line in file if line.startswith("model name"))
            return next(named, "")[:4096]
    except OSError:
        return ""


def _line(path: str) -> str:
    try:
        with open(path, encoding="ascii", errors="replace") as file:
            return file.readline().strip()[:4096]
    except OSError:
        return ""  # a virtual machine
