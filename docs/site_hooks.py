"""The site's own steps of mkdocs: README, CONTRIBUTING and CHANGELOG are pages too, and links are adapted."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
BESIDE = {"README.md": "index.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Files above `docs`, and the pages that they are."""

_LINK = re.compile(r"\[([^\]]*)\]\(([^)#\s]+)((?:#[^)]*)?)\)")


def on_files(files: Files, config: Any) -> Files:
    for name, page in BESIDE.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links that are right in a checkout become right in the site; of those to code the words stay."""
    if page.parent and page.parent.title == "Development":
        page.meta["search"] = {"boost": 0.01}  # below every page for users
    start = "" if page.file.src_uri in BESIDE.values() else "docs"
    return _LINK.sub(lambda found: _mended(found, start), markdown)


def _mended(found: re.Match[str], start: str) -> str:
    words, target, anchor = found.groups()
    if "://" in target:
        return found[0]
    inside = posixpath.normpath(posixpath.join(start, target))
    if inside in BESIDE:
        return f"[{words}]({BESIDE[inside]}{anchor})"
    return f"[{words}]({inside.removeprefix('docs/')}{anchor})" if inside.startswith("docs/") else words
