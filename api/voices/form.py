"""The form that a voice is uploaded with, checked in full before anything is decoded or stored (speech_api §3.2)."""

import json
from dataclasses import dataclass
from typing import NoReturn

from starlette.datastructures import FormData
from starlette.requests import Request

from speechmill.api.errors import ApiError
from speechmill.api.http.body import media_type, read_object
from speechmill.api.http.form_fields import form_schema, optional_text, required_text
from speechmill.api.http.multipart import FIELD_BYTES, file_field, read_form, text_field
from speechmill.api.speech.orders import Asker
from speechmill.api.speech.schemas import FLOAT32_MAX
from speechmill.api.voices.catalogue import is_reserved
from speechmill.api.voices.recordings import Recording, read_recording
from speechmill.infra.consents import find_consent
from speechmill.infra.voices import MOST_NAME_CHARS, name_fault

MOST_CONSENT_CHARS = 256
MOST_TEXT_CHARS = 2000
MOST_NUMBERS = 4096
FORM = form_schema(
    required=("name", "consent"),
    name={"maxLength": MOST_NAME_CHARS, "description": "What requests call it.", "examples": ["Alice"]},
    consent={"maxLength": MOST_CONSENT_CHARS, "description": "The speaker's consent.", "examples": ["cons_01JEXAMPLE"]},
    audio_sample={"format": "binary", "description": "wav, mp3, flac, ogg, aac, mp4 or webm."},
    speaker_embedding={"description": "A JSON list of numbers, in place of a sample.", "examples": ["[0.1, -0.2]"]},
    ref_text={"maxLength": MOST_TEXT_CHARS, "description": "What the sample says.", "examples": ["This is me."]},
    speaker_description={"maxLength": MOST_TEXT_CHARS, "description": "For people.", "examples": ["warm, low"]},
    model={"description": "The one model family that may use it.", "examples": ["qwen3_tts"]},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceForm:
    """Either a recording or an embedding is there."""

    name: str
    consent: str
    ref_text: str
    description: str
    model: str
    """Family that the voice is restricted to; "" for none."""
    recording: Recording | None
    embedding: tuple[float, ...] | None


async def read_voice_form(request: Request, asker: Asker) -> VoiceForm:
    """Raises ApiError 400, 404 `model_not_found`, 409 `voice_name_reserved`, 413 and what `read_form` raises."""
    if media_type(request) == "application/json":
        _refuse_other_forms((await read_object(request, FIELD_BYTES)).get("type"))
    async with read_form(request, asker.farm.settings.limits.ref_audio_bytes) as form:
        _refuse_other_forms(text_field(form, "type"))
        name = _name(form, asker)
        consent = required_text(form, "consent", MOST_CONSENT_CHARS)
        await _check_consent(asker, consent)
        model = _family(form, asker)
        ref_text = optional_text(form, "ref_text", MOST_TEXT_CHARS)
        description = optional_text(form, "speaker_description", MOST_TEXT_CHARS)
        numbers = _one_source(form)
        return VoiceForm(
            name=name,
            consent=consent,
            ref_text=ref_text,
            description=description,
            model=model,
            recording=await read_recording(form, "audio_sample"),
            embedding=None if numbers is None else _embedding(numbers, model, asker),
        )


def _refuse_other_forms(kind: object) -> None:
    """OpenAI also makes voices from a description, which may come as JSON."""
    if (kind or "audio_sample") != "audio_sample":
        raise ApiError(400, "unsupported_parameter", "voices are made from audio_sample or speaker_embedding", "type")


def _name(form: FormData, asker: Asker) -> str:
    name = text_field(form, "name")
    if name is None:
        raise ApiError(400, "missing_required_parameter", "name is required", "name")
    if fault := name_fault(name):
        raise ApiError(400, "invalid_value", f"name {fault}", "name")
    if is_reserved(asker.farm, name):
        raise ApiError(409, "voice_name_reserved", "this name is taken by a voice that the server has", "name")
    return name


async def _check_consent(asker: Asker, consent: str) -> None:
    if asker.farm.settings.voices.consent_mode != "recorded":
        return
    if await find_consent(asker.farm.client, asker.caller.project, consent) is None:
        message = "consent must be the id of a recording made with POST /v1/audio/voice_consents"
        raise ApiError(400, "consent_required", message, "consent")


def _family(form: FormData, asker: Asker) -> str:
    """Families may be named by themselves, or by one of their models."""
    model = text_field(form, "model")
    if model is None or any(card.family == model for card in asker.farm.models):
        return model or ""
    return asker.model(model)[0].family


def _one_source(form: FormData) -> str | None:
    """The text of the embedding, if the voice is made from one."""
    numbers, sample = text_field(form, "speaker_embedding"), file_field(form, "audio_sample")
    if numbers is not None and sample is not None:
        message = "audio_sample and speaker_embedding both say how the voice sounds"
        raise ApiError(400, "mutually_exclusive_parameters", message, "speaker_embedding")
    if numbers is None and sample is None:
        message = "audio_sample or speaker_embedding is required"
        raise ApiError(400, "missing_required_parameter", message, "audio_sample")
    return numbers


def _embedding(text: str, model: str, asker: Asker) -> tuple[float, ...]:
    numbers = parse_embedding(text)
    able = [card for card in asker.farm.models if "uploaded" in card.parameters.voice_kinds]
    sizes = {card.parameters.speaker_embedding for card in able if model in ("", card.family)} - {0}
    if len(numbers) not in sizes:
        taken = ", ".join(map(str, sorted(sizes))) or "none"
        message = f"speaker_embedding has {len(numbers)} numbers; sizes that served models take: {taken}"
        raise ApiError(400, "speaker_embedding_dimension", message, "speaker_embedding")
    return numbers


def parse_embedding(text: str) -> tuple[float, ...]:
    """A JSON list of 1 to `MOST_NUMBERS` numbers that a float32 can hold. Raises ApiError 400."""
    try:
        values = json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise ApiError(400, "invalid_type", "speaker_embedding must be a JSON list", "speaker_embedding") from None
    if not isinstance(values, list) or not all(type(value) in (int, float) for value in values):
        raise ApiError(400, "invalid_type", "speaker_embedding must be a list of numbers", "speaker_embedding")
    if not 1 <= len(values) <= MOST_NUMBERS:
        message = f"speaker_embedding takes 1 to {MOST_NUMBERS} numbers"
        raise ApiError(400, "invalid_value", message, "speaker_embedding")
    if not all(abs(value) <= FLOAT32_MAX for value in values):
        _refuse_constant("beyond float32")
    return tuple(map(float, values))


def _refuse_constant(_: str) -> NoReturn:
    """NaN and Infinity, which are not JSON, come here by name."""
    raise ApiError(400, "invalid_value", "speaker_embedding must hold finite numbers", "speaker_embedding")
