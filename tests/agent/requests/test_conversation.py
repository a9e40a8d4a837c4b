"""The start, the shape and the end of a conversation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from dtctl.agent.records import PROTOCOL
from dtctl.transport.payload import LOADER, agent_program, opening
from tests.agent.host import AgentHost, AgentRefused, Conversation, task
from tests.waiting import eventually


def test_the_greeting_has_the_facts_of_the_host(host: AgentHost) -> None:
    with host.open() as talk:
        facts = talk.greeting
    assert facts["protocol"] == PROTOCOL
    assert facts["home"] == str(host.home)
    assert facts["root"] == str(host.root)
    assert facts["hostname"] == os.uname().nodename
    assert facts["pid"] > 1
    assert facts["cpus"] >= 1
    assert facts["free_bytes"] > 0
    assert abs(facts["time"] - host.root.stat().st_mtime) < 300


def kept_program(host: AgentHost) -> Path:
    return host.root / "agent" / agent_program().sha256


def lacked(host: AgentHost) -> bool:
    with host.open() as talk:
        return bool(talk.lacked)


def code_file(host: AgentHost) -> Path:
    [path] = kept_program(host).glob("*.code")
    return path


def test_the_program_is_kept_once_and_is_private(new_host: AgentHost) -> None:
    new_host.open().close()
    kept = kept_program(new_host)
    first = code_file(new_host).stat()
    new_host.open().close()
    assert code_file(new_host).stat().st_ino == first.st_ino
    assert zlib.decompress((kept / "source").read_bytes()) == agent_program().content
    assert {path.stat().st_mode & 0o777 for path in kept.rglob("*") if path.is_file()} == {0o600}
    directories = [new_host.root, new_host.root / "agent", kept, *(path for path in kept.rglob("*") if path.is_dir())]
    assert {path.stat().st_mode & 0o777 for path in directories} == {0o700}


def test_the_program_is_sent_only_where_it_is_not_whole(new_host: AgentHost) -> None:
    assert [lacked(new_host), lacked(new_host)] == [True, False]
    code_file(new_host).unlink()
    (kept_program(new_host) / "source").write_bytes(b"cut short")
    assert [lacked(new_host), lacked(new_host)] == [True, False]


@pytest.mark.parametrize("size", [0, 7, 1000, -1])
def test_a_compiled_program_that_was_cut_short_is_made_again_from_its_source(new_host: AgentHost, size: int) -> None:
    new_host.ask("runs", cluster=None)
    code = code_file(new_host)
    whole = code.read_bytes()
    code.write_bytes(whole[:size])
    assert not lacked(new_host)
    assert new_host.ask("runs", cluster=None)["runs"] == []
    os.truncate(code, len(whole) // 2)  # the head is whole, and modules that are asked for later are not
    assert new_host.ask("runs", cluster=None)["runs"] == []
    assert not lacked(new_host)
    assert len(code.read_bytes()) == len(whole)


def code_of(program: Path) -> set[str]:
    """The modules that need not be compiled any more."""
    names = f"import sys; sys.argv[1] = {str(program)!r}\n{COMPILED}"
    done = subprocess.run([sys.executable, "-ISc", names, ""], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


COMPILED = """
import runpy
runpy.run_path(sys.argv[1] + "/__main__.py")["imports"](sys.argv[1])
import dtctl_agent
print(*(name for name, entry in dtctl_agent.__loader__._index.items() if entry[2]))
"""


def test_a_module_is_compiled_when_it_is_first_needed_and_kept(new_host: AgentHost) -> None:
    new_host.open().close()
    first = code_of(kept_program(new_host))
    assert "dtctl_agent.requests.session" in first
    assert "dtctl_agent.requests.runs" not in first
    assert new_host.ask("runs", cluster=None)["runs"] == []
    eventually(lambda: code_of(kept_program(new_host)) >= {*first, "dtctl_agent.requests.runs"})
    assert "dtctl_agent.requests.gc" not in code_of(kept_program(new_host))


def test_sessions_that_compile_at_the_same_time_keep_each_others_modules(new_host: AgentHost) -> None:
    new_host.open().close()
    with new_host.open() as one, new_host.open() as other:
        one.ask("runs", cluster=None, host=new_host.name, run=None)
        other.ask("gc", cluster=None, host=new_host.name, run=None, dry_run=True, all=True)
    assert {"dtctl_agent.requests.runs", "dtctl_agent.requests.gc"} <= code_of(kept_program(new_host))


@pytest.mark.parametrize("name", ["__main__.py", "dtctl_agent/dump/site/sitecustomize.py"])
def test_replaced_plain_file_is_kept_again(new_host: AgentHost, name: str) -> None:
    new_host.open().close()
    file = kept_program(new_host) / name
    content = file.read_bytes()
    file.unlink()
    os.mkfifo(file)
    assert not lacked(new_host)
    assert file.read_bytes() == content


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make what is another user's")
def test_a_compiled_program_that_another_user_has_left_is_not_run(new_host: AgentHost) -> None:
    new_host.open().close()
    os.chown(code_file(new_host), 65534, 65534)
    new_host.open().close()
    assert code_file(new_host).stat().st_uid == os.geteuid()


def test_processes_without_a_session_compile_what_is_damaged(new_host: AgentHost) -> None:
    new_host.open().close()
    code = code_file(new_host)
    whole = len(code.read_bytes())
    command = [str(new_host.directory / "bin" / "python3"), "-IS", str(kept_program(new_host)), "revive"]
    for size in (0, whole // 2):
        os.truncate(code, size)
        subprocess.run(command, check=True, env=new_host.env)
        subprocess.run(command, check=True, env=new_host.env)
        assert "dtctl_agent.survival.revival" in code_of(kept_program(new_host))
    code.unlink()
    (kept_program(new_host) / "source").unlink()
    answer = subprocess.run(command, check=False, env=new_host.env, stderr=subprocess.PIPE)
    assert b"what arrived is not the agent's program" in answer.stderr
    assert answer.returncode == 1


def test_a_traceback_of_the_agent_shows_files_and_lines(new_host: AgentHost) -> None:
    new_host.open().close()
    script = (
        "import sys, traceback; sys.argv = [sys.argv[1], 'supervise', chr(0)];"
        "text = open(sys.argv[0] + '/__main__.py').read()\n"
        "try: exec(compile(text, 'dtctl', 'exec'))\n"
        "except ValueError: traceback.print_exc()"
    )
    command = [str(new_host.directory / "bin" / "python3"), "-IS", "-c", script, str(kept_program(new_host))]
    answer = subprocess.run(command, check=True, env=new_host.env, stderr=subprocess.PIPE, text=True)
    assert 'File "dtctl_agent/main.py", line ' in answer.stderr
    assert "supervise(argv[1])" in answer.stderr


def test_the_noise_of_a_login_shell_comes_before_the_conversation(host: AgentHost) -> None:
    noisy = f"echo 'Welcome to gpu-b!'; {LOADER}"
    process = subprocess.Popen(
        ["/bin/sh", "-c", noisy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=host.env, start_new_session=True
    )
    with Conversation(process) as talk:
        assert talk.noise == b"Welcome to gpu-b!\n"
        assert talk.ask("runs", cluster=None)["runs"] == []


def test_the_end_of_input_ends_the_session(host: AgentHost) -> None:
    talk = host.open()
    talk.close()
    assert talk.process.returncode == 0
    assert host.processes() == []


def test_a_conversation_holds_several_requests(host: AgentHost) -> None:
    with host.open() as talk:
        assert talk.ask("runs", cluster=None)["runs"] == []
        assert talk.ask("status", cluster="c", host="h1", run=None)["run"] is None


@pytest.mark.parametrize(
    ("request_type", "fields"),
    [
        ("dance", {}),
        ("status", {"cluster": "../../etc", "host": "h1"}),
        ("status", {"cluster": "c", "host": ".."}),
        ("status", {"cluster": "c", "host": "h1", "run": "a/b"}),
        ("status", {"cluster": None, "host": "h1"}),
        ("exec", {"cluster": "c", "host": "h1", "argv": []}),
        ("exec", {"cluster": "c", "host": "h1", "argv": ["a\0b"]}),
        ("exec", {"cluster": "c", "host": "h1", "argv": ["\ud800"]}),
        ("logs", {"cluster": "c", "host": "h1", "resume": {"worker:0": [1]}}),
        ("logs", {"cluster": "c", "host": "h1", "lines": -1}),
        ("stop", {"cluster": "c", "host": "h1", "grace_s": "soon"}),
        ("stop", {"cluster": "c", "host": "h1", "tasks": ["../worker:0"]}),
        ("gc", {"host": "h1"}),
        ("push", {"cluster": "c", "host": "h1", "bundle": "../" + "0" * 61}),
        ("push", {"cluster": "c", "host": "h1", "bundle": "A" * 64}),
        ("push", {"cluster": "c", "host": "h1", "bundle": None}),
        ("start", {}),
        ("up", {"cluster": "c", "host": "h1", "spec": {"version": 99}}),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    host: AgentHost, request_type: str, fields: dict[str, object]
) -> None:
    with host.open() as talk, pytest.raises(AgentRefused, match="bad_request: "):
        talk.ask(request_type, **fields)


def test_a_refusal_names_the_request_and_the_field(host: AgentHost) -> None:
    with pytest.raises(AgentRefused) as refused:
        host.ask("stop", tasks=["worker:0", 7])
    message = "stop: tasks.1: expected a task such as worker:1, found 7"
    assert refused.value.frame["summary"] == message


def test_a_refusal_shows_no_secret(host: AgentHost) -> None:
    for secrets in ({"PASSWORD": 271828182}, {"PASSWORD": "271828182\0"}, {"PASSWORD": "271828182" * 200_000}):
        with pytest.raises(AgentRefused) as refused:
            host.ask("up", spec=host.spec(task("worker:0", "true")), secrets=secrets)
        assert refused.value.frame["summary"].startswith("up: secrets")
        assert "271828182" not in str(refused.value.frame)


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b'{"kind": 1}\n', b"[" * 1_000_000 + b"\n"])
@pytest.mark.parametrize("within", [False, True])
def test_invalid_frame_ends_the_conversation_with_a_refusal(host: AgentHost, line: bytes, within: bool) -> None:
    with host.open() as talk:
        if within:
            talk.send("exec", cluster="c", host="h1", argv=["sleep", "1000"])
        talk.write(line)
        with pytest.raises(AgentRefused) as refused:
            talk.await_type("result")
    assert refused.value.code == "bad_request"
    eventually(lambda: not host.processes(), what=f"the end of {host.remains()}")


@pytest.mark.parametrize("word", [{"type": "keep"}, {"type": "file", "index": -1}, {"type": "start", "bytes": 10**12}])
def test_an_unexpected_message_rolls_the_start_back(host: AgentHost, word: dict[str, object]) -> None:
    spec = host.spec(task("worker:0", "sleep", "1000"))
    with host.open() as talk:
        host.prepare(talk, spec)
        talk.write(json.dumps(word).encode() + b"\n")
        with pytest.raises(AgentRefused) as refused:
            talk.await_type("started")
    assert refused.value.code == "bad_request"
    assert not host.run_directory(spec).exists()


def test_an_idle_session_sends_beats(host: AgentHost) -> None:
    with host.open() as talk:
        talk.send("exec", cluster="c", host="h1", argv=["sleep", "1000"])
        first, second = talk.receive(), talk.receive()
    assert [(frame["type"], frame["at"]) for frame in (first, second)] == [("beat", "exec")] * 2
    assert 4 < second["for_s"] - first["for_s"] < 15


def test_a_request_about_a_run_that_is_not_there_is_refused(host: AgentHost) -> None:
    for fields in ({"run": "r-none"}, {}):
        with pytest.raises(AgentRefused, match="no_run: "):
            host.ask("stop", tasks=None, grace_s=None, by="ada", **fields)


def test_a_root_that_cannot_be_made_is_reported(host: AgentHost) -> None:
    host.root.write_text("a file")
    with pytest.raises(AgentRefused, match="not_a_directory: "):
        host.open()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small file system needs root")
def test_a_full_disk_is_reported(host: AgentHost) -> None:
    host.root.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", str(host.root)], check=True)
    try:
        with pytest.raises(AgentRefused, match="disk_full: "):
            host.open()
        left = [path.name for path in kept_program(host).rglob("*") if path.is_file()]
        assert set(left) <= {"source"}, "what is there is whole"
    finally:
        eventually(lambda: not host.processes())
        subprocess.run(["umount", str(host.root)], check=True)


def test_a_python_that_is_too_old_is_reported(tmp_path: Path) -> None:
    aged = "import sys;sys.version_info=(3,7,16);i=sys.stdin.buffer;" + (
        'exec(compile(i.read(int(i.readline())),"dtctl","exec"))'
    )
    answer = subprocess.run(
        [sys.executable, "-ISc", aged], input=opening(), capture_output=True, env={"HOME": str(tmp_path)}, check=False
    )
    assert answer.stdout.startswith(b"\x1e")
    assert b'"python_too_old"' in answer.stdout
    assert b"3.7.16" in answer.stdout
    assert list(tmp_path.iterdir()) == []
