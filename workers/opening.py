"""From a claim to what a stage is opened with."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from speechmill.infra.keys import ENCODE, FARM_STAGES, features_key
from speechmill.infra.messages import PAYLOAD_VERSION, Claim
from speechmill.models.registry import cards
from speechmill.models.stage import StageTask
from speechmill.workers.finish import FarmTask
from speechmill.workers.history import Spoken
from speechmill.workers.keep import KeepTask


def stage_task(claim: Claim, assets: Mapping[str, bytes], history: Sequence[Spoken] = ()) -> StageTask:
    """The task in the stage's own terms; the farm's stages are told about the job as well."""
    task, request, card = claim.task, claim.request, cards()[claim.model]
    common: dict[str, Any] = {
        "job": task.job,
        "take": task.take,
        "segment": task.segment if task.segment is not None else -1,
        "text": "" if claim.open_text else claim.text,  # also once it is complete: what is made shall not differ
        "open": claim.open_text,
        "voice": request.voice,
        "seed": request.seed,
        "params": request.params,
        "live": claim.live,
    }
    if task.stage not in FARM_STAGES:
        return StageTask(**common, assets=assets, history=history)
    if task.stage == "keep":
        version = card.stage(ENCODE).version
        key = features_key(card.id, request.params["mode"], version, request.params["sha256"])
        return KeepTask(**common, key=key, keep_s=request.keep_s)
    of_model: dict[str, Any] = {"native_rate": card.sample_rate, "unspeakable": card.segments.unspeakable}
    return FarmTask(**common, **of_model, request=request, segments=claim.segments, token=claim.token)


def log_header(claim: Claim) -> str:
    """What the task's log holds, as JSON: unit, rate (per second), dtype, channels and payload version."""
    request, card = claim.request, cards()[claim.model]
    if claim.task.stage in FARM_STAGES:
        layout: dict[str, Any] = {"unit": "pcm", "rate": request.sample_rate, "dtype": "s16le"}
        layout |= {"channels": request.channels, "version": PAYLOAD_VERSION}
    else:
        layout = card.stage(claim.task.stage).model_dump(include={"unit", "rate", "dtype", "channels", "version"})
    return json.dumps(layout)
