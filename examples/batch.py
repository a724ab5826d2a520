"""Several texts in one call: each is spoken at the same time as the others, and fails alone (pip install httpx).

python examples/batch.py [--url http://127.0.0.1:8091] [--key KEY] [--model MODEL] [FILE]      one text a line
"""

import argparse
import base64
import sys
from pathlib import Path

import httpx

TEXTS = ("The first of three.", "The second of three.", "")


def main() -> None:
    parser = argparse.ArgumentParser(description="Speak up to 32 texts in one call.")
    parser.add_argument("--url", default="http://127.0.0.1:8091", help="where the farm is")
    parser.add_argument("--key", default="none", help="API key, where one is asked for")
    parser.add_argument("--model", help="where several are served")
    parser.add_argument("file", nargs="?", type=Path, help="one text a line; without it, three of our own")
    given = parser.parse_args()
    texts = given.file.read_text(encoding="utf-8").splitlines() if given.file else TEXTS

    # What stands beside `items` holds for all of them; what an item says for itself goes before it.
    shared = {"voice": "default", "response_format": "mp3"} | ({"model": given.model} if given.model else {})
    items = [{"input": text, "seed": index} for index, text in enumerate(texts)]
    answer = httpx.post(
        f"{given.url}/v1/audio/speech/batch",
        headers={"Authorization": f"Bearer {given.key}"},
        json={**shared, "items": items},
        timeout=600,
    )
    if answer.status_code != 200:
        sys.exit(answer.json()["error"]["message"])

    # The call succeeds also where items fail: each has a result of its own, in the order of the items.
    batch = answer.json()
    for result in batch["results"]:
        name = f"{result['index']:02}.mp3"
        if result["status"] == "success":
            Path(name).write_bytes(base64.b64decode(result["audio_data"]))
            print(f"{name} is written")
        else:
            print(f"{name}: {result['error']}")
    print(f"{batch['succeeded']} of {batch['total']} spoken")


if __name__ == "__main__":
    main()
