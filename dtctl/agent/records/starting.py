"""Requests of a controller to an agent before a run, and to start one."""

from .checks import MOST_PLACES, Questions
from .hooks import Posts
from .kinds import AtMost, Default, Dict, InvalidValue, List, Optional, Record, also
from .requests import Request
from .spec import Environment, Paths, Spec, is_alone
from .values import BundleId, Hex64, Line, Name, Path, Pem, Port, Variables, refuse_unfit


class Credentials(Record):
    """The credentials of one host, by which the agents of a run authenticate each other."""

    key: Pem
    certificate: Pem
    """It names the run and the host."""
    authority: Pem
    """The authority that signs the run's certificates."""
    knock: Hex64
    """The secret that an agent sends before any TLS."""


class Latecomers(Record):
    """latecomers.json: on the coordinator's host, the credentials of hosts that the run was started without."""

    credentials: AtMost[Dict[Name, Credentials], 4096]


class UpRequest(Request):
    """Prepares a run, starts it on `start`, and rolls it back unless it is kept."""

    spec: Spec
    bundle: Default[Optional[BundleId], None]
    secrets: Default[Optional[Variables], None]
    credentials: Default[Optional[Credentials], None]
    hooks: Default[Posts, []]
    """Hooks that its coordinator notifies; only for the coordinator's host."""
    withheld: Default[AtMost[List[Line], 1000], []]
    """Names of variables that no trainer inherits: they hold what hooks need."""
    replace: Default[bool, False]
    file: Default[Line, ""]
    """The cluster file, where the controller has it."""
    outputs: Default[Paths, []]
    """Directories that the run writes to and reads checkpoints from, with marks."""
    ask: Default[Optional[Questions], None]
    """Questions that the host answers before `prepared`."""


class EnvironmentRequest(Request):
    """Asks whether an environment exists, before wheels are sent to create it."""

    environment: Environment


class EnvironmentResult(Record):
    """The answer."""

    exists: bool


class DataPushRequest(Request):
    """Sends a bundle's files into a directory."""

    dir: Path
    """The path, with marks."""
    bundle: BundleId
    overwrite: Default[bool, False]
    """Whether to replace differing files that others have put there."""
    credentials: Default[Optional[Credentials], None]
    """Set for hosts that send the files to each other; null: the controller sends them."""
    ports: Default[AtMost[List[Port], 1024], []]
    """Ports that other hosts should be able to reach here: the first free one is used, or else any."""


class DataRequest(Request):
    """Inspects, hashes or removes the files that dtctl has put into these directories."""

    dirs: AtMost[List[Path], MOST_PLACES]
    """The paths, with marks."""


class CheckRequest(Request):
    """Checks what a run needs on the host; may be repeated, as each answer leads to more questions."""

    ask: Questions


class StartMessage(Record):
    """`start`: starts what was prepared, on all present hosts."""

    absent: Default[AtMost[List[Name], 4096], []]
    """Hosts of the roster that the run is started without."""
    latecomers: Default[AtMost[Dict[Name, Credentials], 4096], {}]
    """Credentials with which they join it later; only for the coordinator's host, which keeps them."""


class LookWord(Record):
    """`look`: another round of checks before `start`."""

    ask: Questions


@also(UpRequest)
def _is_of_its_spec(request: UpRequest) -> None:
    """Requires that the request agrees with its spec."""
    spec = request["spec"]
    if spec["cluster"] != request["cluster"]:
        raise InvalidValue.at(("spec", "cluster"), "the request's cluster, %s" % request["cluster"], spec["cluster"])
    if spec["host"] != request["host"]:
        raise InvalidValue.at(("spec", "host"), "the request's host, %s" % request["host"], spec["host"])
    if spec["bundle"] != request["bundle"]:
        raise InvalidValue.at(("spec", "bundle"), "the request's bundle, %s" % request["bundle"], spec["bundle"])
    if request["credentials"] is None and not is_alone(spec):
        raise InvalidValue.at(("credentials",), "those that a run on several hosts needs", None)
    secrets = request["secrets"] or {}
    refuse_unfit(("secrets",), secrets, secrets.values())
    refuse_unfit(("outputs",), request["outputs"])
    _are_texts(request["credentials"])


@also(DataPushRequest)
def _is_a_place(request: DataPushRequest) -> None:
    refuse_unfit(("dir",), [request["dir"]])
    _are_texts(request["credentials"])


def _are_texts(credentials: Optional[Credentials]) -> None:
    if credentials is not None:
        refuse_unfit(("credentials",), [credentials["key"], credentials["certificate"], credentials["authority"]])


@also(DataRequest)
def _are_places(request: DataRequest) -> None:
    refuse_unfit(("dirs",), request["dirs"])
