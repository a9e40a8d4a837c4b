"""Names, ranges of names, and durations: what they stand for, and which are safe to hand to SSH."""

from __future__ import annotations

import random
import shutil
import string
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtctl import durations
from dtctl.cli.options import seconds, seconds_ago
from dtctl.config.document import Scalar
from dtctl.config.kinds import Unfit, read_duration
from dtctl.config.names import check_host, check_own_host, check_user
from dtctl.config.ranges import LIMIT, LONGEST, count, expand, expand_value, fold
from dtctl.errors import DtctlError, UsageError
from dtctl.model import Host, SshSettings
from dtctl.transport.ssh.config import ConfigFiles
from dtctl.transport.ssh.login import SshOptions
from dtctl.transport.ssh.openssh import ssh_command
from tests.fuzz import cases

needs_ssh = pytest.mark.skipif(shutil.which("ssh") is None, reason="ssh not found")

HOSTS = [
    "gpu-1",
    "GPU_1.lan",
    "_gateway",
    "10.0.0.2",
    "::1",
    "fe80::1%eth0",
    "fe80::1%br-1.2",
    "::ffff:10.0.0.1",
    "xn--bcher-kva.de",
]
USERS = ["train", "ann.b_c-d", "ann@example.com", "DOMAIN\\ann", "DOM+ann", "42"]
NO_NAMES = [
    *("$(touch${IFS}x)", "`touch x`", "$HOME", "${IFS}", "a;b", "a|b", "a&b", "a<b", "a>b", "a'b", 'a"b'),
    *("a b", "a\tb", "a\u2028b", "a\u00a0b", "a\ufeff"),
    *("a\nb", "a\n", "\n", "a\rb", "a\0b", "a\x1bb", "-oProxyCommand=x", "-", "", "a{b,c}", "a(b)", "a#b", "a!b", "a*"),
    *("a?", "~", "~root", "a=b", "a/b", "a\\", "gpu‐1", "ɡpu", "ｇpu", "bücher", "a" * 256),
]  # fmt: skip


@pytest.mark.parametrize(
    ("check", "name"), [*((check_host, name) for name in HOSTS), *((check_user, name) for name in USERS)]
)
def test_names_and_addresses_of_hosts_and_users_pass(check: Callable[[str], str], name: str) -> None:
    assert check(name) == name


NO_HOSTS = [*NO_NAMES, "a,b", "a%h", "%h", "a:b", "[::1]", "a@b", "fe80::1%", "fe80::1%a;b", "a\\b"]
NO_USERS = [*NO_NAMES, "a,b", "a%h", "%r", "a:b", "+a%u", "a$"]


@pytest.mark.parametrize(
    ("check", "name", "whose"),
    [*((check_host, name, "host") for name in NO_HOSTS), *((check_user, name, "user") for name in NO_USERS)],
)
def test_an_invalid_name_of_a_host_or_user_is_refused(check: Callable[[str], str], name: str, whose: str) -> None:
    with pytest.raises(UsageError, match=f"cannot be the name of a {whose}"):
        check(name)


@pytest.mark.parametrize("place", ["{}", "{}@host", "{}:22", "[{}]:22", "ok,{}", "{},ok"])
def test_no_way_to_a_host_is_looked_up_with_more_than_names(place: str, tmp_path: Path) -> None:
    """Neither as target nor as jump, neither by `ssh -G` nor on OpenSSH's command line."""
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand nc %h %p %r\n")
    files = ConfigFiles(config)
    for name in NO_NAMES:
        text = place.format(name)
        for settings in (SshSettings(text), SshSettings("gpu-a", user=name or "-"), SshSettings("gpu-a", jump=text)):
            if settings.jump == "":
                continue  # says nothing
            with pytest.raises(DtctlError):
                files.lookup(settings)
            with pytest.raises(DtctlError):
                ssh_command(Host("gpu-a", settings), ssh_config=config)


@pytest.mark.parametrize("name", [name for name in NO_NAMES if name])
def test_fabric_never_looks_up_an_invalid_name(name: str, tmp_path: Path) -> None:
    """It looks up the options of a host by itself."""
    config = tmp_path / "config"
    config.write_text("Host *\n  ProxyCommand nc %h %p %r\n")
    with pytest.raises(UsageError):
        SshOptions(ConfigFiles(config), None, None).lookup(name)
    with pytest.raises(UsageError):
        SshOptions(ConfigFiles(config), name, None).lookup("gpu-a")


def test_a_host_name_of_ones_own_is_checked_as_openssh_does(tmp_path: Path) -> None:
    config = tmp_path / "config"
    config.write_text("Host a\n  HostName $(x)\nHost b\n  HostName %h~1\n")
    with pytest.raises(UsageError, match="cannot be the name of a host"):
        ConfigFiles(config).lookup(SshSettings("a"))
    assert ConfigFiles(config).lookup(SshSettings("b"))["hostname"] == "b~1"
    assert check_own_host("bücher") == "bücher"


