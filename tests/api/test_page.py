"""The page's files as the API hands them out; what they do in a browser is tested in e2e."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI

from speechmill.api.app import create_app
from speechmill.configs.settings import load


def make_app(page: bool) -> FastAPI:
    """Of servers that nobody asks: the page needs none."""
    settings = load().model_copy(deep=True)
    settings.redis.control_url = "redis://127.0.0.1:9"
    settings.s3.endpoint_url = "http://127.0.0.1:9"
    settings.api.page = page
    return create_app(settings)


@pytest.fixture(scope="module")
def app() -> FastAPI:
    return make_app(page=True)


def ask(app: FastAPI, method: str, path: str, **headers: str) -> httpx.Response:
    async def answer() -> httpx.Response:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://test", headers=headers) as client:
            return await client.request(method, path)

    return asyncio.run(answer())


@pytest.mark.parametrize(
    ("path", "media_type"),
    [
        ("/", "text/html; charset=utf-8"),
        ("/docs", "text/html; charset=utf-8"),
        ("/page/app.js", "text/javascript; charset=utf-8"),
        ("/page/style.css", "text/css; charset=utf-8"),
        ("/page/icon.svg", "image/svg+xml"),
    ],
)
def test_every_file_has_its_type_and_tells_the_browser_to_load_nothing_from_elsewhere(
    app: FastAPI, path: str, media_type: str
) -> None:
    for method in ("GET", "HEAD"):
        answer = ask(app, method, path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == media_type
        assert answer.headers["content-security-policy"].startswith("default-src 'self';")
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-cache"


def test_a_file_that_the_browser_has_is_not_sent_again(app: FastAPI) -> None:
    etag = ask(app, "GET", "/").headers["etag"]
    again = ask(app, "GET", "/", **{"If-None-Match": f'"other", W/{etag}'})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", etag)
    assert ask(app, "GET", "/", **{"If-None-Match": '"other"'}).status_code == 200


@pytest.mark.parametrize("path", ["/page/nothing.js", "/page/..%2Fapp.py", "/page/routes.py", "/redoc"])
def test_nothing_but_the_pages_files_is_handed_out(app: FastAPI, path: str) -> None:
    answer = ask(app, "GET", path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")


def test_there_is_no_page_where_the_settings_say_so() -> None:
    app = make_app(page=False)
    assert {ask(app, "GET", path).status_code for path in ("/", "/docs", "/page/app.js")} == {404}
