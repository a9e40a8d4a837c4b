"""The pictures that pages describe in Mermaid, drawn for the site, so that a reader's browser need not fetch anything.

python docs/pictures.py MERMAID.JS    draws them anew, in headless Chromium, with mermaid.min.js of the npm package

GitHub draws the words of a page itself; the site takes docs/images/PAGE-N.svg. `generate.py --check` compares.
"""

from __future__ import annotations

import hashlib
import html
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

DOCS = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)

_PAGE = """\
<!DOCTYPE html><html><body><script src="{script}"></script><script>
mermaid.initialize({{startOnLoad: false, theme: "neutral", htmlLabels: false, flowchart: {{htmlLabels: false}},
                    fontFamily: "Helvetica, Arial, sans-serif"}});
(async () => {{
  for (const [number, text] of {texts}.entries()) {{
    const {{svg}} = await mermaid.render("picture" + number, text);
    const place = document.createElement("div");
    place.innerHTML = svg;
    document.body.append(place);
  }}
}})();
</script></body></html>
"""


def pictures(page: Path) -> dict[Path, str]:
    """Of the site's pictures of a page each file, and the words that it is drawn from."""
    texts = BLOCK.findall(page.read_text("utf-8"))
    return {DOCS / "images" / f"{page.stem}-{number}.svg": text for number, text in enumerate(texts, 1)}


def out_of_step() -> list[Path]:
    return [
        file
        for page in sorted(DOCS.glob("*.md"))
        for file, text in pictures(page).items()
        if not file.is_file() or _mark(text) not in file.read_text("utf-8")
    ]


def _mark(text: str) -> str:
    return f"<!-- drawn from {hashlib.sha256(text.encode()).hexdigest()[:16]} -->"


def draw(page: Path, script: Path) -> None:
    wanted = pictures(page)
    if not wanted:
        return
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory, "page.html")
        file.write_text(_PAGE.format(script=script.absolute().as_uri(), texts=json.dumps(list(wanted.values()))))
        words = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=20000", "--dump-dom"]
        done = subprocess.run([*words, file.as_uri()], capture_output=True, text=True, check=True)
    drawn = re.findall(r"<svg.*?</svg>", done.stdout, re.DOTALL)
    for (target, text), svg in zip(wanted.items(), drawn, strict=True):
        target.write_text(f"{_closed(svg)}\n{_mark(text)}\n", "utf-8")


def _closed(svg: str) -> str:
    """HTML's form of it becomes XML's."""
    svg = re.sub(r"<(br|hr|img)([^<>]*?)/?>", r"<\1\2/>", svg)
    svg = re.sub(r"&(?!(?:amp|lt|gt|quot|apos|#\d+);)(\w+);", lambda found: html.unescape(found[0]), svg)
    width, height = re.search(r'viewBox="[-\d.]+ [-\d.]+ ([\d.]+) ([\d.]+)"', svg).groups()  # type: ignore[union-attr]
    svg = re.sub(r'\bwidth="100%"', f'width="{float(width):.0f}" height="{float(height):.0f}"', svg, count=1)
    return (
        svg if 'xmlns="' in svg.partition(">")[0] else svg.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    )


if __name__ == "__main__":
    for each in sorted(DOCS.glob("*.md")):
        draw(each, Path(sys.argv[1]))
