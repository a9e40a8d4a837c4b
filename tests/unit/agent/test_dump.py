"""What faulthandler and the kernel write, as records."""

from __future__ import annotations

import faulthandler
import tempfile
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl.agent import dump
from dtctl.agent.dump import stacks
from dtctl.agent.host import paths, processes
from dtctl.agent.records.kinds import checked
from dtctl.agent.records.vitals import MOST_FRAMES, Stack
from dtctl.agent.rooms.dump.serving import MOST_FRAMES_IN_ALL, Room
from tests.fuzz import cases

WRITTEN = """\
Thread 0x00007f2ce4a866c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 327 in wait
  File "/x/train.py", line 9 in load

Thread 0x00007f2ce4a866c1 [loader] (most recent call first):
  <no Python frame>

Current thread 0x00007f2ce5d4e740 (most recent call first):
  File "/x/a dir/train.py", line 42 in <listcomp>
  File "???", line ??? in <module>
  ...
"""


def test_threads_frames_and_names_are_parsed() -> None:
    other, named, main = stacks.read(WRITTEN)
    assert (main["thread"], main["main"], main["omitted"]) == ("0x7f2ce5d4e740", True, 1)
    assert main["frames"] == [
        {"function": "<listcomp>", "file": "/x/a dir/train.py", "line": 42},
        {"function": "<module>", "file": "???", "line": None},
    ]
    assert [frame["function"] for frame in other["frames"]] == ["wait", "load"]
    assert (named["name"], named["frames"]) == ("loader", [])


def test_stacks_of_this_python_are_parsed() -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    thread.start()
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file, all_threads=True)
        file.seek(0)
        found = stacks.read(file.read().decode())
    done.set()
    thread.join()
    idents = {int(stack["thread"], 16) for stack in found}
    assert {threading.get_ident(), thread.ident} <= idents
    own = next(stack for stack in found if int(stack["thread"], 16) == threading.get_ident())
    assert own["frames"][0]["function"] == "test_stacks_of_this_python_are_parsed"


@cases
@given(st.text(alphabet='0x1f\n "[]', max_size=40).map(lambda text: WRITTEN[:200] + text + WRITTEN[40:]))
def test_any_text_is_read_as_stacks_that_may_be_reported(text: str) -> None:
    for stack in Room().take(stacks.read(text))[0]:
        checked(Stack, stack)


@pytest.mark.parametrize("number", [1, 3])
def test_omitted_stacks_are_counted(number: int) -> None:
    frame = '  File "/x.py", line 1 in f\n'
    text = "".join(f"Thread 0x{one:x} (most recent call first):\n{frame * 300}" for one in range(40))
    room = Room()
    for _ in range(number):
        kept, omitted = room.take(stacks.read(text))
    assert len(kept) + omitted == 40
    assert sum(len(stack["frames"]) for stack in kept) <= MOST_FRAMES_IN_ALL
    assert all(len(stack["frames"]) + stack["omitted"] == 300 for stack in kept)
    assert all(len(stack["frames"]) <= MOST_FRAMES for stack in kept)
    assert bool(kept) == (number == 1)


def test_signal_handling_is_read_from_the_process_status(monkeypatch: pytest.MonkeyPatch) -> None:
    bit = f"{1 << 56:016x}"
    texts = {
        "status": f"State:\tS (sleeping)\nSigCgt:\t{bit}\nShdPnd:\t{'0' * 16}\n",
        "task/1/status": f"SigBlk:\t{bit}\n",
        "task/2/status": "SigBlk:\tnonsense\n",
    }
    monkeypatch.setattr(processes, "proc_text", lambda pid, name: texts.get(name, ""))
    monkeypatch.setattr(paths, "entries", lambda path: ["1", "2", "3"])
    signals = dump.Signals(7, 57)
    assert (signals.state, signals.is_caught, signals.is_pending, signals.is_blocked) == ("S", True, False, False)
    assert signals.blocked_by == {"1"}
    assert not dump.Signals(7, 56).is_caught
    del texts["task/2/status"]
    assert dump.Signals(7, 57).is_blocked