NEAR_NAMES = st.text(st.sampled_from(string.printable + "ü‐\0\u2028"), max_size=12) | st.text(max_size=12)


@cases
@given(st.lists(NEAR_NAMES, min_size=20, max_size=60))
def test_a_shell_takes_every_name_that_passes_for_one_word_and_itself(texts: list[str]) -> None:
    hosts = [text for text in texts if _passes(check_host, text)]
    users = [text for text in texts if _passes(check_user, text)]
    # A shell takes the backslash of DOMAIN\user away, for OpenSSH's %r as for ours.
    completed = subprocess.run(
        ["sh", "-c", "".join(f"printf '%s\\n' {name}\n" for name in [*hosts, *users])],
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.split("\n")[:-1] == [
        *hosts,
        *(user.replace("\\\\", "\0").replace("\\", "").replace("\0", "\\") for user in users),
    ]
    assert completed.stderr == ""


def _passes(check: Callable[[str], str], text: str) -> bool:
    try:
        return check(text) == text
    except UsageError:
        return False


@needs_ssh
@pytest.mark.parametrize("host", HOSTS)
def test_openssh_takes_what_passes(host: str) -> None:
    for user in USERS:
        done = subprocess.run(
            ["ssh", "-F", "none", "-G", "-l", user, host], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert f"user {user}" in done.stdout.splitlines()


@needs_ssh
@pytest.mark.parametrize("name", [name for name in NO_NAMES if name and "\0" not in name])
def test_names_that_openssh_refuses_are_refused(name: str) -> None:
    done = subprocess.run(["ssh", "-F", "none", "-G", "--", name], capture_output=True, check=False)
    if done.returncode != 0:
        assert not _passes(check_host, name)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu-1", ["gpu-1"]),
        ("gpu-[1-4]", ["gpu-1", "gpu-2", "gpu-3", "gpu-4"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[098-101]", ["n098", "n099", "n100", "n101"]),
        ("[1-3,5]", ["1", "2", "3", "5"]),
        ("n[1,01]", ["n1", "n01"]),
        ("b,a[2-3],a1", ["b", "a2", "a3", "a1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("n[0-1].lan", ["n0.lan", "n1.lan"]),
        ("n[3]", ["n3"]),
        ("n[00-0]", ["n00"]),
    ],
)
def test_a_range_stands_for_names_in_the_order_written(text: str, names: list[str]) -> None:
    assert expand(text) == names


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("", "'' has an empty name"),
        ("a,,b", "'a,,b' has an empty name"),
        ("n[1-2", "'n[1-2' has an unmatched bracket"),
        ("n1-2]", "'n1-2]' has an unmatched bracket"),
        ("n[]", "'n[]': '[]' is not a range"),
        ("n[a-b]", "'n[a-b]': '[a-b]' is not a range"),
        ("n[1-2-3]", "'n[1-2-3]': '[1-2-3]' is not a range"),
        ("n[1,]", "'n[1,]': '[1,]' is not a range"),
        ("n[4-1]", "'n[4-1]': the range 4-1 runs backwards"),
        ("n[1-010]", "'n[1-010]': the ends of 1-010 have different numbers of digits"),
        ("n[1-10001]", "'n[1-10001]' expands to more than 10000 names"),
        ("a[1-200]b[1-200]", "'a[1-200]b[1-200]' expands to more than 10000 names"),
        ("a[1-9000],b[1-9000]", "'a[1-9000],b[1-9000]' expands to more than 10000 names"),
        ("n[1-999999999999999999]", "'n[1-999999999999999999]' expands to more than 10000 names"),
    ],
)
def test_an_invalid_host_range_is_refused_with_a_reason(text: str, summary: str) -> None:
    with pytest.raises(UsageError) as caught:
        expand(text)
    assert caught.value.summary == summary


def test_long_names_are_clipped_in_errors() -> None:
    fits, longer = f"n[{'x' * 57}]", f"n[{'x' * 58}]"
    for text, shown in ((fits, fits), (longer, f"n[{'x' * 55}...")):
        with pytest.raises(UsageError, match="is not a range") as caught:
            expand(text)
        assert caught.value.summary.startswith(f"{shown!r}: '[x")


def test_as_many_names_and_characters_as_the_limits_say_are_not_too_many() -> None:
    assert len(expand("n[1-10000]")) == count("[1-5000],n[1-5000]") == LIMIT
    longest = "x" * (LONGEST // LIMIT - len("[1-10000]")) + "[1-10000]"
    assert count(longest) == LIMIT
    with pytest.raises(UsageError, match="expands to more than 10000 names"):
        count("x" + longest)


def test_a_value_that_stands_for_too_many_is_refused() -> None:
    assert len(expand_value("10.0.[0-99].[0-99]") or ()) == LIMIT
    for text in ("n[1-10001]", "n[1-999999999999999999]", "a[1-101]b[1-100]"):
        with pytest.raises(UsageError, match="expands to more than 10000 names"):
            expand_value(text)


def test_only_brackets_around_numbers_are_ranges_in_values() -> None:
    assert expand_value("10.0.0.2[1-3]") == ["10.0.0.21", "10.0.0.22", "10.0.0.23"]
    assert expand_value("hop-[1-2],gate") == ["hop-1,gate", "hop-2,gate"]
    assert expand_value("[fe80::1]") is None
    assert expand_value("hop-a,hop-b") is None


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gpu-1"], "gpu-1"),
        (["gpu-2", "gpu-1", "gpu-3", "gpu-1"], "gpu-[1-3]"),
        (["gpu-1", "gpu-3", "gpu-4"], "gpu-[1,3-4]"),
        (["n09", "n10", "n08"], "n[08-10]"),
        (["n9", "n10"], "n[9-10]"),
        (["n1", "n01"], "n[1,01]"),
        (["n099", "n100"], "n[099-100]"),
        (["ps-a", "gpu-1", "ps-b", "gpu-2"], "gpu-[1-2],ps-a,ps-b"),
        (["r1n1", "r1n2", "r2n1", "r2n2"], "r[1-2]n[1-2]"),
        (["r1n1", "r1n2", "r2n1"], "r1n[1-2],r2n1"),
        (["gpu1-ib0", "gpu2-ib0"], "gpu[1-2]-ib0"),
        (["10.0.0.22", "10.0.0.21", "10.0.0.5"], "10.0.0.[5,21-22]"),
        (["a10", "a9"], "a[9-10]"),
        ([f"n{number}" for number in range(11)], "n[0-10]"),
    ],
)
def test_names_are_folded_as_cluster_tools_do(names: list[str], folded: str) -> None:
    assert fold(names) == folded


def random_names(source: random.Random) -> set[str]:
    patterns = ("gpu-{}", "n{:02d}", "n{}", "rack{}-{}", "r{:03d}n{}", "{}", "ps", "10.0.{}.{}")
    return {
        source.choice(patterns).format(source.randrange(source.choice((3, 12, 120))), source.randrange(12))
        for _ in range(source.randrange(1, 60))
    }


@pytest.mark.parametrize("seed", range(200))
def test_folding_and_expanding_gives_the_same_names_each_once(seed: int) -> None:
    source = random.Random(seed)
    names = random_names(source)
    shuffled = source.sample(sorted(names), len(names))
    assert sorted(expand(fold(shuffled))) == sorted(names)
    assert fold(shuffled) == fold(names), "the order of the names must not matter"
    assert fold(expand(fold(names))) == fold(names)


@cases
@given(st.text(st.sampled_from("a1b09[]-,"), max_size=24))
def test_a_range_is_counted_as_it_is_expanded(text: str) -> None:
    try:
        names = expand(text)
    except UsageError:
        with pytest.raises(UsageError):
            count(text)
    else:
        assert count(text) == len(names)


SPANS = [
    ("500ms", 0.5),
    ("30s", 30.0),
    ("1.5m", 90.0),
    ("2h", 7200.0),
    ("7d", 604800.0),
    ("2 h", 7200.0),
    ("45", 45.0),
    ("0.5", 0.5),
]
UNFIT = ["", "s", "-1s", "1w", "1e3s", "1s 2s", "١s", "5m!", "1.s", "inf"]


@pytest.mark.parametrize(("text", "expected"), SPANS)
def test_a_span_is_the_same_in_a_file_and_in_an_option(text: str, expected: float) -> None:
    assert seconds(text) == read_duration(Scalar(text, text)) == expected
    assert seconds_ago(text, 1_000_000.0) == 1_000_000.0 - expected


@pytest.mark.parametrize("text", UNFIT)
def test_invalid_duration_is_refused_with_the_same_message(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        seconds(text)
    assert refused.value.summary == f"{text!r} is not {durations.WORDS}"
    with pytest.raises(Unfit):
        read_duration(Scalar(text, text))


@pytest.mark.parametrize("text", ["3651d", "9" * 400 + "s"])
def test_a_span_of_more_than_ten_years_was_not_meant(text: str) -> None:
    with pytest.raises(UsageError, match="at most 3650d"):
        seconds(text)
    with pytest.raises(Unfit, match="at most 3650d"):
        read_duration(Scalar(text, text))


def test_a_moment_is_a_span_or_a_time() -> None:
    assert seconds_ago("2026-05-01T12:00:00Z", 0.0) == 1777636800.0
    with pytest.raises(UsageError, match="nor a time such as"):
        seconds_ago("yesterday", 0.0)
