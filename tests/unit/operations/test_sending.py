"""What a cluster file sends from outside of its own directory needs consent, by what is sent, and to whom."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from dtctl.config.load import load_cluster
from dtctl.config.outgoing import Sending
from dtctl.errors import PreflightError
from dtctl.operations.client import silent
from dtctl.operations.consent import Consents
from dtctl.operations.push import push
from dtctl.operations.run_record import record_of
from dtctl.operations.sending import EVERY, allowable, not_allowed, scan_code, sendings
from dtctl.operations.up.launch import prepare_launch
from dtctl.plan import plan_roster
from dtctl.rooms.check.checking import prepare_check
from dtctl.rooms.data.operation import data_set
from dtctl.rooms.data.pushing import push_data
from tests.unit.fakes import FakeTransport

FILE = """\
name: demo
hosts: {a: 10.0.0.1, b: {ssh: {target: 10.0.0.2, port: 2200, jump: gate}}}
jobs: {worker: {hosts: [a, b]}}
dirs: {data: /data}
data: {from: ../digits}
trainer: {code: ../code, command: [python, train.py], env_file: ../own.env, secrets: [KEY, OTHER]}
hooks: {chat: {post: "https://chat.example/${HOOK}"}}
"""
KEYS = ["trainer.code", "trainer.env_file", "data.from", "trainer.secrets", "hooks.chat"]
MINE = {"OTHER": "of mine", "HOOK": "mine", "KEY": "of mine"}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
        (tmp_path / name).mkdir(mode=0o700)
    for name in ("code", "digits", "project", "project/within"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text("print()\n")
    (tmp_path / "own.env").write_text("KEY=of the file\n")
    return tmp_path / "project"


def found(
    place: Path, text: str = FILE, overrides: tuple[str, ...] = (), environ: Mapping[str, str] = MINE
) -> dict[str, Sending]:
    (place / "cluster.yaml").write_text(text)
    cluster = load_cluster(place / "cluster.yaml", overrides=overrides, needs_files=False)
    return {one.key: one for one in sendings(cluster, EVERY, environ)}


def test_data_from_outside_the_directory_is_shown_with_source_and_destination(place: Path) -> None:
    wanted = found(place)
    assert list(wanted) == KEYS
    assert not_allowed(list(wanted.values())).detail.split("\n") == [
        f"trainer.code: {place.parent}/code, to a,b (10.0.0.1,10.0.0.2:2200 through gate)",
        f"trainer.env_file: KEY, OTHER, HOOK of {place.parent}/own.env, to a,b (10.0.0.1,10.0.0.2:2200 through gate)",
        f"data.from: {place.parent}/digits, to a,b (10.0.0.1,10.0.0.2:2200 through gate)",
        "trainer.secrets: KEY, OTHER of your environment, to a,b (10.0.0.1,10.0.0.2:2200 through gate)",
        "hooks.chat: HOOK of your environment, to https://chat.example/${HOOK}",
    ]


def test_what_lies_in_the_directory_of_the_file_needs_no_consent(place: Path) -> None:
    text = FILE.replace("../digits", "within").replace("../code", ".").replace("../own.env", "within/train.py")
    assert list(found(place, text, environ={})) == []


def test_a_link_in_the_directory_that_leads_out_of_it_needs_consent(place: Path) -> None:
    (place / "data").symlink_to("../digits")
    (place / "env").symlink_to("../own.env")
    text = FILE.replace("../digits", "data").replace("../own.env", "env")
    assert list(found(place, text)) == KEYS


def test_a_value_that_the_env_file_has_is_not_taken_from_the_environment(place: Path) -> None:
    assert list(found(place, environ={"KEY": "of mine"})) == ["trainer.code", "trainer.env_file", "data.from"]


@pytest.mark.parametrize("typed", ["data.from=../digits", "data={from: ../digits}"])
def test_what_the_command_line_names_is_the_users_own_word(place: Path, typed: str) -> None:
    assert list(found(place, overrides=(typed,))) == [one for one in KEYS if one != "data.from"]


def test_values_of_variables_that_are_not_set_yet_are_allowed_with_the_rest(place: Path) -> None:
    found(place)
    Consents().allow(allowable(load_cluster(place / "cluster.yaml")))
    assert Consents().missing(found(place).values()) == ()


def test_nothing_leaves_a_cluster_of_this_machine(place: Path) -> None:
    local = FILE.replace(
        "{a: 10.0.0.1, b: {ssh: {target: 10.0.0.2, port: 2200, jump: gate}}}", "{a: {transport: local}}"
    )
    assert found(place, local.replace("[a, b]", "[a]")) == {}


@pytest.mark.parametrize(
    ("old", "new", "asks_for"),
    [
        ("../digits", "../digits/..", {"data.from"}),
        ("../code", "..", {"trainer.code"}),
        ("10.0.0.1", "10.6.6.6", {"trainer.code", "trainer.env_file", "data.from", "trainer.secrets"}),
        ("jump: gate", "jump: evil", {"trainer.code", "trainer.env_file", "data.from", "trainer.secrets"}),
        ("[KEY, OTHER]", "[KEY, OTHER, AWS_SECRET_ACCESS_KEY]", {"trainer.env_file", "trainer.secrets"}),
        ("chat.example", "evil.example", {"hooks.chat"}),
        ("train.py]", "other.py]", set()),
    ],
)
def test_consent_holds_until_what_is_sent_or_its_destination_changes(
    place: Path, old: str, new: str, asks_for: set[str]
) -> None:
    consents = Consents()
    consents.allow(found(place).values())
    assert consents.missing(found(place).values()) == ()
    assert old in FILE
    changed = found(place, FILE.replace(old, new) + "send_anywhere: true\n").values()
    assert {one.key for one in consents.missing(changed)} == asks_for


def test_a_destination_of_the_command_line_asks_for_nothing_more(place: Path) -> None:
    Consents().allow(found(place).values())
    assert Consents().missing(found(place, overrides=("ssh.user=me", "hosts.a=10.0.0.9")).values()) == ()


def test_a_cluster_file_in_a_home_directory_has_no_directory_of_its_own(place: Path, tmp_path: Path) -> None:
    (tmp_path / "HOME" / "work").mkdir()
    text = FILE.replace("../digits", "work").replace("../code", "work")
    assert list(found(tmp_path / "HOME", text)) == KEYS


def test_a_place_that_the_file_itself_lets_through_is_shown_as_what_it_is(place: Path) -> None:
    one = found(place, FILE.replace("../digits", "~/") + "send_anywhere: true\n")["data.from"]
    assert f"{one.source} (a home directory), to" in not_allowed([one]).detail


def test_no_operation_sends_a_thing_without_consent_and_each_does_with_it(place: Path) -> None:
    found(place)
    cluster = load_cluster(place / "cluster.yaml")
    record, asked = record_of(plan_roster(cluster)), list[str]()

    def answer(session: object, fields: Mapping[str, object]) -> list[object]:
        asked.append(str(fields["type"]))
        raise PreflightError("reached")

    def sends_data() -> object:
        return push_data(record, data_set(cluster), FakeTransport(answer), silent, overwrite=False)  # type: ignore[arg-type]

    def sends_code() -> object:
        return push(record, scan_code(cluster), FakeTransport(answer), silent)  # type: ignore[arg-type]

    def starts() -> object:
        return prepare_launch(cluster, lambda settings: settings.target, MINE)

    for act in (sends_data, sends_code, starts):
        with pytest.raises(PreflightError, match="you have not allowed it") as error:
            act()
        assert f"dtctl allow {place}/cluster.yaml" in error.value.hint
    assert asked == []
    Consents().allow(found(place).values())
    for act in (sends_data, sends_code, starts):
        act()
    assert len(asked) == 4


def test_a_check_sends_no_value_that_is_not_allowed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in MINE.items():
        monkeypatch.setenv(name, value)
    found(place)
    cluster = load_cluster(place / "cluster.yaml")

    def sent() -> Mapping[str, str]:
        return prepare_check(cluster, lambda settings: settings.target, ())[0].secrets

    assert sent() == {}
    Consents().allow(sendings(cluster, EVERY, os.environ))
    assert sent() == {"KEY": "of the file", "OTHER": "of mine"}
