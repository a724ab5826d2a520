"""The codebooks: one of semantic codes, then residual ones, each looked up in a few dimensions."""

from collections.abc import Iterator

from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.convolution import take_kernel
from speechmill.models.common.rvq import CodeVectors, CosineSearch
from speechmill.models.fish_speech.codec.config import QuantizerConfig


def code_vectors(weights: Reader, config: QuantizerConfig) -> CodeVectors:
    """What each code adds to a frame: its row, as it is stored, projected."""
    tables: list[Tensor] = []
    for name, entries in _books(config):
        projection = take_kernel(weights, f"{name}.out_proj", (config.input_dim, config.codebook_dim, 1))[:, :, 0]
        bias = weights.take(f"{name}.out_proj.bias", (config.input_dim,))
        tables.append(fn.linear(_codebook(weights, name, entries, config), projection, bias))
    return CodeVectors(tables)


def searches(weights: Reader, config: QuantizerConfig) -> list[CosineSearch]:
    """How the encoder chooses a code of each codebook."""
    found: list[CosineSearch] = []
    for name, entries in _books(config):
        projection = take_kernel(weights, f"{name}.in_proj", (config.codebook_dim, config.input_dim, 1))[:, :, 0]
        bias = weights.take(f"{name}.in_proj.bias", (config.codebook_dim,))
        found.append(CosineSearch.of(projection, bias, _codebook(weights, name, entries, config)))
    return found


def _codebook(weights: Reader, name: str, entries: int, config: QuantizerConfig) -> Tensor:
    return weights.take(f"{name}.codebook.weight", (entries, config.codebook_dim))


def _books(config: QuantizerConfig) -> Iterator[tuple[str, int]]:
    """Name and entries of each codebook, the semantic one first."""
    yield "quantizer.semantic_quantizer.quantizers.0", config.semantic_codebook_size
    for index in range(config.n_codebooks):
        yield f"quantizer.quantizer.quantizers.{index}", config.codebook_size
