"""The section hooks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtctl.config import check_cluster, load_cluster
from dtctl.errors import ConfigError

CLUSTER = "name: demo\nhosts: {a: }\njobs: {worker: {hosts: a}}\ntrainer: {command: python train.py}\nhooks:\n"


def write(tmp_path: Path, hooks: str) -> Path:
    file = tmp_path / "cluster.yaml"
    file.write_text(CLUSTER + hooks)
    return file


def test_hooks_are_read_with_their_events(tmp_path: Path) -> None:
    file = write(tmp_path, "  web: {post: '${URL}', on: failed stalled}\n  here: {run: ./tell.sh now, timeout: 3s}\n")
    found = load_cluster(file).hooks
    assert (found["web"].post, found["web"].on, found["web"].variables) == ("${URL}", ("failed", "stalled"), ("URL",))
    assert (found["here"].run, found["here"].timeout_s) == (("./tell.sh", "now"), 3.0)
    assert found["here"].on == ("succeeded", "failed")


@pytest.mark.parametrize(
    ("hooks", "said"),
    [
        ("  web: {on: failed}\n", "hooks.web says neither post nor run"),
        ("  web: {post: 'https://x/', run: true.sh}\n", "hooks.web says both post and run"),
        ("  web: {run: true.sh, headers: {A: b}}\n", "hooks.web.headers belong to a post"),
        ("  web: {post: 'https://x/', on: ended}\n", "expected succeeded, failed"),
        ("  web: {post: 'x.example.com'}\n", "expected an address that begins with https:// or http://"),
        ("  web: {post: 'https://me:pw@x/'}\n", "expected an address without a user or password"),
        ("  web: {post: 'https://x/', timeout: 5m}\n", "expected a duration of at most 60s"),
        ("  'we b': {post: 'https://x/'}\n", "expected a name of letters"),
        ("".join(f"  h{number}: {{post: 'https://x/'}}\n" for number in range(21)), "expected at most 20"),
    ],
)
def test_a_mistake_is_reported_with_what_was_expected(tmp_path: Path, hooks: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_cluster(write(tmp_path, hooks))
    assert said in refused.value.problems[0].summary
    assert refused.value.problems[0].place.line >= 5


@pytest.mark.parametrize(
    ("hooks", "doubted"),
    [
        ("  web: {post: 'https://hooks.slack.com/services/T0/B0/x'}\n", "hooks.web.post looks as if it held a secret"),
        ("  web: {post: 'https://x.example.com/?token=abcdefgh'}\n", "hooks.web.post looks as if it held a secret"),
        ("  web: {post: 'https://x/', headers: {Authorization: Bearer x}}\n", "hooks.web.headers.Authorization looks"),
        ("  web: {post: 'http://x.example.com/${TOKEN}'}\n", "hooks.web.post sends secrets unencrypted"),
        ("  web: {post: 'http://127.0.0.1:8000/${TOKEN}'}\n", ""),
        ("  web: {post: 'https://hooks.slack.com/services/${TOKEN}'}\n", ""),
        ("  web: {post: '${URL}', headers: {Authorization: 'Bearer ${TOKEN}'}}\n", ""),
    ],
)
def test_a_secret_in_the_file_is_doubted(tmp_path: Path, hooks: str, doubted: str) -> None:
    doubts = [doubt.summary for doubt in check_cluster(write(tmp_path, hooks), overrides=[]).findings.doubts]
    assert [doubted in doubt for doubt in doubts] == ([True] if doubted else [])
