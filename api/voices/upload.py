"""From a checked form to a voice: decode, see that there is room, write, and only then swap (speech_api §3.2)."""

import asyncio
import time

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.api.references.clip import Clip
from speechmill.api.references.decode import decode_clip
from speechmill.api.voices.features import forget_features
from speechmill.api.voices.form import VoiceForm
from speechmill.api.voices.recordings import Recording, store_unclaimed
from speechmill.infra.keys import new_id
from speechmill.infra.voices import VoiceRecord, check_voice, put_voice

_FLOAT32_BYTES = 4


async def keep_voice(farm: FarmState, caller: Caller, form: VoiceForm) -> VoiceRecord:
    """Install the voice; the one that had its name stays unless all of it succeeds.

    Raises ApiError 400 `ref_audio_*` or `invalid_value` (no room), 409 `voice_exists`; StoreUnavailable.
    """
    policy, most = farm.settings.voices.policy, farm.settings.voices.max
    recording = form.recording
    clip = await decode_clip(recording.data, farm.settings, "audio_sample") if recording else None
    _check(await farm.client.run(check_voice(caller.project, form.name, policy, most)), most)
    if recording and clip:
        record = await _recorded(farm, caller, form, recording, clip)
    else:
        record = _embedded(caller, form)
    answer = await farm.client.run(put_voice(record, policy, most))
    _check(answer.verdict, most)
    if answer.replaced:
        await forget_features(farm, answer.replaced)
    await farm.client.wait_durable()
    return record


def _check(verdict: str, most: int) -> None:
    if verdict == "exists":
        raise ApiError(409, "voice_exists", "a voice of this name exists; delete it first", "name")
    if verdict == "full":
        raise ApiError(400, "invalid_value", f"limit reached: a project has at most {most} uploaded voices", "name")


async def _recorded(
    farm: FarmState, caller: Caller, form: VoiceForm, recording: Recording, clip: Clip
) -> VoiceRecord:
    voice_id = new_id("voice")
    folder = f"voices/{caller.project}/{voice_id}"
    sample_key, clip_key = f"{folder}/sample.{recording.extension}", f"{folder}/clip.wav"
    await store_unclaimed(farm, sample_key, recording.data, recording.mime_type)
    await store_unclaimed(farm, clip_key, await asyncio.to_thread(clip.wav), "audio/wav")
    return VoiceRecord(
        id=voice_id,
        name=form.name,
        project=caller.project,
        consent=form.consent,
        created_at=int(time.time()),
        kind="audio",
        mime_type=recording.mime_type,
        file_size=len(recording.data),
        ref_text=form.ref_text,
        description=form.description,
        model=form.model,
        sample_key=sample_key,
        clip_key=clip_key,
        clip_sha256=await asyncio.to_thread(lambda: clip.sha256),
        sample_rate=clip.sample_rate,
        seconds=clip.seconds,
    )


def _embedded(caller: Caller, form: VoiceForm) -> VoiceRecord:
    embedding = form.embedding or ()
    return VoiceRecord(
        id=new_id("voice"),
        name=form.name,
        project=caller.project,
        consent=form.consent,
        created_at=int(time.time()),
        kind="embedding",
        mime_type="application/octet-stream",
        file_size=_FLOAT32_BYTES * len(embedding),
        ref_text=form.ref_text,
        description=form.description,
        model=form.model,
        dim=len(embedding),
        embedding=embedding,
    )
