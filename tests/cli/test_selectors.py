"""Selectors are read as the server will read them, and a slip is told with its place."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlead.cli import selectors
from fairlead.cli.selectors import BadSelector, Requirement


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", ""),
        ("a=b", "a=b"),
        ("a==b", "a=b"),
        ("a = b , c!=d", "a=b,c!=d"),
        ("tier in (critical, standard),!old", "tier in (critical,standard),!old"),
        ("k notin (x)", "k notin (x)"),
        ("fairlead.dev/pool=a_b.c", "fairlead.dev/pool=a_b.c"),
        ("a=", "a="),
        ("a", "a"),
    ],
)
def test_what_a_label_selector_means(text: str, canonical: str) -> None:
    assert selectors.text_of(selectors.labels(text)) == canonical


@pytest.mark.parametrize(
    "text", ["a in (b", "a)b(", "a=b=c", "=b", "a in b", "a b", "a,,b", "-a=b", "a=b c", "a in ((b))", "a=/"]
)
def test_a_bad_label_selector_is_told(text: str) -> None:
    with pytest.raises(BadSelector, match="-l:"):
        selectors.labels(text)


def test_field_selectors() -> None:
    found = selectors.fields("metadata.name=a, status.phase!=x,spec.region==eu,involvedObject.namespace=")
    assert selectors.text_of(found) == "metadata.name=a,status.phase!=x,spec.region=eu,involvedObject.namespace="
    for text in ("metadata.name", "=x", "a=b=c", "1a=b"):
        with pytest.raises(BadSelector, match="--field-selector"):
            selectors.fields(text)


words = st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,5}[A-Za-z0-9])?", fullmatch=True)
requirements = st.one_of(
    st.builds(Requirement, words, st.sampled_from(["=", "!="]), st.tuples(words)),
    st.builds(Requirement, words, st.sampled_from(["in", "notin"]), st.lists(words, min_size=1, max_size=3).map(tuple)),
    st.builds(Requirement, words, st.sampled_from(["exists", "!"]), st.just(())),
)


@given(st.lists(requirements, max_size=4).map(tuple))
def test_what_is_written_is_what_is_read(wanted: tuple[Requirement, ...]) -> None:
    assert selectors.labels(selectors.text_of(wanted)) == wanted


@given(st.text(alphabet="ab=!,() in-./_\n", max_size=30))
def test_any_text_is_a_selector_or_a_told_mistake(text: str) -> None:
    for read in (selectors.labels, selectors.fields):
        try:
            found = read(text)
        except BadSelector:
            continue
        assert read(selectors.text_of(found)) == found
