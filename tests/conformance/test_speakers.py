"""Who speaks: voices, recordings and embeddings against what each model takes (§1.2, §1.3)."""

import base64
import json
from typing import Any

import httpx
import pytest

KEY = {"Authorization": "Bearer sk-test-a"}
PRESET = "Qwen/Qwen3-TTS-12Hz-1.7B-CustomVoice"
BASE = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
CLONE = "FunAudioLLM/Fun-CosyVoice3-0.5B-2512"
FISH = "fishaudio/s2-pro"
OMNI = "k2-fsa/OmniVoice"
VOXCPM = "openbmb/VoxCPM2"
VOXTRAL = "mistralai/Voxtral-4B-TTS-2603"
CLIP = "a good recording"
"""Stands for a good recording."""
VECTOR = [0.1] * 2048


def speak(server: str, reference: bytes, **fields: Any) -> httpx.Response:
    clip = base64.b64encode(reference).decode()
    body = {name: clip if value is CLIP else value for name, value in fields.items()}
    return httpx.post(f"{server}/v1/audio/speech", json={"input": "Hello."} | body, headers=KEY, timeout=60)


@pytest.mark.parametrize(
    ("fields", "code", "param"),
    [
        ({"model": CLONE, "ref_audio": CLIP, "ref_text": " \n"}, "ref_text_required", "ref_text"),
        ({"model": FISH, "references": [{"audio_path": "QQ==", "text": " "}]}, "ref_text_required", "ref_text"),
        ({"model": FISH, "ref_text": "words"}, "ref_audio_required", "ref_audio"),
        ({"model": FISH, "voice": "default", "ref_text": "words"}, "ref_audio_required", "ref_audio"),
        ({"model": VOXCPM, "ref_text": "words"}, "ref_audio_required", "ref_audio"),
        (
            {"model": VOXCPM, "ref_audio": CLIP, "extra_params": {"clone_mode": "continuation"}},
            "ref_text_required",
            "ref_text",
        ),
        ({"model": VOXTRAL, "voice": "casual_male", "ref_audio": CLIP}, "mutually_exclusive_parameters", "voice"),
        ({"model": VOXTRAL, "speaker": "casual_male", "ref_audio": CLIP}, "mutually_exclusive_parameters", "speaker"),
        ({"model": BASE, "speaker_embedding": [1e39] * 2048}, "invalid_value", "speaker_embedding"),
        ({"model": "auk", "task_type": "VoiceDesign", "duration_seconds": 1}, "unsupported_parameter", "task_type"),
        ({"model": OMNI, "instructions": "male, female"}, "invalid_value", "instructions"),
        ({"model": OMNI, "instructions": "男，male"}, "invalid_value", "instructions"),
        ({"model": OMNI, "instructions": "四川话, british accent"}, "invalid_value", "instructions"),
        ({"model": OMNI, "language": "Klingon"}, "invalid_value", "language"),
        ({"model": FISH, "ref_audio": "A" * (15 << 20), "ref_text": "words"}, "ref_audio_too_large", "ref_audio"),
        ({"model": FISH, "ref_audio": "http://xn--/", "ref_text": "words"}, "ref_audio_forbidden", "ref_audio"),
    ],
    ids=lambda value: repr(value)[:80],
)
def test_what_does_not_say_who_speaks_is_named(
    server: str, reference: bytes, fields: dict[str, Any], code: str, param: str
) -> None:
    answer = speak(server, reference, **fields)
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == (code, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"model": FISH, "voice": "default", "ref_audio": CLIP, "ref_text": "words"},
        {"model": FISH, "voice": "alloy", "ref_audio": CLIP, "ref_text": "words"},
        {"model": BASE, "voice": "default", "speaker_embedding": VECTOR},
        {"model": VOXCPM, "ref_audio": CLIP, "ref_text": "words"},
        {"model": VOXCPM, "ref_audio": CLIP, "extra_params": {"clone_mode": "reference"}},
        {"model": OMNI, "instructions": "male, Whisper, british accent"},
        {"model": OMNI, "instructions": "女，老年，四川话"},
        {"model": OMNI, "language": "ARB"},
        {"model": OMNI, "language": "yue-HK"},
        {"model": OMNI, "language": "Abkhazian"},
    ],
    ids=lambda value: repr(value)[:80],
)
def test_what_says_who_speaks_once_is_spoken(server: str, reference: bytes, fields: dict[str, Any]) -> None:
    answer = speak(server, reference, **fields)
    assert answer.status_code == 200, answer.text
    assert answer.content[:4] == b"RIFF"


def test_an_uploaded_voice_with_one_of_openai_s_names_is_the_one_that_speaks(server: str, reference: bytes) -> None:
    form = {"name": (None, "Nova"), "consent": (None, "yes"), "audio_sample": ("a.wav", reference, "audio/wav")}
    answer = httpx.post(f"{server}/v1/audio/voices", files=form, headers=KEY, timeout=60)
    assert answer.status_code == 200, answer.text
    try:
        assert speak(server, reference, model=BASE, voice="nova").headers["x-voice"] == "Nova"
        other = speak(server, reference, model=PRESET, voice="nova")
        assert other.headers["x-voice"] == "vivian", "every OpenAI client may name any of these to any model"
    finally:
        httpx.delete(f"{server}/v1/audio/voices/nova", headers=KEY)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_voice_is_not_made_from_a_description(server: str, as_json: bool) -> None:
    fields = {"type": "prompt", "name": "Ann", "prompt": "a calm voice"}
    form = {name: (None, text) for name, text in fields.items()}
    body = {"content": json.dumps(fields)} if as_json else {"files": form}
    headers = KEY | ({"Content-Type": "application/json"} if as_json else {})
    answer = httpx.post(f"{server}/v1/audio/voices", headers=headers, **body)  # type: ignore[arg-type]
    assert answer.status_code == 400, answer.text
    assert (answer.json()["error"]["code"], answer.json()["error"]["param"]) == ("unsupported_parameter", "type")
