"""Sources of `speechmill submit`: what is an item of each kind of file, and what is said of bad ones."""

import io
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmill.cli.submit.sources.gather import READERS, Reading, gather
from speechmill.cli.submit.sources.item import Item
from speechmill.cli.submit.sources.lines import lines_of
from speechmill.infra.errors import BadInput


def items_of(kind: str, content: str | bytes, how: Reading | None = None) -> list[Item]:
    raw = content.encode() if isinstance(content, str) else content
    return list(READERS[kind](lines_of(io.BytesIO(raw), f"a.{kind}"), f"a.{kind}", how or Reading()))


def texts_of(kind: str, content: str, how: Reading | None = None) -> list[str]:
    return [item.request["input"] for item in items_of(kind, content, how)]


def refusal_of(kind: str, content: str | bytes) -> str:
    with pytest.raises(BadInput) as refused:
        items_of(kind, content)
    return str(refused.value)


def test_a_line_of_text_is_an_item_and_a_paragraph_if_wanted() -> None:
    content = "\ufeffOne.\r\ntwo\r\n\r\nThree.\n"
    assert texts_of("txt", content) == ["One.", "two", "Three."]
    paragraphs = items_of("txt", content, Reading(split="paragraph"))
    assert [(item.request["input"], item.where) for item in paragraphs] == [
        ("One. two", "a.txt:1"),
        ("Three.", "a.txt:4"),
    ]


def test_markdown_is_heard_without_its_markup_and_without_code() -> None:
    content = """---
title: x
---
# The *mill*

It [turns](https://example.com "t") `fast`,
**day** and ~~night~~.[^1] ![a picture](p.png)

- [x] one
- two

```python
print("no")
```

| a | b |
|---|---|
| 1 | 2 |

<div>no</div>
"""
    items = items_of("md", content)
    assert [item.request["input"] for item in items] == [
        "The mill",
        "It turns fast, day and night.",
        "one",
        "two",
        "a, b",
        "1, 2",
    ]
    assert [item.where for item in items][:3] == ["a.md:4", "a.md:6", "a.md:9"]


def test_columns_of_a_table_are_fields_of_the_api_and_empty_cells_say_nothing() -> None:
    header = "custom_id;text;speed;seed;metadata.book;word_timestamps;extra_params.top_p"
    content = f"{header}\na;Hi, you.;1.5;7;x;yes;0.5\nb;Bye.;;;;;\n"
    first, second = items_of("csv", content)
    assert first.request == {
        "input": "Hi, you.",
        "speed": 1.5,
        "seed": 7,
        "word_timestamps": True,
        "extra_params": {"top_p": 0.5},
    }
    assert first.terms == {"custom_id": "a", "metadata": {"book": "x"}}
    assert (second.request, second.terms) == ({"input": "Bye."}, {"custom_id": "b"})


def test_a_cell_may_span_lines_and_its_row_is_named_by_the_last() -> None:
    (item,) = items_of("csv", 'text,seed\n"One\ntwo",5\n')
    assert (item.request["input"], item.where) == ("One\ntwo", "a.csv:3")


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("csv", "name\nx\n", "a.csv:1: the header names no column `text` or `input`"),
        ("csv", "text,text\na,b\n", "a.csv:1: the header names 'text' twice"),
        ("csv", "text,input\na,b\n", "a.csv:2: input is given twice"),
        ("csv", "text,foo\na,b\n", "a.csv:2: 'foo' is no field of the API"),
        ("csv", "text,seed\na,much\n", "a.csv:2: seed must be a whole number, not 'much'"),
        ("csv", "text,seed\na,1,2\n", "a.csv:2: 3 cells, but the header has 2"),
        ("csv", 'text\n"open\n', "a.csv:2: unexpected end of data"),
        ("csv", "text,voice\n,heart\n", "a.csv:2: there is no text"),
        ("jsonl", "{}\n", "a.jsonl:1: there is no text"),
        ("jsonl", "\n[1]\n", "a.jsonl:2: it is no JSON object"),
        ("jsonl", '{"input": "a", "bar": 1}\n', "a.jsonl:1: 'bar' is no field of the API"),
        ("jsonl", '{"input": "a", "request": {"input": "b"}}\n', "'input' stands in the request and beside it"),
        ("jsonl", '{"input": "\\ud800"}\n', "no valid Unicode"),
        ("jsonl", '{"input": "a", "speed": NaN}\n', "no finite number"),
        ("jsonl", '{"input": "a", "custom_id": 5}\n', "custom_id must be a text"),
        ("srt", "1\nHello.\n", "a.srt:1: a cue must have a line such as"),
        ("txt", b"fine\nb\xffd\n", "a.txt:2: it is not UTF-8"),
        ("txt", "x".encode("utf-16"), "it is UTF-16; save it as UTF-8"),
    ],
)
def test_what_is_wrong_is_said_in_one_line_with_its_place(kind: str, content: str | bytes, said: str) -> None:
    told = refusal_of(kind, content)
    assert said in told
    assert "\n" not in told


