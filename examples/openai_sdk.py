"""The OpenAI SDK, pointed at a farm (pip install openai).

python examples/openai_sdk.py [--url http://127.0.0.1:8091] [--key KEY] [--model MODEL] [--play]
"""

import argparse
import subprocess
import sys
from pathlib import Path

from openai import APIError, OpenAI

PLAYER = ("ffplay", "-loglevel", "error", "-nodisp", "-autoexit", "-f", "s16le", "-ar", "24000", "-i", "-")


def whole_file(client: OpenAI, model: str) -> None:
    """Complete before it is answered: nothing but the SDK's own parameters."""
    speech = client.audio.speech.create(
        model=model, voice="default", input="Hello from the SDK.", response_format="mp3"
    )
    speech.write_to_file("speech.mp3")
    print("speech.mp3 is written")


def stream(client: OpenAI, model: str, play: bool) -> None:
    """Heard while it is made; what the SDK has no parameter for goes into `extra_body`."""
    streamed = client.audio.speech.with_streaming_response.create(
        model=model,
        voice="default",
        input="This sentence can be heard before its end is made.",
        response_format="pcm",
        stream_format="audio",
        extra_body={"sample_rate": 24_000, "seed": 7},
    )
    with streamed as answer:
        if play:
            with subprocess.Popen(PLAYER, stdin=subprocess.PIPE) as player:
                for chunk in answer.iter_bytes(4096):
                    player.stdin.write(chunk)
                player.stdin.close()
        else:
            answer.stream_to_file("stream.pcm")
            print(f"stream.pcm: {Path('stream.pcm').stat().st_size / 48_000:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speak through a farm with the OpenAI SDK.")
    parser.add_argument("--url", default="http://127.0.0.1:8091", help="where the farm is")
    parser.add_argument("--key", default="none", help="API key, where one is asked for")
    parser.add_argument("--model", help="without it, the first that is served")
    parser.add_argument("--play", action="store_true", help="play the stream instead of writing it")
    given = parser.parse_args()
    with OpenAI(base_url=f"{given.url}/v1", api_key=given.key) as client:
        try:
            model = given.model or next(iter(client.models.list())).id
            whole_file(client, model)
            stream(client, model, given.play)
        except APIError as error:  # `body` is what the farm says of it, where it has said anything
            sys.exit(error.body["message"] if isinstance(error.body, dict) else error.message)


if __name__ == "__main__":
    main()
