"""Marks in a spec's texts that only the host can replace. They hold a NUL, which no argument of a user can."""

import re

HOME, CODE, PATH = "\0HOME", "\0CODE", "\0PATH"

MARK = re.compile("\\0(HOME|CODE|PATH)")


def can_be_given(text: str) -> bool:
    """False for text that no process can be given: with a NUL that is no mark's, or with half a character."""
    if "\0" in text and "\0" in MARK.sub("", text):
        return False
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
    return True
