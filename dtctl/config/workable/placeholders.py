"""The {fields} of command, args and env that nothing would be put in place of."""

from __future__ import annotations

from collections.abc import Iterator

from dtctl.config.fields import FIELD
from dtctl.config.launching import field_names
from dtctl.config.platform import directory_is_set, lacks_directory
from dtctl.config.sections import ClusterFile, LaunchKeys
from dtctl.config.suggest import closest
from dtctl.config.yaml.document import Findings, Path

_NEAR = 0.8
"""Other braces are the user's own: JSON, or words of the trainer."""


def check_placeholders(content: ClusterFile, findings: Findings) -> None:
    known = field_names(list(content.jobs))
    jobs_are_known, dirs_are_known = not findings.lacks_keys_of("jobs"), not findings.has("dirs")
    for path, text in _filled(content):
        for field, joiner in dict.fromkeys(FIELD.findall(text)):
            if joiner:
                if field in known:
                    summary = (
                        f"{findings.name(*path)}: {{{field}|{joiner}}} stays as it is: only `template` joins lists"
                    )
                    findings.doubt(path, summary, f"write {{{field}}} here, or use `template`")
            elif field not in known:
                if jobs_are_known and (meant := closest(field, known, _NEAR)) is not None:
                    summary = f"{findings.name(*path)}: {{{field}}} is no field, and stays as it is"
                    findings.doubt(path, summary, f"did you mean '{{{meant}}}'?")
            elif field.endswith("_dir") and dirs_are_known and not directory_is_set(field, content):
                lacks_directory(path, f"{{{field}}}", findings)


def _filled(content: ClusterFile) -> Iterator[tuple[Path, str]]:
    """Each text that fields are filled in, with its path."""
    sections: list[tuple[Path, LaunchKeys]] = [(("trainer",), content.trainer)]
    sections += [(("jobs", name), job) for name, job in content.jobs.items()]
    for path, section in sections:
        for index, word in enumerate(section.command or ()):
            yield (*path, "command", index), word
        if isinstance(section.args, dict):
            yield from (((*path, "args", name), text) for name, text in section.args.items() if isinstance(text, str))
        else:
            yield from (((*path, "args", index), word) for index, word in enumerate(section.args or ()))
        yield from (((*path, "env", name), text) for name, text in section.env.items())
    for host, entry in content.hosts.items():
        yield from ((("hosts", host, "env", name), text) for name, text in entry.env.items())
