"""What every test may rely on."""

import signal

import pytest

# A suite that a shell runs in the background is started with Ctrl-C ignored, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """For pytest-xdist with --dist loadgroup: of each group one test at a time, for they use the same ports."""
    if group := _group(item):
        item.add_marker(pytest.mark.xdist_group(group))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The groups begin first, as they take long."""
    items.sort(key=lambda item: not _group(item))


def _group(item: pytest.Item) -> str:
    marks = {mark.name for mark in item.iter_markers()}
    if "fleet" in marks:
        return "fleet"
    own_ports = any(directory in item.path.as_posix() for directory in ("tests/local", "tests/ssh"))
    return "this machine" if "training" in marks or own_ports else ""
