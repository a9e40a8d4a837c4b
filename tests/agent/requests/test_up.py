"""up: what a started task is given, and what the conversation says."""

from __future__ import annotations

import fcntl
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import impostors
from tests.agent.conftest import MakeHost
from tests.agent.host import AgentHost, AgentRefused, kill, python_task, shell, task
from tests.hosts.ports import free_port
from tests.hosts.processes import alive, command, environment
from tests.reasons import reason_of
from tests.waiting import eventually

SLEEP = ("sleep", "1000")


def test_a_trainer_leads_its_own_session_with_nothing_of_ours_open(host: AgentHost) -> None:
    show = """
import os, json, signal
fds = sorted(int(name) for name in os.listdir("/proc/self/fd"))
blocked = [line for line in open("/proc/self/status") if line.startswith(("SigIgn", "SigBlk"))]
leads = os.getsid(0) == os.getpid() == os.getpgid(0)
print(json.dumps([leads, os.readlink("/proc/self/fd/0"), fds[:3], len(fds), blocked]))
"""
    spec = host.started(python_task("worker:0", show))
    host.wait_state(spec, "worker:0", "succeeded")
    leads, stdin, first, count, masks = json.loads(host.log(spec, "worker:0"))
    assert leads
    assert stdin == "/dev/null"
    assert first == [0, 1, 2]
    assert count == 4  # and the one that lists the directory
    # Python itself ignores SIGPIPE and SIGXFSZ
    own_of_libc = 0b11 << 31  # signals 32 and 33, which no program can set; some parents leave them ignored
    ignored = int(masks[1].split()[1], 16) & ~own_of_libc
    assert masks[0].split()[1].strip("0") == ""
    assert ignored in (0x1001000, 0x1000)


TEXTS = ["two words", "'\"quotes\"'", "$HOME `id` \\ ;&|", "line\nbreak\ttab", "grüße 训练 🚀", "", "-", "x" * 100_000]


def test_any_text_reaches_a_trainer_unchanged(host: AgentHost) -> None:
    of_env = f"[os.environb[b'TEXT_%d' % n] for n in range({len(TEXTS)})]"
    show = f"import os, sys; sys.stdout.buffer.write(bytes(1).join([*map(os.fsencode, sys.argv[1:]), *{of_env}]))"
    env = {f"TEXT_{n}": text for n, text in enumerate(TEXTS)}
    spec = host.spec(task("worker:0", sys.executable, "-ISc", show, *TEXTS, env=env))
    host.env["LC_ALL"] = "C"
    host.up(spec)
    host.wait_state(spec, "worker:0", "succeeded")
    assert host.log(spec, "worker:0").split("\0") == [*TEXTS, *TEXTS]


def test_a_task_has_the_environment_of_the_contract(host: AgentHost) -> None:
    spec = host.spec(
        shell("worker:0", "env", env={"DATA": "\0HOME/data", "PYTHONUNBUFFERED": "1"}, secrets=["TOKEN"]),
        shell("worker:1", "env", keep_proxy=True),
    )
    host.env.update(http_proxy="http://proxy", NO_PROXY="x", DTCTL_OTHER="1", LANG="C.UTF-8")
    host.up(spec, secrets={"TOKEN": "s3cret"})
    for name in ("worker:0", "worker:1"):
        host.wait_state(spec, name, "succeeded")
    env = dict(line.split("=", 1) for line in host.log(spec, "worker:0").splitlines())
    assert env["DATA"] == f"{host.home}/data"
    assert env["TOKEN"] == "s3cret"
    assert env["LANG"] == "C.UTF-8"
    assert env["DTCTL_RUN"] == spec["run"]
    assert (env["DTCTL_CLUSTER"], env["DTCTL_HOST"], env["DTCTL_TASK"]) == ("c", "h1", "worker:0")
    assert env["DTCTL_ATTEMPT"] == "1"
    assert env["DTCTL_KEY"] == str(host.attempt(spec, "worker:0"))
    assert {"DTCTL_OTHER", "DTCTL_ROOT", "http_proxy", "NO_PROXY"}.isdisjoint(env)
    other = host.log(spec, "worker:1")
    assert "http_proxy=http://proxy" in other
    assert "TOKEN" not in other


