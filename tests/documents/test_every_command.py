"""Every command that a page shows is typed by a test, or is in a table with a reason; cluster files are whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.plan.run import plan_run
from tests.documents import typing_rules as rules
from tests.documents.blocks import ROOT, Typed, Written, bare, blocks, differences, masked, shortened

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
WALKED = ("README.md", "docs/quickstart.md")
FILES = [block for page in PAGES for block in blocks(page) if isinstance(block, Written)]

REST = {
    "name": "name: digits\n",
    "hosts": 'hosts: {"gpu-[1-4]": , "node-[1-2]": }\n',
    "jobs": "jobs: {ps: {hosts: gpu-2}, worker: {hosts: gpu-1}}\n",
    "trainer": "trainer: {command: python train.py}\n",
}
"""Sections of a file of which a page shows others."""


@pytest.mark.parametrize("page", [page for page in PAGES if page not in WALKED])
def test_a_command_of_a_page_that_is_not_typed_has_a_reason(page: str) -> None:
    typed = [block for block in blocks(page) if isinstance(block, Typed)]
    if page not in rules.NOT_TYPED_PAGES:
        assert [str(block) for block in typed if (page, block.command) not in rules.NOT_TYPED] == []
    else:
        assert typed


def test_the_tables_name_only_what_is_there() -> None:
    commands = {(page, block.command) for page in PAGES for block in blocks(page) if isinstance(block, Typed)}
    assert rules.NOT_TYPED.keys() <= commands
    assert set(rules.NOT_TYPED_PAGES) <= set(PAGES)
    typed = {command for _, command in commands}
    assert (rules.PATIENCE.keys() | rules.CTRL_C.keys()) <= typed


def test_targets_of_the_makefile_that_pages_show_are_there() -> None:
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    typed = [block for page in PAGES for block in blocks(page) if isinstance(block, Typed)]
    shown = {block.command.split()[1] for block in typed if block.command.startswith("make ")}
    assert {"demo", "test"} < shown <= targets


def test_the_readme_names_the_commands_that_do_all_the_setup_first() -> None:
    first = [block.command for block in blocks("README.md") if isinstance(block, Typed)][:2]
    assert first == ["make demo", "make test"]


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.page}:{file.line}")
def test_a_cluster_file_of_a_page_can_be_planned(file: Written, tmp_path: Path) -> None:
    text = file.text + "".join(
        text for key, text in REST.items() if not re.search(rf"^{key}:", file.text, re.MULTILINE)
    )
    (tmp_path / "cluster.yaml").write_text(text)
    (tmp_path / "wheels").mkdir()
    (tmp_path / ".env").touch(0o600)
    cluster = load_cluster(tmp_path / "cluster.yaml")
    assert plan_run(cluster, dict.fromkeys(cluster.hosts, "10.0.0.1"), local_python="python3").tasks


def test_many_cluster_files_are_whole() -> None:
    assert len([file for file in FILES if file.is_whole]) > 15


def test_an_explanation_is_not_part_of_its_command() -> None:
    assert bare("dtctl plan          what would run where") == "dtctl plan"
    assert bare("pip install .  # in the clone") == "pip install ."
    assert bare("dtctl logs -g 'loss|accuracy' -t") == "dtctl logs -g 'loss|accuracy' -t"


def test_a_screen_is_the_same_but_for_what_changes_from_day_to_day() -> None:
    shown = ["run digits-20261122-210746-d68c started: 4 tasks on node-[1-2]"]
    assert differences(shown, ["run digits-20270101-000000-ffff started: 4 tasks on node-[1-2]"]) == []
    assert len(differences(shown, ["run digits-20270101-000000-ffff started: 3 tasks on node-[1-2]"])) == 2
    assert len(differences(shown, [*shown, "warning: something"])) == 1
    assert differences([*shown, "..."], [*shown, "warning: something"]) == []
    slow = "node-[1-2] checked in 5.5 s: no problem found (brief check; --no-check skips it)"
    assert differences(shown, [*shown, slow]) == []
    assert len(differences(shown, [*shown, slow.replace("no problem found", "1 warning")])) == 1
    assert masked("step 250  loss 0.103  accuracy 0.98") == masked("step 1000  loss 1.002  accuracy 1.00")


def test_a_screen_that_is_shown_in_part_stays_as_long() -> None:
    assert shortened(["a", "...", "y", "z"], list("bcdefg")) == ["b", "...", "f", "g"]
    assert shortened(["..."], list("bcd")) == ["..."]
    assert shortened([], list("bcd")) == ["b", "c", "d"]
