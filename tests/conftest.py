"""What every test may rely on."""

import signal

import pytest

# A suite that a shell runs in the background is started with Ctrl-C ignored, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

_GROUPS = _FLEET, _THIS_MACHINE = "fleet", "this machine"


def pytest_itemcollected(item: pytest.Item) -> None:
    """For pytest-xdist with --dist loadgroup: of each group one test at a time, for they use the same ports."""
    if group := _group(item):
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups begin first, as they take long."""
    items.sort(key=lambda item: not _group(item))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """What failed is found again by --last-failed: pytest-xdist has noted it with the name of its group."""
    is_controller = not hasattr(session.config, "workerinput")
    if is_controller and (cache := getattr(session.config, "cache", None)):
        failed = cache.get("cache/lastfailed", {})
        cache.set("cache/lastfailed", {_without_group(test): why for test, why in failed.items()})


def _without_group(test: str) -> str:
    name, at, group = test.rpartition("@")
    return name if at and group in _GROUPS else test


def _group(item: pytest.Item) -> str:
    marks = {mark.name for mark in item.iter_markers()}
    if "fleet" in marks:
        return _FLEET
    own_ports = any(directory in item.path.as_posix() for directory in ("tests/local", "tests/ssh"))
    return _THIS_MACHINE if "training" in marks or own_ports else ""
