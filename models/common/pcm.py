"""From samples to bytes."""

from torch import Tensor


def to_s16(samples: Tensor) -> bytes:
    """float32 on any device → s16le: ×32768, half to even, saturating, NaN → 0."""
    scaled = (samples * 32768).round_().nan_to_num_(nan=0.0).clamp_(-32768, 32767)
    return scaled.short().cpu().numpy().astype("<i2").tobytes()
