"""Qwen3-TTS's prompts, transformers and sampling against upstream's, for whichever set of goldens there is."""

import json
import re
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from driving import drive_together, payload, task
from qwen_codec_goldens import GOLDENS, cases, stored
from torch import Tensor

from speechmill.models.common.attention import PrefillAttention, RowsAttention
from speechmill.models.common.engine.engine import EngineOptions
from speechmill.models.common.engine.model import Request
from speechmill.models.common.engine.stage import TalkerStage, read_codes
from speechmill.models.common.paged_kv import PagedKv
from speechmill.models.common.params import most_likely
from speechmill.models.common.sampler import Settings, rank, warped
from speechmill.models.qwen3_tts.columns import frame_columns
from speechmill.models.qwen3_tts.config import read_config
from speechmill.models.qwen3_tts.features import Reference, pack
from speechmill.models.qwen3_tts.stages import Voice, read_voice, talker_stage
from speechmill.models.qwen3_tts.tokenizer import Tokenizer
from speechmill.models.stage import StageTask

OF_CALLERS = {"interpolation"}
"""Arithmetic that callers do; a vector that it gave is spoken in the cases of `e2e_greedy`."""
PAGE = 4


@cache
def voice(checkpoint: str, greedy: bool = True) -> Voice:
    read = read_voice(GOLDENS.folder / checkpoint, torch.device("cpu"))
    return replace(read, sampling=replace(read.sampling, top_k=1, sub_top_k=1)) if greedy else read


@cache
def stage(checkpoint: str) -> TalkerStage:
    return talker_stage(voice(checkpoint), EngineOptions(slots=16, page=PAGE, pages=1024, chunk=2 * PAGE))


def assert_close(case: dict[str, Any], found: Tensor, name: str) -> None:
    torch.testing.assert_close(found, stored(case, name).reshape(found.shape), rtol=0, atol=case["atol"])


