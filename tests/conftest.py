"""What every test may rely on."""

import signal

import pytest

# A suite that a shell runs in the background is started with Ctrl-C ignored, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For pytest-xdist with --dist loadgroup: of each group one test at a time."""
    for item in items:
        if item.get_closest_marker("fleet"):
            item.add_marker(pytest.mark.xdist_group("fleet"))  # has the network of the machine
        elif item.get_closest_marker("training") or "tests/local" in item.path.as_posix():
            item.add_marker(pytest.mark.xdist_group("this machine"))  # which has one port 2222
