"""What is stored of a reference: the same file whether the farm made it or somebody else beforehand."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from safetensors.torch import save

from speechmill.infra.tensors import read_tensors
from speechmill.models.qwen3_tts.features import Reference, pack, unpack

SPEAKER = np.linspace(-1, 1, 6, dtype=np.float32)
CODES = np.arange(32, dtype=np.uint16).reshape(2, 16)


@pytest.mark.parametrize("codes", [CODES, None], ids=["icl", "xvec"])
def test_features_survive_the_store(codes: Any) -> None:
    found = unpack(pack(Reference(SPEAKER, codes)))
    assert np.array_equal(found.embedding, SPEAKER)
    assert found.embedding.dtype == np.float32
    assert (found.codes is None) == (codes is None)
    if found.codes is not None:
        assert np.array_equal(found.codes, CODES)
        assert found.codes.dtype == np.uint16


def test_the_same_features_are_the_same_bytes() -> None:
    assert pack(Reference(SPEAKER, CODES)) == pack(Reference(SPEAKER.copy(), CODES.copy()))


def test_what_the_farm_derived_is_a_precomputed_voice() -> None:
    tensors = read_tensors(pack(Reference(SPEAKER, CODES)))
    assert np.array_equal(tensors["speaker_embedding"], SPEAKER)
    assert np.array_equal(tensors["ref_code"], CODES)


@pytest.mark.parametrize("floats", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
@pytest.mark.parametrize("integers", [torch.int64, torch.int32, torch.int16, torch.uint8, torch.uint16], ids=str)
def test_voices_made_beforehand_come_in_numbers_of_any_size(floats: torch.dtype, integers: torch.dtype) -> None:
    codes = torch.from_numpy(CODES.astype(np.int64)).to(integers)
    found = unpack(save({"speaker_embedding": torch.ones(1, 6, dtype=floats), "ref_code": codes}))
    assert np.array_equal(found.embedding, np.ones(6, np.float32))
    assert found.codes is not None
    assert np.array_equal(found.codes, CODES)


ones, codes = torch.ones(4), torch.ones(3, 16, dtype=torch.int64)
BAD = {
    "no embedding": save({"ref_code": codes}),
    "empty embedding": save({"speaker_embedding": ones[:0]}),
    "embedding of integers": save({"speaker_embedding": codes}),
    "not a number": save({"speaker_embedding": ones * float("nan")}),
    "no frames": save({"speaker_embedding": ones, "ref_code": codes[:0]}),
    "flat codes": save({"speaker_embedding": ones, "ref_code": codes[0].clone()}),
    "codes of fractions": save({"speaker_embedding": ones, "ref_code": codes.float()}),
    "codes below zero": save({"speaker_embedding": ones, "ref_code": -codes}),
    "codes beyond any": save({"speaker_embedding": ones, "ref_code": codes << 16}),
    "cut": pack(Reference(SPEAKER, CODES))[:-1],
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_features_that_cannot_be_are_refused(bad: bytes) -> None:
    with pytest.raises(ValueError, match=r"qwen3_tts|speaker_embedding|ref_code"):
        unpack(bad)


@given(st.binary(max_size=64))
@example((8).to_bytes(8, "little") + b'{"a":{}}')
def test_garbage_is_no_features(garbage: bytes) -> None:
    with pytest.raises(ValueError, match="qwen3_tts"):
        unpack(garbage)
