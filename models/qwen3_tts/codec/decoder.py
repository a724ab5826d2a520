"""Codes → audio: a convolution, a windowed transformer, two upsamplings and blocks of convolutions, all causal."""

from torch import Tensor
from torch.nn import functional as fn

from speechmill.models.common.carry import Batch, Carry
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.codec import decoder
from speechmill.models.common.codec.waves import WaveShape
from speechmill.models.common.linear import Linear
from speechmill.models.common.rvq import CodeVectors
from speechmill.models.qwen3_tts.codec.config import DecoderConfig
from speechmill.models.qwen3_tts.codec.weights import Builder, codebook


class Decoder(decoder.Decoder):
    """Codes must be among the codebooks' entries."""

    def __init__(self, weights: Reader, config: DecoderConfig) -> None:
        weights = weights.at("decoder")
        builder, width = Builder(weights, Carry()), config.transformer.layer.width
        self.codebooks = (config.entries,) * config.codebooks
        self.vectors = _vectors(weights.at("quantizer"), config)
        self.mix = builder.convolution("pre_conv", (config.latent, config.width, 3))
        self.narrow = Linear(*builder.affine("pre_transformer.input_proj", (width, config.latent)))
        self.transformer = builder.transformer("pre_transformer", config.transformer, gated=True)
        self.widen = Linear(*builder.affine("pre_transformer.output_proj", (config.latent, width)))
        shape = WaveShape(
            inputs=config.latent,
            channels=config.channels,
            upsamplings=config.upsamplings,
            rates=config.rates,
            upsample="upsample",
            decode="decoder",
        )
        super().__init__(builder, shape, self.vectors.tables.device)

    def latents(self, codes: Tensor, batch: Batch) -> Tensor:
        rows = self.mix(self.vectors(codes), batch)
        streams, frames, _ = rows.shape
        rows = self.narrow(rows.flatten(0, 1)).view(streams, frames, -1)
        return self.widen(self.transformer(rows, batch).flatten(0, 1)).view(streams, frames, -1)

    def bound(self, samples: Tensor) -> Tensor:
        return samples.clamp_(-1, 1)


def _vectors(weights: Reader, config: DecoderConfig) -> CodeVectors:
    """The semantic codebook has a projection of its own, the others share one."""
    inner = config.width // 2
    tables: list[Tensor] = []
    for part, count in (("rvq_first", 1), ("rvq_rest", config.codebooks - 1)):
        project = weights.take(f"{part}.output_proj.weight", (config.width, inner, 1))[:, :, 0]
        books = [weights.at(f"{part}.vq.layers.{index}._codebook") for index in range(count)]
        tables += [fn.linear(codebook(book, "embedding_sum", config.entries, inner), project) for book in books]
    return CodeVectors(tables)
