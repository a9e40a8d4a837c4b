"""What the wheel brings along in `share`: the manual page, and completion as shells load it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dtctl.cli.app import Commands
from tests.documents.blocks import ROOT

SHARE = ROOT / "share"
PAGE = SHARE / "man" / "man1" / "dtctl.1"


def test_the_manual_page_has_every_command() -> None:
    shown = re.findall(r"^\.SS dtctl (\w+)", PAGE.read_text(), re.MULTILINE)
    assert len(shown) >= len(Commands())
    assert {"up", "explain", "exec"} <= set(shown)


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man here")
def test_man_accepts_the_page_without_warnings() -> None:
    done = subprocess.run(["man", "--warnings", "-l", str(PAGE)], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "EXIT STATUS" in done.stdout


def test_bash_completes_with_the_script_alone(tmp_path: Path) -> None:
    script = f"""
        source {SHARE}/bash-completion/completions/dtctl
        COMP_WORDS=(dtctl explain trainer.com) COMP_CWORD=2 COMP_LINE='dtctl explain trainer.com' COMP_POINT=25
        $(complete -p dtctl | sed 's/.*-F \\([^ ]*\\).*/\\1/') dtctl
        echo "${{COMPREPLY[*]}}"
    """
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "trainer.command"


@pytest.mark.skipif(not shutil.which("fish"), reason="there is no such shell here")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [("dtctl up --rep", "--replace"), ("dtctl diagn", "diagnose")],
)
def test_fish_completes_with_the_script_alone(tmp_path: Path, typed: str, offered: str) -> None:
    script = f"source {SHARE}/fish/vendor_completions.d/dtctl.fish; complete -C'{typed}'"
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "--no-config", "-c", script], env=env, capture_output=True, text=True, check=True)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == [offered]


@pytest.mark.parametrize(
    ("shell", "script"),
    [
        ("bash", "bash-completion/completions/dtctl"),
        ("zsh", "zsh/site-functions/_dtctl"),
        ("fish", "fish/vendor_completions.d/dtctl.fish"),
    ],
)
def test_a_shell_understands_its_script(shell: str, script: str) -> None:
    if not shutil.which(shell):
        pytest.skip("there is no such shell here")
    subprocess.run([shell, "-n", str(SHARE / script)], check=True)


def test_the_wheel_holds_share_and_py_typed() -> None:
    assert (ROOT / "dtctl" / "py.typed").exists(), "for those who import dtctl.trainer"
    assert '[tool.hatch.build.targets.wheel.shared-data]\nshare = "share"' in (ROOT / "pyproject.toml").read_text()
