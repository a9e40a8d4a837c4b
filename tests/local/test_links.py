"""A cloned project holds links under the names that dtctl writes; beside it lies what they lead to."""

from __future__ import annotations

from pathlib import Path

from tests.desk import Desk
from tests.local.test_checkpoints import trains, write

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA mine\n"


def planted(home: Desk, run: str) -> Path:
    """The directory that all links lead to or into."""
    victim = home.home / ".ssh"
    victim.mkdir(mode=0o700)
    (victim / "authorized_keys").write_text(KEY)
    project = home.project
    (project / "fresh").mkdir()
    for name in (f"{run}.html", f"{run}.md", "page.html"):
        (project / name).symlink_to(victim / "authorized_keys")
    for name in ("dangling.html", "fresh/train.py", "fresh/cluster.yaml", "dangling"):
        (project / name).symlink_to(victim / "authorized_keys2")
    for name in ("keys", "fresh/keys"):
        (project / name).symlink_to(victim)
    (project / "there").mkdir()
    (project / "there" / ".model.ckpt-100.part").symlink_to(victim)
    return victim


def test_no_command_writes_through_a_link_of_a_cloned_project(home: Desk) -> None:
    write(home, "first")
    home.dtctl("up", "--local", "-q")
    trains(home)
    run = home.status()["run"]
    victim = planted(home, run)
    for words in (
        "report",
        "report --force",
        "report --format md --force",
        "report -O page.html --force",
        "report -O dangling.html --force",
        "report -O keys/authorized_keys --force",
        "report -O keys/new.html",
        "report -O fresh/keys/new.html",
        f"report -O {home.project}/keys/new.html",
        "checkpoints pull 100 keys",
        "checkpoints pull 100 keys/new",
        "checkpoints pull 100 there",
        "checkpoints pull 100 dangling",
        "logs --save keys/logs",
        "logs --save dangling",
        "init fresh",
        "init fresh/keys",
        "init keys/new",
        "init --helper keys",
    ):
        done = home.run(*words.split())
        shown = f"{words}: {done.returncode}\n{done.stdout}{done.stderr}"
        assert done.returncode != 0, shown
        assert "Traceback" not in done.stderr, shown
        assert "link" in done.stderr or "already exists" in done.stderr, shown
        assert [path.name for path in victim.iterdir()] == ["authorized_keys"], shown
        assert (victim / "authorized_keys").read_text() == KEY, shown
    elsewhere = home.home / "elsewhere"
    elsewhere.mkdir()
    file = str(home.project / "cluster.yaml")
    for words in (f"report -O {home.project}/keys/new.html", f"checkpoints pull 100 {home.project}/keys"):
        done = home.run(*words.split(), "-c", file, cwd=elsewhere)
        assert (done.returncode != 0, "which is not followed" in done.stderr) == (True, True), done.stderr
    assert [path.name for path in victim.iterdir()] == ["authorized_keys"]


def test_a_link_above_the_project_is_the_users_own(home: Desk) -> None:
    (home.home / "disk").mkdir()
    (home.home / "scratch").symlink_to("disk")
    home.dtctl("init", str(home.home / "scratch" / "new"))
    assert (home.home / "disk" / "new" / "cluster.yaml").is_file()
