"""Files are replaced all at once, nothing else is left, and nothing is written through a link of others."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtctl.folder import PRIVATE, Folder, _read, folder_of, replace_file, temporary_folder

PACKAGE = Path(__file__).resolve().parents[2] / "dtctl"


def then(work: Callable[..., Any], error: BaseException) -> Callable[..., Any]:
    """It does its work, and what has come meanwhile is raised as it returns: so does Ctrl-C."""

    def both(*given: Any, **named: Any) -> None:
        work(*given, **named)
        raise error

    return both


def only_of_files(work: Callable[..., Any], error: BaseException, *given: Any, **named: Any) -> Any:
    """Directories are opened as ever."""
    is_directory = work is os.open and not given[1] & os.O_CREAT
    return work(*given, **named) if is_directory else then(work, error)(*given, **named)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory; beside it lies what is the user's own."""
    made = tmp_path / "project"
    (made / "out").mkdir(parents=True)
    (tmp_path / "victim").mkdir()
    monkeypatch.chdir(made)
    return made


@pytest.mark.parametrize("durable", [True, False])
def test_the_new_content_is_for_its_owner_alone_whatever_the_umask_says(tmp_path: Path, durable: bool) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(b"old")
    umask = os.umask(0o277)
    try:
        replace_file(file, b"new", durable=durable)
    finally:
        os.umask(umask)
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (b"new", 0o600)
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(28, "No space left on device")])
@pytest.mark.parametrize("call", ["open", "fchmod", "fsync"])
def test_a_failure_while_writing_keeps_the_old_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    file = tmp_path / "record.json"
    file.write_bytes(b"old")
    with monkeypatch.context() as patch:
        original = getattr(os, call)
        patch.setattr(
            f"dtctl.folder.os.{call}", lambda *given, **named: only_of_files(original, error, *given, **named)
        )
        with pytest.raises(type(error)):
            replace_file(file, b"new")
    assert (file.read_bytes(), list(tmp_path.iterdir())) == (b"old", [file])


def test_a_write_below_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        replace_file(tmp_path / "nowhere" / "record.json", b"new")


@pytest.mark.parametrize("place", ["linked", "out/linked", "out/../linked", "linked/deeper"])
def test_a_linked_directory_of_the_working_directory_is_not_followed(project: Path, place: str) -> None:
    (project / "linked").symlink_to("../victim")
    (project / "out" / "linked").symlink_to(project.parent / "victim")
    with pytest.raises(OSError, match=r"linked is a link \(to .*victim\), which is not followed"):
        Folder(Path(place), make=PRIVATE)
    with pytest.raises(OSError, match="is not followed"):
        replace_file(project / place / "a.html", b"x")
    assert list((project.parent / "victim").iterdir()) == []


def test_a_linked_directory_of_a_project_elsewhere_is_not_followed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "linked").symlink_to("../victim")
    monkeypatch.chdir("/")
    with pytest.raises(OSError, match="is not followed"):
        Folder(project / "linked", project)
    with pytest.raises(OSError, match="is not followed"):
        Folder(project / "linked", project.parent)
    with Folder(project / "linked") as folder:
        assert folder.names() == []


def test_a_linked_directory_of_the_repository_around_is_not_followed(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "linked").symlink_to("../victim")
    monkeypatch.chdir(project / "out")
    with Folder(Path("../linked")):
        pass
    (project / ".git").mkdir()
    with pytest.raises(OSError, match="is not followed"):
        Folder(Path("../linked"))


