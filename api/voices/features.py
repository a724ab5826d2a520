"""What models derived from a voice goes with it (speech_api §6.4)."""

from speechmill.api.farm import FarmState
from speechmill.infra.keys import features_key
from speechmill.infra.voices import VoiceRecord, hasten


async def forget_features(farm: FarmState, record: VoiceRecord) -> None:
    """Let the features of a voice that is gone go together with its recording.

    Whoever uses the same recording elsewhere puts this off again.
    """
    keys = [
        features_key(card.id, mode, card.encode.version, record.clip_sha256)
        for card in farm.models
        if card.encode is not None and record.clip_sha256
        for mode in card.encode.modes
    ]
    if keys:
        await farm.client.run(hasten(keys))
