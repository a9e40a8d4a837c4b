"""One line of ours in a crontab that is somebody else's."""

from __future__ import annotations

import subprocess

import pytest

from dtctl.agent.survival import reboot

OTHERS = b"MAILTO=ada\n# dtctl-agent-1 is mine\n17 4 * * * echo 'a \\% sign' \xff # dtctl-agent-12\n\n"
WORDS = ["/usr/bin/python3", "-IS", "/home/ada b/.dtctl/agent/current", "revive"]


@pytest.mark.parametrize("table", [b"", OTHERS, b"\n\n", b"@reboot true # dtctl-agent-2\r\n"])
def test_the_bytes_of_other_lines_stay(table: bytes) -> None:
    with_ours = reboot.with_lines(table, WORDS, "dtctl-agent-1")
    assert with_ours.startswith(table)
    assert with_ours.count(b"\n") == table.count(b"\n") + len(reboot.WHEN)
    assert reboot.without(with_ours, "dtctl-agent-1") == table


def test_our_line_is_there_once_and_is_replaced() -> None:
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