def test_path_holds_the_usual_directories_and_the_tasks_own_path_is_searched(host: AgentHost) -> None:
    (host.home / "tools").mkdir()
    tool = host.home / "tools" / "my-trainer"
    tool.write_text("#!/bin/sh\necho trained\n")
    tool.chmod(0o755)
    spec = host.started(
        shell("worker:0", "echo $PATH"), task("worker:1", "my-trainer", env={"PATH": "\0HOME/tools:/bin"})
    )
    host.wait_state(spec, "worker:0", "succeeded")
    host.wait_state(spec, "worker:1", "succeeded")
    assert {"/usr/local/bin", "/usr/bin", "/bin", "/usr/sbin"} <= set(host.log(spec, "worker:0").strip().split(":"))
    assert host.log(spec, "worker:1") == "trained\n"


def test_the_files_of_a_run_are_private_and_secrets_are_in_no_command_line(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", *SLEEP, secrets=["TOKEN"]))
    host.up(spec, secrets={"TOKEN": "s3cret-value"})
    for path in [host.root, *host.root.rglob("*")]:
        assert path.stat().st_mode & 0o077 == 0, path
    lines = [command(pid) for pid in host.processes()]
    assert lines
    assert not any("s3cret-value" in line for line in lines)
    assert b"s3cret-value" not in (host.run_directory(spec) / "spec.json").read_bytes()


@pytest.mark.parametrize("depth", [0, 3])
def test_the_supervisor_can_be_read_in_ps(make_host: MakeHost, tmp_path: Path, depth: int) -> None:
    """Also where its command line is longer than that of the session."""
    host = make_host(root=tmp_path.joinpath(*["d" * 150] * depth, "root"))
    host.root.parent.mkdir(parents=True, exist_ok=True)
    spec = host.started(task("worker:0", *SLEEP))
    argv = command(host.supervisor(spec)).split()
    assert argv[1] == "-IS"
    assert argv[3:] == ["supervise", str(host.run_directory(spec))]


def test_no_process_of_an_agent_shows_the_key_of_the_trainer_that_started_it(host: AgentHost) -> None:
    """Else it would be ended with that trainer."""
    spec = host.spec(task("worker:0", *SLEEP))
    with host.open(DTCTL_KEY="outer", DTCTL_RUN_DIR="/outer") as talk:
        host.prepare(talk, spec)
        talk.start()
    host.begun(spec)
    shown = {variable for pid in host.processes() for variable in environment(pid)}
    assert f"DTCTL_RUN_DIR={host.run_directory(spec)}".encode() in shown
    assert not {b"DTCTL_KEY=outer", b"DTCTL_RUN_DIR=/outer"} & shown


def test_nothing_of_the_session_is_held_open_by_what_stays(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", *SLEEP))
    talk = host.open()
    host.prepare(talk, spec)
    before = descriptors(talk.greeting["pid"])
    talk.start()

    def agent() -> list[int]:
        return [pid for pid in host.processes() if pid != talk.greeting["pid"] and "supervise" in command(pid)]

    eventually(lambda: len(agent()) == 3, what="guard, supervisor and keeper")
    (program_lock,) = (path for path in before if path.endswith("/lock") and "/agent/" in path)
    for pid in agent():
        assert descriptors(pid) & before <= {program_lock, "/dev/null"}
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert os.getsid(pid) != os.getsid(talk.greeting["pid"])
    talk.send("dance")
    with pytest.raises(AgentRefused):
        talk.receive()
    assert talk.process.stdout
    assert talk.process.stdout.read() == b""  # the pipe has ended although the run lives
    host.wait_state(spec, "worker:0", "running")


def descriptors(pid: int) -> set[str]:
    """What the open descriptors of a process are of; a pipe or socket is one by its number."""
    return {str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir()}


def test_an_unchanged_live_run_is_left_alone(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", *SLEEP))
    first = host.up(spec)
    again = {**spec, "run": "r-second", "digest": spec["digest"]}
    with host.open() as talk:
        prepared = host.prepare(talk, again)
        started = talk.start()
    assert prepared["unchanged"] is True
    assert prepared["run"] == spec["run"]
    assert started["tasks"]["worker:0"]["pid"] == first["tasks"]["worker:0"]["pid"]
    assert not (host.root / "runs" / "r-second").exists()


def test_a_changed_live_run_is_refused_unless_it_is_to_be_replaced(host: AgentHost) -> None:
    old, pid = host.running(task("worker:0", *SLEEP))
    new = host.spec(task("worker:0", "sleep", "2000"))
    with pytest.raises(AgentRefused) as refused:
        host.up(new)
    assert refused.value.code == "changed_run"
    assert old["run"] in refused.value.frame["summary"]
    assert alive(pid)
    with host.open() as talk:
        assert host.prepare(talk, new, replace=True)["replaces"] == old["run"]
        assert alive(pid)
        talk.start()
    assert not alive(pid)
    assert host.state(old)["tasks"]["worker:0"]["state"] == "stopped"
    assert host.ask("status")["run"] == new["run"]


def test_a_second_controller_is_informed_who_holds_the_lock(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", *SLEEP))
    with host.open() as talk:
        host.prepare(talk, spec, pid=4711)
        with pytest.raises(AgentRefused) as refused:
            host.up(host.spec(task("worker:0", *SLEEP)))
        assert refused.value.code == "locked"
        assert "dtctl up by ada@laptop (pid 4711 there), since 20" in refused.value.frame["detail"]
        session = re.search("its session on this host has pid ([0-9]+)$", refused.value.frame["detail"])
        assert session is not None
        assert alive(int(session.group(1)))
        talk.send("abort")
        with pytest.raises(AgentRefused, match="rolled_back: "):
            talk.receive()
    assert host.up(spec)["tasks"]["worker:0"]["state"] == "running"


@pytest.mark.parametrize("what", impostors.NO_FILES)
@pytest.mark.parametrize("agent_python", ["this"], indirect=True)
def test_what_a_trainer_puts_in_place_of_the_clusters_lock_is_set_aside(make_host: MakeHost, what: str) -> None:
    """It made `up`, `down` and `gc` of the whole host fail until somebody removed it."""
    host = make_host()
    spec = host.started(task("worker:0", *SLEEP))
    lock = host.root / "clusters/c/h1/lock"
    lock.unlink()
    impostors.NO_FILES[what](lock)
    assert host.ask("gc", keep=1, dry_run=False)["freed_bytes"] >= 0
    assert host.up(host.spec(task("worker:0", *SLEEP)), replace=True)["tasks"]["worker:0"]["state"] == "running"
    host.ask("stop", tasks=None, grace_s=1, by="")
    host.ask("down", run=None)
    assert not host.run_directory(spec).exists()
    assert impostors.unharmed(lock)


FORGED = {
    "escapes": {"by": "\x1b]0;owned\x07", "since": 1e9, "command": "up", "pid": 1, "session": None, "gone": False},
    "numbers": {"by": "ada", "since": 1e300, "command": "up", "pid": -1, "session": None, "gone": False},
    "text": "x" * 100_000,
}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("agent_python", ["this"], indirect=True)
def test_a_lock_that_names_a_forged_holder_is_refused_in_words(make_host: MakeHost, what: str) -> None:
    host = make_host()
    spec = host.started(task("worker:0", *SLEEP))
    lock = host.root / "clusters/c/h1/lock"
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        json.dump(FORGED[what], file)
        file.flush()
        with pytest.raises(AgentRefused) as refused:
            host.up(host.spec(task("worker:0", *SLEEP)), replace=True)
    assert refused.value.code == "locked"
    assert len(str(refused.value.frame)) < 2000
    assert host.ask("stop", tasks=None, grace_s=1, by="")["stopped"] == ["worker:0"]
    assert alive(os.getpid())
    assert host.state(spec)["tasks"]["worker:0"]["state"] == "stopped"


def test_lock_of_a_killed_controller_is_released_at_once_in_every_phase(host: AgentHost, tmp_path: Path) -> None:
    """A Python that takes minutes to import its modules, and a session that waits for it and hears nobody."""
    slow = tmp_path / "python"
    slow.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/part && mv {tmp_path}/part {tmp_path}/begun\nexec sleep 300\n")
    slow.chmod(0o755)
    ask = {"software": {"pythons": [{"program": str(slow), "modules": ["json"]}], "started": True, "imported": True}}
    first, second = host.spec(task("worker:0", *SLEEP)), host.spec(task("worker:0", *SLEEP))
    request = {"cluster": first["cluster"], "host": first["host"], "bundle": first["bundle"], "secrets": {}}
    with host.open() as talk:
        talk.send("up", **request, spec=first, ask=ask)
        eventually((tmp_path / "begun").exists, 60, "the slow Python")
        began = time.monotonic()
        talk.close()
        assert host.up(second)["tasks"]["worker:0"]["state"] == "running"
        assert time.monotonic() - began < 60, "of the 240 s that its modules may take"
    assert not host.run_directory(first).exists()
    assert not alive(int((tmp_path / "begun").read_text()))


def test_a_port_that_is_taken_is_reported_with_its_holder(host: AgentHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        spec = host.spec(task("worker:0", *SLEEP, port=port))
        with pytest.raises(AgentRefused) as refused:
            host.up(spec)
    assert refused.value.code == "port_taken"
    assert str(port) in refused.value.frame["summary"]
    assert f"pid {os.getpid()} (" in refused.value.frame["detail"]
    assert not host.run_directory(spec).exists()
    assert host.up(spec)["tasks"]["worker:0"]["state"] == "running"  # now it is free


def test_ports_in_use_are_reported_before_the_start_with_free_alternatives(host: AgentHost) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with host.open() as talk:
            prepared = host.prepare(talk, host.spec(task("worker:0", *SLEEP, port=port)))
            talk.send("abort")
    (taken_port,) = prepared["taken"]
    assert (taken_port["port"], taken_port["whose"]) == (port, "worker:0")
    assert taken_port["holder"].startswith(f"pid {os.getpid()} (")
    assert prepared["free_from"]


def test_the_ports_of_a_run_that_is_replaced_are_not_taken(host: AgentHost) -> None:
    port = free_port()
    listen = f"import socket, time; s = socket.create_server(('127.0.0.1', {port})); time.sleep(1000)"
    old = host.started(task("worker:0", "python3", "-c", listen, port=port))
    eventually(lambda: not _binds(port), what="a trainer that listens")
    with host.open() as talk:
        prepared = host.prepare(talk, host.spec(task("worker:0", *SLEEP, port=port)), replace=True)
        talk.send("abort")
    assert prepared["replaces"] == old["run"]
    assert prepared["taken"] == []


def test_a_port_that_a_stranger_has_taken_from_the_run_that_is_replaced_is_taken(host: AgentHost) -> None:
    """The trainer never listened on it, or has ended: to stop the run would not free the port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        taken.close()
        _, pid = host.running(task("worker:0", *SLEEP, port=port))
        with socket.create_server(("127.0.0.1", port)), host.open() as talk:
            prepared = host.prepare(talk, host.spec(task("worker:0", *SLEEP, port=port)), replace=True)
            talk.send("abort")
    (taken_port,) = prepared["taken"]
    assert (taken_port["port"], taken_port["whose"]) == (port, "worker:0")
    assert alive(pid)


def test_all_of_a_run_but_its_name_is_written_before_the_run_that_it_replaces_ends(host: AgentHost) -> None:
    old, new = host.spec(task("worker:0", *SLEEP)), host.spec(task("worker:0", "sleep", "2000"))
    pid = host.up(old)["tasks"]["worker:0"]["pid"]
    with host.open() as talk:
        host.prepare(talk, new, replace=True)
        (staged,) = (host.root / "runs").glob(".new-*")
        written = {path.name for path in staged.iterdir()}
        assert {"intent.json", "state.json", "environ.json", "secrets.json", "reserve"} <= written
        assert "spec.json" not in written
        assert [run["run"] for run in host.ask("runs")["runs"]] == [old["run"]]
        assert alive(pid)
        talk.send("abort")
        with pytest.raises(AgentRefused, match="rolled_back"):
            talk.receive()
    assert not host.run_directory(new).exists()
    assert not staged.exists()
    assert alive(pid)


def _binds(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_chosen_ports_are_kept_until_the_start_and_a_live_run_keeps_its_own(host: AgentHost) -> None:
    with host.open() as talk:
        chosen = talk.ask("ports", **host.about({"tasks": ["worker:0", "worker:1"], "coordinator": False}))
        first, second = (chosen["tasks"][name] for name in ("worker:0", "worker:1"))
        assert first != second
        with pytest.raises(OSError, match="in use"):
            socket.create_server(("0.0.0.0", first))  # with SO_REUSEADDR, as trainers' servers
        spec = host.spec(task("worker:0", *SLEEP, port=first), task("worker:1", *SLEEP, port=second))
        assert host.prepare(talk, spec)["taken"] == []
        talk.send("start")
        assert talk.await_type("started")["tasks"].keys() == {"worker:0", "worker:1"}
        talk.send("keep")
        talk.await_type("result")
    again = host.ask("ports", tasks=["worker:0", "worker:9"])["tasks"]
    assert again["worker:0"] == first
    assert again["worker:9"] not in (first, second)


def test_an_output_directory_is_reported_with_its_last_owner(host: AgentHost) -> None:
    fields = {"file": "/home/ada/digits/cluster.yaml", "outputs": ["\0HOME/out"]}
    spec = host.spec(task("worker:0", "sh", "-c", "echo > $HOME/out/model; sleep 1000"), dirs=["\0HOME/out"])
    with host.open() as talk:
        assert host.prepare(talk, spec, **fields)["outputs"] == []
        talk.send("abort")
    assert not (host.root / "outputs").exists()
    host.up(spec, **fields)
    eventually(lambda: (host.home / "out" / "model").exists(), what="what the trainer writes")
    with host.open() as talk:
        other = host.spec(task("worker:0", *SLEEP), dirs=["\0HOME/out"], cluster="other")
        (mark,) = host.prepare(talk, other, **fields)["outputs"]
        talk.send("abort")
    assert (mark["path"], mark["cluster"], mark["run"]) == (str(host.home / "out"), spec["cluster"], spec["run"])
    assert (mark["file"], mark["controller"]) == (fields["file"], spec["controller"])


def test_a_port_that_a_server_has_just_left_is_free(host: AgentHost) -> None:
    with socket.socket() as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC does
        server.bind(("127.0.0.1", 0))
        server.listen()
        port = server.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port))
        peer, _ = server.accept()
        peer.close()  # the first to close: the port is left in TIME_WAIT
        client.close()
    assert host.up(host.spec(task("worker:0", *SLEEP, port=port)))["tasks"]["worker:0"]["state"] == "running"


def test_directories_are_made_before_the_start(host: AgentHost) -> None:
    host.started(task("worker:0", *SLEEP), dirs=["\0HOME/out/deep", str(host.directory / "data")])
    assert (host.home / "out" / "deep").is_dir()
    assert (host.directory / "data").is_dir()


def test_a_directory_that_cannot_be_made_is_reported(host: AgentHost) -> None:
    (host.home / "out").write_text("a file")
    with pytest.raises(AgentRefused, match="not_a_directory: "):
        host.up(host.spec(task("worker:0", *SLEEP), dirs=["\0HOME/out"]))


def test_a_host_without_the_data_is_refused_before_anything_starts(host: AgentHost) -> None:
    spec = host.spec(task("worker:0", *SLEEP), brought_along=["\0HOME/data"])
    with pytest.raises(AgentRefused) as refused:
        host.up(spec)
    assert refused.value.code == "not_a_directory"
    assert str(host.home / "data") in str(refused.value)
    (host.home / "data").mkdir()
    assert host.up(spec)["tasks"]["worker:0"]["state"] == "running"


def test_data_that_the_setup_brings_is_found(host: AgentHost) -> None:
    setup = {"text": "mkdir $HOME/data", "env": {}}
    spec = host.spec(task("worker:0", *SLEEP), brought_along=["\0HOME/data"], setup=setup)
    assert host.up(spec)["tasks"]["worker:0"]["state"] == "running"


def test_two_clusters_and_two_hosts_may_share_one_root(host: AgentHost) -> None:
    specs = [
        host.spec(task("worker:0", *SLEEP)),
        host.spec(task("worker:0", *SLEEP), cluster="other"),
        AgentHost(host.directory, sys.executable, "h2", host.root).spec(task("worker:1", *SLEEP)),
    ]
    pids = [next(iter(host.up(spec)["tasks"].values()))["pid"] for spec in specs]
    result = host.ask("stop", tasks=None, grace_s=None, by="ada")
    assert result["stopped"] == ["worker:0"]
    assert [alive(pid) for pid in pids] == [False, True, True]
    host.ask("down", grace_s=None, by="ada")
    assert [alive(pid) for pid in pids] == [False, True, True]
    assert host.ask("status", cluster="other")["state"]["tasks"]["worker:0"]["state"] == "running"
    assert host.ask("status", host="h2")["state"]["tasks"]["worker:1"]["state"] == "running"


def test_an_interpreter_variable_of_the_user_does_not_touch_the_agent(host: AgentHost) -> None:
    spec = host.spec(shell("worker:0", "echo $PYTHONPATH"))
    (host.home / "json.py").write_text("raise SystemExit('not the real json')")
    host.env.update(PYTHONPATH=str(host.home), PYTHONHOME="/nonexistent")
    host.up(spec)
    host.wait_state(spec, "worker:0", "succeeded")
    assert host.log(spec, "worker:0").strip() == str(host.home)


def test_a_hangup_does_not_harm_a_session(host: AgentHost) -> None:
    with host.open() as talk:
        subprocess.run(["kill", "-HUP", str(talk.greeting["pid"])], check=True)
        assert talk.ask("runs", cluster=None)["runs"] == []


def test_the_same_cluster_below_two_roots_is_two_clusters(make_host: MakeHost) -> None:
    one, two = make_host(), make_host()
    pids = [host.up(host.spec(task("worker:0", *SLEEP)))["tasks"]["worker:0"]["pid"] for host in (one, two)]
    one.ask("down", grace_s=None, by="ada")
    assert [alive(pid) for pid in pids] == [False, True]
    assert two.ask("status")["state"]["tasks"]["worker:0"]["pid"] == pids[1]


def test_a_hangup_does_not_harm_what_stays(host: AgentHost) -> None:
    spec, pid = host.running(task("worker:0", *SLEEP))
    supervisor, record = host.supervisor(spec), host.start_record(spec, "worker:0")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        kill(supervisor, number)
        kill(record["keeper"]["pid"], number)
    kill(record["keeper"]["pid"], signal.SIGTERM)
    kill(pid, signal.SIGUSR1)
    entry = host.wait_state(spec, "worker:0", "failed")
    assert reason_of(entry) == "killed by SIGUSR1"
    assert host.supervisor(spec) == supervisor
