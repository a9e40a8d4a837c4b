"""Reads TF_CONFIG: JSON, alone or as a line of an env file. Pure."""

from __future__ import annotations

import re

from dtctl.config.document import Scalar
from dtctl.config.yaml12 import parse
from dtctl.errors import Place
from dtctl.rooms.importing.found import Found, Note, Source, fail, jobs_of_addresses
from dtctl.rooms.importing.written import scalar

_ASSIGNED = re.compile(
    r"(?:^|\n)[ \t]*(?:-[ \t]+|(?:export|ENV|env)[ \t]+)?[\"']?TF_CONFIG[ \t]*[=:][ \t]*(?:[|>]-?\s+)?"
    r"(?P<quote>['\"]?)\s*(?P<json>\{)"
)
EXPECTED = 'write, for example, {"cluster": {"worker": ["a:2222", "b:2222"]}}'


def is_assignment(content: str) -> bool:
    return _ASSIGNED.search(content) is not None


def tf_config(text: Source) -> Found:
    """Raises ConfigError."""
    document = parse(_json(text.content), text.name)  # JSON is YAML, and has places here
    data = document.data
    if document.problems:
        raise fail(document.problems[0].place, document.problems[0].summary, EXPECTED)
    cluster = data.get("cluster") if isinstance(data, dict) else None
    if not isinstance(cluster, dict) or not cluster:
        at = Place(text.name) if data is None else document.value_place(())
        raise fail(at, "there is no cluster in this TF_CONFIG, expected addresses by job", EXPECTED)
    found = {}
    for job, listed in cluster.items():
        path = ("cluster", job)
        steps = list(listed.items() if isinstance(listed, dict) else enumerate(listed or ()))
        if isinstance(listed, Scalar) or any(not isinstance(one, Scalar) for _, one in steps):
            raise fail(document.value_place(path), f"cluster.{job} is no list of addresses", EXPECTED)
        if steps:
            found[job] = [(one.text, document.value_place((*path, step))) for step, one in steps]
    if not found:
        raise fail(document.value_place(("cluster",)), "no job of this cluster has an address", EXPECTED)
    machines, jobs, notes = jobs_of_addresses(found)
    more = [
        f"{key}: {scalar(data[key].text)}"
        for key in ("environment", "rpc_layer")
        if isinstance(data.get(key), Scalar) and data[key].text not in ("", "grpc")
    ]
    settings = {"tf_config": ("{" + ", ".join(more) + "}", document.value_place(("cluster",)))} if more else {}
    lead = [Note("the task of this TF_CONFIG is one of all: dtctl gives each its own", document.key_place(("task",)))]
    return Found(
        "a TF_CONFIG",
        machines,
        jobs,
        settings=settings,
        trainer={"dialect": ("tf_config", document.key_place(("cluster",)))},
        to_fill=notes,
        left_out=tuple(lead) if "task" in data else (),
    )


def _json(content: str) -> str:
    """The JSON alone, at its own lines and columns."""
    match = _ASSIGNED.search(content)
    if match is None:
        return content
    start = match.start("json")
    before = re.sub(r"[^\n]", " ", content[:start])
    quote = match["quote"]
    end = content.find(quote + "\n", start) if quote else content.find("\n", start)
    if quote and end < 0:
        end = content.rfind(quote)
    body = content[start:] if end < start else content[start:end]
    return before + (body.replace('\\"', '"') if quote == '"' else body)
