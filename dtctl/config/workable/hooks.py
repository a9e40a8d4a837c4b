"""The section `hooks` as values, and what contradicts itself in it."""

from __future__ import annotations

from dtctl.config.sections import ClusterFile
from dtctl.config.yaml.document import Findings
from dtctl.hooks import VALUE, Hook, tokens_in

MOST = 20


def read_hooks(content: ClusterFile) -> dict[str, Hook]:
    return {
        name: Hook(
            name=name,
            on=tuple(dict.fromkeys(said.on)),
            post=said.post,
            headers=said.headers,
            run=tuple(said.run or ()),
            timeout_s=said.timeout,
        )
        for name, said in content.hooks.items()
    }


def check_hooks(content: ClusterFile, findings: Findings) -> None:
    if len(content.hooks) > MOST:
        findings.add(("hooks",), f"hooks has {len(content.hooks)} entries, expected at most {MOST}", at_key=True)
    for name, said in content.hooks.items():
        path = ("hooks", name)
        if not (said.post or said.run) and not (findings.has(*path, "post") or findings.has(*path, "run")):
            summary = f"hooks.{name} says neither post nor run"
            findings.add(path, summary, "write, for example, post: ${SLACK_URL}", at_key=True)
        if said.post and said.run:
            summary = f"hooks.{name} says both post and run, expected one of them"
            findings.add((*path, "run"), summary, "write two hooks", at_key=True)
        if said.headers and said.run:
            findings.add((*path, "headers"), f"hooks.{name}.headers belong to a post", "leave them out", at_key=True)


def doubt_hooks(content: ClusterFile, findings: Findings) -> None:
    """Secrets that stand in the file travel with it, and on the way to whom they are meant for."""
    for hook in read_hooks(content).values():
        for key in tokens_in(hook):
            path = ("hooks", hook.name, *(["post"] if key == "post" else ["headers", key]))
            summary = f"{findings.name(*path)} looks as if it held a secret, which travels with this file"
            findings.doubt(path, summary, "write ${NAME} for it, and its value to trainer.env_file or the environment")
        if hook.variables and (hook.post or "").lower().startswith("http://") and not _is_near(hook.post or ""):
            path = ("hooks", hook.name, "post")
            findings.doubt(path, f"{findings.name(*path)} sends secrets unencrypted", "write https://")


def _is_near(url: str) -> bool:
    host = VALUE.sub("x", url).partition("://")[2]
    return host.startswith(("127.", "localhost", "[::1]"))
