"""How Qwen3-TTS hears a speaker: upstream's vectors from upstream's recordings, at whatever rate they come."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from qwen_codec_goldens import assert_close, cases, checkpoint, encode, encoder, speaker, stored

from speechmill.models.common.resample import resample_by_soxr
from speechmill.models.qwen3_tts.speaker.check import check
from speechmill.models.qwen3_tts.speaker.config import read_config
from speechmill.models.stage import CheckpointError


@cases("mel")
def test_a_recording_has_upstreams_mel_spectrogram(case: dict[str, Any]) -> None:
    assert_close(case, speaker().mel(stored(case, "audio")).T, "mel")


@cases("speaker_encoder")
def test_each_step_of_the_encoder_is_as_it_should_be(case: dict[str, Any]) -> None:
    made = speaker(case["checkpoint"])
    rows = made.enter(stored(case, "mel")[0].T).relu()
    assert_close(case, rows, "block_0")
    found = []
    for index, block in enumerate(made.blocks, 1):
        rows = block(rows)
        assert_close(case, rows, f"block_{index}")
        found.append(rows)
    merged = made.merge(torch.cat(found)).relu()
    assert_close(case, merged, "mfa")
    pooled = made.pool(merged)
    assert_close(case, pooled[:, None], "asp")
    assert_close(case, made.leave(pooled[:, None])[:, 0], "embedding")


@cases("resample")
def test_a_recording_at_another_rate_is_heard_as_upstream_hears_it(case: dict[str, Any]) -> None:
    made = speaker(case["checkpoint"])
    found = resample_by_soxr(stored(case, "audio"), case["inputs"]["sample_rate"], made.sample_rate)
    assert_close(case, found, "audio_24k")
    assert_close(case, made(found), "embedding")


@cases("voice_clone_prompt")
def test_a_recording_has_upstreams_vector_and_codes(case: dict[str, Any]) -> None:
    made = speaker(case["checkpoint"])
    assert case["inputs"]["sample_rate"] == made.sample_rate
    for suffix in ("", "_2"):
        assert_close(case, made(stored(case, f"ref_audio{suffix}")), f"speaker_embedding{suffix}")
    codes = encode(encoder(case["checkpoint"]), stored(case, "ref_audio"))
    assert torch.equal(codes, stored(case, "ref_code"))


def test_the_shortest_recording_that_is_taken_can_be_heard() -> None:
    assert speaker()(torch.ones(speaker().shortest)).isfinite().all()


def test_a_config_without_what_every_release_shares_is_a_release_s(tmp_path: Path) -> None:
    told = {"talker_config": {"hidden_size": 8}, "speaker_encoder_config": {"enc_dim": 8, "sample_rate": 24000}}
    (tmp_path / "config.json").write_text(json.dumps(told))
    config = read_config(tmp_path)
    assert (config.bands, config.channels, config.squeezed) == (128, (512, 512, 512, 512, 1536), 128)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"enc_dim": 7}, "enc_dim"),
        ({"enc_kernel_sizes": [3, 3]}, "enc_kernel_sizes"),
        ({"enc_res2net_scale": 3}, "enc_res2net_scale"),
        ({"sample_rate": "fast"}, "sample_rate"),
    ],
    ids=str,
)
def test_a_config_that_cannot_be_is_told_by_its_field(tmp_path: Path, change: dict[str, Any], named: str) -> None:
    told = {"enc_dim": 8, "sample_rate": 24000} | change
    told = {"talker_config": {"hidden_size": 8}, "speaker_encoder_config": told}
    (tmp_path / "config.json").write_text(json.dumps(told))
    with pytest.raises(CheckpointError, match=named):
        read_config(tmp_path)


def test_a_checkpoint_is_checked_without_its_tensors(tmp_path: Path) -> None:
    assert check(checkpoint()) == []
    (finding,) = check(tmp_path)
    assert "config.json" in finding
