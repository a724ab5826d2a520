"""Three API processes on one farm: what one of them is told about voices, all of them know at once."""

import io
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
import soundfile

from speechmill.cli.bench.farm import free_port
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.keys import new_id

from .harness import START_S, Farm, eventually

MODEL = "fishaudio/s2-pro"
VOICES = "/v1/audio/voices"


def wav() -> bytes:
    file = io.BytesIO()
    soundfile.write(file, 0.3 * np.sin(np.arange(16_000 * 2) / 12), 16_000, format="WAV")
    return file.getvalue()


@pytest.fixture(scope="module")
def replicas(
    valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[httpx.Client]]:
    """Clients of three API processes in front of one worker."""
    settings = {"SPEECHMILL_MODELS": f'["{MODEL}"]', "SPEECHMILL_TEST__STAND_IN": "true"}
    farm = Farm(valkey, s3, new_id("t"), tmp_path_factory.mktemp("replicas"), settings)
    farm.start("worker", "worker")
    ports = [free_port() for _ in range(3)]
    for port in ports:
        farm.start(f"api-{port}", "api", "--port", str(port))
    clients = [httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) for port in ports]

    def ready(client: httpx.Client) -> bool:
        try:
            return client.get("/health/ready").status_code == 200
        except httpx.HTTPError:
            return False

    eventually(lambda: all(map(ready, clients)), START_S, "three APIs are ready")
    yield clients
    for client in clients:
        client.close()
    farm.stop()


def upload(client: httpx.Client, name: str, ref_text: str = "These words.") -> str:
    fields = {"name": name, "consent": "yes", "ref_text": ref_text}
    answer = client.post(VOICES, data=fields, files={"audio_sample": ("a.wav", wav(), "audio/wav")})
    assert answer.status_code == 200, answer.text
    return str(answer.json()["id"])


def speak(client: httpx.Client, voice: str) -> httpx.Response:
    return client.post("/v1/audio/speech", json={"model": MODEL, "input": "Hello.", "voice": voice})


def test_a_voice_is_uploaded_on_one_replica_spoken_on_another_and_deleted_on_the_third(
    replicas: list[httpx.Client],
) -> None:
    one, two, three = replicas
    voice_id = upload(one, "Shared Voice")
    for client in replicas:
        assert "shared voice" in client.get(VOICES).json()["voices"]
        assert client.get(f"{VOICES}/{voice_id}/sample").content == wav()
    answer = speak(two, "shared VOICE")
    assert answer.status_code == 200, answer.text
    assert answer.content[:4] == b"RIFF"
    assert three.delete(f"{VOICES}/Shared Voice").json()["deleted"] is True
    for client in replicas:
        assert client.get(VOICES).json()["uploaded_voices"] == []
        assert speak(client, "shared voice").json()["error"]["code"] == "invalid_voice"
    assert one.delete(f"{VOICES}/Shared Voice").json()["success"] is False


def test_a_voice_that_is_replaced_on_one_replica_is_the_new_one_everywhere(replicas: list[httpx.Client]) -> None:
    for client in replicas:
        upload(client, "Ann", ref_text="Old words.")
    newest = upload(replicas[1], "ann", ref_text="New words.")
    for client in replicas:
        (voice,) = client.get(VOICES).json()["uploaded_voices"]
        assert voice["ref_text"] == "New words."
        assert client.get(f"{VOICES}/ANN").json()["id"] == newest
    assert speak(replicas[2], newest).status_code == 200
    assert replicas[0].delete(f"{VOICES}/{newest}").json()["success"] is True
