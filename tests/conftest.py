"""What every test may rely on."""

import signal

import pytest

# A suite that a shell runs in the background is started with Ctrl-C ignored, and so would be all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks for groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """For pytest-xdist with --dist loadgroup: of each group one test at a time, and these first, as they take long."""
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        if group:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: not groups[item])


def _group(item: pytest.Item) -> str:
    marks = {mark.name for mark in item.iter_markers()}
    if "fleet" in marks:
        return "faults" if "faults" in marks else "fleet"
    return "this machine" if "training" in marks or "tests/local" in item.path.as_posix() else ""
