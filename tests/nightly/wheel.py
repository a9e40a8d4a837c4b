"""The wheel as a user has it: built, installed in an environment of its own, and used far from the checkout."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

from tests.desk import CLUSTER, LOCAL_HOSTS, STAND_IN
from tests.nightly.running import ROOT, Seen, environment, run


def works() -> Seen:
    """Trains the template that needs nothing, and a trainer of the user's own that is stopped."""
    with tempfile.TemporaryDirectory(prefix="dtctl-wheel-") as directory:
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", directory, str(ROOT)])
        (wheel,) = Path(directory).glob("dtctl-*.whl")
        with environment(sys.executable, [str(wheel)]) as python:
            home = Path(directory, "home")
            home.mkdir()
            User(python, home).tries_it()
        return Seen(True, f"{wheel.name}: --help, init, up --local, logs, wait, stop, down")


class User:
    def __init__(self, python: str, home: Path) -> None:
        self._dtctl, self.home = str(Path(python).with_name("dtctl")), home
        self._environment = {"HOME": str(home), "PATH": os.environ["PATH"], "LANG": "C.UTF-8", "COLUMNS": "160"}

    def dtctl(self, *words: str, directory: str = ".") -> str:
        return run([self._dtctl, *words], cwd=self.home / directory, env=self._environment)

    def tries_it(self) -> None:
        assert str(ROOT) not in self.dtctl("--version")
        assert "up" in self.dtctl("--help")
        assert "trainer.command" in self.dtctl("explain")
        self.finds_what_is_shipped()
        self.dtctl("init", "--template", "hello", "first")
        try:
            self.dtctl("up", "--local", directory="first")
            self.dtctl("wait", directory="first")
            assert "step" in self.dtctl("logs", "-n", "all", directory="first")
        finally:
            self.dtctl("down", "--yes", directory="first")
        self.stops_a_trainer_of_their_own()

    def finds_what_is_shipped(self) -> None:
        share = Path(self._dtctl).parents[1] / "share"
        assert "dtctl" in run(["man", "-l", str(share / "man/man1/dtctl.1")])
        for script in (
            "bash-completion/completions/dtctl",
            "zsh/site-functions/_dtctl",
            "fish/vendor_completions.d/dtctl.fish",
        ):
            assert "_DTCTL_COMPLETE" in (share / script).read_text()
        assert [*share.parent.glob("lib/python*/site-packages/dtctl/py.typed")]

    def stops_a_trainer_of_their_own(self) -> None:
        project = self.home / "second"
        project.mkdir()
        shutil.copy(STAND_IN, project)
        (project / "cluster.yaml").write_text(CLUSTER.format(name="second", hosts=LOCAL_HOSTS, args="{}"))
        try:
            self.dtctl("up", "--local", directory="second")
            assert "running" in self.dtctl("status", directory="second")
            assert "3 tasks stopped, 0 left" in self.dtctl("stop", directory="second")
        finally:
            self.dtctl("down", "--yes", directory="second")
