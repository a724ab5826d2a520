"""What each error code means, for the description of the API (speech_api §0.3)."""

MEANINGS: dict[int, dict[str, str]] = {
    400: {
        "invalid_json": "The body is no JSON object that can be read.",
        "missing_required_parameter": "A field that is needed is not there.",
        "invalid_type": "A field holds another kind of value than it takes.",
        "invalid_value": "A field holds a value that it does not take.",
        "unknown_parameter": "There is no such field; told only with `X-Strict-Params: true`.",
        "unsupported_parameter": "This model, or this route, cannot do what the field asks for.",
        "mutually_exclusive_parameters": "Two fields say different things about the same.",
        "empty_input": "The text holds nothing to speak.",
        "input_too_long": "The text is longer than is taken at once.",
        "instructions_too_long": "The instructions are longer than the model takes.",
        "instructions_required": "This model needs instructions.",
        "invalid_voice": "This model has no such voice.",
        "voice_required": "This model needs a voice, or a reference recording in its place.",
        "unsupported_response_format": "Audio is not made in this format.",
        "unsupported_sample_rate": "This format has no such sample rate.",
        "task_model_mismatch": "This model is made for another task, or for other kinds of voices.",
        "ref_audio_required": "This model needs a reference recording.",
        "ref_text_required": "This model needs the words of the reference recording.",
        "ref_audio_invalid": "The recording cannot be read as audio.",
        "ref_audio_too_short": "The recording is shorter than the model takes.",
        "ref_audio_too_long": "The recording is longer than the model takes.",
        "ref_audio_too_large": "The recording has more bytes than are taken.",
        "ref_audio_fetch_failed": "The recording could not be fetched from its URL.",
        "ref_audio_forbidden": "Recordings are not fetched from this URL.",
        "speaker_embedding_dimension": "This model takes another number of numbers.",
        "duration_required": "This model needs a duration where there is no recording.",
        "aligner_not_available": "Nothing here times the words of this model.",
        "consent_required": "A voice is kept only with the speaker's consent.",
        "too_many_items": "There are more items than one request may hold.",
        "invalid_cursor": "The list has no entry that the page could follow.",
        "invalid_message": "On a WebSocket: messages are text frames, not binary ones.",
        "invalid_idempotency_key": "The header `Idempotency-Key` is malformed.",
        "webhook_url_forbidden": "Webhooks are not sent to this URL.",
    },
    401: {
        "missing_api_key": "This server asks for a key.",
        "invalid_api_key": "This server does not know the key.",
    },
    403: {
        "permission_denied": "The key lacks the scope, or may not use the model.",
        "voice_is_builtin": "Built-in voices cannot be changed or deleted.",
        "local_media_forbidden": "Files of the server's machine are not read.",
    },
    404: {
        "model_not_found": "This model is not served here.",
        "voice_not_found": "There is no such voice.",
        "job_not_found": "There is no such job.",
        "file_not_found": "There is no such file.",
        "batch_not_found": "There is no such batch.",
        "not_found": "There is nothing under this address.",
    },
    405: {"method_not_allowed": "The address takes other methods, told in `Allow`."},
    408: {"request_timeout": "The request did not arrive in time."},
    409: {
        "voice_exists": "The name is taken, and voices are not replaced here.",
        "voice_name_reserved": "A built-in voice has this name.",
        "job_already_finished": "The job has ended, so it cannot be cancelled.",
        "job_not_finished": "The job has not ended yet.",
        "job_not_retryable": "The job has not failed, so it is not tried again.",
        "result_not_ready": "The job has no result, or none yet.",
        "idempotency_key_in_progress": "A request with this `Idempotency-Key` is being answered.",
        "session_busy": "On a WebSocket: text is pending, so the config stays as it is.",
    },
    410: {
        "result_expired": "The result was kept for its time, and is gone.",
        "stream_expired": "The audio can no longer be followed from there.",
    },
    413: {
        "request_too_large": "The request has more bytes than are taken.",
        "file_too_large": "The file has more bytes than are taken.",
    },
    415: {"unsupported_media_type": "The route takes other types of bodies."},
    416: {"range_not_satisfiable": "The range lies outside of the content."},
    422: {"idempotency_key_reused": "The `Idempotency-Key` was used for another body."},
    429: {
        "rate_limit_exceeded": "The key's rate is used up; `Retry-After` says for how long.",
        "concurrency_limit_exceeded": "As much is in work for the key as it may have at once.",
        "quota_exceeded": "The key's quota is used up.",
    },
    500: {
        "internal_error": "Something went wrong in the farm.",
        "generation_failed": "The model made no audio of this.",
        "incomplete_generation": "The model did not come to the text's end.",
    },
    503: {
        "queue_full": "The farm has all the work that it can take; `Retry-After` says for how long.",
        "no_workers": "Nothing that could do this is at work.",
        "model_loading": "The model's workers are still starting.",
        "shutting_down": "This server is about to stop.",
        "out_of_memory": "The farm's memory is full.",
    },
    504: {
        "deadline_exceeded": "The job was not done by its deadline.",
        "first_audio_timeout": "No audio came in time.",
    },
}


def as_table() -> str:
    """All of it in Markdown."""
    rows = [f"| `{code}` | {status} | {told} |" for status, codes in MEANINGS.items() for code, told in codes.items()]
    return "\n".join(("| Code | Status | Meaning |", "|---|---|---|", *rows))
