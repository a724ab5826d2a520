"""Fish Speech's prompts, transformers and sampling against upstream's, for whichever set of goldens there is."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from driving import drive, payload, task
from fish_codec_goldens import (  # noqa: F401  the other half of the cases
    test_codes_become_audio,
    test_codes_beyond_a_codebook_are_its_last,
    test_codes_in_chunks_become_the_same_audio,
    test_each_step_of_decoding_is_as_it_should_be,
    test_each_step_of_encoding_is_as_it_should_be,
    test_positions_turn_as_in_training,
    test_recordings_become_codes,
    test_recordings_come_to_the_codec_s_rate,
    test_what_the_model_spoke_becomes_audio,
)
from goldens import Goldens
from torch import Tensor

from speechmill.models.common.attention import PrefillAttention, RowsAttention
from speechmill.models.common.draws import Draws
from speechmill.models.common.engine.engine import EngineOptions
from speechmill.models.common.engine.model import Codes
from speechmill.models.common.paged_kv import KvShape, PagedKv
from speechmill.models.common.sampler import Settings, probabilities, race, rank, repeats, shifted
from speechmill.models.fish_speech.codec.features import pack
from speechmill.models.fish_speech.prompt import Spoken, batches, split_turns
from speechmill.models.fish_speech.stages import Voice, read_voice, talker_stage
from speechmill.models.fish_speech.talker import Codebooks
from speechmill.models.stage import StageTask

GOLDENS = Goldens("fish_speech")
CASES = GOLDENS.cases
PAGE = 16
CLOSE = {"rtol": 0.0, "atol": 1e-4}


@cache
def voice(folder: str = "ckpt") -> Voice:
    return read_voice(GOLDENS.folder / folder, torch.device("cpu"))


def codes(name: str) -> Codes:
    """Stored [codebooks, frames] → [frames, codebooks]."""
    return GOLDENS.tensor(name).T.numpy().astype(np.uint16)


def spoken(texts: Sequence[str], names: Sequence[str]) -> list[Spoken]:
    return [Spoken(text, codes(name)) for text, name in zip(texts, names, strict=True)]


def clone_prompt() -> Tensor:
    """Columns as rows [length, 1 + codebooks]."""
    return GOLDENS.tensor("prompt.clone1").T.contiguous()


def cache_for(loaded: Voice, length: int) -> tuple[PagedKv, Tensor]:
    """An empty cache and the pages of one sequence, out of order."""
    pages = -(-length // PAGE)
    return PagedKv(loaded.talker.kv, pages + 1, PAGE), torch.arange(pages, 0, -1)


def hidden(loaded: Voice, columns: Tensor) -> Tensor:
    cache, pages = cache_for(loaded, len(columns))
    attend = PrefillAttention(cache, pages, 0, len(columns))
    return loaded.talker.hidden(columns, torch.arange(len(columns)), attend)


@pytest.mark.parametrize("case", CASES["prompts"], ids=lambda case: case["name"])
def test_a_prompt_is_upstreams_to_the_id(case: dict[str, Any]) -> None:
    references = spoken(case["ref_texts"], case["ref_codes"])
    history = spoken([turn["text"] for turn in case["history"]], [turn["codes"] for turn in case["history"]])
    built = voice().prompts.build(case["text"], references, history)
    assert torch.equal(torch.from_numpy(built), GOLDENS.tensor(case["values"]))


@pytest.mark.parametrize("case", CASES["split"], ids=lambda case: f"{case['chunk_length']}-{len(case['batches'])}")
def test_a_text_is_cut_into_upstreams_turns_and_batches(case: dict[str, Any]) -> None:
    assert split_turns(case["text"]) == case["turns"]
    assert batches(case["text"], case["chunk_length"]) == case["batches"]


def test_embeddings_and_the_first_layer_are_upstreams() -> None:
    rows = voice().talker.embed(clone_prompt())
    torch.testing.assert_close(rows, GOLDENS.tensor("ar.embed"), **CLOSE)
    cache, pages = cache_for(voice(), len(rows))
    attend = PrefillAttention(cache, pages, 0, len(rows))
    slow = voice().talker.slow
    first = slow.layers[0](rows, slow.rope.at(torch.arange(len(rows))), 0, attend)
    torch.testing.assert_close(first, GOLDENS.tensor("ar.layer0"), **CLOSE)


def test_a_whole_prompt_gives_upstreams_hidden_states_and_logits() -> None:
    talker = voice().talker
    rows = hidden(voice(), clone_prompt())
    torch.testing.assert_close(talker.slow.normed(rows), GOLDENS.tensor("ar.hidden_normed"), **CLOSE)
    torch.testing.assert_close(talker.logits(rows), GOLDENS.tensor("ar.logits")[:, talker.tokens], **CLOSE)


def test_columns_one_at_a_time_give_upstreams_hidden_states_and_logits() -> None:
    talker, prompt, following = voice().talker, clone_prompt(), GOLDENS.tensor("ar.decode_in").T
    cache, pages = cache_for(voice(), len(prompt) + len(following))
    talker.hidden(prompt, torch.arange(len(prompt)), PrefillAttention(cache, pages, 0, len(prompt)))
    for step, column in enumerate(following):
        position = len(prompt) + step
        attend = RowsAttention(cache, pages[None], [position + 1])
        row = talker.hidden(column[None], torch.tensor([position]), attend)
        torch.testing.assert_close(talker.slow.normed(row)[0], GOLDENS.tensor("ar.decode_hidden")[step], **CLOSE)
        wanted = GOLDENS.tensor("ar.decode_logits")[step, talker.tokens]
        torch.testing.assert_close(talker.logits(row)[0], wanted, **CLOSE)


def test_rows_over_pages_get_plain_softmax_attention() -> None:
    """Each row's own key and value are not in the cache yet: they come with its query."""
    query, keys, values = (GOLDENS.tensor(f"attn.{name}") for name in ("q", "k_pages", "v_pages"))
    tables, lengths = GOLDENS.tensor("attn.block_table"), GOLDENS.tensor("attn.lens")
    pages, page, kv_heads, size = keys.shape
    cache = PagedKv(KvShape(1, kv_heads, size, keys.dtype, keys.device), pages, page)
    own = cache.places(tables, lengths[:, None] - 1)[:, 0]
    cache.keys[0], cache.values[0] = keys, values
    for part in (cache.keys, cache.values):
        part[0].flatten(0, 1)[own] = torch.nan
    attend = RowsAttention(cache, tables, lengths.tolist())
    found = attend(0, query, keys.flatten(0, 1)[own], values.flatten(0, 1)[own])
    torch.testing.assert_close(found, GOLDENS.tensor("attn.out"), rtol=0, atol=1e-5)


