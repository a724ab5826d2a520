"""A running farm as commands see it: HTTP with the key, errors in the server's own words."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from speechmill.infra.errors import BadInput, FarmError

if TYPE_CHECKING:
    import httpx

HERE = "http://127.0.0.1:8091"
Url = Annotated[str, typer.Option("--url", help="Where the farm is.", envvar="SPEECHMILL_URL")]
Key = Annotated[str, typer.Option("--key", help="API key, where one is asked for.", envvar="SPEECHMILL_API_KEY")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
PAGE = 100
"""Records that one request lists."""
ANSWER_S = 60.0
MOST_PORT = 65_535


class Unreachable(FarmError):
    """Nothing answers at the farm's address, or the connection broke. What was asked may have been done."""


class Refused(FarmError):
    """The farm answered with an error; `status` is its HTTP status, `code` its own name of the fault.

    `details` are the items at fault of a request for many; `retry_after_s` is when to ask again, where it says so.
    """

    def __init__(self, answer: "httpx.Response", base: str) -> None:
        error = refusal(answer, base)
        super().__init__(error["message"], error["code"])
        self.status = answer.status_code
        self.details: list[dict[str, Any]] = error.get("details") or []
        after = answer.headers.get("retry-after", "")
        self.retry_after_s = int(after) if after.isdecimal() else None


class Remote:
    """One farm, and one connection pool to it. A context manager. Raises BadInput for what is no address, or no key."""

    def __init__(self, url: str, key: str) -> None:
        import httpx

        self.base = (url if "://" in url else f"http://{url}").rstrip("/").removesuffix("/v1")
        _check(self.base, key)
        shown = {"Authorization": f"Bearer {key}"} if key else {}
        self.http = httpx.Client(headers=shown, timeout=ANSWER_S, trust_env=False)

    def __enter__(self) -> "Remote":
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()

    def ask(self, method: str, path: str, **options: Any) -> "httpx.Response":
        """`options` as httpx takes them. Raises Unreachable, and Refused for every status of 400 and more."""
        import httpx

        try:
            answer = self.http.request(method, f"{self.base}{path}", **options)
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error
        if answer.status_code >= 400:
            raise Refused(answer, self.base)
        return answer

    def told(self, method: str, path: str, **options: Any) -> dict[str, Any]:
        """The JSON object of the answer. Raises as `ask`."""
        answer = self.ask(method, path, **options)
        try:
            told: dict[str, Any] = answer.json()
        except ValueError:
            raise Refused(answer, self.base) from None
        return told

    @contextlib.contextmanager
    def streamed(self, path: str, **options: Any) -> Iterator["httpx.Response"]:
        """The answer to a GET while it comes. Raises as `ask`, and Unreachable where the body breaks off."""
        import httpx

        try:
            with self.http.stream("GET", f"{self.base}{path}", **options) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    raise Refused(answer, self.base)
                yield answer
        except httpx.HTTPError as error:
            raise self.unreachable(error) from error

    def pages(self, path: str, params: Mapping[str, Any] | None = None, most: int | None = None) -> Iterator[Any]:
        """Records of a list, page after page, at most `most` of them. Raises as `ask`."""
        given = 0
        after: dict[str, str] = {}
        while most is None or given < most:
            limit = PAGE if most is None else min(PAGE, most - given)
            page = self.told("GET", path, params={"limit": limit, **(params or {}), **after})
            yield from page["data"]
            given += len(page["data"])
            if not page["has_more"]:
                break
            after = {"after": page["data"][-1]["id"]}

    def unreachable(self, error: Exception) -> Unreachable:
        advice = "is `speechmill up` running there? Else say where with --url or SPEECHMILL_URL"
        return Unreachable(f"{self.base} does not answer ({error}); {advice}")


def _check(base: str, key: str) -> None:
    import httpx

    try:
        url = httpx.URL(base)
    except httpx.InvalidURL as error:
        raise BadInput(f"--url {base}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > MOST_PORT:
        raise BadInput(f"--url {base}: it must be such as {HERE}")
    if not (key.isascii() and key.isprintable()):
        raise BadInput("--key: a key has only ASCII characters, and none of control")


def refusal(answer: "httpx.Response", base: str) -> dict[str, Any]:
    """Why the server at `base` did not do what it was asked: at least `message` and `code`."""
    try:
        error = answer.json()["error"]
        return {**error, "message": str(error["message"]), "code": str(error["code"])}
    except (ValueError, KeyError, TypeError):
        return {"message": f"{base} answers {answer.status_code}: it is no Speechmill", "code": "no_farm"}
