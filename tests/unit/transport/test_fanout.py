"""Work for many hosts at once; thirty of three hundred fail for four reasons, reported in four lines."""

from __future__ import annotations

import errno
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dtctl.errors import AgentError, DtctlError, ExitCode, HostKeyError, TransportError
from dtctl.transport import fanout
from dtctl.transport.fanout import NotAwaited, Outcomes, SomeHostsFailed, asking, fan_out, idle, on_behalf
from dtctl.transport.group_errors import MOST_KINDS, group_errors, lines
from dtctl.transport.ssh import errors
from dtctl.transport.ssh.errors import Destination, cannot_connect
from dtctl.transport.ssh.keyring import LoginRefused
from dtctl.transport.ssh.known_hosts import HostKey, Pinned
from tests.waiting import PATIENCE_S, eventually


@dataclass(frozen=True)
class Thing:
    name: str


def refuse_even(number: int) -> int:
    if number % 2 == 0:
        raise TransportError(f"host {number} is down", hint="start it")
    return number * 10


def test_every_outcome_is_kept_in_order() -> None:
    def work(number: int) -> int:
        time.sleep(0.002 * (6 - number))
        return refuse_even(number)

    outcomes = fan_out(range(6), work, name=str)
    assert list(outcomes.results.items()) == [("1", 10), ("3", 30), ("5", 50)]
    assert [error.summary for error in outcomes.errors.values()] == [
        "host 0 is down",
        "host 2 is down",
        "host 4 is down",
    ]


def test_results_are_keyed_by_name() -> None:
    assert fan_out([Thing("a"), Thing("b")], lambda thing: thing.name * 2).results == {"a": "aa", "b": "bb"}
    assert fan_out(["a"], str.upper).results == {"a": "A"}


def test_duplicate_names_are_refused() -> None:
    with pytest.raises(ValueError, match="not different"):
        fan_out(["a", "a"], str.upper)


def test_no_items_give_no_outcomes_at_once() -> None:
    assert fan_out([], str.upper) == Outcomes({}, {})


def test_no_more_than_width_work_at_once() -> None:
    lock, together = threading.Lock(), threading.Barrier(4)
    at_once = most = 0

    def work(_: int) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        together.wait(PATIENCE_S)
        with lock:
            at_once -= 1

    fan_out(range(20), work, width=4, name=str)
    assert most == 4


def test_unreachable_hosts_do_not_delay_others() -> None:
    """Hosts that do not answer occupy no slot: hosts that are up are served meanwhile."""
    asked: list[int] = []
    all_others = threading.Event()

    def work(number: int) -> None:
        if number < 8:
            with idle():
                assert all_others.wait(60), "the others are not asked before these are given up"
            raise TransportError("no answer")
        asked.append(number)
        if len(asked) == 20:
            all_others.set()

    outcomes = fan_out(range(28), work, width=4, name=str)
    assert (len(outcomes.errors), len(outcomes.results)) == (8, 20)


def test_a_responding_host_keeps_its_slot_until_its_deadline() -> None:
    """The thread that reads for it reports that; after the deadline it counts as hanging, and others are served."""
    others = threading.Event()

    def work(number: int) -> None:
        if number:
            others.set()
            return
        with idle(time.monotonic() + 3600) as still:
            assert not others.wait(2 * fanout.IDLE_S), "it was heard, and has its place"
            threading.Thread(target=still, args=(time.monotonic(),)).start()
            assert others.wait(PATIENCE_S), "it hangs, and another one is asked meanwhile"

    assert len(fan_out(range(2), work, width=1, name=str).results) == 2


def test_a_working_host_keeps_its_slot_however_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "IDLE_S", 0.01)
    monkeypatch.setattr(fanout, "LOOKED_EVERY_S", 0.01)
    begun: list[int] = []
    released = threading.Event()

    def work(number: int) -> None:
        with idle():
            pass
        begun.append(number)
        released.wait(60)

    waiting = threading.Thread(target=lambda: fan_out(range(10), work, width=2, name=str))
    waiting.start()
    eventually(lambda: len(begun) == 2)
    time.sleep(0.1)
    assert len(begun) == 2
    released.set()
    waiting.join()