def test_the_fast_transformer_gives_upstreams_logits_for_every_codebook() -> None:
    """A set of another slow width may store the hidden states before they are projected."""
    given, wanted = GOLDENS.tensor("fast.codes_in"), GOLDENS.tensor("fast.logits")
    talker, entering = voice().talker, GOLDENS.tensor("fast.hidden_in")
    if talker._project is not None and entering.shape[1] == talker.config.slow.width:
        entering = talker._project(entering)
    books = Codebooks(talker, entering)
    for book in range(1, voice().config.codebooks):
        torch.testing.assert_close(books.logits(given[book - 1]), wanted[:, book], **CLOSE)


def test_rotary_tables_are_upstreams() -> None:
    wanted = GOLDENS.tensor("rope.slow_first")
    turns = voice().talker.slow.rope.at(torch.arange(len(wanted)))[:, 0]
    torch.testing.assert_close(torch.view_as_real(turns), wanted, rtol=0, atol=1e-6)


def test_the_older_layout_gives_upstreams_hidden_states_and_logits() -> None:
    older = voice("legacy")
    rows = hidden(older, clone_prompt())
    last = GOLDENS.tensor("legacy.hidden_last")
    torch.testing.assert_close(rows[-len(last) :], last, **CLOSE)
    torch.testing.assert_close(
        older.talker.logits(rows[-len(last) :]), GOLDENS.tensor("legacy.logits_last")[:, older.talker.tokens], **CLOSE
    )
    entering = older.talker.fast_input(rows[-1:])
    torch.testing.assert_close(entering[0], GOLDENS.tensor("legacy.fast_in").flatten(), **CLOSE)
    books, wanted = Codebooks(older.talker, entering), GOLDENS.tensor("legacy.fast_logits")
    for book in range(1, older.config.codebooks):
        previous = GOLDENS.tensor("ref.codes1")[book - 1, :1]
        torch.testing.assert_close(books.logits(previous)[0], wanted[book], **CLOSE)


def of_one(case: dict[str, Any]) -> Settings:
    return Settings(*(torch.tensor([float(case[name])]) for name in ("temperature", "top_p", "top_k")))


