"""The rooms: what a run does not need. The rest of dtctl, the core, knows of a room what its row here says.

A room is removed with its folder, its row, and its folder and row in dtctl/agent/rooms; then those of the rooms that
need it go, too. docs/architecture.md explains rooms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Command(NamedTuple):
    """A command: its group in `dtctl --help`, its effect (dtctl/cli/table.py), and its summary.

    `before`: the command of its group before which it is listed; the last one if it is empty. `here`: it shows or
    writes something on the machine on which it is typed: no login node carries it out (cli/forwarding.py).
    """

    group: str
    effect: str
    help: str
    before: str = ""
    here: bool = False


class Room(NamedTuple):
    """`commands`: functions of the room's command.py, by their names. The others are functions of the room as
    MODULE.NAME, with the type of the place that calls them; an empty one has no part there.
    """

    commands: Mapping[str, Command] = {}
    problems: str = ""
    """What is wrong with a run, by its status: operations/findings.py."""
    signatures: str = ""
    """All that `explain` knows of such problems: render/manual.py."""
    inspection: str = ""
    """What hosts are asked while a run starts: operations/up/inspecting.py."""
    privacy: str = ""
    """Refuses a start whose ports others than the hosts reach: operations/up/inspecting.py."""
    checkpoints: str = ""
    """Checkpoints of a run that no host sees: operations/status.py."""
    brings: str = ""
    """What a host that takes tasks needs besides code: operations/replace.py."""
    topic: str = ""
    """A topic of `check`: rooms/check."""
    scalars: str = ""
    """Scalars of a run that no host reads, and what is added to them: rooms/metrics/operation.py."""
    source: str = ""
    """Makes a cluster file from what people have already: rooms/init."""
    transport: str = ""
    """How hosts are reached whose transport has the room's name: transport/connect.py."""
    engine: str = ""
    """Lends machines to a run whose `on` is the room's name: operations/engines.py."""
    login: str = ""
    """Carries out a command on the login node of an engine: cli/forwarding.py."""
    needs: tuple[str, ...] = ()
    """Rooms without which it does not work. A module that has another room's name goes with either of the two."""


ROOMS: Mapping[str, Room] = {
    "check": Room(
        {"check": Command("Start", "FILE", "Check every host: network, storage, programs, clocks", "up")},
        inspection="checking.inspection",
        privacy="checking.refuse_exposed",
        needs=("diagnose", "network"),
    ),
    "data": Room(
        {"data": Command("Start", "FILE", "Push, verify or drop the data set on the hosts")},
        brings="pushing.bring",
        topic="check.TOPIC",
    ),
    "top": Room(
        {"top": Command("Watch", "READS", "Watch the run on a full screen", here=True)}, needs=("metrics", "speed")
    ),
    "pages": Room(
        {
            "dashboard": Command("Watch", "READS", "Watch the run in a browser", here=True),
            "report": Command("Watch", "READS", "Write one page about the run", here=True),
            "compare": Command(
                "Watch", "READS", "Show runs side by side: settings, outcome, speed, metrics", here=True
            ),
        },
        needs=("metrics", "diagnose", "speed"),
    ),
    "code": Room(
        {"code": Command("Watch", "READS", "Show which code ran, or bring it back into a directory", here=True)}
    ),
    "metrics": Room({"metrics": Command("Watch", "READS", "Show loss, accuracy and other scalars")}),
    "tensorboard": Room(
        {"tensorboard": Command("Watch", "READS", "Run TensorBoard next to the event files", here=True)},
        needs=("metrics", "pages", "storage"),
    ),
    "diagnose": Room(
        {"diagnose": Command("Repair", "READS", "Find out what is wrong, and what to do about it", "restart")},
        problems="operation.in_short",
        signatures="signatures.SIGNATURES",
        needs=("metrics", "network", "dump"),
    ),
    "speed": Room({"speed": Command("Watch", "READS", "Find out why a run is slow, and what makes it faster")}),
    "profile": Room(
        {"profile": Command("Watch", "READS", "Show where in the program the time of a task goes")},
        needs=("dump", "metrics"),
    ),
    "gpus": Room({"gpus": Command("Watch", "READS", "Show the GPUs of every host, who uses them, and which are free")}),
    "dump": Room({"dump": Command("Repair", "READS", "Show the Python stacks of live trainers", "restart")}),
    "execute": Room(
        {
            "exec": Command("Repair", "CHANGES", "Run a command in the environment of tasks", here=True),
            "ssh": Command("Repair", "CHANGES", "Log in to the host of a task", here=True),
        }
    ),
    "checkpoints": Room(
        {"checkpoints": Command("Repair", "READS", "List, verify, pull, push or prune checkpoints")}, needs=("storage",)
    ),
    "storage": Room(checkpoints="found.at_urls", scalars="metrics.SCALARS"),
    "init": Room({"init": Command("Start", "NONE", "Write a trainer and a cluster.yaml that works at once", "trust")}),
    "importing": Room(
        {"import": Command("Start", "NONE", "Write a cluster.yaml from a hostfile, an inventory, a TFJob", "trust")},
        source="operation.from_source",
        needs=("init",),
    ),
    "kubectl": Room(transport="transport.KubectlTransport"),
    "export": Room(
        {"export": Command("Cluster file", "FILE", "Write the cluster as a JobSet, a TFJob or a Slurm batch file")},
        needs=("kubectl",),
    ),
    "slurm": Room(transport="transport.transport_of", engine="engine.ENGINE", login="login.carry_out"),
}


def of(name: str, part: str) -> str | None:
    """Where the room of this name has that part, as MODULE:NAME; None if it has none, or there is no such room."""
    own: str = getattr(ROOMS.get(name), part, "")
    module, _, attribute = own.rpartition(".")
    return f"{__name__}.{name}.{module}:{attribute}" if own else None


def each(part: str) -> Iterator[Any]:
    """What the rooms have for this part of `Room`, in the order of the table; each is imported now."""
    for name, room in ROOMS.items():
        if own := getattr(room, part):
            module, _, attribute = own.rpartition(".")
            yield getattr(import_module(f"{__name__}.{name}.{module}"), attribute)
