"""The site's own steps of mkdocs: README, CONTRIBUTING and CHANGELOG are pages too, and links are adapted."""

from __future__ import annotations

import html
import json
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


MOST_SEARCHED = 300
"""The characters of a section that a result shows; of the rest each further word is found, and stands once."""

_WORD = re.compile(r"[\w.-]{3,}")


def on_post_build(config: Any) -> None:
    """Makes the index of the search small: text without tags, and no word of a long section twice."""
    path = Path(config.site_dir, "search", "search_index.json")
    index = json.loads(path.read_text("utf-8"))
    for entry in index["docs"]:
        entry["text"] = html.escape(searched(entry["text"]), quote=False)
    path.write_text(json.dumps(index, separators=(",", ":"), ensure_ascii=False), "utf-8")


def searched(text: str) -> str:
    plain = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", text)).split())
    if len(plain) <= MOST_SEARCHED:
        return plain
    end = plain.rfind(" ", 0, MOST_SEARCHED)
    shown, rest = plain[:end], plain[end:]
    known = {word.lower() for word in _WORD.findall(shown)}
    others = {word.lower(): word for word in reversed(_WORD.findall(rest)) if word.lower() not in known}
    return " ".join([shown, *reversed(others.values())])


def _mended(found: re.Match[str], start: str) -> str:
    words, target, anchor = found.groups()
    if "://" in target:
        return found[0]
    inside = posixpath.normpath(posixpath.join(start, target))
    if inside in BESIDE:
        return f"[{words}]({BESIDE[inside]}{anchor})"
    return f"[{words}]({inside.removeprefix('docs/')}{anchor})" if inside.startswith("docs/") else words