def test_unknown_names_are_left_out_on_demand() -> None:
    how = Reading(ignore_unknown=True)
    assert items_of("csv", "text,foo\na,b\n", how)[0].request == {"input": "a"}
    assert items_of("jsonl", '{"text": "a", "foo": 1}', how)[0].request == {"input": "a"}


def test_json_lines_may_be_fields_or_requests_with_a_name() -> None:
    plain, named = items_of(
        "jsonl", '{"text": "a", "speed": 1.5}\n{"custom_id": "n", "request": {"input": "b"}, "metadata": {"k": "v"}}\n'
    )
    assert (plain.request, plain.terms) == ({"input": "a", "speed": 1.5}, {})
    assert (named.request, named.terms) == ({"input": "b"}, {"custom_id": "n", "metadata": {"k": "v"}})


def test_cues_are_heard_without_tags_and_keep_their_times() -> None:
    heard = "1\r\n00:00:01,500 --> 00:00:02,000\r\n<i>Hello</i>\r\n{\\an8}there.\r\n\r\n"
    srt = f"{heard}2\r\n00:01:00,000 --> 00:01:01,000\r\n\r\n"
    (cue,) = items_of("srt", srt)
    assert (cue.request["input"], cue.where) == ("Hello there.", "a.srt:2")
    assert cue.terms["metadata"] == {"start_ms": "1500", "end_ms": "2000"}
    unheard = "WEBVTT - title\n\nSTYLE\n::cue {}\n\nNOTE no\n\n"
    vtt = f"{unheard}first\n00:01.000 --> 00:02.000 align:left\n<v Ann>A &amp; b</v>\n"
    assert texts_of("vtt", vtt) == ["A & b"]


def test_a_folder_is_read_in_order_without_hidden_files_and_without_results(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "out").mkdir()
    for name in ("c.txt", "b/c.md", "b/a.srt.bak", ".hidden.txt", "out/manifest.jsonl"):
        (tmp_path / name).write_text("Some text.")
    found = list(gather([str(tmp_path)], Reading(except_below=tmp_path / "out")))
    assert [(one.label, one.number) for one in found] == [("b-c", 1), ("c", 1)]


def test_sources_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("x/a.txt", "y/a.txt", "y/a.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Some text.")
    sources = [str(tmp_path / name) for name in ("x/a.txt", "y/a.txt", "y/a.md")]
    assert [one.label for one in gather(sources, Reading())] == ["a", "a-txt", "a-md"]


def outcome_of(kind: str, content: bytes) -> str | list[Item]:
    """The items, or why there are none; anything that is raised but BadInput fails the test."""
    try:
        return items_of(kind, content)
    except BadInput as error:
        return str(error)


LIKELY = st.text(alphabet='text,input;\t"\n\r0:1-> .<>{}[]\\#*|`WEBVTT\ufeff', max_size=120).map(str.encode)


@pytest.mark.parametrize("kind", sorted(READERS))
@settings(max_examples=120)
@given(content=st.binary(max_size=80) | st.text(max_size=80).map(lambda text: text.encode(errors="replace")) | LIKELY)
def test_any_bytes_are_items_or_bad_input(kind: str, content: bytes) -> None:
    heads = {"csv": b"text,seed,metadata.a\n", "tsv": b"text\tspeed\n", "vtt": b"WEBVTT\n\n"}
    for head in (b"", heads.get(kind, b"00:00:01,000 --> 00:00:02,000\n")):
        outcome = outcome_of(kind, head + content)
        if isinstance(outcome, str):
            assert outcome.startswith(f"a.{kind}:")
        else:
            assert all(item.request["input"].strip() for item in outcome)


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(["text", "input", "request", "custom_id", "metadata", "x"]), inner, max_size=4
            )
        ),
    )
)
def test_any_json_is_an_item_or_bad_input(value: object) -> None:
    outcome = outcome_of("jsonl", json.dumps(value).encode())
    assert len(outcome) == 1 if isinstance(outcome, list) else outcome.startswith("a.jsonl:1: ")
