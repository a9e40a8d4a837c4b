"""Thirty hosts of three hundred fail for four reasons: four lines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtctl.errors import AgentError, DtctlError, HostKeyError, TransportError
from dtctl.transport.fanout import Outcomes, SomeHostsFailed
from dtctl.transport.group_errors import MOST_KINDS, group_errors, lines
from dtctl.transport.ssh import errors
from dtctl.transport.ssh.errors import Destination
from dtctl.transport.ssh.keyring import LoginRefused
from dtctl.transport.ssh.known_hosts import HostKey, Pinned


def to(number: int) -> Destination:
    return Destination(f"gpu-{number}", f"10.0.{number // 250}.{number % 250}", 22, f"gpu-{number}")


def refused(number: int, user: str = "train", **story: Any) -> TransportError:
    told = {"offered": ["~/.ssh/id"], "accepts": ["publickey"], **story}
    return errors.cannot_log_in(to(number), LoginRefused(user, **told))


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
    told = lines(of_three_hundred())
    assert [line.partition(":")[0] for line in told] == ["gpu-[1-10]", "gpu-[21-30]", "gpu-[101-105]", "gpu-[201-205]"]
    assert told[0] == (
        "gpu-[1-10]: no answer within 10 s    is it up, is the address right, and does no firewall stand between?"
    )
    assert "dtctl trust gpu-101    and so for the others" in told[2]
    assert "the login is refused    ssh -p 22 train@10.0.0.201 true" in told[3]


def test_a_user_for_each_host_does_not_part_those_that_refuse_it() -> None:
    failed: dict[str, DtctlError] = {f"gpu-{n}": refused(n, f"train{n}") for n in (1, 2, 3)}
    assert lines({**failed, "ps": DtctlError("no")})[0].split("    ") == [
        "gpu-[1-3]: the login is refused",
        "ssh -p 22 train1@10.0.0.1 true",
        "should work first",
        "and so for the others",
    ]


def test_logins_that_are_refused_for_different_reasons_are_told_apart() -> None:
    stories: dict[str, dict[str, Any]] = {
        "the login is refused": {},
        "the login is refused without a key": {"offered": []},
        "the login is refused after several keys": {"offered": ["a", "b"], "ended": "Too many failures"},
        "the login is refused, and ~/.ssh/id is locked": {"offered": [], "locked": ["~/.ssh/id"]},
        "the key is accepted, but the login also needs password": {"more_than_a_key": True, "accepts": ["password"]},
    }
    for said, story in stories.items():
        (told,) = group_errors({f"gpu-{n}": refused(n, f"train{n}", **story) for n in (1, 2)})
        assert told.summary == f"gpu-[1-2]: {said}"


def test_the_whole_is_an_error_that_knows_each_host() -> None:
    failed = of_three_hundred()
    error = SomeHostsFailed("prepare", failed, 300)
    assert error.summary == "cannot prepare on 30 of 300 hosts"
    assert len(error.detail.splitlines()) == 4
    assert error.errors == failed


def test_one_host_alone_keeps_all_that_came_back() -> None:
    (line, *below) = lines({"gpu-101": changed(101), "gpu-1": refused(1)})
    assert line.startswith("the host key of gpu-101 (10.0.0.101:22) has changed    if you know why: ssh-keygen")
    assert any("it shows" in each for each in below)


def test_a_place_of_exec_is_not_named_twice() -> None:
    (told, _) = lines({"@gpu-1": TransportError("gpu-1 (a:22) is down"), "worker:2": TransportError("gpu-2 is down")})
    assert told == "gpu-1 (a:22) is down"


def test_where_there_is_one_reason_what_to_do_is_the_hint_of_the_whole() -> None:
    error = SomeHostsFailed("push", {f"gpu-{n}": refused(n) for n in (1, 2)}, 3)
    assert error.detail.splitlines() == [
        "gpu-[1-2]: the login is refused",
        "  offered ~/.ssh/id; the host accepts publickey",
    ]
    assert error.hint == "ssh -p 22 train@10.0.0.1 true    should work first    and so for the others"


def test_words_that_differ_by_the_hosts_name_alone_are_the_same() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": TransportError(f"gpu-{n} sends what no agent sends", hint=f"dtctl ssh gpu-{n}") for n in (1, 2, 12)
    }
    (one,) = group_errors(failed)
    assert one.summary == "gpu-[1-2,12] sends what no agent sends"
    assert one.hint == "dtctl ssh gpu-1    and so for the others", "a command takes one host"


def test_what_came_back_differently_is_shown_of_the_first() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": AgentError("setup_failed", "the setup failed", detail=f"pip: {n}", host=f"gpu-{n}") for n in (1, 2)
    }
    assert lines(failed) == ["gpu-[1-2]: the setup failed", "  on gpu-1:", "  pip: 1"]


def test_what_hosts_advise_is_told_as_theirs() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": AgentError("internal", "no", hint="curl x | sh", host=f"gpu-{n}") for n in (1, 2)
    }
    (one,) = group_errors(failed)
    assert one.next_step == "gpu-[1-2] says: curl x | sh"


def test_a_thousand_reasons_do_not_fill_the_screen() -> None:
    failed: dict[str, DtctlError] = {f"gpu-{n}": DtctlError(f"reason {'x' * n}") for n in range(1, 1001)}
    told = lines(failed)
    assert len(told) == MOST_KINDS + 1
    assert told[-1] == "gpu-[21-1000]: for other reasons"


def test_one_host_of_one_is_its_own_error() -> None:
    error = refused(1)
    with pytest.raises(TransportError) as raised:
        Outcomes[int]({}, {"gpu-1": error}).or_raise("push")
    assert raised.value is error


def test_what_the_first_line_says_is_not_said_again_below_it() -> None:
    failed: dict[str, DtctlError] = {
        f"gpu-{n}": errors.cannot_connect(to(n), OSError(113, "No route to host"), 10.0) for n in (1, 2)
    }
    (told,) = group_errors(failed)
    assert told.summary == "gpu-[1-2]: cannot be reached: No route to host"
    assert told.detail == ""
