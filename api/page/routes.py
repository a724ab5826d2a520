"""The web page at `/` and the description of the API at `/docs`: files of this package, served as they are.

They load nothing from anywhere else, so they work without internet, and the browser is told to hold them to it.
"""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib import resources

from fastapi import APIRouter, Request
from starlette.responses import Response

from speechmill.api.errors import ApiError

router = APIRouter(include_in_schema=False)
_MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
_POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    media_type: str
    etag: str


@cache
def _files() -> dict[str, _File]:
    """By name. A new version of the package gives them new tags."""
    found = {}
    for entry in resources.files("speechmill.api.page").iterdir():
        media_type = _MEDIA_TYPES.get(entry.name.rpartition(".")[2])
        if media_type is not None:
            body = entry.read_bytes()
            found[entry.name] = _File(body, media_type, f'"{sha256(body).hexdigest()[:32]}"')
    return found


def _answer(name: str, request: Request) -> Response:
    """HEAD needs nothing of its own: the server sends no body for it."""
    file = _files().get(name)
    if file is None:
        raise ApiError(404, "not_found", "there is no such file")
    headers = {**_HEADERS, "ETag": file.etag}
    known = (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(","))
    if file.etag in known:
        return Response(status_code=304, headers=headers)
    return Response(file.body, media_type=file.media_type, headers=headers)


@router.api_route("/", methods=["GET", "HEAD"])
async def index(request: Request) -> Response:
    return _answer("index.html", request)


@router.api_route("/docs", methods=["GET", "HEAD"])
async def docs(request: Request) -> Response:
    return _answer("docs.html", request)


@router.api_route("/page/{name}", methods=["GET", "HEAD"])
async def static_file(name: str, request: Request) -> Response:
    return _answer(name, request)
