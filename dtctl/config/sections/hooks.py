"""The section `hooks`: who is told of the run."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from dtctl.config import values as v
from dtctl.config.sections.base import Section


class HookEntry(Section):
    """Who is told of the run, by `post` or by `run`: [notifications.md](notifications.md). `${NAME}` in `post` and in
    the values of `headers` is the value of that variable, from `trainer.env_file` or else from your own environment; it
    is treated as a secret."""

    where: ClassVar[str] = "hooks.NAME"

    on: v.HookEvents = Field(
        default=["succeeded", "failed"],
        description="what it is told of: the run has `succeeded`, has `failed` or was `stopped`; a task `stalled`, was "
        "lost and is `restarting`, or has `recovered`",
        examples=["[failed, stalled]"],
    )
    post: v.Url | None = Field(
        default=None,
        description="an address to which the coordinator posts JSON, whose `text` services such as Slack show; it "
        "needs no controller",
        examples=["${SLACK_URL}"],
    )
    headers: dict[v.HeaderName, v.HeaderValue] = Field(
        default={}, description="further headers of the post", examples=['{Authorization: "Bearer ${TOKEN}"}']
    )
    run: v.Words | None = Field(
        default=None,
        description="a command on the controller, while a command of dtctl follows the run there (`up -f`, `logs -f`, "
        "`wait`); it reads the same JSON from stdin, and finds it in variables such as `DTCTL_TEXT`",
        examples=["[./tell.sh]"],
    )
    timeout: v.HookTimeout = Field(
        default=10.0, description="how long a post or a command may take, at most 60s", examples=["5s"]
    )
