"""`If-None-Match` as clients write it, and as nobody does."""


import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.api.http.etags import is_known, parse_tags

TAGS = st.text(st.characters(codec="latin-1", exclude_characters='"', exclude_categories=["Cc", "Zs"]), max_size=8)
SPACE = st.sampled_from(["", " ", "\t", "  "])


@given(st.lists(st.tuples(TAGS, st.booleans(), SPACE, SPACE), max_size=6))
def test_every_tag_of_a_list_is_found_weak_or_strong(parts: list[tuple[str, bool, str, str]]) -> None:
    written = [f'{before}{"W/" if weak else ""}"{tag}"{behind}' for tag, weak, before, behind in parts]
    assert parse_tags(",".join(written)) == {tag for tag, *_ in parts} - {"*"}


@given(st.text(max_size=60))
def test_any_text_at_all_is_parsed(header: str) -> None:
    assert isinstance(parse_tags(header), frozenset)


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ('"7"', True),
        ('W/"7"', True),
        ('"6", W/"7" , "8"', True),
        (',, "7",', True),
        ("*", True),
        (" * ", True),
        ('"a,7,b"', False),
        ('"77"', False),
        ("7", False),
        ('w/"7"', False),
        ('"7" "8"', False),
        ('"*"', False),
        ("", False),
        (None, False),
    ],
)
def test_a_version_is_known_if_the_list_holds_it(header: str | None, known: bool) -> None:
    assert is_known(header, "7") is known
