"""Requests of a controller to an agent before a run, and to start one."""

from .hooks import Posts
from .kinds import AtMost, Default, Dict, InvalidValue, List, Optional, Record, also, formerly
from .requests import Request
from .spec import Environment, Paths, Spec, is_alone
from .values import BundleId, Hex64, Line, Name, Pem, Topics, Variables, refuse_unfit


class Credentials(Record):
    """The credentials of one host, by which the agents of a run authenticate each other."""

    key: Pem
    certificate: Pem
    """It names the run and the host."""
    authority: Pem
    """The authority that signs the run's certificates."""
    port_token: Hex64
    """The secret that an agent sends before any TLS."""


formerly(Credentials, port_token="knock")


class PendingHosts(Record):
    """pending_hosts.json: on the coordinator's host, the credentials of hosts that the run was started without."""

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
    ask: Default[Optional[Topics], None]
    """Questions that the host answers before `prepared`."""


class EnvironmentRequest(Request):
    """Asks whether an environment exists, before wheels are sent to create it."""

    environment: Environment


class EnvironmentResult(Record):
    """The answer."""

    exists: bool


class StartMessage(Record):
    """`start`: starts what was prepared, on all present hosts."""

    absent: Default[AtMost[List[Name], 4096], []]
    """Hosts of the roster that the run is started without."""
    pending_hosts: Default[AtMost[Dict[Name, Credentials], 4096], {}]
    """Credentials with which they join it later; only for the coordinator's host, which keeps them."""


class LookWord(Record):
    """`look`: another round of checks before `start`."""

    ask: Topics


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


def _are_texts(credentials: Optional[Credentials]) -> None:
    if credentials is not None:
        refuse_unfit(("credentials",), [credentials["key"], credentials["certificate"], credentials["authority"]])
