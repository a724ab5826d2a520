"""Where the codec's parameters lie, and the layers that are named or stored otherwise than DAC's."""

from pathlib import Path

import torch
from torch import Tensor

from speechmill.models.common.causal_blocks import Snake
from speechmill.models.common.checkpoint import Reader, Safetensors
from speechmill.models.common.codec import builder
from speechmill.models.common.codec.decoder import POSITIONS
from speechmill.models.common.rope import Rope, frequencies
from speechmill.models.common.transformer import LayerShape
from speechmill.models.common.window_transformer import Norm, WindowLayerWeights, WindowShape, WindowTransformer
from speechmill.models.qwen3_tts.codec.config import FOLDER, TransformerConfig

_LEAST_USAGE = 1e-5


def open_source(folder: Path) -> Safetensors:
    """The codec's file in the checkpoint `folder`. Raises CheckpointError for one that cannot be read."""
    return Safetensors(folder / FOLDER / "model.safetensors")


def codebook(weights: Reader, total: str, entries: int, width: int) -> Tensor:
    """[entries, width]: sums of the vectors that fell to each entry, called `total`, over how many there were."""
    usage = weights.take("cluster_usage", (entries,)).clamp(min=_LEAST_USAGE)
    return weights.take(total, (entries, width)) / usage[:, None]


class Builder(builder.Builder):
    """Makes the layers of the decoder or the encoder, in its order, under the names of the checkpoint."""

    UNIT = ("act1", "conv1", "act2", "conv2")

    def snake(self, name: str, channels: int) -> Snake:
        """Stored are logarithms."""
        alpha, beta = (self.weights.take(f"{name}.{part}", (channels,)).exp() for part in ("alpha", "beta"))
        return Snake(alpha, beta)

    def transformer(self, name: str, config: TransformerConfig, gated: bool) -> WindowTransformer:
        """`gated`: the decoder's, with RMSNorm and SwiGLU and a last norm; else the encoder's, LayerNorm and GELU."""
        weights, layer = self.weights.at(name), config.layer
        layers = [_layer(weights.at(f"layers.{index}"), layer, gated) for index in range(layer.layers)]
        shape = WindowShape(layer.heads, layer.kv_heads, layer.size, config.window, layer.eps)
        device = layers[0].up.device
        rope = Rope(POSITIONS, frequencies(layer.size, config.rope_base), "half", device=device)
        norm = _norm(weights, "norm", layer.width, biased=False) if gated else None
        return WindowTransformer(layers, norm, shape, rope, self.carry)


def _layer(weights: Reader, shape: LayerShape, gated: bool) -> WindowLayerWeights:
    width, hidden = shape.width, shape.hidden
    inner, kv = shape.heads * shape.size, shape.kv_heads * shape.size
    attention, feed = weights.at("self_attn"), weights.at("mlp")
    up, down = ("up_proj", "down_proj") if gated else ("fc1", "fc2")
    rows = {"q_proj": inner, "k_proj": kv, "v_proj": kv}
    return WindowLayerWeights(
        qkv=torch.cat([attention.take(f"{name}.weight", (count, width)) for name, count in rows.items()]),
        out=attention.take("o_proj.weight", (width, inner)),
        attention_norm=_norm(weights, "input_layernorm", width, not gated),
        attention_scale=weights.take("self_attn_layer_scale.scale", (width,)),
        gate=feed.take("gate_proj.weight", (hidden, width)) if gated else None,
        up=feed.take(f"{up}.weight", (hidden, width)),
        down=feed.take(f"{down}.weight", (width, hidden)),
        feed_norm=_norm(weights, "post_attention_layernorm", width, not gated),
        feed_scale=weights.take("mlp_layer_scale.scale", (width,)),
    )


def _norm(weights: Reader, name: str, width: int, biased: bool) -> Norm:
    return weights.take(f"{name}.weight", (width,)), weights.take(f"{name}.bias", (width,)) if biased else None
