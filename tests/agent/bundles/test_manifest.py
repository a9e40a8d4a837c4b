"""What an agent refuses to unpack, whoever asks."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.bundles.tree import Manifest
from dtctl.agent.host.errors import Refused

NOTHING = hashlib.sha256(b"").hexdigest()


def parse(value: Any) -> Manifest:
    text = json.dumps(value).encode()
    return Manifest.parse(text, hashlib.sha256(text).hexdigest())


def manifest(**changes: Any) -> dict[str, Any]:
    return {"version": 1, "files": [], "links": [], "dirs": [], **changes}


def test_a_plain_manifest_is_accepted() -> None:
    value = manifest(
        files=[["a/b/c", 0o644, 0, NOTHING], ["x", 0o755, 0, NOTHING]],
        links=[["a/link", "../x"]],
        dirs=[["a", 0o755], ["a/b", 0o700]],
    )
    parsed = parse(value)
    assert parsed.files[0] == ("a/b/c", 0o644, 0, NOTHING)
    assert parsed.paths() == {"a/b/c", "x", "a/link"}


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../x", "..", ".", "", "a/../x", "a/./x", "a//x", "a/", "link/x", "nowhere/x", "x\0y", 7, None],
)
def test_paths_that_lead_anywhere_else_are_refused(path: Any) -> None:
    links = [["link", "/etc"]]
    for changes in (
        {"files": [[path, 0o644, 0, NOTHING]], "links": links, "dirs": [["a", 0o755]]},
        {"links": [*links, [path, "x"]], "dirs": [["a", 0o755]]},
        {"links": links, "dirs": [["a", 0o755], [path, 0o755]]},
    ):
        with pytest.raises(Refused) as refused:
            parse(manifest(**changes))
        assert refused.value.code == "bad_request"


@pytest.mark.parametrize(
    "changes",
    [
        {"files": [["a", 0o644, 0, NOTHING], ["a", 0o644, 0, NOTHING]]},
        {"files": [["a", 0o644, 0, NOTHING]], "links": [["a", "/etc"]]},
        {"files": [["a", 0o644, 0, NOTHING]], "dirs": [["a", 0o755]]},
        {"links": [["a", "/etc"]], "dirs": [["a", 0o755]], "files": [["a/passwd", 0o644, 0, NOTHING]]},
        {"files": [["a", 0o4755, 0, NOTHING]]},
        {"files": [["a", "644", 0, NOTHING]]},
        {"files": [["a", True, 0, NOTHING]]},
        {"files": [["a", 0o644, -1, NOTHING]]},
        {"files": [["a", 0o644, 0, "../../x"]]},
        {"files": [["a", 0o644, 0]]},
        {"files": None},
        {"links": [["a", ""]]},
        {"links": [["a", "x\0"]]},
        {"version": 2},
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        parse(manifest(**changes))
    assert refused.value.code == "bad_request"


@pytest.mark.parametrize("value", [[], None, "text", 7, {}])
def test_what_is_no_manifest_is_refused(value: Any) -> None:
    with pytest.raises(Refused):
        parse(value)


def test_a_manifest_that_is_not_the_bundles_is_refused() -> None:
    with pytest.raises(Refused) as refused:
        Manifest.parse(json.dumps(manifest()).encode(), "0" * 64)
    assert refused.value.code == "bundle_damaged"


def test_a_damaged_copy_on_disk_counts_as_none(tmp_path: Path) -> None:
    text = json.dumps(manifest()).encode()
    bundle_id = hashlib.sha256(text).hexdigest()
    path = tmp_path / "manifest.json"
    assert Manifest.load(str(path), bundle_id) is None
    path.write_bytes(text[:-1])
    assert Manifest.load(str(path), bundle_id) is None
    path.write_bytes(text)
    assert Manifest.load(str(path), bundle_id) is not None