def test_an_error_keeps_no_reference_to_its_conversation() -> None:
    import gc
    import weakref

    class Connection:
        pass

    connections: list[weakref.ref[Connection]] = []

    def work(name: str) -> None:
        connection = Connection()
        connections.append(weakref.ref(connection))
        try:
            raise OSError(name)
        except OSError as error:
            raise TransportError("lost") from error

    outcomes = fan_out(["a", "b"], work)
    gc.collect()
    assert len(outcomes.errors) == 2
    assert [one() for one in connections] == [None, None]


def test_idle_outside_of_a_fan_out_does_nothing() -> None:
    with idle():
        pass


def test_a_bug_is_raised_and_stops_the_rest() -> None:
    begun: list[int] = []
    cancelled = threading.Event()

    def work(number: int) -> None:
        begun.append(number)
        if number == 0:
            raise ZeroDivisionError
        cancelled.wait(PATIENCE_S)

    with pytest.raises(ZeroDivisionError):
        fan_out(range(10), work, width=2, name=str, cancel=cancelled.set)
    assert cancelled.is_set()
    assert len(begun) <= 3


def test_an_interrupt_with_a_broken_lock_is_still_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt while threading.Condition waits for its lock ends as a RuntimeError."""

    def start(thread: threading.Thread) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(KeyboardInterrupt):
        fan_out(["one"], len)


def test_an_interrupt_is_raised_while_work_still_hangs() -> None:
    released, cancelled = threading.Event(), threading.Event()
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        released.wait(PATIENCE_S)

    def interrupt() -> None:
        eventually(lambda: len(begun) == 2)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        fan_out(range(10), work, width=2, name=str, cancel=cancelled.set)
    assert cancelled.is_set()
    released.set()
    eventually(lambda: not [thread for thread in threading.enumerate() if thread.name.startswith("fan-out")])
    assert len(begun) == 2


@pytest.fixture
def no_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fanout, "LAST_WORDS_S", 0.0)
    monkeypatch.setattr(fanout, "LOOKED_EVERY_S", 0.01)


@pytest.mark.usefixtures("no_last_words")
def test_a_failure_ends_the_wait_if_all_hosts_are_needed() -> None:
    cancelled = threading.Event()

    def work(name: str) -> str:
        if name == "b":
            raise TransportError("refused")
        if name == "c":
            cancelled.wait(60)
        return name

    found = fan_out(["a", "b", "c"], work, cancel=cancelled.set, needs_all=True)
    assert cancelled.is_set()
    assert found.results == {"a": "a"}
    assert isinstance(found.errors["c"], NotAwaited)
    with pytest.raises(SomeHostsFailed, match="cannot prepare on 1 of 3 hosts") as failed:
        found.or_raise("prepare")
    assert (list(failed.value.errors), failed.value.unawaited) == (["b"], ("c",))


@pytest.mark.usefixtures("no_last_words")
def test_a_failure_does_not_interrupt_a_prompt() -> None:
    def work(name: str) -> str:
        if name == "b":
            raise TransportError("refused")
        with asking():
            time.sleep(0.3)
            return name

    assert fan_out(["a", "b"], work, needs_all=True).results == {"a": "a"}


@pytest.mark.usefixtures("no_last_words")
def test_a_failure_does_not_end_the_wait_if_others_count() -> None:
    failed = threading.Event()

    def work(name: str) -> str:
        if name == "b":
            failed.set()
            raise TransportError("refused")
        failed.wait(60)
        time.sleep(0.1)
        return name

    found = fan_out(["a", "b"], work)
    assert (found.results, list(found.errors)) == ({"a": "a"}, ["b"])


def test_or_raise_gives_the_results_when_all_succeed() -> None:
    assert Outcomes({"a": 1}, {}).or_raise("prepare") == {"a": 1}


def test_or_raise_of_one_host_raises_its_own_error() -> None:
    error = TransportError("gpu-a is down")
    with pytest.raises(TransportError) as caught:
        Outcomes[int]({}, {"gpu-a": error}).or_raise("prepare")
    assert caught.value is error


def test_or_raise_reports_every_failed_host() -> None:
    errors: dict[str, DtctlError] = {
        "gpu-a": TransportError("gpu-a (10.0.0.2:22) refuses connections", hint="does sshd run there?"),
        "gpu-b": TransportError("no space", detail="one\ntwo", hint="does sshd run there?"),
    }
    with pytest.raises(SomeHostsFailed) as caught:
        Outcomes({"gpu-c": 1}, errors).or_raise("prepare")
    error = caught.value
    assert error.summary == "cannot prepare on 2 of 3 hosts"
    assert error.detail.splitlines() == [
        "gpu-a (10.0.0.2:22) refuses connections    does sshd run there?",
        "gpu-b: no space    does sshd run there?",
        "  one",
        "  two",
    ]
    assert error.hint == "", "each has its own"
    assert error.exit_code == ExitCode.UNREACHABLE
    assert error.errors == errors


def to(number: int) -> Destination:
    return Destination(f"gpu-{number}", f"10.0.{number // 250}.{number % 250}", 22, f"gpu-{number}")


def refused(number: int, user: str = "train", **story: Any) -> TransportError:
    fields = {"offered": ["~/.ssh/id"], "accepts": ["publickey"], **story}
    return errors.cannot_log_in(to(number), LoginRefused(user, **fields))


def changed(number: int) -> HostKeyError:
    pinned = Pinned((f"gpu-{number}",), HostKey("ssh-ed25519", b"old %d" % number), Path("/k"), number)
    return errors.changed_key(to(number), f"gpu-{number}", HostKey("ssh-ed25519", b"new %d" % number), pinned)


def of_three_hundred() -> dict[str, DtctlError]:
    failed: dict[str, DtctlError] = {}
    failed.update((f"gpu-{n}", errors.cannot_connect(to(n), TimeoutError(), 10.0)) for n in range(1, 11))
    failed.update((f"gpu-{n}", errors.silent(to(n), 10.0)) for n in range(21, 31))
    failed.update((f"gpu-{n}", changed(n)) for n in range(101, 106))
    failed.update((f"gpu-{n}", refused(n)) for n in range(201, 206))
    return failed


def test_four_reasons_are_four_lines_each_with_its_hosts_and_what_to_do_next() -> None:
    shown = lines(of_three_hundred())
    assert [line.partition(":")[0] for line in shown] == ["gpu-[1-10]", "gpu-[21-30]", "gpu-[101-105]", "gpu-[201-205]"]
    assert shown[0] == (
        "gpu-[1-10]: no answer within 10 s    is it up, is the address right, and does no firewall stand between?"
    )
    assert "dtctl trust gpu-101    and the same for the others" in shown[2]
    assert "the login is refused    ssh -p 22 train@10.0.0.201 true" in shown[3]


def test_refused_logins_are_grouped_across_different_users() -> None:
    failed: dict[str, DtctlError] = {f"gpu-{n}": refused(n, f"train{n}") for n in (1, 2, 3)}
    assert lines({**failed, "ps": DtctlError("no")})[0].split("    ") == [
        "gpu-[1-3]: the login is refused",
        "ssh -p 22 train1@10.0.0.1 true",
        "should work first",
        "and the same for the others",
    ]


def test_logins_refused_for_different_reasons_are_not_grouped() -> None:
    stories: dict[str, dict[str, Any]] = {
        "the login is refused": {},
        "the login is refused without a key": {"offered": []},
        "the login is refused after several keys": {"offered": ["a", "b"], "ended": "Too many failures"},
        "the login is refused, and ~/.ssh/id is locked": {"offered": [], "locked": ["~/.ssh/id"]},
        "the key is accepted, but the login also needs password": {"more_than_a_key": True, "accepts": ["password"]},
    }
    for expected, story in stories.items():
        (line,) = group_errors({f"gpu-{n}": refused(n, f"train{n}", **story) for n in (1, 2)})
        assert line.summary == f"gpu-[1-2]: {expected}"


def test_the_answer_of_ssh_is_shown_for_hosts_that_give_the_same() -> None:
    failed: dict[str, DtctlError] = {}
    for host, address in (("gpu-1", "10.0.0.1"), ("gpu-2", "10.0.0.2")):
        printed = f"train@{address}: Permission denied"
        to = Destination(host, address, 22, host)
        failed[host] = errors.cannot_log_in_by_ssh(to, "train", printed, unasked=False)
    assert lines(failed) == ["gpu-[1-2]: ssh cannot log in", "  Permission denied"]


def test_a_single_host_keeps_all_details() -> None:
    (line, *below) = lines({"gpu-101": changed(101), "gpu-1": refused(1)})
    assert line.startswith("the host key of gpu-101 (10.0.0.101:22) has changed    if you know why: ssh-keygen")
    assert any("it shows" in each for each in below)


def test_a_place_of_exec_is_not_named_twice() -> None:
    (line, _) = lines({"@gpu-1": TransportError("gpu-1 (a:22) is down"), "worker:2": TransportError("gpu-2 is down")})
    assert line == "gpu-1 (a:22) is down"


def test_a_single_reason_gives_the_hint_of_the_whole_error() -> None:
    error = SomeHostsFailed("push", {f"gpu-{n}": refused(n) for n in (1, 2)}, 3)
    assert error.detail.splitlines() == [
        "gpu-[1-2]: the login is refused",
        "  offered ~/.ssh/id; the host accepts publickey",
    ]
    assert error.hint == "ssh -p 22 train@10.0.0.1 true    should work first    and the same for the others"


def test_errors_that_differ_by_host_name_alone_are_grouped() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": TransportError(f"gpu-{n} sent an invalid message", hint=f"dtctl ssh gpu-{n}") for n in (1, 2, 12)
    }
    (one,) = group_errors(failed)
    assert one.summary == "gpu-[1-2,12] sent an invalid message"
    assert one.hint == "dtctl ssh gpu-1    and the same for the others", "a command takes one host"


def test_differing_details_are_shown_of_the_first_host() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": AgentError("setup_failed", "the setup failed", detail=f"pip: {n}", host=f"gpu-{n}") for n in (1, 2)
    }
    assert lines(failed) == ["gpu-[1-2]: the setup failed", "  on gpu-1:", "  pip: 1"]


def test_hints_of_hosts_are_attributed_to_them() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": AgentError("internal", "no", hint="curl x | sh", host=f"gpu-{n}") for n in (1, 2)
    }
    (one,) = group_errors(failed)
    assert one.next_step == "gpu-[1-2] says: curl x | sh"


def test_a_thousand_reasons_do_not_fill_the_screen() -> None:
    failed: dict[str, DtctlError] = {f"gpu-{n}": DtctlError(f"reason {'x' * n}") for n in range(1, 1001)}
    shown = lines(failed)
    assert len(shown) == MOST_KINDS + 1
    assert shown[-1] == "gpu-[21-1000]: for other reasons"


def test_details_do_not_repeat_the_summary() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": errors.cannot_connect(to(n), OSError(113, "No route to host"), 10.0) for n in (1, 2)
    }
    (error,) = group_errors(failed)
    assert error.summary == "gpu-[1-2]: cannot be reached: No route to host"
    assert error.detail == ""


@pytest.mark.parametrize("error", [TimeoutError(), OSError(errno.EHOSTUNREACH, "No route to host")])
@pytest.mark.parametrize(("address", "is_example"), [("192.0.2.11", True), ("192.0.3.11", False)])
def test_an_example_address_is_reported_as_one(error: OSError, address: str, is_example: bool) -> None:
    hint = cannot_connect(Destination("node-1", address, 22, "node-1"), error, 10.0).hint
    assert hint.startswith("that is an example's address: write your machines'") is is_example


def test_wait_in_a_thread_that_works_for_another_makes_room_for_the_next_host() -> None:
    free = threading.Event()

    def wait_idly() -> bool:
        with idle(0.0):
            return free.wait(20)

    def work(host: str) -> bool:
        if host == "next":
            free.set()
            return True
        found: list[bool] = []
        waiting = on_behalf(wait_idly)
        thread = threading.Thread(target=lambda: found.append(waiting()), daemon=True)
        thread.start()
        thread.join()
        return found[0]

    assert fan_out(["slow", "next"], work, width=1).results == {"slow": True, "next": True}
