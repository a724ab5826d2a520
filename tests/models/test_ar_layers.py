"""Layers that autoregressive families share: exactness, accounting, and faults of checkpoints."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from speechmill.models.common.attention import grouped_attention
from speechmill.models.common.checkpoint import Inspection, Safetensors, StateDict, Weights
from speechmill.models.common.draws import CounterDraws, stream_key
from speechmill.models.common.linear import Linear
from speechmill.models.common.norm import rms_norm
from speechmill.models.common.paged_kv import OutOfPages, PagePool, content_names
from speechmill.models.common.rope import Rope, frequencies
from speechmill.models.common.sampler import Settings, penalise, probabilities, rank, sample
from speechmill.models.stage import CheckpointError

torch.set_num_threads(1)


@pytest.mark.parametrize(("inputs", "outputs"), [(64, 176), (1024, 300), (2816, 257)])
def test_a_row_of_a_dense_layer_has_the_same_bits_among_any_number_of_rows(inputs: int, outputs: int) -> None:
    torch.manual_seed(1)
    layer, rows = Linear(torch.randn(outputs, inputs), torch.randn(outputs)), torch.randn(130, inputs)
    whole = layer(rows)
    for count in (1, 2, 3, 7, 8, 31, 64, 65):
        assert torch.equal(layer(rows[:count]), whole[:count])
        assert torch.equal(layer(rows[-count:]), whole[-count:])


def test_a_norm_is_cast_before_or_behind_its_weight() -> None:
    torch.manual_seed(3)
    rows, weight = torch.randn(50, 4, 16).bfloat16(), torch.randn(4, 16).bfloat16()
    exact = rows.float() * (rows.float().square().mean(-1, keepdim=True) + 1e-6).rsqrt()
    before, behind = (rms_norm(rows, weight, 1e-6, cast_last) for cast_last in (False, True))
    assert torch.equal(before, exact.bfloat16() * weight)
    assert torch.equal(behind, (exact * weight.float()).bfloat16())
    assert not torch.equal(before, behind)
    assert torch.equal(rms_norm(exact, weight.float(), 1e-6), rms_norm(exact, weight.float(), 1e-6, cast_last=True))


def test_grouped_attention_is_softmax_attention() -> None:
    torch.manual_seed(2)
    query, key, value = torch.randn(2, 3, 6, 8), torch.randn(2, 5, 2, 8), torch.randn(2, 5, 2, 8)
    mask = torch.ones(3, 5, dtype=torch.bool).tril(2)
    wide_key, wide_value = key.repeat_interleave(3, 2), value.repeat_interleave(3, 2)
    scores = torch.einsum("bnhd,blhd->bhnl", query, wide_key) / 8**0.5
    wanted = torch.einsum("bhnl,blhd->bnhd", scores.masked_fill(~mask, float("-inf")).softmax(-1), wide_value)
    torch.testing.assert_close(grouped_attention(query, key, value, mask), wanted)


def test_both_orders_of_rotary_pairs_turn_the_same_pairs() -> None:
    heads, positions = torch.randn(4, 2, 8), torch.tensor([0, 1, 5, 30])
    halves, pairs = (Rope(40, frequencies(8, 1e4), style) for style in ("half", "interleaved"))
    shuffled = heads.view(4, 2, 2, 4).transpose(-1, -2).reshape(4, 2, 8)
    turned = pairs.turn(shuffled, pairs.at(positions)).view(4, 2, 4, 2).transpose(-1, -2).reshape(4, 2, 8)
    torch.testing.assert_close(halves.turn(heads, halves.at(positions)), turned)
    angle = torch.tensor(30 * 1e4 ** (-2 / 8))
    wanted = heads[3, 0, 1] * angle.cos() - heads[3, 0, 5] * angle.sin()
    torch.testing.assert_close(halves.turn(heads, halves.at(positions))[3, 0, 1], wanted)


def test_draws_depend_on_their_names_alone_and_look_random() -> None:
    keys = torch.tensor([stream_key(7, 0, 0), stream_key(7, 0, 1), stream_key(8, 0, 0)])
    frames, entries = torch.tensor([0, 5, 9]), torch.arange(4096).expand(3, -1)
    drawn = CounterDraws(keys, frames)(1, entries)
    for row in range(3):
        shuffled = torch.randperm(4096)
        single = CounterDraws(keys[row : row + 1], frames[row : row + 1])
        assert torch.equal(single(1, shuffled[None])[0], drawn[row, shuffled])
        assert not torch.equal(single(2, entries[:1]), drawn[row : row + 1])
        low, high = drawn[row].min(), drawn[row].max()
        assert 0 < low < 0.01
        assert 0.99 < high < 1
        assert abs(drawn[row].mean() - 0.5) < 0.02
        assert drawn[row].unique().numel() > 4080
    assert np.abs(np.corrcoef(drawn.numpy()) - np.eye(3)).max() < 0.06


def test_sampling_follows_its_probabilities() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0, 3.0]]).expand(8000, -1)
    settings = Settings(torch.full((8000,), 0.7), torch.full((8000,), 0.99), torch.full((8000,), 3.0))
    ranked = rank(logits)
    wanted = torch.zeros(5).scatter(0, ranked.entries[0], probabilities(ranked, settings)[0])
    draws = CounterDraws(torch.full((8000,), stream_key(1)), torch.arange(8000))
    found = torch.bincount(sample(ranked, settings, draws, 0), minlength=5) / 8000
    assert torch.equal(wanted > 0, torch.tensor([True, True, False, False, True]))
    torch.testing.assert_close(found, wanted, rtol=0, atol=0.02)


def test_each_row_is_sampled_by_its_own_settings() -> None:
    torch.manual_seed(3)
    logits = torch.randn(4, 50)
    top_p, top_k = torch.tensor([0.9, 1.0, 1e-6, 1.0]), torch.tensor([50.0, 5, 9, 1e9])
    settings = Settings(torch.tensor([1.0, 0.2, 1.0, 1e-9]), top_p, top_k)
    draws = CounterDraws(torch.tensor([1, 2, 3, 4]), torch.tensor([0, 1, 2, 3]))
    together = sample(rank(logits), settings, draws, 0)
    for row in range(4):
        one = slice(row, row + 1)
        own = Settings(settings.temperature[one], settings.top_p[one], settings.top_k[one])
        single = CounterDraws(torch.tensor([row + 1]), torch.tensor([row]))
        assert sample(rank(logits[one]), own, single, 0) == together[row]
    assert together[2] == logits[2].argmax()
    assert together[3] == logits[3].argmax()


def test_a_penalty_lowers_what_was_seen_only() -> None:
    logits, seen = torch.tensor([[2.0, -2.0, 1.0]]), torch.tensor([[True, True, False]])
    assert penalise(logits, seen, torch.tensor([2.0])).tolist() == [[1.0, -4.0, 1.0]]
    assert torch.equal(penalise(logits, seen, torch.ones(1)), logits)


def test_ten_thousand_turns_of_taking_sharing_and_letting_go_lose_no_page() -> None:
    chance, pool = random.Random(4), PagePool(33)
    held: list[list[int]] = []
    for turn in range(10_000):
        act = chance.random()
        if act < 0.5:
            pages = []
            for place in range(chance.randint(1, 6)):
                name = bytes([chance.randrange(12), place])
                page = pool.share(name)
                if page is None:
                    try:
                        page = pool.take()
                    except OutOfPages:
                        break
                    pool.name(page, name)
                pages.append(page)
            held.append(pages)
        elif held:
            pool.release(held.pop(chance.randrange(len(held))))
        if turn % 50 == 0:
            pool.audit(page for pages in held for page in pages)
    for pages in held:
        pool.release(pages)
    pool.audit([])
    assert pool.available == pool.size == 32


def test_the_page_unused_longest_is_taken_first_and_its_name_goes_with_it() -> None:
    pool = PagePool(4)
    for name in (b"a", b"b", b"c"):
        page = pool.take()
        pool.name(page, name)
        pool.release([page])
    kept = pool.share(b"a")
    assert kept is not None
    pool.take()
    assert pool.share(b"b") is None
    assert pool.share(b"c") is not None
    with pytest.raises(OutOfPages):
        pool.take()


def test_a_pages_name_covers_all_rows_and_all_that_came_before() -> None:
    columns = np.arange(24).reshape(2, 12)
    names = content_names(columns, 4)
    assert len(set(names)) == 3
    assert content_names(columns[:, :11], 4) == names[:2]
    for row, place in ((0, 0), (1, 3)):
        changed = columns.copy()
        changed[row, place] += 1
        assert set(content_names(changed, 4)).isdisjoint(names)


Make = Callable[[Path], Safetensors | StateDict]


@pytest.fixture(params=["safetensors", "pth", "old pth"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Safetensors | StateDict:
    tensors = {"model.a.weight": torch.arange(6.0).view(2, 3), "model.b": torch.ones(4, dtype=torch.bfloat16)}
    if request.param == "safetensors":
        save_file(tensors, tmp_path / "model.safetensors")
        return Safetensors(tmp_path / "model.safetensors")
    zipped = request.param == "pth"
    torch.save({"state_dict": tensors, "step": 3}, tmp_path / "model.pth", _use_new_zipfile_serialization=zipped)
    return StateDict(tmp_path / "model.pth")


def test_tensors_are_taken_by_their_names_in_the_model(stored: Safetensors | StateDict) -> None:
    weights = Weights(stored, "cpu", torch.float32, lambda key: key.removeprefix("model."))
    assert weights.at("a").take("weight", (2, 3)).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert weights.take("b", (4,)).dtype == torch.float32
    assert weights.has("b")
    assert not weights.has("model.b")


def test_a_tensor_that_is_missing_or_misshapen_is_told_with_its_file(stored: Safetensors | StateDict) -> None:
    weights = Weights(stored)
    with pytest.raises(CheckpointError, match=r"model\.(safetensors|pth): model\.c \[2\] is missing$"):
        weights.at("model").take("c", (2,))
    with pytest.raises(CheckpointError, match=r"model\.(safetensors|pth): model\.b is \[4\], expected \[5\]$"):
        weights.take("model.b", (5,))
    inspection = Inspection(stored)
    assert inspection.take("model.b", (5,)).is_meta
    assert inspection.at("model").take("a.weight", (2, 3)).shape == (2, 3)
    assert inspection.findings == [f"{stored.place}: model.b is [4], expected [5]"]


@pytest.mark.parametrize("content", [b"", b"PK no archive", b"\x80\x02 no pickle"], ids=["empty", "zip", "pickle"])
@pytest.mark.parametrize("read", [Safetensors, StateDict])
def test_a_file_that_is_none_is_one_line(read: Make, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"^cannot read {path}: .*$"):
        read(path)


@pytest.mark.parametrize("read", [Safetensors, StateDict])
def test_a_file_that_git_lfs_has_not_fetched_is_told_as_such(read: Make, tmp_path: Path) -> None:
    path = tmp_path / "model"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 12\n")
    with pytest.raises(CheckpointError, match=f"^cannot read {path}: it is a git-lfs pointer, .*: download it again"):
        read(path)
