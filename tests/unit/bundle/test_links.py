"""Where links lead."""

from __future__ import annotations

import pytest

from dtctl.bundle.scanning import leads_outside


@pytest.mark.parametrize(
    ("target", "outside"),
    [
        ("b", False),
        ("./b/../c", False),
        ("sub/../../x", True),
        ("..", True),
        ("/etc", True),
        ("deep/link/x", False),
        ("deep/link/..", False),
        ("deep/link/../..", True),
        ("loop/x", False),
        ("abroad/x", True),
        ("none/../x", False),
    ],
)
def test_links_are_followed_as_the_kernel_does(target: str, outside: bool) -> None:
    links = {"a": target, "deep/link": "../top", "loop": "loop", "abroad": "/srv"}
    assert leads_outside("a", links) is outside


def test_a_link_below_may_use_the_directories_above_it() -> None:
    assert not leads_outside("x/y/a", {"x/y/a": "../../b"})
    assert leads_outside("x/y/a", {"x/y/a": "../../../b"})


def test_what_looks_inside_but_is_not_is_noticed() -> None:
    links = {"a/b/l": "../../top", "m": "a/b/l/../../secret"}
    assert leads_outside("m", links), "a/b/l is top, and above top's directory is the outside"
