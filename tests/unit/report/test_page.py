"""The page: what hosts say stays text, nothing is fetched, and it can be read without eyes and without colours."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from markupsafe import Markup

from dtctl.agent.run.goodput import PARTS as SPENT
from dtctl.errors import DtctlError
from dtctl.model import TaskState
from dtctl.rooms.pages.comparing import Comparison, compared
from dtctl.rooms.pages.report import MARK, Report
from dtctl.rooms.pages.report_page import STYLE, markdown, page, policy
from dtctl.rooms.pages.report_page.axes import Axis, axis_of
from dtctl.rooms.pages.report_page.drawings import across, path, templates
from tests.unit.agent.poisons import left_in
from tests.unit.report.reports import EVIL, report
from tests.unit.tasks import changed, checkpoint_directory

VOID = ("meta", "link", "br", "hr", "wbr", "input")
FETCHES = ("src", "srcset", "poster", "data", "action", "formaction", "background", "xlink:href", "ping", "style")


class Read(HTMLParser):
    """What a browser makes of a page, as far as this test asks."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.declared = ""
        self.feed(text)
        self.close()

    def handle_decl(self, decl: str) -> None:
        self.declared = decl

    def handle_starttag(self, name: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append((name, dict(attributes)))
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name: str) -> None:
        assert self.open.pop() == name

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    def named(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for found, attributes in self.tags if found == name]

    def text_in(self, name: str) -> list[str]:
        return [text for where, text in self.texts if where == name]


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Read:
    file = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    file.write_text(f"name: digits\ntrainer:\n  env: {{NOTE: {EVIL!r}, API_KEY: hush-hush}}\n", encoding="utf-8")
    made = report(file)
    return Read(page(made, beside_itself(made)))


def beside_itself(made: Report) -> Comparison:
    """With a run of the same scalars, and with one that no host knows."""
    one = compared(made.status, made.scalars)
    return Comparison({"digits-1": one, EVIL: one}, {"digits-3": DtctlError(f"no host knows {EVIL}")})


def test_it_is_one_whole_document(read: Read) -> None:
    assert read.declared == "DOCTYPE html"
    assert read.open == []
    assert read.named("html") == [{"lang": "en"}]
    assert read.text_in("title")[0].startswith("digits-1: Failed")


def test_text_of_hosts_becomes_no_tag_and_no_attribute(read: Read) -> None:
    names = {name for name, _ in read.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "link", "base", "form", "audio", "video"}
    assert not [one for _, attributes in read.tags for one in attributes if one.startswith("on") or one in FETCHES]
    assert sum("<script>" in text for _, text in read.texts) >= 8, "it is there, as text"


def test_text_of_hosts_moves_and_hides_nothing(read: Read) -> None:
    assert [text for _, text in read.texts if left_in(text.replace("\n", ""))] == []


