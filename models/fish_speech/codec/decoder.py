"""Codes → audio: a windowed transformer, two small upsamplings and a decoder of convolutions, all of them causal."""

from torch import Tensor

from speechmill.models.common.carry import Batch, Carry
from speechmill.models.common.checkpoint import Reader
from speechmill.models.common.codec import decoder
from speechmill.models.common.codec.waves import WaveShape
from speechmill.models.common.rvq import CodeVectors
from speechmill.models.fish_speech.codec.config import CodecConfig
from speechmill.models.fish_speech.codec.quantizer import code_vectors
from speechmill.models.fish_speech.codec.weights import Builder


class Decoder(decoder.Decoder):
    """Codes beyond a codebook are its last."""

    def __init__(self, weights: Reader, config: CodecConfig) -> None:
        builder, quantizer = Builder(weights, Carry()), config.quantizer
        self.codebooks = quantizer.codebooks
        self.vectors: CodeVectors = code_vectors(weights, quantizer)
        self.post = builder.transformer(
            "quantizer.post_module", quantizer.transformer.config, quantizer.transformer.window_size
        )
        shape = WaveShape(
            inputs=quantizer.input_dim,
            channels=config.decoder_dim,
            upsamplings=tuple(reversed(quantizer.downsample_factor)),
            rates=config.decoder_rates,
            upsample="quantizer.upsample",
            decode="decoder.model",
        )
        super().__init__(builder, shape, self.vectors.tables.device)

    def latents(self, codes: Tensor, batch: Batch) -> Tensor:
        return self.post(self.vectors(codes), batch)

    def bound(self, samples: Tensor) -> Tensor:
        return samples.tanh_()