@pytest.mark.parametrize("case", CASES["sampler"], ids=lambda case: str(case["i"]))
def test_probabilities_and_the_drawn_token_are_upstreams(case: dict[str, Any]) -> None:
    stored = {name: GOLDENS.tensor(f"sampler.{case['i']}.{name}").flatten() for name in ("logits", "probs", "uniform")}
    ranked = rank(stored["logits"][None])
    found = probabilities(ranked, of_one(case))
    back = torch.zeros_like(found).scatter(1, ranked.entries, found)[0]
    torch.testing.assert_close(back, stored["probs"], rtol=0, atol=1e-6)
    assert race(ranked, found, stored["uniform"][ranked.entries]).item() == case["token"]


def test_a_repeated_token_is_replaced_where_upstream_does() -> None:
    case, logits, uniforms = CASES["ras"], GOLDENS.tensor("ras.logits"), GOLDENS.tensor("ras.uniform")
    low, high = case["semantic"]
    allowed = torch.zeros(case["vocab"], dtype=torch.bool)
    allowed[low : high + 1] = allowed[case["im_end"]] = True
    settings = of_one(case)
    bolder = of_one({**case, "temperature": case["high_temperature"], "top_p": case["high_top_p"]})
    window = torch.zeros(1, case["window"], dtype=torch.long)
    found = []
    for row, draws in zip(logits, uniforms, strict=True):
        ranked = rank(row.masked_fill(~allowed, float("-inf"))[None])
        pair = [race(ranked, probabilities(ranked, each), draw[ranked.entries])
                for each, draw in zip((settings, bolder), draws, strict=True)]  # fmt: skip
        token = pair[1] if repeats(pair[0], window) and low <= pair[0] <= high else pair[0]
        window = shifted(window, token)
        found.append(token.item())
    assert found == GOLDENS.tensor("ras.tokens").tolist()


class GoldenDraws:
    """The uniform numbers that upstream drew, in place of our own."""

    def __init__(self, slow: Tensor, fast: Tensor, frames: Tensor) -> None:
        self._slow, self._fast, self._frames = slow, fast, frames

    def __call__(self, draw: int, entries: Tensor) -> Tensor:
        drawn = self._slow[self._frames, draw] if draw < 2 else self._fast[self._frames, draw - 2]
        return drawn.gather(1, entries)


@pytest.mark.parametrize("case", CASES["e2e"], ids=lambda case: case["name"])
def test_a_conversation_has_upstreams_codes(case: dict[str, Any]) -> None:
    """Upstream loses the last frame of a turn that reaches its budget; it is kept here.

    What upstream stores does not tell such a turn from one whose last allowed token ends it.
    """

    def draws(keys: Tensor, frames: Tensor) -> Draws:
        stored = [GOLDENS.tensor(case["draws"][kind]) for kind in ("slow", "fast")]
        return GoldenDraws(stored[0], stored[1], frames)

    options = EngineOptions(slots=2, page=PAGE, pages=256, chunk=2 * PAGE)
    stage = talker_stage(voice(), options, draws) if "draws" in case else talker_stage(voice(), options)
    params = dict(case["params"])
    assert [each["text"] for each in case["batches"]] == batches(case["text"], params.pop("chunk_length", 512))
    references = spoken(case["ref_texts"], case["ref_codes"])
    history: list[tuple[str, bytes]] = []
    for segment, batch in enumerate(case["batches"]):
        asked = conversation_task(batch["text"], references, history, params, segment)
        emissions = drive(stage, asked)
        wanted = codes(batch["codes"])
        found = np.frombuffer(payload(emissions), "<u2").reshape(-1, voice().config.codebooks)
        assert np.array_equal(found[: batch["frames"]], wanted)
        reason = emissions[-1].trailer["finish_reason"]
        assert reason == "stop" or (reason == "length" and batch["frames"] == params["max_new_tokens"] - 1)
        assert len(found) == batch["frames"] + (reason == "length")
        history.append((batch["text"], found[: batch["frames"]].tobytes()))


def conversation_task(
    text: str, references: Sequence[Spoken], history: Sequence[tuple[str, bytes]], params: dict[str, Any], segment: int
) -> StageTask:
    """Several references at once come as one recording whose words carry the speakers' tags."""
    texts = [each.text for each in references]
    tagged = [text if "<|speaker:" in text else f"<|speaker:{number}|>{text}" for number, text in enumerate(texts)]
    assets = {}
    if references:
        params = {**params, "ref_text": "\n".join(tagged)}
        assets["features"] = pack(np.concatenate([each.codes for each in references]).T)
    return task(text, params=params, assets=assets, history=tuple(history), segment=segment)
