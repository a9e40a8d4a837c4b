"""What an agent reads and writes of its host: ports, processes, output directories, the crontab, and the
environment.
"""

from __future__ import annotations

import errno
import itertools
import json
import marshal
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dtctl.agent.host import compiled, keeping, locks, outputs, ports, processes, sock_diag
from dtctl.agent.records.kinds import made
from dtctl.agent.records.spec import Member, Revision
from dtctl.agent.records.values import can_be_given
from dtctl.agent.requests.starting import most_ports
from dtctl.agent.run import environment
from dtctl.agent.survival import reboot
from dtctl.transport.payload import LOADER
from tests.unit.agent.supervise import supervised


def test_a_chosen_port_is_kept_until_it_is_let_go_and_is_no_ephemeral_one() -> None:
    found = ports.hold(())
    assert found is not None
    port, held = found
    low, high = ports.ephemeral()
    assert port >= 10_000
    assert not low <= port <= high
    assert ports.taken(port)
    ports.let_go(held)
    assert not ports.taken(port)
    assert held == []


def test_ports_of_others_are_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ephemeral", lambda: (10_003, 65_535))
    with socket.socket() as other:
        other.bind(("0.0.0.0", 10_001))
        found = ports.hold({10_002})
        assert found is not None
        port, held = found
        assert port == 10_000
        assert ports.hold({10_002}) is None
        ports.let_go(held)


