"""What the farm says of the model that is to read."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from speechmill.cli.book.languages import english_name
from speechmill.cli.remote import Remote
from speechmill.infra.errors import BadInput


def facts_of(farm: Remote, model: str | None, times_words: bool) -> dict[str, Any]:
    """The entry of `/v1/models`, the first one where none is named.

    Raises Refused, Unreachable, and BadInput where words are to be timed and are not.
    """
    path = "/v1/models" if model is None else f"/v1/models/{quote(model, safe='')}"
    told = farm.told("GET", path)
    facts = told if model is not None else next(iter(told["data"]), None)
    if facts is None:
        raise BadInput(f"{farm.base} serves no model")
    if times_words and not facts["capabilities"]["word_timestamps"]:
        raise BadInput(f"--subtitles: nothing tells when {facts['id']} speaks which word")
    return facts


def request_of(facts: Mapping[str, Any], language: str, wishes: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of all requests: the wishes that there are, and the book's language if the model knows it."""
    can = facts["capabilities"]
    knows = can["language"] and english_name(language) in can["languages"]
    told = {**wishes, "language": language if knows else None}
    if told["speed"] == 1:
        del told["speed"]
    return {name: value for name, value in told.items() if value is not None}


def narrator(facts: Mapping[str, Any], voice: str) -> str:
    """For the file's tags: the voice by its own name, and the model."""
    own = facts["capabilities"]["default_voice"] if voice == "default" else voice
    return f"{own or voice} ({facts['id']})"
