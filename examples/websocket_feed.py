"""Words go in as they come, speech comes out as it is made, and whoever listens may interrupt (pip install websockets).

python examples/websocket_feed.py [--url http://127.0.0.1:8091] [--key KEY] [--model MODEL] [--pace 0.15]
    [--barge-in]

The words stand for what a speech recogniser or a language model says bit by bit; a real program feeds what it gets.
"""

import argparse
import asyncio
import json
import wave

from websockets.asyncio.client import ClientConnection, connect

TALK = (
    "Here is the news. A farm starts to speak as soon as the first sentence is whole, "
    "while the rest of it is still being thought of, word by word. That is all."
)
REPLY = "Of course, go on."


async def feed(socket: ClientConnection, text: str, pace_s: float) -> None:
    """Word after word; `input.done` says that the utterance is complete."""
    for word in text.split():
        await socket.send(json.dumps({"type": "input.text", "text": f"{word} "}))
        await asyncio.sleep(pace_s)
    await socket.send(json.dumps({"type": "input.done"}))


async def listen(socket: ClientConnection, audio: bytearray, first: asyncio.Event) -> bool:
    """Binary messages are audio, the others say what it is. Returns whether the utterance was cut short."""
    async for message in socket:
        if isinstance(message, bytes):
            audio += message
            first.set()
            continue
        event = json.loads(message)
        match event["type"]:
            case "audio.start":
                print(f"speaking: {event['sentence_text']}")
            case "error":
                raise SystemExit(event["message"])
            case "session.done":
                return bool(event.get("cancelled"))
    raise SystemExit("the farm closed the connection")


async def speak(socket: ClientConnection, text: str, pace_s: float, barge_in: bool) -> bytes:
    """One utterance. `barge_in`: it is interrupted as soon as it can be heard, and the rest is never said."""
    audio, first = bytearray(), asyncio.Event()
    feeding = asyncio.create_task(feed(socket, text, pace_s))
    listening = asyncio.create_task(listen(socket, audio, first))
    if barge_in:
        await first.wait()
        feeding.cancel()
        await socket.send(json.dumps({"type": "input.cancel"}))
    if await listening:
        print("interrupted")
    return bytes(audio)


async def talk(url: str, key: str, model: str | None, pace_s: float, barge_in: bool) -> None:
    """A connection is kept for a whole conversation; every utterance follows one config."""
    address = f"{url.replace('http', 'ws', 1)}/v1/audio/speech/stream"
    async with connect(address, additional_headers={"Authorization": f"Bearer {key}"}) as socket:
        # Sentences are spoken as soon as they are whole, and their audio is sent while it is made.
        config = {"voice": "default", "response_format": "pcm", "sample_rate": 24_000}
        config |= {"model": model} if model else {}
        config |= {"stream_audio": True, "split_granularity": "sentence"}
        await socket.send(json.dumps({"type": "session.config", **config}))
        heard = await speak(socket, TALK, pace_s, barge_in)
        if barge_in:
            heard += await speak(socket, REPLY, pace_s, barge_in=False)
    with wave.open("talk.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(24_000)
        file.writeframes(heard)
    print(f"talk.wav: {len(heard) / 48_000:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description="Feed words to a farm and hear them spoken.")
    parser.add_argument("--url", default="http://127.0.0.1:8091", help="where the farm is")
    parser.add_argument("--key", default="none", help="API key, where one is asked for")
    parser.add_argument("--model", help="where several are served")
    parser.add_argument("--pace", type=float, default=0.15, metavar="SECONDS", help="between two words")
    parser.add_argument("--barge-in", action="store_true", help="interrupt the first utterance")
    given = parser.parse_args()
    asyncio.run(talk(given.url, given.key, given.model, given.pace, given.barge_in))


if __name__ == "__main__":
    main()
