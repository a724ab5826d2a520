"""The WebSocket in `/openapi.json`. OpenAPI knows only requests, so it stands there as the one that opens it."""

from typing import Any

from speechmill.api.realtime.session import BACKLOG_CHARS, CONFIG_CHARS, CONFIG_S, IDLE_S, MESSAGE_CHARS

_DESCRIPTION = f"""
Text goes in while it is written, audio comes out while it is made, for any number of utterances on one connection.
Messages are JSON objects in text frames, both ways; audio comes in binary frames.

Who cannot send headers gives the key as the query's `api_key`, or as the subprotocol
`openai-insecure-api-key.KEY`, beside another one that is then selected. What is wrong before the WebSocket is open
(401, 403, 429) is an HTTP answer.

```
> {{"type": "session.config", "response_format": "pcm", "stream_audio": true, "split_granularity": "sentence"}}
> {{"type": "input.text", "text": "Hello world. How are"}}
< {{"type": "audio.start", "utterance_index": 0, "sentence_index": 0, "sentence_text": "Hello world.", …}}
< binary frames
< {{"type": "audio.done", "utterance_index": 0, "sentence_index": 0, "total_bytes": 96000, …}}
> {{"type": "input.text", "text": " you?"}}
> {{"type": "input.done"}}
< audio.start, binary frames and audio.done of "How are you?"
< {{"type": "session.done", "utterance_index": 0, "total_sentences": 2}}
```

### The client sends

| Type | With | Does |
|---|---|---|
| `session.config` | fields, see below | Says how to speak what follows. Comes first; again only between utterances. |
| `input.text` | `text` | Appends to the utterance. |
| `input.done` | | Ends the utterance; what is left of its text is spoken. |
| `input.cancel` | | Drops all text and audio that is not sent yet, as when the listener cuts in. |
| `session.close` | | Closes the connection at once. |

### The server sends

| Type | With | When |
|---|---|---|
| `session.configured` | `session_id`, `model`, `voice`, `format`, `sample_rate`, `channels` | \
After a config with `ack`. |
| `audio.start` | `utterance_index`, `sentence_index`, `sentence_text`, `format`, `sample_rate`, `channels`; \
`word_timestamps` | A unit begins, in the order of the text; with `incremental` the text is what there is of it. |
| binary frame | | The unit's audio: one complete file, or pieces of it with `stream_audio`. |
| `audio.chunk` | both indices, `chunk_id`, `chunk_start_ms`, `chunk_end_ms`, `sample_rate`, `channels`, `audio_b64`, \
`timestamps` | In place of binary frames with `word_timestamps`; the last one has the times of the words and no audio. |
| `audio.cancelled` | both indices, `sent_ms`, `reason` | The unit was cut off by `input.cancel`. |
| `error` | `message`, `code`, `param`; in a unit both indices; after audio `partial_audio`, `action` | \
Something is wrong. Only before the first config and at a timeout does it end the connection. |
| `audio.done` | both indices, `total_bytes`, `duration_ms`, `error`; `finish_reason` | \
The unit is over; each `audio.start` has one. |
| `session.done` | `utterance_index`, `total_sentences`; `cancelled` | The utterance is over. |

### session.config

All fields of `POST /v1/audio/speech`, but for `input`, `stream`, `stream_format` and `store`, and these:

- `stream_audio`: audio is sent while it is made (default: false).
- `split_granularity`: `none` speaks all text at `input.done`, `sentence` and `clause` each part once it is complete \
(default: `none`).
- `incremental`: an utterance is begun with its first word, and its text is spoken while it comes (default: false).
- `ack`: have the config answered (default: false).

`response_format` is `wav` unless given. `word_timestamps` needs `stream_audio` and `pcm`.

### Text that is spoken while it comes

```
> {{"type": "session.config", "response_format": "pcm", "stream_audio": true, "incremental": true, …}}
> {{"type": "input.text", "text": "Hello world. How"}}
< {{"type": "audio.start", "sentence_text": "Hello world. How", …}}
< binary frames
> {{"type": "input.text", "text": " are you?"}}
< binary frames
> {{"type": "input.done"}}
< binary frames, audio.done, session.done
```

For models whose `capabilities` in `GET /v1/models` say `incremental`; it needs `stream_audio`, and no
`split_granularity` but `none`. What is heard depends on the text and the seed, not on how the text is cut or when it
comes. A long utterance goes on in further units, which begin behind sentences. An utterance has at most as many
characters as any request that is waited for, and is charged as it comes. Text that exceeds that (`input_too_long`) or a
key's limits, or that the model does not take, fails the unit that is spoken; what still comes of the utterance is left
out until `input.done`.

### Limits and close codes

| Code | Reason |
|---|---|
| 1000 | `session.close`, or no message for {IDLE_S:g} s while nothing is spoken, or an open utterance waits for text. |
| 1008 | No valid `session.config` as the first message within {CONFIG_S:g} s, or a client that takes no audio. |
| 1011 | No answer to a ping. |

A config has at most {CONFIG_CHARS:,} characters, another message {MESSAGE_CHARS:,}; at most {BACKLOG_CHARS:,}
characters may wait to be spoken.
"""
OPERATION: dict[str, Any] = {
    "tags": ["speech"],
    "summary": "Speak text that is still being written (WebSocket)",
    "operationId": "stream_v1_audio_speech_stream_get",
    "description": _DESCRIPTION.strip(),
    "parameters": [
        {
            "name": "api_key",
            "in": "query",
            "description": "The key, for clients that cannot send it as a header.",
            "schema": {"type": "string", "examples": ["sk-…"]},
        }
    ],
    "responses": {"101": {"description": "The WebSocket is open."}},
}