def test_round_numbers_are_proposed_from_which_on_enough_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "ephemeral", lambda: (2750, 60_999))
    monkeypatch.setattr(ports, "_listeners", lambda: {2403: {"1": 0}})
    assert ports.free_from(3, most=4) == [2400, 2500, 2600, 2700]
    assert ports.free_from(4, most=3) == [2500, 2600, 2700]
    assert ports.free_from(51, most=3) == [2500, 2600, 61_000]


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6])
def test_listener_is_found_with_and_without_sock_diag(
    family: socket.AddressFamily, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(family) as server, socket.socket(family) as idle:
        for one in (server, idle):
            one.bind(("", 0))
        server.listen()
        port, silent = server.getsockname()[1], idle.getsockname()[1]
        expected = {str(os.fstat(server.fileno()).st_ino): os.geteuid()}
        assert ports._dumped()[port] == expected
        assert (ports.listening(port), ports.listening(silent)) == (expected, {})
        # an error of the kernel's, as it comes where it lacks the module: nlmsghdr and nlmsgerr
        refused = (
            (36).to_bytes(4, "little") + (2).to_bytes(2, "little") + bytes(10) + (-2).to_bytes(4, "little", signed=True)
        )
        with pytest.raises(FileNotFoundError):
            sock_diag._take(refused, [])
        monkeypatch.setattr(sock_diag, "_SOCK_DIAG", 31)  # no such protocol
        with pytest.raises(OSError, match="Protocol not supported"):
            ports._dumped()
        assert (ports.listening(port), ports.listening(silent)) == (expected, {})


def test_the_holder_of_a_port_is_reported_with_its_pid() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        assert ports.holder(server.getsockname()[1]).startswith("pid ")


def test_the_user_of_a_process_that_cannot_be_seen_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "listening", lambda port: {"1": 0})
    monkeypatch.setattr(ports, "holds", lambda name, inodes: False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert ports.holder(2222) == "a process of root"


@pytest.mark.parametrize(("tries", "taken"), [(True, False), (False, True)])
def test_a_port_that_a_session_only_tries_is_waited_for(
    tries: bool, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An `up` of two names of one machine met its own check there."""
    looks = iter([True, True, False])
    monkeypatch.setattr(ports, "taken", lambda port: next(looks))
    monkeypatch.setattr(ports, "holding", lambda port: ("pid 7", tries))
    assert ports.is_taken_for_good(2222, time.monotonic() + 60.0) is taken


def test_a_port_that_is_tried_for_too_long_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "taken", lambda port: True)
    monkeypatch.setattr(ports, "holding", lambda port: ("pid 7", True))
    assert ports.is_taken_for_good(2222, time.monotonic() + 0.2)


@pytest.mark.parametrize(
    ("command", "holding"),
    [
        ("python3 serve.py", ("pid 7 (python3 serve.py)", False)),
        (LOADER, ("pid 7 (a dtctl check, for some seconds)", True)),
    ],
)
def test_another_check_that_tries_a_port_is_known_at_one_look(
    command: str, holding: tuple[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[int] = []

    def listening(port: int) -> dict[str, int]:
        looks.append(port)
        return {"1": os.geteuid()}

    monkeypatch.setattr(ports, "listening", listening)
    monkeypatch.setattr(ports, "_pid", lambda owners: 7)
    monkeypatch.setattr(processes, "command", lambda pid: command)
    assert ports.holding(2222) == holding
    assert looks == [2222]


def test_as_many_ports_are_wanted_as_the_busiest_machine_needs() -> None:
    places = [("ps:0", "a:1"), ("worker:0", "a:2"), ("worker:1", "a:3"), ("worker:2", "b:1")]
    roster = [{"task": task, "host": "x", "address": address} for task, address in places]
    assert most_ports({"roster": roster}) == 1 + 1 + 2  # type: ignore[typeddict-item]


def test_a_port_that_this_user_may_not_open_is_taken_and_the_system_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As root these tests may open any; another user gets what bind(2) says."""

    class Refusing(socket.socket):
        def bind(self, address: object) -> None:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("dtctl.agent.host.ports.socket.socket", Refusing)
    monkeypatch.setattr(ports, "listening", lambda port: {})
    monkeypatch.setattr(ports, "_first_of_users", lambda: 1024)
    assert ports.taken(22)
    assert ports.holder(22) == "the system, which lets root alone listen below 1024"


STAT = b"1 (x) " + b" ".join([b"S", b"1", *[b"0"] * 17, b"77", b"0", b"0"])


class Proc:
    """/proc of a machine on which `listings` are what one sees after the other, the last one for ever."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, alive: Iterable[int], *listings: Iterable[int]) -> None:
        self.alive = set(alive)
        self.read: list[int] = []
        self._listings = itertools.chain(listings, itertools.repeat(listings[-1]))
        monkeypatch.setattr(
            "dtctl.agent.host.processes.os.listdir", lambda path: ["meminfo", *map(str, next(self._listings))]
        )
        monkeypatch.setattr(processes, "_read_proc", self._stat)

    def _stat(self, pid: int, name: str) -> bytes:
        self.read.append(pid)
        return STAT if pid in self.alive else b""


def test_a_child_that_is_forked_while_the_table_is_read_is_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    proc = Proc(monkeypatch, {1, 31}, [1, 30], [1, 31])
    assert set(processes.every()) == {1, 31}
    assert proc.read == [1, 30, 31]


def test_listing_of_processes_ends_although_new_ones_keep_appearing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    proc = Proc(monkeypatch, {1}, *([1, pid] for pid in range(100, 200)))
    assert set(processes.every()) == {1}
    assert len(proc.read) < 10


UNMARKED = """
import os, subprocess, sys, threading
start = lambda: print(subprocess.Popen(["sleep", "60"], env={}, start_new_session=True).pid, flush=True)
thread = threading.Thread(target=start)
(thread.run if sys.argv[1] == "first" else thread.start)()
sys.stdin.read()
"""


@pytest.mark.parametrize("kernel_lists", [True, False], ids=["children", "table"])
@pytest.mark.parametrize("thread", ["first", "another"])
def test_a_process_without_mark_in_another_session_belongs_to_the_tree_of_its_parent(
    monkeypatch: pytest.MonkeyPatch, thread: str, kernel_lists: bool
) -> None:
    monkeypatch.setattr(processes, "_KERNEL_LISTS_CHILDREN", kernel_lists)
    command = [sys.executable, "-c", UNMARKED, thread]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        try:
            found = processes.tree(processes.identify(parent.pid), [])
            assert {process.pid for process in found} == {parent.pid, child}
        finally:
            os.kill(child, signal.SIGKILL)


def test_where_nothing_of_a_trainer_is_left_no_process_of_others_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = processes.myself()
    ended["start_time"] += 1
    read: list[int] = []
    monkeypatch.setattr(processes.Process, "read", read.append)
    assert processes.tree(ended, ["/nothing/has/this/key"]) == []
    assert read == [ended["pid"]]


def test_a_number_that_is_given_away_while_processes_are_read_is_not_of_the_tree(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    environs = iter([b"DTCTL_KEY=key\0", b"DTCTL_KEY=of another\0"])
    Proc(monkeypatch, {7}, [7])
    monkeypatch.setattr(processes, "_read_proc", lambda pid, name: next(environs) if name == "environ" else STAT)
    monkeypatch.setattr(processes, "_user_of", lambda pid: os.geteuid())
    assert processes.tree(None, ["key"]) == []


def test_processes_that_save_what_they_have_compiled_keep_each_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"dtctl_agent/host/{name}.py": "" for name in ("compiled", "one", "other")} | dict.fromkeys(
        keeping.PLAIN, ""
    )
    for module in (keeping, locks):
        monkeypatch.setitem(sys.modules, f"dtctl_agent.host.{module.__name__.rpartition('.')[2]}", module)
    path = tmp_path / "code"
    path.write_bytes(keeping.compiled(files, {}))

    def saving(name: str) -> compiled.Modules:
        modules = compiled.Modules(str(path), 0, {}, lambda: files)
        modules._made = {f"dtctl_agent.host.{name}": name.encode()}
        return modules

    later = threading.Thread(target=saving("other").save)

    def compiled_while_another_saves(files: dict[str, str], codes: dict[str, bytes]) -> bytes:
        if later.ident is None:
            later.start()
            later.join(0.2)
        return content_of(files, codes)

    content_of = keeping.compiled
    monkeypatch.setattr(keeping, "compiled", compiled_while_another_saves)
    saving("one").save()
    later.join()
    kept = saving("")._kept()
    assert set(kept) == {"dtctl_agent.host.one", "dtctl_agent.host.other"}


def test_code_that_another_process_has_saved_is_not_compiled_again(tmp_path: Path) -> None:
    files = {f"dtctl_agent/host/{name}.py": "" for name in ("compiled", "one")} | dict.fromkeys(keeping.PLAIN, "")
    path, name = tmp_path / "code", "dtctl_agent.host.one"
    path.write_bytes(keeping.compiled(files, {}))
    modules = compiled.Modules(str(path), 0, {name: ("dtctl_agent/host/one.py", 0, 0, b"")}, lambda: files)
    code = compile("saved = True", "one", "exec")
    keeping.write(str(path), keeping.compiled(files, {name: marshal.dumps(code)}))
    assert modules.get_code(name) == code
    assert modules._made == {}


@pytest.fixture
def root(tmp_path: Path) -> str:
    (tmp_path / "root").mkdir()
    return str(tmp_path / "root")


@pytest.fixture
def output(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoint").touch()
    return tmp_path / "out"


def write(root: str, directory: Path, cluster: str = "a", now: float = 1.0) -> None:
    outputs.write(root, [str(directory)], cluster, f"{cluster}-1", "me@desk", "/p/cluster.yaml", now)


def owners(root: str, directory: Path, *live: str) -> list[str]:
    return [mark["cluster"] for mark in outputs.found(root, [str(directory)], lambda: live)]


def test_the_last_one_to_write_is_the_owner_and_nothing_is_added_to_the_directory(root: str, output: Path) -> None:
    assert owners(root, output) == []
    write(root, output)
    write(root, output, "b")
    assert owners(root, output) == ["b"]
    assert [path.name for path in output.iterdir()] == ["checkpoint"]
    assert {path.name for path in output.parent.iterdir()} == {"out", "root"}


def test_empty_and_recreated_directories_have_no_owner(root: str, output: Path) -> None:
    write(root, output)
    (output / "checkpoint").unlink()
    assert owners(root, output) == []
    (output / "checkpoint").touch()
    assert owners(root, output) == ["a"]
    output.rename(output.parent / "kept")
    shutil.copytree(output.parent / "kept", output)
    assert owners(root, output) == []


def test_an_empty_directory_belongs_to_a_run_that_will_still_write_there(root: str, output: Path) -> None:
    write(root, output)
    (output / "checkpoint").unlink()
    assert owners(root, output, "a-1") == ["a"]
    assert owners(root, output, "b-1") == []


def test_a_directory_is_known_by_whatever_links_lead_to_it(root: str, output: Path) -> None:
    link = output.parent / "link"
    link.symlink_to(output)
    write(root, link)
    assert owners(root, output) == ["a"]


def test_a_storage_url_has_the_owner_that_wrote_last_and_no_directory_is_made(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    outputs.write(root, ["gs://b/run/"], "a", "a-1", "me@desk", "/p/cluster.yaml", 1.0)
    assert [mark["path"] for mark in outputs.found(root, ["gs://b/run"], lambda: ())] == ["gs://b/run"]
    assert outputs.found(root, ["gs://b/other", "s3://b/run"], lambda: ()) == []
    assert outputs.of_cluster(root, "a") == []  # nothing there that a host could read
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def as_fifo(mark: Path) -> None:
    mark.unlink()
    os.mkfifo(mark)


DAMAGES: dict[str, Callable[[Path], object]] = {
    **{text[:20]: partial(Path.write_text, data=text) for text in ("", "{}", '{"path": "/else"}', "[" * 100_000)},
    "moved": lambda mark: mark.write_text(json.dumps({**json.loads(mark.read_text()), "path": "/else"})),
    "fifo": as_fifo,
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_mark_counts_as_none(root: str, output: Path, damage: str) -> None:
    write(root, output)
    (mark,) = Path(root, "outputs").iterdir()
    DAMAGES[damage](mark)
    assert owners(root, output) == []


def test_the_oldest_marks_are_forgotten(root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outputs, "MOST_MARKS", 2)
    places = [tmp_path / name for name in "abc"]
    for age, place in enumerate(places):
        place.mkdir()
        (place / "x").touch()
        write(root, place)
        for mark in Path(root, "outputs").iterdir():
            os.utime(mark, (mark.stat().st_mtime - 10, mark.stat().st_mtime - 10 - age))
    assert len(list(Path(root, "outputs").iterdir())) == 2
    assert owners(root, places[0]) == []
    assert owners(root, places[2]) == ["a"]


def test_a_directory_that_is_not_there_has_no_mark_and_is_no_mistake(root: str, tmp_path: Path) -> None:
    write(root, tmp_path / "nowhere")
    assert owners(root, tmp_path / "nowhere") == []


OTHERS = b"MAILTO=ada\n# dtctl-agent-1 is mine\n17 4 * * * echo 'a \\% sign' \xff # dtctl-agent-12\n\n"
WORDS = ["/usr/bin/python3", "-BIS", "/home/ada b/.dtctl/agent/current", "revive"]


@pytest.mark.parametrize("table", [b"", OTHERS, b"\n\n", b"@reboot true # dtctl-agent-2\r\n"])
def test_the_bytes_of_other_lines_stay(table: bytes) -> None:
    with_ours = reboot.with_lines(table, WORDS, "dtctl-agent-1")
    assert with_ours.startswith(table)
    assert with_ours.count(b"\n") == table.count(b"\n") + len(reboot.WHEN)
    assert reboot.without(with_ours, "dtctl-agent-1") == table


def test_crontab_entry_is_replaced_and_not_repeated() -> None:
    old = reboot.with_lines(OTHERS, ["/old/python", *WORDS[1:]], "dtctl-agent-1")
    assert reboot.with_lines(old, WORDS, "dtctl-agent-1") == reboot.with_lines(OTHERS, WORDS, "dtctl-agent-1")


def test_a_last_line_without_an_end_gets_one() -> None:
    assert reboot.with_lines(b"@daily true", WORDS, "m").startswith(b"@daily true\n@reboot ")


@pytest.mark.parametrize("path", ["/plain", "/with blank", "/50%", "/it's", '/"x"', "/$HOME", "/a#b", "/ü"])
def test_any_path_reaches_the_program_as_it_is(path: str) -> None:
    first, second = reboot.lines(["/usr/bin/printf", "%s", path], "mark").decode().splitlines()
    assert (first.startswith("@reboot "), second.startswith("* * * * * ")) == (True, True)
    assert first[len("@reboot ") :] == second[len("* * * * * ") :]
    command = as_cron_reads_it(first[len("@reboot ") :])
    shown = command.replace(" >/dev/null 2>&1", "")
    assert subprocess.run(["/bin/sh", "-c", shown], capture_output=True, check=True).stdout.decode() == path


def as_cron_reads_it(command: str) -> str:
    """crontab(5): an unescaped % is a line break, and the backslash before an escaped one is taken away."""
    text = ""
    escaped = False
    for character in command:
        if escaped:
            text += character if character == "%" else "\\" + character
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == "%":
            raise AssertionError(command)
        else:
            text += character
    return text


SPEC = supervised.spec()


def test_marks_are_replaced_and_other_text_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/u")
    marks = environment.Marks("/root/bundles/b/tree")
    argv = ["\0HOME/data", "--out=\0HOME/x:\0CODE/y", "HOME", "$HOME", "\\0HOME"]
    assert marks.expand(argv) == ["/home/u/data", "--out=/home/u/x:/root/bundles/b/tree/y", "HOME", "$HOME", "\\0HOME"]
    assert environment.Marks(None).text("\0CODE") == "/home/u"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("--ps_hosts=\0ADDRESS(ps:0),\0ADDRESS(ps:1)", "--ps_hosts=b:2222,[fe80::1]:2223"),
        ("tcp://\0HOST(ps:1)/\0PORT(ps:1)", "tcp://fe80::1/2223"),
        ("\0ADDRESS(worker:0)\0ADDRESS(gone:0)", ""),
        ("ADDRESS(ps:0)", "ADDRESS(ps:0)"),
    ],
)
def test_an_address_mark_is_replaced_by_that_of_the_roster(text: str, expected: str) -> None:
    places = {"ps:0": "b:2222", "ps:1": "[fe80::1]:2223", "worker:0": None}
    roster = [made(Member, task=task, host="b", address=address) for task, address in places.items()]
    spec: Any = {"roster": roster, "lead": "ps:0"}
    assert environment.Marks(None, {"PATH": ""}).of_task(spec, "ps:0", ()).text(text) == expected


def test_the_environment_is_inherited_then_the_tasks_then_secrets_then_ours() -> None:
    task = supervised.task("ps:0", env={"A": "2", "B": "2", "DTCTL_TASK": "mine"}, secrets=["B", "ABSENT"])
    got = environment.of_task({"A": "1", "C": "1"}, SPEC, task, {"B": "3", "OTHER": "x"}, 4, "k")
    assert got == {
        "A": "2",
        "B": "3",
        "C": "1",
        "DTCTL_RUN": "r",
        "DTCTL_CLUSTER": "c",
        "DTCTL_HOST": "h1",
        "DTCTL_TASK": "ps:0",
        "DTCTL_ATTEMPT": "4",
        "DTCTL_KEY": "k",
    }


def test_the_commit_is_given_and_what_the_user_set_for_wandb_stays() -> None:
    revision: Any = made(Revision, commit="12ab", remote="https://example.com/a")
    spec = supervised.spec(revision=revision)
    task = supervised.task("ps:0", env={"WANDB_GIT_COMMIT": "mine"})
    got = environment.of_task({"WANDB_GIT_REMOTE_URL": "of the host"}, spec, task, {}, 1, "k")
    assert (got["DTCTL_COMMIT"], got["WANDB_GIT_COMMIT"]) == ("12ab", "mine")
    assert got["WANDB_GIT_REMOTE_URL"] == "of the host"
    got = environment.of_task({}, spec, supervised.task("ps:0"), {}, 1, "k")
    assert (got["WANDB_GIT_COMMIT"], got["WANDB_GIT_REMOTE_URL"]) == ("12ab", "https://example.com/a")
    assert "DTCTL_COMMIT" not in environment.of_task({}, SPEC, supervised.task("ps:0"), {}, 1, "k")


def test_proxies_of_the_host_are_dropped_and_those_of_the_task_stay() -> None:
    inherited = {"http_proxy": "h", "HTTPS_PROXY": "h", "no_proxy": "h"}
    task = supervised.task("ps:0", env={"no_proxy": "t"})
    assert set(environment.of_task(inherited, SPEC, task, {}, 1, "k")) & {*inherited} == {"no_proxy"}
    kept = environment.of_task(inherited, SPEC, {**task, "keep_proxy": True}, {}, 1, "k")
    assert kept["HTTPS_PROXY"] == "h"


def test_a_bare_path_gets_the_usual_directories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/opt/x:/usr/bin")
    path = environment.base()["PATH"].split(":")
    assert path[:2] == ["/opt/x", "/usr/bin"]
    assert sorted(path[2:]) == ["/bin", "/sbin", "/usr/local/bin", "/usr/local/sbin", "/usr/sbin"]


def test_bytes_that_are_no_text_come_through(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(os.environb, b"ODD", b"\xff\xfe")
    assert environment.encoded(environment.base())[b"ODD"] == b"\xff\xfe"


@pytest.mark.parametrize("text", ["a\0b", "\0", "\0HOM", "\ud800", "\0HOME\0"])
def test_text_that_no_program_can_be_given_is_known(text: str) -> None:
    assert not can_be_given(text)


@pytest.mark.parametrize("text", ["", "a b\n", "\0HOME/x:\0CODE", "\udcff", "\u8bad"])
def test_marks_and_bytes_that_are_no_text_can_be_given(text: str) -> None:
    assert can_be_given(text)
