"""What a person needs of the lines of a log: pure functions of text."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import List

_GLOG = r"(?:\d{4}-\d\d-\d\d [\d:.]+: )?[IWE](?:\d{4} [\d:.]+ +\d+)? [\w./-]+:\d+\] "

_START_UP = (
    r"WARNING: All log messages before absl::InitializeLog\(\) is called are written to STDERR|"
    r"To enable the following instructions: .* rebuild TensorFlow with the appropriate compiler flags|"
    + _GLOG
    + r"(?:oneDNN custom operations are on\. |This TensorFlow binary is optimized |"
    r"Unable to register cu(?:DNN|FFT|BLAS) factory: |computation placer already registered|"
    r"Started server with target: |Scanning workers for devices: |MLIR V1 optimization pass is not enabled|"
    r"Initializing CoordinationService|Initializing coordination service|Coordination agent has |"
    r"/job:\S+ has connected to coordination service|Initialize GrpcChannelCache for job )"
)
"""Lines that TensorFlow writes at each start, and that say nothing about the program or its machine."""

_NO_GPU = (
    r"Skipping registering GPU devices\.\.\.|"
    + _GLOG
    + r"(?:Could not find cuda drivers on your machine|TF-TRT Warning: |Cannot dlopen some GPU libraries|"
    r"Could not load dynamic library 'lib(?:cu|nv)|Ignore above cudart dlerror|failed call to cuInit: |"
    r"retrieving CUDA diagnostic information for host|hostname: |libcuda reported version is|"
    r"kernel reported version is|verbose logging is disabled|possibly insufficient driver version|"
    r"kernel driver does not appear to be running on this host)"
)
"""Lines that it writes at each start on a machine without a GPU."""


def is_start_up(line: str, *, without_gpus: bool) -> bool:
    """Whether a line is of TensorFlow's start and nothing is wrong. `without_gpus`: the program is to use none."""
    return re.match(_START_UP, line) is not None or (without_gpus and re.match(_NO_GPU, line) is not None)


def redrawn(line: str) -> str:
    """The last state of a line that redraws itself: after its last \\r, and with what follows a \\b in its place."""
    last = line.rstrip("\r").rpartition("\r")[2]
    if "\b" not in last:
        return last
    shown: List[str] = []
    at = 0
    for character in last:
        if character == "\b":
            at = max(0, at - 1)
        else:
            shown[at : at + 1] = [character]
            at += 1
    return "".join(shown)
