"""Models and operations: what is served, whether it lives, whether it can work, and what it measures."""

from functools import cache
from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Request
from prometheus_client import generate_latest
from starlette.responses import JSONResponse, Response

from speechmill.api.callers import Caller, needs
from speechmill.api.errors import ApiError, respond
from speechmill.api.farm import FarmState
from speechmill.api.speech.schemas import AUDIO_FORMATS
from speechmill.infra.client import UNAVAILABLE
from speechmill.models.card import ModelCard

router = APIRouter(tags=["models and operations"])
ModelId = Annotated[str, Path(description="Id or alias; it may hold slashes.", examples=["hibari"])]
Listing = Annotated[Caller, Depends(needs(None, public_list=True))]


def _farm(request: Request) -> FarmState:
    farm: FarmState = request.app.state.farm
    return farm


def describe(card: ModelCard, status: str, max_chars: int) -> dict[str, object]:
    """A card as `/v1/models` shows it: what validation goes by."""
    can = card.parameters
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owned_by,
        "shutdown_date": None,
        "status": status,
        "description": card.description,
        "license": card.licence.weights,
        "capabilities": {
            "tasks": _tasks(card),
            "languages": list(card.languages),
            "native_sample_rate": card.sample_rate,
            "formats": list(AUDIO_FORMATS),
            "ref_audio": can.ref_audio,
            "ref_text": can.ref_text,
            "instructions": can.instructions != "none",
            "language": can.language,
            "speed": can.speed.by != "none",
            "speed_range": [can.speed.minimum, can.speed.maximum] if can.speed.by != "none" else None,
            "duration": can.duration,
            "word_timestamps": can.word_timestamps,
            "incremental": can.incremental,
            "max_input_chars": max_chars,
            "max_new_tokens": can.max_new_tokens,
            "voices": len(card.voices),
            "voice_kinds": list(can.voice_kinds) if can.voice != "none" else [],
            "default_voice": card.default_voice or None,
            "speaker_embedding": can.speaker_embedding,
            "extra_params": {
                name: rule.model_dump(exclude_defaults=True) for name, rule in can.extra_parameters.items()
            },
        },
    }


def _tasks(card: ModelCard) -> list[str]:
    can = card.parameters
    tasks = ["tts"]
    if can.ref_audio != "none":
        tasks.append("voice_clone")
    if can.instructions == "required" or can.task_type == "VoiceDesign":
        tasks.append("voice_design")
    return tasks


@router.get("/v1/models", summary="Models served here")
async def models(request: Request, caller: Listing) -> dict[str, object]:
    """Models and their other names, with what each of them takes."""
    farm = _farm(request)
    return {"object": "list", "data": [await _described(farm, name, card) for name, card in _named(farm).items()]}


@router.get("/v1/models/{model_id:path}", summary="One model")
async def model(model_id: ModelId, request: Request, caller: Listing) -> dict[str, object]:
    farm = _farm(request)
    card = farm.meant(model_id)
    if card is None:
        raise ApiError(404, "model_not_found", "this model is not served; see GET /v1/models", "model")
    return await _described(farm, model_id, card)


@router.get("/v1/audio/models", summary="Models, as Open WebUI asks for them")
async def audio_models(request: Request, caller: Listing) -> dict[str, object]:
    return {"models": [{"id": name, "name": name} for name in _named(_farm(request))], "object": "list"}


def _named(farm: FarmState) -> dict[str, ModelCard]:
    """Models by id, then by their other names."""
    found = {name: farm.meant(name) for name in (*farm.settings.models, *farm.settings.aliases)}
    return {name: card for name, card in found.items() if card is not None}


async def _described(farm: FarmState, name: str, card: ModelCard) -> dict[str, object]:
    described = describe(card, await _status(farm, card), farm.settings.limits.sync_input_chars)
    return described if name == card.id else described | {"id": name, "alias_of": card.id}


async def _status(farm: FarmState, card: ModelCard) -> str:
    return "draining" if farm.draining else (await farm.state(card)).status


@router.get("/health", summary="Is this process alive?")
@router.get("/ping", include_in_schema=False)
async def health() -> dict[str, str]:
    return {"status": "ok"}


@router.get("/health/ready", summary="Can a request be served now?")
async def ready(request: Request) -> Response:
    """200 when Redis and S3 answer and every stage of at least one model has a worker."""
    farm = _farm(request)
    try:
        states = {card.id: await farm.state(card) for card in farm.models}
    except UNAVAILABLE:
        return respond(ApiError(503, "no_workers", "Redis does not answer"))
    details = {
        name: {
            stage: {"workers": pool.workers, "queue": pool.queue, "oldest_ms": pool.oldest_ms}
            for stage, pool in state.stages.items()
        }
        for name, state in states.items()
    }
    if farm.draining:
        return respond(ApiError(503, "shutting_down", "the server is shutting down", details=details))
    if not await farm.store_ready():
        return respond(ApiError(503, "no_workers", "the object store does not answer", details=details))
    if not any(state.status == "ready" for state in states.values()):
        return respond(ApiError(503, "no_workers", "no model has a worker for every stage", details=details))
    return JSONResponse({"status": "ready", "models": details})


@cache
def build() -> dict[str, str]:
    """Version of the package, and the commit where it is known."""
    return {"version": version("speechmill"), "git": ""}


@router.get("/version", summary="What runs here")
async def show_version() -> dict[str, str]:
    return build()


@router.get("/metrics", summary="Prometheus metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    farm = _farm(request)
    shown = farm.metrics
    shown.active.set(farm.listening.active)
    outcomes = await farm.client.read_hash(farm.client.keys.webhook_outcomes())
    shown.deliveries.values = {name.decode(): int(count) for name, count in outcomes.items()}
    shown.workers.clear()  # those that have left
    for card in farm.models:
        state = await farm.state(card, fresh=True)
        shown.queued_jobs.labels(card.id).set(sum(state.queued.values()))
        for stage, pool in state.stages.items():
            shown.leased.labels(card.id, stage).set(pool.leased)
            for job_class, depth in pool.waiting.items():
                shown.queue_depth.labels(card.id, stage, job_class).set(depth)
            for worker in pool.names:
                shown.workers.labels(card.id, stage, worker).set(1)
    return Response(generate_latest(shown.registry), media_type="text/plain; version=0.0.4; charset=utf-8")
