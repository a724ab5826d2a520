"""Names of result files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.cli.submit.naming import DEFAULT, check_template, file_name
from speechmill.infra.errors import BadInput

VALUES = {"index": 7, "custom_id": "a", "source": "notes", "voice": "heart", "model": "hibari", "ext": "wav"}


@pytest.mark.parametrize(
    ("template", "name"),
    [
        (DEFAULT, "a.wav"),
        ("{index:05d}-{custom_id}.{ext}", "00007-a.wav"),
        ("{voice}/{index}.{ext}", "heart/7.wav"),
        ("{{{index}}}.{ext}", "{7}.wav"),
    ],
)
def test_a_template_makes_the_name(template: str, name: str) -> None:
    check_template(template)
    assert file_name(template, VALUES) == name


@pytest.mark.parametrize(
    "template",
    [
        "{nothing}",
        "{index.real}",
        "{index[0]}",
        "{index!r}",
        "{index:999999999d}",
        "{custom_id:>9}",
        "{",
        "x.{ext}",
        "{}",
    ],
)
def test_a_template_with_anything_else_is_refused(template: str) -> None:
    with pytest.raises(BadInput, match="--name-template"):
        check_template(template)


@pytest.mark.parametrize(
    "template", ["../{index}", "/{index}", "{index}/", "a//{index}", "./{index}", ".speechmill/{index}", "{index}\\x"]
)
def test_a_template_that_leads_elsewhere_is_refused(template: str) -> None:
    check_template(template)
    with pytest.raises(BadInput, match="--name-template"):
        file_name(template, VALUES)


@given(st.text(min_size=1, max_size=512))
def test_any_custom_id_is_a_name_inside_of_the_folder(custom_id: str) -> None:
    try:
        name = file_name(DEFAULT, {**VALUES, "custom_id": custom_id})
    except BadInput:  # such as a name of ours, or of Windows's
        return
    assert (Path("/out") / name).resolve().parent == Path("/out")
    assert len(name.encode()) <= 255


def test_long_names_stay_different() -> None:
    long = "x" * 300
    names = {file_name(DEFAULT, {**VALUES, "custom_id": long + end}) for end in "ab"}
    assert len(names) == 2
