"""What trainers wrote, named once for each directory."""

from __future__ import annotations

from typing import Any

import pytest

from dtctl.operations.gc import Written, told_once
from dtctl.render.gc import written_line
from dtctl.render.result import show_kept


def told(host: str, id_: str, **fields: Any) -> Any:
    usual = {"cluster": "digits", "id": id_, "path": "/home/ada/.dtctl/work/digits/tree", "files": 1}
    return host, {**usual, "size_bytes": 501_000_000, **fields}


def test_hosts_that_share_a_home_directory_name_it_once() -> None:
    (one,) = told_once([told("gpu-1", "x"), told("gpu-2", "x")])
    assert (one.hosts, one.directories) == (("gpu-1", "gpu-2"), 1)
    assert written_line(one) == (
        "kept: 501 MB, with 1 file that trainers of digits wrote: /home/ada/.dtctl/work/digits/tree on gpu-[1-2]"
    )


def test_directories_that_are_alike_are_told_in_one_line_and_others_not() -> None:
    alike, other = told_once([told("gpu-1", "x"), told("gpu-2", "y"), told("gpu-3", "z", files=2)])
    assert (alike.hosts, alike.directories) == (("gpu-1", "gpu-2"), 2)
    assert "501 MB each, with 1 file " in written_line(alike)
    assert other.hosts == ("gpu-3",)


def test_what_is_kept_comes_with_the_way_to_remove_it(capsys: pytest.CaptureFixture[str]) -> None:
    show_kept(())
    assert capsys.readouterr().err == ""
    show_kept((Written(None, "/tree", 3, 2048, ("a",)),))
    said = capsys.readouterr().err
    assert "2.0 kB, with 3 files that trainers wrote: /tree on a" in said
    assert "dtctl gc --written" in said
