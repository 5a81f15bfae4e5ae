"""Text is text: nothing that is not made of markup becomes any."""

from __future__ import annotations

from html.parser import HTMLParser

from hypothesis import given
from hypothesis import strategies as st

from ksearch_async.views.report.markup import joined, tag, trusted
from tests.ksearch_async.views.report.recorded import HOSTILE


class Parts(HTMLParser):
    """Keeps what a browser would see."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


@given(st.text())
def test_a_text_and_an_attribute_come_out_as_they_went_in_but_for_what_cannot_be_seen(text: str) -> None:
    seen = Parts(tag("p", text, class_=text).html)
    expected = "".join(char if char.isprintable() or char in "\n\t" else "\ufffd" for char in text)
    assert seen.tags == [("p", [("class", expected)])]
    assert seen.text == expected


def test_what_is_hostile_is_text() -> None:
    html = joined(HOSTILE, [HOSTILE, None, 3]).html
    assert Parts(html).tags == []
    assert not {"\x1b", "\u202e", "\u2066", "<"} & set(html)


def test_elements_stand_in_elements() -> None:
    html = tag("ul", [tag("li", "a & b"), tag("li", tag("b", "c"))], tag("br"), trusted("<i>ours</i>")).html
    assert html == "<ul><li>a &amp; b</li><li><b>c</b></li><br><i>ours</i></ul>"
