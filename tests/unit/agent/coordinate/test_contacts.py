"""Who is in touch, who is missed and since when, and that each coming and going is told once."""

from __future__ import annotations

from dtctl.agent.coordinate.contacts import DIAL_AGAIN_S, Contacts
from dtctl.agent.coordinate.view import View
from dtctl.agent.records.reasons import Fact, fact
from tests.unit.agent.coordinate import views


class Told:
    """A coordinator's contacts, and the hosts of which something was told."""

    def __init__(self, view: View | None = None) -> None:
        self.view = view or views.running()
        self.hosts: list[str] = []
        self.contacts = Contacts(self.view, self._tell)

    def _tell(self, kind: str, why: list[Fact], *, host: str) -> None:
        assert kind == "contact"
        self.hosts.append(host)
        self.last = why[0]

    @property
    def connected(self) -> set[str]:
        return {host for host, known in self.view.hosts.items() if known["connected"]}


def test_at_first_nobody_is_in_touch_and_nobody_is_away() -> None:
    told = Told()
    assert (told.connected, told.contacts.away) == (set(), {})


def test_those_are_expected_who_have_spoken_before_and_have_something_left_to_do() -> None:
    view = views.running()
    view.hosts["a"]["state"] = None
    view.hosts["b"]["over"] = True
    told = Told(view)
    told.contacts.expect(100.0)
    assert told.contacts.away == {"d": 100.0}, "c is the coordinator's own"


def test_who_has_not_come_by_then_is_told_once() -> None:
    told = Told()
    told.contacts.expect(100.0)
    told.contacts.miss(100.0 + DIAL_AGAIN_S)
    assert told.hosts == []
    told.contacts.greet("a", 100.0 + DIAL_AGAIN_S)
    told.contacts.miss(100.1 + DIAL_AGAIN_S)
    told.contacts.miss(500.0)
    assert told.hosts == ["b", "d"]


def test_who_comes_is_in_touch_and_told_only_if_it_was_missed() -> None:
    told = Told()
    told.view.hosts["a"]["over"] = True
    told.contacts.greet("a", 100.0)
    assert (told.connected, told.view.hosts["a"]["over"], told.hosts) == ({"a"}, False, [])
    told.contacts.lose("a", 105.0, "no word", is_done=False)
    assert (told.connected, told.contacts.away, told.hosts) == (set(), {"a": 105.0}, ["a"])
    assert told.last == fact("away", host="a", text="no word")
    told.contacts.greet("a", 110.0)
    assert (told.connected, told.contacts.away, told.hosts) == ({"a"}, {}, ["a", "a"])
    assert told.last == fact("back", host="a", seconds=5.0)
    told.contacts.greet("a", 111.0)
    assert told.hosts == ["a", "a"]


def test_who_is_done_goes_without_a_word() -> None:
    told = Told()
    told.contacts.greet("a", 100.0)
    told.contacts.lose("a", 105.0, "closed", is_done=True)
    assert (told.connected, told.contacts.away, told.hosts) == (set(), {}, [])
    assert told.view.hosts["a"]["over"]


def test_who_was_not_in_touch_cannot_be_lost() -> None:
    told = Told()
    told.contacts.lose("a", 105.0, "closed", is_done=True)
    told.contacts.lose("b", 105.0, "closed", is_done=False)
    assert (told.contacts.away, told.hosts, told.view.hosts["a"]["over"]) == ({}, [], False)
