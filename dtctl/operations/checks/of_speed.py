"""Hosts that hold the others up: rows of the table of `check --deep`."""

from __future__ import annotations

from dtctl.operations.diagnosis.signature import Level, Signature

_WHY = (
    "[; its processors are {model}, theirs {usual_model}][; it has {cpus} processors, they have {usual_cpus}]"
    "[; {taker} takes {taker_cpus} of them][; {stolen_share} of them go to other guests of its machine]"
    "[; their frequency is set by {governor}, elsewhere by {usual_governor}]"
)

SLOW = Signature(
    "host_computes_slowly",
    Level.SLOWS,
    "a host multiplies matrices at less than 0.8 of the usual speed",
    "some seconds of multiplications on every host at the same time, with --deep",
    "{hosts} computes at {own_flops}, the others at {usual_flops}: tasks that train in step will wait for it" + _WHY,
    (
        "dtctl exec {at} -- top -b -n 1    shows what runs there",
        "leave it out, or let another host take its place: jobs.NAME.hosts in cluster.yaml",
    ),
)
SLOW_MEMORY = Signature(
    "host_copies_slowly",
    Level.SLOWS,
    "a host copies memory at less than 0.8 of the usual speed, and multiplies as the others do",
    "the same",
    "{hosts} copies memory at {own_bytes} a second, the others at {usual_bytes}" + _WHY,
    ("dtctl exec {at} -- top -b -n 1    shows what runs there; a memory channel may be empty or broken",),
)
UNMEASURED = Signature(
    "speed_not_measured",
    Level.SLOWS,
    "a host could not multiply matrices",
    "the same",
    "{hosts} could not be measured: {said}",
    ("dtctl check    tells what is wrong with its Python",),
)

SLOW_GPU = Signature(
    "gpu_computes_slowly",
    Level.SLOWS,
    "a GPU multiplies matrices at less than 0.8 of the usual speed of its kind",
    "some seconds of multiplications on each GPU, by the framework that the programs import, with --deep",
    "GPU {gpu} of {hosts}[ ({model})] computes at {own_flops}, others of its kind at {usual_flops}[; its clock is at "
    "{clock_mhz} MHz, theirs at {usual_clock_mhz}][; it has {lanes} lanes to its host, they have {usual_lanes}]"
    "[; it is at {degrees} degrees, they are at {usual_degrees}]",
    (
        "dtctl exec {at} -- nvidia-smi -q -i {gpu} -d PERFORMANCE,POWER,TEMPERATURE    shows what holds it back",
        "leave the host out, or let another one take its place: jobs.NAME.hosts in cluster.yaml",
    ),
)
GPUS_UNMEASURED = Signature(
    "gpus_not_measured",
    Level.SLOWS,
    "a host has GPUs, and the programs' framework could not multiply on them",
    "the same",
    "the GPUs of {hosts} could not be measured: {said}",
    ("dtctl exec {at} -- nvidia-smi    shows whether the driver answers",),
)

ROWS = (SLOW, SLOW_MEMORY, SLOW_GPU, UNMEASURED, GPUS_UNMEASURED)
