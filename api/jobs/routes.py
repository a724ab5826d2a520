"""All routes of jobs (speech_api §5.4)."""

from fastapi import APIRouter

from speechmill.api.jobs import audio, create, events, lists, single, stream, subtitles

router = APIRouter()
for part in (create, lists, single, audio, stream, events, subtitles):
    router.include_router(part.router)