def test_a_link_of_the_users_own_above_the_project_is_followed(project: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").symlink_to(project)
    replace_file(tmp_path / "scratch" / "out" / "a.html", b"x")
    assert (project / "out" / "a.html").read_bytes() == b"x"
    replace_file(Path("../scratch/out/b.html"), b"y")
    assert (project / "out" / "b.html").read_bytes() == b"y"


def test_links_of_a_home_directory_are_the_users_own(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "linked").symlink_to("../victim")
    monkeypatch.setenv("HOME", str(project))
    replace_file(Path("linked/a.html"), b"x")
    assert (project.parent / "victim" / "a.html").read_bytes() == b"x"


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a link to another user")
def test_a_link_of_another_user_is_not_followed_anywhere(project: Path, tmp_path: Path) -> None:
    (tmp_path / "scratch").symlink_to(project)
    os.chown(tmp_path / "scratch", 65534, 65534, follow_symlinks=False)
    with pytest.raises(OSError, match="is not followed"):
        Folder(tmp_path / "scratch" / "out")


def test_a_loop_of_links_ends(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        Folder(tmp_path / "a" / "c")
    with pytest.raises(OSError, match="symbolic links"), folder_of(tmp_path / "a"):
        pass


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"mine")
    for name in ("report", "dangling"):
        (tmp_path / name).symlink_to("victim" if name == "report" else "not-there")
        replace_file(tmp_path / name, b"new")
        assert not (tmp_path / name).is_symlink()
    with Folder(tmp_path) as folder:
        (tmp_path / "log").symlink_to("victim")
        for write in (folder.new, folder.append):
            with pytest.raises(OSError, match=r"exists|symbolic"):
                write("log")
    assert (tmp_path / "victim").read_bytes() == b"mine"
    assert not (tmp_path / "not-there").exists()


def test_another_name_of_a_file_elsewhere_is_not_added_to_in_a_project(project: Path, tmp_path: Path) -> None:
    (tmp_path / "victim/keys").write_text("mine")
    (project / "known_hosts").hardlink_to(tmp_path / "victim/keys")
    (tmp_path / "victim/other").hardlink_to(tmp_path / "victim/keys")
    with Folder(project) as folder, pytest.raises(OSError, match="another name"):
        folder.append("known_hosts")
    assert (tmp_path / "victim/keys").read_text() == "mine"
    with Folder(tmp_path / "victim") as folder, folder.append("other") as file:
        file.write(b", too")


def test_a_file_without_content_to_read_yet_is_an_error() -> None:
    """As /proc/kmsg."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    try:
        with pytest.raises(BlockingIOError):
            _read(reading, 10, Path("kmsg"))
    finally:
        os.close(writing)


def test_names_of_maximal_length_are_replaced_in_any_alphabet(tmp_path: Path) -> None:
    name = "é" * 127
    replace_file(tmp_path / name, b"new")
    assert (tmp_path / name).read_bytes() == b"new"


def test_the_file_that_the_user_has_linked_to_is_found_and_no_other(project: Path, tmp_path: Path) -> None:
    for linked in (tmp_path / "known_hosts", project / "known_hosts"):
        linked.symlink_to(tmp_path / "victim" / "hosts")
    with folder_of(tmp_path / "known_hosts") as (folder, name):
        assert (folder.path, name) == (tmp_path / "victim", "hosts")
    with pytest.raises(OSError, match="is not followed"), folder_of(project / "known_hosts"):
        pass


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc/a", "a\0"])
def test_the_name_of_a_file_is_one_component(tmp_path: Path, name: str) -> None:
    with Folder(tmp_path) as folder:
        for act in (folder.new, folder.append, folder.find, folder.unlink, lambda one: folder.replace(one, b"")):
            with pytest.raises(OSError, match="Not the name of a file"):
                act(name)


def test_path_below_a_folder_cannot_escape(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "out").symlink_to("..")
    with Folder(tmp_path / "a") as folder:
        with folder.below("b/./c", make=PRIVATE) as inner, inner.new("file") as file:
            file.write(b"x")
        for name in ("out", "..", "b/../..", "b/c/file"):
            with pytest.raises(OSError, match=r"not followed|Not the name|Not a directory"):
                folder.below(name)
    assert (tmp_path / "a" / "b" / "c" / "file").read_bytes() == b"x"


def test_a_file_is_moved_onto_another_only_where_that_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("new")
    (tmp_path / "b").write_text("mine")
    with Folder(tmp_path) as folder:
        with pytest.raises(FileExistsError):
            folder.move("a", folder, "b")
        folder.move("a", folder, "c")
        assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"b": "mine", "c": "new"}
        folder.move("c", folder, "b", overwrite=True)
        with pytest.raises(OSError, match="Not the name of a file"):
            folder.move("b", folder, "", overwrite=True)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"b": "new"}


def test_a_url_makes_no_directory(project: Path) -> None:
    with pytest.raises(OSError, match="looks like a URL"):
        Folder(Path("gs://bucket/x"), make=PRIVATE)
    assert [path.name for path in project.iterdir()] == ["out"]
    (project / "gs:").mkdir()
    with Folder(Path("gs:/bucket"), make=PRIVATE) as folder:
        assert folder.names() == []


def test_a_temporary_folder_is_private_and_goes_with_its_content() -> None:
    with temporary_folder("dtctl-test-") as folder, folder.below("shown", make=PRIVATE) as shown:
        with shown.new("events") as file:
            file.write(b"x")
        assert {stat.S_IMODE(path.stat().st_mode) for path in (folder.path, shown.path)} == {0o700}
    assert not folder.path.exists()


WRITERS = {
    *("write_text", "write_bytes", "mkdir", "makedirs", "touch", "rename", "renames", "symlink_to", "hardlink_to"),
    *("symlink", "link", "copy", "copy2", "copyfile", "copytree", "copyfileobj", "move", "chmod", "truncate"),
    *("mkdtemp", "mkstemp", "NamedTemporaryFile", "TemporaryDirectory", "mkfifo", "mknod"),
}
OF = {"copy": "shutil", "move": "shutil", "link": "os", "truncate": "os"}
"""Whose it has to be, where other objects have methods of that name."""
ALLOWED = {
    ("transport/connect.py", "os.open"): "the terminal",
    ("render/terminal/console.py", "os.open"): "/dev/null",
    ("rooms/slurm/holder.py", "os.open"): "/dev/null",
    ("rooms/tensorboard/tunnel.py", "shutil.copyfileobj"): "a socket",
    ("paths.py", "directory.chmod"): "a directory of dtctl's own that others may look into",
    ("operations/up/up.py", "starting.replace"): "of a run",
    ("rooms/code/operation.py", "self._place.path / path.chmod"): "a directory that it has made in a private one",
    ("rooms/code/operation.py", "self._place.path.chmod"): "the private one, before it gets its name",
}


def written(tree: ast.AST) -> list[str]:
    """The calls in a module that open a file for writing, make one, or give one a name."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        whose = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else None
        given = [*node.args, *(one.value for one in node.keywords)]
        texts = [one.value for one in given if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        opens = name in ("open", "fdopen") and any(
            set(text) <= set("rbtwax+") and set(text) & set("wax+") for text in texts
        )
        opens |= name == "open" and any(flag in ast.unparse(node) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
        replaces = name == "replace" and (whose == "os" or (len(node.args) == 1 and not node.keywords))
        writes = name in WRITERS and OF.get(name) in (None, whose)
        if opens or replaces or writes:
            found.append(f"{whose}.{name}" if whose else name)
    return found


@pytest.mark.parametrize(
    ("code", "writes"),
    [
        ("Path(a).open('w')", True),
        ("open(a, mode='ab')", True),
        ("open(a, 'rb')", False),
        ("os.open(a, os.O_RDWR | os.O_CREAT)", True),
        ("os.open(a, os.O_RDONLY)", False),
        ("os.fdopen(a, 'wb')", True),
        ("path.replace(other)", True),
        ("text.replace('a', 'b')", False),
        ("dataclasses.replace(a, b=1)", False),
        ("shutil.copy(a, b)", True),
        ("folder.move(a, b)", False),
        ("place.mkdir()", True),
        ("tempfile.TemporaryFile()", False),
    ],
)
def test_the_functions_that_write_are_listed(code: str, writes: bool) -> None:
    assert bool(written(ast.parse(code))) == writes


def test_every_writer_on_the_controller_is_a_folder() -> None:
    found: dict[str, list[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith(("agent/", "folder.py", "trainer.py")):
            calls = [call for call in written(ast.parse(path.read_text())) if (name, call) not in ALLOWED]
            found |= {name: calls} if calls else {}
    assert found == {}
