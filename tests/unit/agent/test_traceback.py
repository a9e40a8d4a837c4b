"""Tracebacks at the end of logs: the user's own place, and the frames of libraries in one line."""

from __future__ import annotations

import pytest

from dtctl.agent.run.traceback import folded, is_folded, kept, lines_of, own_place, raised, start_of

SITE = "/home/ada/.venv/lib/python3.11/site-packages"
OWN = """step 1
step 2
Traceback (most recent call last):
  File "/home/ada/.dtctl/work/digits/tree/train.py", line 16, in <module>
    main()
  File "/home/ada/.dtctl/work/digits/tree/src/model.py", line 7, in main
    fit(x)
       ^^^
"""
LIBRARY = f"""  File "{SITE}/keras/src/utils/traceback_utils.py", line 122, in error_handler
    raise e.with_traceback(filtered_tb) from None
  File "{SITE}/tensorflow/python/ops.py", line 9, in run
    return inner(
               ^^
        more=1)
  File "/usr/lib/python3.11/threading.py", line 1, in wait
    lock.acquire()
"""
LOG = f"{OWN}{LIBRARY}ValueError: bad shape\n"


def test_the_place_is_the_innermost_frame_of_the_users_code_as_it_is_in_the_project() -> None:
    assert own_place(lines_of(LOG)) == "src/model.py:7"
    assert own_place(lines_of("ValueError: bad shape\n")) == ""
    assert own_place(lines_of(LOG.replace("/home/ada/.dtctl/work/digits/tree/", "/data/lib/"))) == "model.py:7"


def test_frames_of_libraries_are_one_line_that_names_them() -> None:
    lines = folded(lines_of(LOG))
    assert lines[3:9] == [
        '  File "/home/ada/.dtctl/work/digits/tree/train.py", line 16, in <module>',
        "    main()",
        '  File "/home/ada/.dtctl/work/digits/tree/src/model.py", line 7, in main',
        "    fit(x)",
        "  [... 3 frames of keras, tensorflow, Python]",
        "ValueError: bad shape",
    ]
    assert [is_folded(line) for line in lines[3:9]] == [False, False, False, False, True, False]
    assert folded(lines) == lines


def test_a_traceback_begins_with_the_first_of_its_chain() -> None:
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    lines = lines_of(f"Traceback (most recent call last):\n  old\nretrying\n{LOG}{chain}{OWN[14:]}KeyError: 'x'\n")
    start = start_of(lines)
    assert start is not None
    assert lines[start - 1] == "step 2"
    assert start_of(["step 1"]) is None


def test_the_ranks_of_pytorch_are_no_part_of_a_traceback() -> None:
    ranked = "".join(f"[rank1]: {line}\n" for line in LOG.splitlines())
    assert own_place(lines_of(ranked)) == "src/model.py:7"


@pytest.mark.parametrize(
    ("log", "cause", "found"),
    [
        (LOG, "ValueError: bad shape", ("ValueError", "bad shape")),
        ("KeyError: 'x'\n", "KeyError: 'x'", ("KeyError", "'x'")),
        (f"{OWN}my.Diverged: loss\n", "Diverged: loss", ("Diverged", "loss")),
        ("Usage: this\n", "Usage: this", ("", "")),
        ("usage\n", "unrecognized arguments: --step", ("", "")),
        (LOG, "", ("", "")),
    ],
)
def test_a_cause_is_an_exception_or_something_else(log: str, cause: str, found: tuple[str, str]) -> None:
    assert raised(lines_of(log), cause) == found


def test_what_is_kept_of_a_long_traceback_begins_with_it() -> None:
    long = f"{OWN}{LIBRARY * 40}ValueError: bad shape"
    assert len(long) > 4096
    short = kept(long, 2048)
    assert short.startswith("Traceback (most recent call last):\n")
    assert short.endswith("  [... 120 frames of keras, tensorflow, Python]\nValueError: bad shape")
    assert kept(LOG, 2048) == LOG
    steps = "".join(f"step {n}\n" for n in range(1000))
    assert kept(steps, 100).startswith("step 98")
    assert len(kept(steps, 100)) <= 100
