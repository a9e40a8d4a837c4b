"""The rooms of the agent: what a run does not need, and a controller may request of a host.

Each row is all that the rest of the agent knows of a room: the requests that it handles, the messages of them, and what
it observes while a run lasts. A room is removed with its folder and its row. docs/architecture.md explains rooms;
dtctl/rooms has the controller's.
"""

from __future__ import annotations

from importlib import import_module

from .. import records
from ..records import Exchange

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Mapping, Optional, Protocol, Tuple

    from ..records.run_state import State

    class Observer(Protocol):
        """Made of a run's files and its spec. It must not block, and raises nothing."""

        def step(self, now: float, wall: float, state: State) -> None: ...


class Room:
    """`exchanges`: request -> the handler, the record of the request and that of the result.

    `topics`: topic of `check` -> the same for its question and its facts. `inspects`: the function that answers such
    questions, for a start that asks them. `observer`: the class of what the supervisor makes once and calls in each of
    its steps, as Observer. `frames` and `words`: the messages of host and controller within a request, by the records
    that they hold. A name of two parts is one of the room's folder, one of three parts one of the agent's.
    """

    def __init__(
        self,
        exchanges: Mapping[str, Tuple[str, str, str]],
        frames: Mapping[str, str] = {},  # nothing changes it
        words: Mapping[str, str] = {},
        topics: Mapping[str, Tuple[str, str, str]] = {},
        inspects: Optional[str] = None,
        observer: Optional[str] = None,
    ) -> None:
        self.exchanges = exchanges
        self.frames = frames
        self.words = words
        self.topics = topics
        self.inspects = inspects
        self.observer = observer


ROOMS: Dict[str, Room] = {
    "check": Room(
        {"check": ("serving.check", "records.CheckRequest", "records.CheckResult")},
        topics={
            "software": ("software.software_facts", "records.SoftwareQuestion", "records.SoftwareFacts"),
            "machine": ("machine.machine_facts", "records.MachineQuestion", "records.MachineFacts"),
            "storage": ("storage.storage_facts", "records.StorageQuestion", "records.StorageFacts"),
            "urls": ("urls.urls_facts", "records.UrlsQuestion", "records.UrlsFacts"),
            "speed": ("speed.speed_facts", "records.SpeedQuestion", "records.SpeedFacts"),
            "network": (
                "network.network_facts",
                "rooms.network.records.NetworkQuestion",
                "rooms.network.records.NetworkFacts",
            ),
            "ssh": ("ssh.ssh_facts", "rooms.network.records.SshQuestion", "rooms.network.records.SshFacts"),
        },
        inspects="serving.gather_facts",
    ),
    "checkpoints": Room(
        {
            "verify": ("serving.verify", "records.VerifyRequest", "records.VerifyResult"),
            "fetch": ("serving.fetch", "records.FetchRequest", "records.FetchResult"),
            "prune": ("serving.prune", "records.PruneRequest", "records.PruneResult"),
            "store": ("serving.store", "records.StoreRequest", "records.StoreResult"),
        },
        frames={"part": "records.FilePart", "landing": "records.Landing", "stored": "records.Stored"},
        words={"part": "records.PartWord"},
    ),
    "code": Room(
        {"code": ("serving.code", "records.requests.Request", "records.CodeResult")},
        frames={"code_part": "records.CodePart"},
    ),
    "data": Room(
        {
            "data_push": ("serving.push", "records.DataPushRequest", "records.DataPushResult"),
            "data_status": ("serving.status", "records.DataRequest", "records.DataFacts"),
            "data_verify": ("serving.verify", "records.DataRequest", "records.DataFacts"),
            "data_drop": ("serving.drop", "records.DataRequest", "records.DataDropResult"),
        },
        topics={"data": ("check.data_facts", "records.DataQuestion", "records.DataFacts")},
    ),
    "diagnose": Room({"diagnose": ("serving.diagnose", "records.requests.Request", "records.vitals.DiagnoseResult")}),
    "dump": Room(
        {"dump": ("serving.dump", "records.DumpRequest", "records.answers.RunResult")}, {"dump": "records.Dump"}
    ),
    "execute": Room({"exec": ("serving.execute", "records.ExecRequest", "records.ExecResult")}),
    "gpus": Room({"gpus": ("serving.gpus", "records.requests.Request", "records.GpusResult")}),
    "metrics": Room(
        {"metrics": ("serving.metrics", "records.MetricsRequest", "records.MetricsResult")},
        frames={"points": "records.Points"},
    ),
    "profile": Room(
        {"profile": ("serving.profile", "records.ProfileRequest", "records.answers.RunResult")},
        {"profiling": "records.Profiling", "profile": "records.Profile"},
    ),
    "slurm": Room(
        {
            "login_command": (
                "execute.login_command",
                "records.LoginCommandRequest",
                "records.LoginCommandResult",
            )
        }
    ),
    "speed": Room(
        {"speed": ("serving.speed", "records.SpeedRequest", "records.SpeedResult")}, observer="measuring.Observer"
    ),
    "network": Room({}),  # what `check` and `diagnose` do to reach other hosts
    "tensorboard": Room(
        {
            "event_dirs": ("serving.event_dirs", "records.requests.Request", "records.EventDirsResult"),
            "event_files": ("serving.event_files", "records.EventFilesRequest", "records.answers.RunResult"),
            "tensorboard": ("serving.tensorboard", "records.requests.Request", "records.TensorboardResult"),
        },
        frames={
            "tensorboard_ready": "records.TensorboardReady",
            "piece": "records.ChannelWord",
            "taken": "records.TakenWord",
            "closed": "records.ChannelWord",
            "event_file": "records.EventFile",
            "caught_up": "records.CaughtUp",
        },
        words={
            "open": "records.ChannelWord",
            "piece": "records.ChannelWord",
            "taken": "records.TakenWord",
            "closed": "records.ChannelWord",
        },
    ),
}


def _named(room: str, name: str) -> str:
    return "rooms.%s.%s" % (room, name) if name.count(".") == 1 else name


EXCHANGES: Dict[str, Exchange] = {
    **records.EXCHANGES,
    **{
        request: Exchange(*(_named(name, one) for one in row))
        for name, room in ROOMS.items()
        for request, row in room.exchanges.items()
    },
}
FRAMES: Dict[str, str] = {
    **records.FRAMES,
    **{frame: _named(name, one) for name, room in ROOMS.items() for frame, one in room.frames.items()},
}
WORDS: Dict[str, str] = {
    **records.WORDS,
    **{word: _named(name, one) for name, room in ROOMS.items() for word, one in room.words.items()},
}

TOPICS: Dict[str, Exchange] = {
    topic: Exchange(*(_named(name, one) for one in row))
    for name, room in ROOMS.items()
    for topic, row in room.topics.items()
}
INSPECTS: Optional[str] = next((_named(name, room.inspects) for name, room in ROOMS.items() if room.inspects), None)
"""None where this agent has no checks."""
OBSERVERS: List[str] = [_named(name, room.observer) for name, room in ROOMS.items() if room.observer]


def load(name: str) -> Any:
    """The function or the record of this name, as the tables have it. Its module is imported when it is needed."""
    module, _, own = name.rpartition(".")
    return getattr(import_module(".." + module, __package__), own)
