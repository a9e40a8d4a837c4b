"""What every test may rely on."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import pytest

from tests import environments, skips
from tests.hosts import private_network
from tests.hosts.fleet import Fleet, missing
from tests.hosts.once import shared_directory
from tests.nights import at_night

# A suite that a shell runs in the background is started with Ctrl-C ignored, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

_TRAINING, _FLEET, _THIS_MACHINE = "training", "fleet", "this machine"

_SHARED_NETWORK = pytest.StashKey[bool]()


_LONGEST_ID = 100


@pytest.hookimpl(trylast=True)  # pytest-rerunfailures connects its workers by the network that they then leave
def pytest_configure(config: pytest.Config) -> None:
    """Gives each worker a network of its own where that is possible, because workers run beside each other."""
    is_worker = hasattr(config, "workerinput")
    config.pluginmanager.register(skips)
    shared_directory()  # of the first process, for all workers
    config.stash[_SHARED_NETWORK] = not is_worker or bool(private_network.enter())


def pytest_make_parametrize_id(config: pytest.Config, val: object, argname: str) -> str | None:
    """Values of megabytes would be names of megabytes, which each worker sends and each process has in its environment.

    Names that are the same pytest tells apart by itself.
    """
    return f"{val[:_LONGEST_ID]!a}..." if isinstance(val, (str, bytes)) and len(val) > _LONGEST_ID else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Groups tests for pytest-xdist with --dist loadgroup: of each group one test runs at a time."""
    if group := _group(item):
        item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`nightly` is left out unless DTCTL_NIGHTLY is set, or it is `daily` too. What takes long begins first."""
    if not os.environ.get("DTCTL_NIGHTLY"):
        left_out = {item for item in items if _marks(item) & {"nightly", "daily"} == {"nightly"}}
        config.hook.pytest_deselected(items=[*left_out])
        items[:] = [item for item in items if item not in left_out]
    items.sort(key=_rank)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Ten thousand tests are no garbage: while they are made, and later, no collection visits them."""
    gc.disable()
    yield
    gc.enable()
    gc.freeze()


@pytest.fixture(scope="session", params=at_night(["fabric", "openssh"], but=["fabric"]))
def client(request: pytest.FixtureRequest) -> str:
    """What speaks SSH, as `ssh: {client: ...}` names it. A test that is marked `daily` has both by day."""
    return str(request.param)


@pytest.fixture(scope="session")
def lasting_fleet() -> Iterator[Fleet]:
    """Each worker's own. For what lasts longer than a test, and cleans up after itself."""
    if reason := missing():
        pytest.skip(f"no fleet: {reason}")
    with Fleet(5, visible=(*Fleet.visible, environments.root())) as made:
        for host in made.hosts:
            host.settle()
        yield made


@pytest.fixture
def fleet(lasting_fleet: Fleet) -> Iterator[Fleet]:
    """Five separate hosts, gpu-1 to gpu-5; all of them run, and their homes are empty."""
    yield lasting_fleet
    lasting_fleet.restore()


def _group(item: pytest.Item) -> str:
    """Trainings want both cores. In a network that all share, the others use the same ports, too."""
    marks = _marks(item)
    if not item.config.stash[_SHARED_NETWORK]:
        return _TRAINING if "training" in marks else ""
    if "fleet" in marks:
        return _FLEET
    own_ports = any(directory in item.path.as_posix() for directory in ("tests/local", "tests/ssh"))
    return _THIS_MACHINE if "training" in marks or own_ports else ""


def _rank(item: pytest.Item) -> int:
    marks = _marks(item)
    return next((rank for rank, mark in enumerate(("training", "faults", "fleet", "xdist_group")) if mark in marks), 9)


def _marks(item: pytest.Item) -> set[str]:
    return {mark.name for mark in item.iter_markers()}
