"""The fields of a template: {task_index}, {ps_hosts}, and {ps_hosts|space} for lists that commas do not join."""

from __future__ import annotations

import re
import shlex

FIELD = re.compile(r"\{(\w+)(?:\s*\|\s*(\w+)\s*)?\}")
"""Its name, and what joins the addresses in place of commas."""

SPACE = "space"


def split_template(text: str) -> list[str]:
    """Splits like a shell, except at blanks within a field."""
    return shlex.split(FIELD.sub(lambda found: "{" + "|".join(filter(None, found.groups())) + "}", text))
