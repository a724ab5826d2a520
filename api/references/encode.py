"""What a model derives from a reference recording: made once for all who ask, by a job of its own, and stored.

The object's name is what it was made from (recording, model, mode), so whoever finds it there need not ask again.
"""

import asyncio
import time

from speechmill.api.callers import Caller
from speechmill.api.errors import ApiError
from speechmill.api.farm import FarmState
from speechmill.infra.errors import Overloaded
from speechmill.infra.jobs import TERMINAL, JobRecord, parse_record
from speechmill.infra.keys import ENCODE, features_key, new_id
from speechmill.infra.messages import SpeechRequest, Submission
from speechmill.infra.objects import ObjectMissing
from speechmill.infra.protocol import Limits, prolong, submit
from speechmill.models.card import ModelCard

KEPT_S = 86_400
"""Features stay for so long after their last use."""
KNOWN_S = 60.0
"""What was in the store so lately is there still."""
POLL_S = 0.02


async def reference_assets(
    farm: FarmState, caller: Caller, card: ModelCard, clip_key: str, clip_sha256: str, mode: str
) -> dict[str, str]:
    """The object that a task with this recording needs, by what it is to the model: `features`, or the `clip` itself.

    Features that are not there yet are made, which may take `limits.first_audio_timeout_s` seconds. Raises Overloaded
    when nobody can make them now, ApiError 500 `generation_failed` when the model cannot, 504 `first_audio_timeout`.
    """
    if card.encode is None:
        return {"clip": clip_key}
    key = features_key(card.id, mode, card.encode.version, clip_sha256)
    if not await _is_there(farm, key):
        await farm.admit(card, interactive=True)
        job = await _submit(farm, caller, card, {"mode": mode, "sha256": clip_sha256}, clip_key, key)
        key = await _made_by(farm, job)
        _note(farm, key)
    return {"features": key}


async def _is_there(farm: FarmState, key: str) -> bool:
    """Whether the features can be used now. They are not swept away under who was told so."""
    if time.monotonic() - farm.features_seen.get(key, -KNOWN_S) < KNOWN_S:
        return True
    await farm.client.run(prolong(key, time.time() + KEPT_S))
    try:
        await farm.in_store(farm.objects.look_up, key)
    except ObjectMissing:
        return False
    _note(farm, key)
    return True


def _note(farm: FarmState, key: str) -> None:
    seen, now = farm.features_seen, time.monotonic()
    for old in [name for name, when in seen.items() if now - when >= KNOWN_S]:
        del seen[old]
    seen[key] = now


async def _submit(
    farm: FarmState, caller: Caller, card: ModelCard, params: dict[str, str], clip_key: str, key: str
) -> str:
    """The job that makes the features: a new one, or the one that is at it already."""
    settings = farm.settings
    submission = Submission(
        job=new_id("job"),
        model=card.id,
        stages=(ENCODE,),
        tail=("keep",),
        segments=("",),
        request=SpeechRequest(
            voice="",
            seed=0,
            response_format="",
            sample_rate=card.sample_rate,
            channels=1,
            params=params,
            assets={"clip": clip_key},
            keep_s=KEPT_S,
        ),
        project=caller.project,
        counted=False,
        live=True,
        timeout_s=settings.limits.first_audio_timeout_s,
        max_attempts=settings.worker.max_attempts,
        idempotency_key=key,
    )
    answer = await farm.client.run(submit(submission, Limits(settings.limits.queue_depth, idempotency_s=0)))
    if answer.answer == "full":
        raise Overloaded(f"{answer.depth} requests wait already", retry_after_s=5.0)
    return answer.job


async def _made_by(farm: FarmState, job: str) -> str:
    """Wait for the job. Answers the features' key, which is the one that the worker's own version gave them."""
    until = time.monotonic() + farm.settings.limits.first_audio_timeout_s
    record = await _read(farm, job)
    while record is not None and record.state not in TERMINAL and time.monotonic() < until:
        await asyncio.sleep(POLL_S)
        record = await _read(farm, job)
    if record is not None and record.result is not None:
        return str(record.result["key"])
    if record is not None and record.state == "failed" and record.error is not None:
        raise ApiError(500, "generation_failed", record.error["message"], job_id=job)
    if record is not None and record.started:
        raise ApiError(504, "first_audio_timeout", "the recording was not read by the model in time", job_id=job)
    raise Overloaded("no worker has read the recording in time", "no_workers", retry_after_s=5.0)


async def _read(farm: FarmState, job: str) -> JobRecord | None:
    return parse_record(job, await farm.client.read_hash(farm.client.keys.job(job)))