def through(spoken: Voice, rows: Tensor) -> tuple[list[Tensor], PagedKv, Tensor]:
    """Input rows [n, width] through every layer: what goes into each and what comes of the last; and the cache."""
    transformer, pages = spoken.talker.transformer, torch.arange(-(-len(rows) // PAGE), 0, -1)
    cache = PagedKv(spoken.talker.kv, len(pages) + 2, PAGE)
    attend = PrefillAttention(cache, pages, 0, len(rows))
    turns, hidden = transformer.rope.at(torch.arange(len(rows))), [rows]
    for index, layer in enumerate(transformer.layers):
        hidden.append(layer(hidden[-1], turns, index, attend))
    return hidden, cache, pages


def test_every_kind_of_case_is_run_by_somebody() -> None:
    sources = [file.read_text() for file in Path(__file__).parent.glob("test_qwen3_tts_*.py")]
    run = {kind for source in sources for kind in re.findall(r'@cases\("(\w+)"\)', source)}
    assert {case["kind"] for case in GOLDENS.cases["cases"]} <= run | OF_CALLERS


@cases("tokenize")
def test_texts_have_upstreams_ids(case: dict[str, Any]) -> None:
    """The templates' control tokens are put in by id, as prompts are; what is between them is text."""
    folder = GOLDENS.folder / case["checkpoint"]
    tokenizer = Tokenizer(folder, read_config(folder).text_vocabulary)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    added = {token["content"]: int(id) for id, token in config["added_tokens_decoder"].items()}
    control = re.compile("(" + "|".join(map(re.escape, added)) + ")")
    templates = {
        "assistant": "<|im_start|>assistant\n{}<|im_end|>\n<|im_start|>assistant\n",
        "ref": "<|im_start|>assistant\n{}<|im_end|>\n",
        "instruct": "<|im_start|>user\n{}<|im_end|>\n",
    }
    for item in case["items"]:
        parts = control.split(templates[item["template"]].format(item["text"]))
        ids = [[added[part]] if part in added else tokenizer.encode(part) for part in parts]
        assert [*chain(*ids)] == item["ids"], item["text"]


@cases("text_projection")
def test_text_ids_have_upstreams_rows(case: dict[str, Any]) -> None:
    assert_close(case, voice(case["checkpoint"]).talker.embedding.text[stored(case, "ids").flatten()], "out")


@cases("frame_embedding")
def test_frames_have_upstreams_rows(case: dict[str, Any]) -> None:
    """A frame alone: its column without the text that runs beside it."""
    columns = frame_columns(stored(case, "codes").numpy().astype(np.uint16), [-1] * len(stored(case, "codes")))
    assert_close(case, voice(case["checkpoint"]).talker.embedding(torch.from_numpy(columns.T)), "out")


@cases("rope")
def test_positions_turn_as_upstream_s(case: dict[str, Any]) -> None:
    rope = voice(case["checkpoint"]).talker.transformer.rope
    heads = stored(case, "q")[0].transpose(0, 1)
    assert_close(case, rope.turn(heads, rope.at(stored(case, "positions"))).transpose(0, 1), "out")


@cases("talker_prefill")
def test_a_whole_prompt_has_upstreams_hidden_states_logits_keys_and_values(case: dict[str, Any]) -> None:
    spoken = voice(case["checkpoint"])
    hidden, cache, pages = through(spoken, stored(case, "inputs_embeds")[0])
    normed = spoken.talker.transformer.normed(hidden[-1])
    assert_close(case, torch.stack([*hidden[:-1], normed]), "hidden_states")
    wanted = stored(case, "logits")[0, :, spoken.talker.ids]
    torch.testing.assert_close(spoken.talker.logits(normed), wanted, rtol=0, atol=case["atol"])
    for name, part in zip(("layer0_keys", "layer0_values"), cache.read(0, pages), strict=True):
        assert_close(case, part[: len(normed)].transpose(0, 1), name)


@cases("talker_decode")
def test_rows_one_at_a_time_have_upstreams_hidden_states_and_logits(case: dict[str, Any]) -> None:
    spoken, prompt = voice(case["checkpoint"]), stored(case, "inputs_embeds")[0]
    talker, steps = spoken.talker, stored(case, "steps")[0]
    pages = torch.arange(-(-(len(prompt) + len(steps)) // PAGE), 0, -1)
    cache = PagedKv(talker.kv, len(pages) + 1, PAGE)
    talker.transformer(prompt, torch.arange(len(prompt)), PrefillAttention(cache, pages, 0, len(prompt)))
    for step, row in enumerate(steps):
        position = len(prompt) + step
        attend = RowsAttention(cache, pages[None], [position + 1])
        hidden = talker.transformer.normed(talker.transformer(row[None], torch.tensor([position]), attend))
        wanted = stored(case, "hidden")[0, step], stored(case, "logits")[0, step, talker.ids]
        for found, expected in zip((hidden[0], talker.logits(hidden)[0]), wanted, strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=case["atol"])


@cases("talker_batch")
def test_padding_takes_no_position(case: dict[str, Any]) -> None:
    """Nothing is padded here: a row alone is upstream's row among others."""
    spoken, mask = voice(case["checkpoint"]), stored(case, "attention_mask").bool()
    for row, name in enumerate(case["outputs"]):
        rows = stored(case, "inputs_embeds")[row, mask[row]]
        assert_close(case, spoken.talker.transformer.normed(through(spoken, rows)[0][-1]), name)


@cases("code_predictor")
def test_a_frame_s_other_codes_and_their_logits_are_upstreams(case: dict[str, Any]) -> None:
    predictor, wanted = voice(case["checkpoint"]).talker.predictor, stored(case, "logits")
    walk, code = predictor.walk(stored(case, "past_hidden")[:, 0]), stored(case, "code0")[:, 0]
    for group in range(1, wanted.shape[1] + 1):
        logits = predictor.logits(walk, group, code)
        torch.testing.assert_close(logits, wanted[:, group - 1], rtol=0, atol=case["atol"])
        code = logits.argmax(-1)
        assert torch.equal(code, stored(case, "codes")[:, group - 1])


@cases("sampling_filter")
def test_probabilities_are_upstreams(case: dict[str, Any]) -> None:
    talker, inputs, history = voice(case["checkpoint"]).talker, case["inputs"], stored(case, "history")
    given, ids = stored(case, "logits"), torch.tensor(talker.ids)
    count = len(given)
    limit = most_likely(inputs, "top_k", 0)
    settings = [torch.full((count,), float(each)) for each in (inputs["temperature"], inputs["top_p"], limit)]
    seen = (ids[None, :, None] == history[:, None]).any(-1)
    frames, penalty = torch.full((count,), history.shape[1]), torch.full((count,), inputs["repetition_penalty"])
    ranked = rank(talker.allowed(given[:, ids], seen, frames, penalty))
    found = torch.zeros_like(given).scatter(1, ids[ranked.entries], warped(ranked, Settings(*settings)))
    assert_close(case, found, "probs")


def tasks(case: dict[str, Any]) -> list[StageTask]:
    """Of a call of upstream: one for each of its texts."""
    inputs = case["inputs"]
    texts = inputs["text"] if isinstance(inputs["text"], list) else [inputs["text"]]

    def each(name: str) -> list[Any]:
        value = inputs.get(name)
        return value if isinstance(value, list) else [value] * len(texts)

    params = {"max_new_tokens": case.get("max_new_tokens", inputs.get("max_new_tokens"))}
    shared = {"non_streaming_mode", "x_vector_only_mode", "ref_text", "repetition_penalty"}
    if case["kind"] != "e2e_greedy":  # which takes the likeliest code, whatever else is said
        shared |= {f"{part}{name}" for part in ("", "subtalker_") for name in ("temperature", "top_p", "top_k")}
    params |= {name: inputs[name] for name in shared & inputs.keys()}
    if "voice_clone_prompt" in inputs:
        params["speaker_embedding"] = GOLDENS.tensor(inputs["voice_clone_prompt"]["ref_spk_embedding"]).tolist()
    assets = {"features": recorded(inputs["ref_audio"])} if "ref_audio" in inputs else {}
    return [
        task(text, voice=speaker or "", params=params | {"language": language, "instructions": told}, assets=assets)
        for text, speaker, language, told in zip(
            texts, each("speaker"), each("language"), each("instruct"), strict=True
        )
    ]


def recorded(audio: str) -> bytes:
    """What `encode` makes of a recording of the goldens."""
    (case,) = GOLDENS.of_kinds("voice_clone_prompt")
    suffix = next(suffix for suffix in ("", "_2") if case["inputs"][f"ref_audio{suffix}"] == audio)
    codes = case["outputs"].get(f"ref_code{suffix}")
    embedding = stored(case, f"speaker_embedding{suffix}").numpy()
    return pack(Reference(embedding, None if codes is None else GOLDENS.tensor(codes).numpy().astype(np.uint16)))


@cases("e2e_greedy")
def test_a_call_has_upstreams_prompts_text_and_codes(case: dict[str, Any]) -> None:
    spoken, asked = stage(case["checkpoint"]), tasks(case)
    requests = [spoken._plan(each) for each in asked]
    if "prompt_embeds" in case["outputs"]:
        assert_upstreams_input(case, requests)
    made = drive_together(spoken, [(each, ()) for each in asked])
    for row, emissions in enumerate(made):
        codes = read_codes(payload(emissions), voice(case["checkpoint"]).config.groups)
        assert np.array_equal(codes, stored(case, f"codes_{row}").numpy())
        assert len(codes) == case["frames"][row]
        if len(codes) < case["max_new_tokens"] - 1:
            assert (emissions[-1].trailer["finish_reason"], case["stop"][row]) == ("stop", "eos")
        else:
            assert emissions[-1].trailer["finish_reason"] == "length"


def assert_upstreams_input(case: dict[str, Any], requests: list[Request]) -> None:
    """Upstream pads shorter prompts on the left, and shorter texts at their end with what follows them anyhow."""
    embedding, close = voice(case["checkpoint"]).talker.embedding, {"rtol": 0.0, "atol": case["atol"]}
    embeds, mask, trail = (stored(case, name) for name in ("prompt_embeds", "prompt_mask", "trailing_text"))
    for row, request in enumerate(requests):
        columns, vectors = torch.from_numpy(request.prompt.T), torch.from_numpy(request.vectors)
        torch.testing.assert_close(embedding.with_vectors(columns, vectors), embeds[row, mask[row].bool()], **close)
        beside = embedding.text[torch.from_numpy(request.track(trail.shape[1]))]
        torch.testing.assert_close(beside, trail[row], **close)
        assert len(request.beside) <= trail.shape[1]


class TorchDraws:
    """Torch's own generator, from which `multinomial` takes exponential numbers for a whole vocabulary at a time."""

    def __init__(self, spoken: Voice) -> None:
        self._config, self._ids = spoken.config, torch.tensor(spoken.talker.ids)

    def __call__(self, draw: int, entries: Tensor) -> Tensor:
        drawn = torch.empty(1, self._config.residual_codes if draw else self._config.vocabulary).exponential_(1)
        return (-drawn).exp().gather(1, entries if draw else self._ids[entries])


@cases("e2e_sampled_optional")
def test_draws_as_torch_makes_them_give_upstreams_codes(case: dict[str, Any]) -> None:
    spoken = voice(case["checkpoint"], greedy=False)
    drawing = talker_stage(spoken, EngineOptions(1, PAGE, 1024), lambda keys, frames: TorchDraws(spoken))
    torch.manual_seed(case["inputs"]["torch_manual_seed"])
    (emissions,) = drive_together(drawing, [(each, ()) for each in tasks(case)])
    codes = read_codes(payload(emissions), spoken.config.groups)
    assert np.array_equal(codes, stored(case, "codes_0").numpy())
