"""The headers of an answer with audio, for the description of the API (speech_api §1.4)."""

from typing import Any


def _header(description: str, example: str | int) -> dict[str, Any]:
    kind = "integer" if isinstance(example, int) else "string"
    return {"description": description, "schema": {"type": kind, "examples": [example]}}


HEADERS = {
    "X-Request-Id": _header("Names this request; the caller's own where it sent one.", "req_01JEXAMPLE"),
    "X-Job-Id": _header("The job that made the audio.", "job_01JEXAMPLE"),
    "X-Model": _header("The model that spoke.", "hibari"),
    "X-Voice": _header("The voice that spoke, percent-encoded.", "heart"),
    "X-Seed": _header("With the same seed, the same request gives the same audio.", 7),
    "X-Sample-Rate": _header("In Hz.", 24_000),
    "X-Channels": _header("1 is mono.", 1),
    "X-Sample-Format": _header("Only of `pcm` and `wav`.", "s16le"),
    "X-Ignored-Params": _header("Fields of the request that were left out of account, if any.", "temperature"),
    "X-Audio-Duration-Ms": _header("How long the audio is. Only of whole files.", 1640),
    "X-Finish-Reason": _header(
        "`stop`, or `length` where the model was cut off by a limit. Only of whole files.", "stop"
    ),
    "X-Word-Timestamps": _header(
        "When each word is spoken, as JSON. Only of whole files, with `word_timestamps`.",
        '[{"word":"Hello.","start_ms":0,"end_ms":480}]',
    ),
    "X-Word-Timestamps-Omitted": _header(
        "In place of word times that are too long for a header.", "oversize; bytes=9120; limit=4096"
    ),
    "x-vllm-omni-input-tokens": _header("What went in. Only of whole files, as all counts.", 9),
    "x-vllm-omni-output-tokens": _header("What the model made.", 41),
    "x-vllm-omni-total-tokens": _header("The sum of both.", 50),
    "x-vllm-omni-input-text-tokens": _header("Of what went in, the text.", 9),
    "x-vllm-omni-input-audio-tokens": _header("Of what went in, the recording.", 0),
    "Server-Timing": _header(
        "Milliseconds in the queue, until the first audio, and in all. Only of whole files.",
        "queue;dur=1.2, first;dur=85.0, total;dur=320.4",
    ),
}
