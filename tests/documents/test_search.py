"""Questions in the words of people who have them, typed into the site's search: the page with the answer comes first
or second.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.documents import site_search

QUESTIONS: dict[str, str | list[str]] = yaml.safe_load(
    Path(__file__).with_name("questions.yaml").read_text(encoding="utf-8")
)
"""With the page that answers each, or several."""

pytestmark = pytest.mark.xdist_group("site")


@pytest.fixture(scope="module")
def search(tmp_path_factory: pytest.TempPathFactory) -> site_search.SiteSearch:
    site = tmp_path_factory.mktemp("site")
    site_search.build(site)
    return site_search.SiteSearch(site)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_page_that_answers_is_among_the_first_two(question: str, search: site_search.SiteSearch) -> None:
    answers = QUESTIONS[question]
    wanted = {f"{page}.html" for page in ([answers] if isinstance(answers, str) else answers)}
    assert wanted & set(search.pages(question)[:2])


def test_a_word_that_no_page_has_finds_none(search: site_search.SiteSearch) -> None:
    assert search.pages("xylophone") == []