def test_nothing_is_fetched_and_nothing_may_run(read: Read) -> None:
    (rule,) = [one["content"] for one in read.named("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert rule == policy()
    assert rule.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in rule
    (style,) = read.text_in("style")
    assert style == STYLE
    assert "url(" not in STYLE
    assert "@import" not in STYLE
    assert all(str(one["href"]).startswith("#") for one in read.named("a"))


def test_every_link_leads_to_a_place_and_every_place_has_one_name(read: Read) -> None:
    ids = [str(attributes["id"]) for _, attributes in read.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert {str(one["href"])[1:] for one in read.named("a")} <= set(ids)
    assert {str(one["aria-labelledby"]) for one in read.named("section")} <= set(ids)


def test_headings_go_down_one_level_at_a_time(read: Read) -> None:
    levels = [int(name[1]) for name, _ in read.tags if re.fullmatch("h[1-6]", name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def test_drawings_have_a_name_and_a_description_or_are_hidden(read: Read) -> None:
    drawings = read.named("svg")
    shown = [one for one in drawings if one.get("aria-hidden") != "true"]
    assert len(shown) >= 6
    assert all(one["role"] == "img" and one["aria-label"] for one in shown)
    assert any("attempt 1 ended after 5" in str(one["aria-label"]) for one in shown)
    assert any("at least 0.025, at most 1" in str(one["aria-label"]) for one in shown)


def test_tables_have_captions_and_headings_and_can_be_scrolled_by_key(read: Read) -> None:
    tables = read.named("table")
    assert len(read.named("caption")) == len(tables) >= 4
    assert {one.get("scope") for one in read.named("th")} == {"col", "row"}
    regions = [one for one in read.named("div") if one.get("role") == "region"]
    assert len(regions) == len(tables)
    assert all(one["tabindex"] == "0" and one["aria-label"] for one in regions)


def test_page_shows_result_cause_goodput_and_missing_hosts(read: Read) -> None:
    page_text = "".join(text for _, text in read.texts)
    for expected in ("Failed", "your program", "worker:0 on c",
                  "45 % of the 1m40s until the outcome went into steps that",
                  "unsaved steps", "a checkpoint every 10s in place of 20s", "3.11.2", "2 CPUs, 8.0 GB",
                  "model.ckpt-45", "incomplete", "cannot reach a", "steps/s"):  # fmt: skip
        assert expected in page_text, expected


def test_runs_stand_side_by_side_and_each_has_a_curve_in_the_same_figure(tmp_path: Path) -> None:
    made = report(tmp_path / "cluster.yaml")
    found = Read(page(made, beside_itself(made)))
    assert "Side by side" in found.text_in("h2")
    assert "digits-1" in found.text_in("th")
    legend = [text for text in found.text_in("li") if text.startswith("digits-1") and ": from " in text]
    assert legend
    assert any("digits-3: no host knows" in text for text in found.text_in("p"))
    text = markdown(made, beside_itself(made))
    assert "## Side by side" in text
    assert "## Side by side" not in markdown(made)


def test_secrets_of_the_configuration_are_masked(read: Read) -> None:
    page_text = "".join(text for _, text in read.texts)
    assert "API_KEY: ***" in page_text
    assert "hush-hush" not in page_text


def test_forms_of_secrets_are_masked_in_whatever_a_host_says() -> None:
    log_text = "Cookie: session=s3cret\nhttps://x/?sig=s3cret\nDB_PASS=s3cret\n--wandb_key s3cret\n"
    made = report()
    cause = made.status.verdict.cause
    assert cause is not None
    tasks = {**made.status.tasks, cause: changed(made.status.tasks[cause], tail=log_text)}
    made = replace(made, status=replace(made.status, tasks=tasks))
    for text in (page(made), markdown(made)):
        assert "s3cret" not in text
        assert "DB_PASS=***" in text


def test_every_state_and_every_part_has_a_colour_in_both_schemes() -> None:
    for kind in (*SPENT, *(state.value for state in TaskState)):
        assert re.search(rf"\.f-{kind}\b", STYLE), kind
    used = set(re.findall(r"var\((--\w+)\)", STYLE))
    light, dark = STYLE.split("prefers-color-scheme: dark")
    assert {name for name in used if f"{name}:" not in light} == set()
    assert {name for name in used if f"{name}:" not in dark.split("}")[0]} == set()


def luminance(color: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(color[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_drawings_stand_out_from_their_ground(scheme: str) -> None:
    """WCAG 2.2: 4.5 for text, 3 for what is drawn."""
    light, dark = STYLE.split("prefers-color-scheme: dark")
    colors = dict(re.findall(r"(--\w+): (#[0-9a-f]{6})", light if scheme == "light" else dark.split("}")[0]))
    for ground in ("--page", "--panel"):
        for name in ("--text", "--soft", "--link", "--good", "--bad", "--warn", "--lost"):
            assert contrast(colors[name], colors[ground]) >= 4.5, (name, ground)
        for name in ("--wait", "--start", "--again", "--end", "--c0", "--c1", "--c2", "--c3", "--c4", "--c5"):
            assert contrast(colors[name], colors[ground]) >= 3.0, (name, ground)


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_what_is_filled_in_is_escaped_and_made_safe_unless_it_was_made_here() -> None:
    template = templates().from_string('<p title="{{ a }}">{{ a }}{{ b }}</p>')
    shown = template.render(a='"<\x1b', b=Markup("<i>"))
    assert shown == '<p title="&#34;&lt;\\x1b">&#34;&lt;\\x1b<i></p>'


def test_bars_stay_in_their_frame_and_thin_ones_can_be_seen() -> None:
    assert across(-1, 0.5) == ("0", "500", True)
    assert across(1, 1) == ("998.5", "1.5", False)


def test_a_curve_has_gaps_where_its_values_are_no_numbers() -> None:
    points = [(0.0, 0.5), (0.5, None), (1.0, 1.0)]
    assert path(points).count("M") == 2
    axis = Axis(0.0, 2.0, ())
    assert [axis.place(value) for value in (1.0, float("nan"), 9.0)] == [0.5, None, 1.0]
    assert Axis(1.0, 1.0, ()).place(1.0) == 0.5
    assert axis_of([-1.7e308, 1.7e308]).place(0.0) == 0.5


def test_markdown_has_the_same_content_and_escapes_text_of_hosts() -> None:
    text = markdown(report(Path("/nowhere/cluster.yaml")))
    assert text.split("\n")[1].startswith(MARK)
    outside = "".join(re.split(r"````\w+\n.*?\n````", text, flags=re.DOTALL)).replace(MARK, "")
    assert not re.search(r"<[a-z]", outside)
    assert "&lt;script&gt;" in outside
    assert "\\`\\|\\*\\_" in outside
    assert not left_in(text.replace("\n", ""))
    assert "**45 %** of the 1m40s" in text
    rows = [line for line in outside.split("\n") if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows if "loss" in line and "from 1 at step 0" in line} == {
        5
    }
    assert "not shown" in text


def test_markdown_contains_no_mentions() -> None:
    found = report(Path("/nowhere/cluster.yaml"))
    hosts = tuple(replace(one, greeting={"system": "@everybody and a@b"}) for one in found.hosts)
    text = markdown(replace(found, hosts=hosts))
    assert "@<!-- -->everybody and a@<!-- -->b" in text
    assert "@everybody" not in text


def test_both_say_which_checkpoints_could_not_be_looked_for() -> None:
    whole = report(Path("/nowhere/cluster.yaml"))
    (first, *others) = whole.status.checkpoints
    closed = checkpoint_directory(first.host, "/nfs/out", problem="Permission denied")
    there = replace(whole, status=replace(whole.status, checkpoints=(closed, *others)))
    assert f"- {closed.host}:/nfs/out: Permission denied" in markdown(there).split("\n")
    assert f"<p>{closed.host}:/nfs/out: Permission denied</p>" in page(there)
