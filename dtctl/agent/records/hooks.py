"""The hooks of a run: hooks.json, delivered.json, and the input and output of a sender."""

import json
import re

from .kinds import AtMost, Default, Dict, InvalidValue, List, OneOf, Optional, Record, Unshown, also
from .values import MOST_TASKS, Line, Name, Reason, Seconds
from .whole_run import MOST_BAD_HOSTS, MOST_INCIDENTS

EVENTS = ("succeeded", "failed", "stopped", "restarting", "recovered", "stalled", "bad_host")
"""The events of which a hook can be notified."""

RunEventName = OneOf["succeeded", "failed", "stopped", "restarting", "recovered", "stalled", "bad_host"]

_HIDDEN = Unshown("one that is not shown here")

MOST_HOOKS = 20
MOST_DELIVERED = 2 * (MOST_TASKS + MOST_INCIDENTS) + MOST_BAD_HOSTS + 1
"""The most events of a run: a loss and its recovery for each incident that its coordinator knows, hosts to which it
attributes failures, and the end.
"""
MOST_BYTES = 24 * 1024
"""The largest size of an address with its headers, which a sender is given at once."""


class Post(Record):
    """A hook of the coordinator: its address and events. Address and headers may hold secrets."""

    name: Name
    on: AtMost[List[RunEventName], 10]
    url: AtMost[str, 8192]
    headers: Default[AtMost[Dict[Line, AtMost[str, 8192]], 50], {}]
    timeout_s: Seconds


@also(Post)
def _can_be_posted_to(post: Post) -> None:
    texts = [post["url"], *post["headers"], *post["headers"].values()]
    problem = problem_of_url(post["url"])
    if problem:
        raise InvalidValue.at(("url",), problem, _HIDDEN)
    if any(not part.isprintable() for part in texts):
        raise InvalidValue.at(("headers",), "text without control characters", _HIDDEN)
    if len(json.dumps(texts)) > MOST_BYTES:
        raise InvalidValue.at(("headers",), "at most %d bytes with the address" % MOST_BYTES, _HIDDEN)


Posts = AtMost[List[Post], MOST_HOOKS]


class HookFile(Record):
    """hooks.json: readable only by its owner, and only on the coordinator's host."""

    posts: Posts


class Delivered(Record):
    """The deliveries to one hook."""

    events: Default[AtMost[List[Line], MOST_DELIVERED], []]
    """Ids of events that were sent to it or will no longer be sent; the newest last."""
    tries: Default[int, 0]
    """The number of attempts to send the next event."""
    broken: Default[bool, False]
    """Whether the last event could not be sent to it; then the run's event history says so."""


class HookDeliveries(Record):
    """delivered.json: the deliveries to each hook."""

    hooks: AtMost[Dict[Name, Delivered], MOST_HOOKS]


class Sent(Record):
    """The answer of a sender: accepted, or why not."""

    problem: Default[Optional[OneOf["answer", "redirect", "unreachable"]], None]
    text: Default[Reason, ""]
    """The error, without secrets."""
    again: Default[bool, False]
    """Whether a later attempt may succeed."""


def problem_of_url(url: str) -> str:
    """The form that was expected instead of an unusable address; empty for a usable one."""
    scheme, _, rest = url.partition("://")
    host = re.split("[/?#]", rest, maxsplit=1)[0]
    if scheme.lower() not in ("http", "https"):
        return "an address that begins with https:// or http://"
    if "@" in host:
        return "an address without a user or password, which belong in a header"
    if not host.rpartition(":")[0].strip(":") and not host.strip(":"):
        return "an address with the name of a host"
    if not all(" " < letter < "\x7f" for letter in url):
        return "an address of ASCII letters without blanks"
    return ""
