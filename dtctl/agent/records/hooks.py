"""The hooks of a run: hooks.json, told.json, and the input and output of a sender."""

import json
import re

from .kinds import AtMost, Default, Dict, InvalidValue, List, OneOf, Optional, Record, Unshown, also
from .values import Line, Name, Reason, Seconds

EVENTS = ("succeeded", "failed", "stopped", "restarting", "recovered", "stalled")
"""What a hook may be notified of."""

RunEventName = OneOf["succeeded", "failed", "stopped", "restarting", "recovered", "stalled"]

_HIDDEN = Unshown("one that is not shown here")

MOST_HOOKS = 20
MOST_DELIVERED = 1000
MOST_BYTES = 24 * 1024
"""Of an address with its headers: a sender is given all of it at once."""


class Post(Record):
    """A hook of the coordinator: where it posts, and what of. Address and headers may hold secrets."""

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
    """hooks.json: readable for its owner alone, on the coordinator's host alone."""

    posts: Posts


class Delivered(Record):
    """What has become of one hook."""

    events: Default[AtMost[List[Line], MOST_DELIVERED], []]
    """Ids of those that were sent to it, or will not be sent any more; the newest last."""
    tries: Default[int, 0]
    """Of the next one."""
    broken: Default[bool, False]
    """The last one could not be sent to it, which is in the run's event history."""


class HookDeliveries(Record):
    """told.json: what was delivered to each hook."""

    hooks: AtMost[Dict[Name, Delivered], MOST_HOOKS]


class Sent(Record):
    """What a sender answers: it was taken, or why not."""

    problem: Default[Optional[OneOf["answer", "redirect", "unreachable"]], None]
    text: Default[Reason, ""]
    """Without secrets."""
    again: Default[bool, False]
    """It may be taken later."""


def problem_of_url(url: str) -> str:
    """What was expected in place of an address that nothing can be posted to; empty for one that will do."""
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
