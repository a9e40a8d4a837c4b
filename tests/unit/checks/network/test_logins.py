"""The topic `ssh`: shells, logins, and how many of them a server takes."""

from __future__ import annotations

from typing import Any

from dtctl.agent.records.kinds import checked
from dtctl.agent.records.network import SshFacts
from dtctl.model import Host, Local
from dtctl.operations.checks import Answers, fails
from dtctl.operations.checks.ssh import TOPIC
from dtctl.operations.client.persistent import Greeted
from dtctl.render.checks import shown
from tests.unit.checks.contexts import context, hosts_by_signature, judged, sentence
from tests.unit.clusters import cluster, job

WELL = {"shell": "/bin/bash", "start_up_s": 0.01, "max_startups": "10:30:100", "max_sessions": 10, "told_by": "file"}


def facts(host: str = "a", **changed: Any) -> SshFacts:
    return checked(SshFacts, {**WELL, "machine": host, **changed})


def well() -> dict[str, SshFacts]:
    return {host: facts(host) for host in "abcd"}


def test_logins_that_are_as_they_should_be_are_reported_in_four_lines() -> None:
    assert judged(TOPIC, context(), well()) == []
    heard = Answers([well()], greeted={host: Greeted({}, 0.3) for host in "abcd"})
    assert shown(TOPIC.describe(context(), heard), 4) == [
        ("login shell", "/bin/bash"),
        ("", "a login takes 0.3 to 0.3 s with the start of Python (the slowest: a); up to 24 at once"),
        ("MaxStartups", "10:30:100"),
        ("MaxSessions", "10"),
    ]


def test_local_hosts_have_no_logins() -> None:
    here = context(cluster(job("worker", ["a"], [2222]), hosts=[Host("a", Local())]))
    assert TOPIC.ask(here, Answers([])) == {}
    assert set(TOPIC.ask(context(), Answers([]))) == set("abcd")


def test_what_start_up_files_print_is_reported_with_its_first_line() -> None:
    noise = {"noise": "\nWelcome to the cluster\nmore", "noise_bytes": 99}
    (finding,) = judged(TOPIC, context(), {**well(), "b": facts("b", **noise), "c": facts("c", **noise)})
    assert (finding.seen.hosts, fails(finding)) == (("b", "c"), False)
    assert "print to commands that nobody looks at: Welcome to the cluster. dtctl passes it over" in sentence(finding)


def test_a_slow_or_broken_start_up_is_reported() -> None:
    slow, broken = facts("b", start_up_s=4.2), facts("c", problem="exit code 1")
    found = judged(TOPIC, context(), {**well(), "b": slow, "c": broken})
    assert hosts_by_signature(found) == {"slow_start_up": ("b",), "start_up_fails": ("c",)}
    assert "take 4.2 s" in sentence(found[0])


def test_a_login_that_takes_far_longer_than_the_others_is_reported() -> None:
    greeted = {host: Greeted({}, 0.4) for host in "abc"} | {"d": Greeted({}, 11.0)}
    (finding,) = judged(TOPIC, context(), well(), greeted=greeted)
    assert (finding.signature.name, finding.seen.hosts) == ("slow_login", ("d",))
    assert judged(TOPIC, context(), well(), greeted=greeted | {"d": Greeted({}, 2.0)}) == []


def test_hosts_that_are_one_machine_are_compared_with_what_its_server_takes() -> None:
    one = {host: facts("machine", max_startups="3:30:100") for host in "abcd"}
    (finding,) = judged(TOPIC, context(), one)
    assert (finding.seen.hosts, finding.seen.fields["logins"]) == (tuple("abcd"), 4)
    assert judged(TOPIC, context(), {host: facts(host, max_startups="3:30:100") for host in "abcd"}) == []


def test_what_cannot_be_read_is_said_to_be_unknown() -> None:
    unknown = {host: facts(host, max_startups=None, max_sessions=None, told_by="") for host in "abcd"}
    rows = dict(shown(TOPIC.describe(context(), Answers([unknown])), 4))
    assert rows["MaxStartups"] == rows["MaxSessions"] == "not known"


def test_nobody_is_asked_twice_or_in_brief() -> None:
    assert set(TOPIC.ask(context(), Answers())) == set("abcd")
    assert TOPIC.ask(context(), Answers([well()])) == {}
    assert TOPIC.ask(context(brief=True), Answers()) == {}
