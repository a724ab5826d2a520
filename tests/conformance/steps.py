"""Runs the steps of a case against a server."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx

from .audio import compare
from .bodies import Reply, check_body
from .matchers import match, matches
from .session import run_session
from .values import Variables, as_bytes, build

TIMEOUT_S = 60.0
INTERVAL_S = 0.2


class Runner:
    """One case's steps share its variables: the fixture's, what was captured, and saved audio."""

    def __init__(self, base: str, variables: Variables, timeout_s: float = TIMEOUT_S) -> None:
        self._base = base
        self._variables = dict(variables)
        self._timeout_s = timeout_s

    def run(self, steps: list[dict[str, Any]]) -> None:
        """Raises AssertionError for the first step that does not hold."""
        for step in steps:
            self._step(step)

    def _step(self, step: dict[str, Any]) -> None:
        kinds: dict[str, Callable[[dict[str, Any]], None]] = {
            "http": self._http,
            "ws": self._ws,
            "poll": self._poll,
            "parallel": self._parallel,
            "compare": self._compare,
            "sleep_ms": lambda step: time.sleep(step["sleep_ms"] / 1000),
        }
        (kind,) = kinds.keys() & step.keys()
        kinds[kind](step)

    def _http(self, step: dict[str, Any]) -> None:
        self._expect(self._ask(step["http"]), step.get("expect", {}), "abort_after_bytes" in step["http"])

    def _poll(self, step: dict[str, Any]) -> None:
        poll = step["poll"]
        give_up = time.monotonic() + poll.get("timeout_s", self._timeout_s)
        until = build(poll["until"], self._variables)
        while not matches(until, json.loads((reply := self._ask(poll["http"])).content), self._variables):
            assert time.monotonic() < give_up, f"still {reply.content[:500]!r}"
            time.sleep(poll.get("interval_s", INTERVAL_S))
        self._expect(reply, step.get("expect", {}), cut_by_us=False)

    def _parallel(self, step: dict[str, Any]) -> None:
        with ThreadPoolExecutor(len(step["parallel"])) as pool:
            for running in [pool.submit(self._step, each) for each in step["parallel"]]:
                running.result()

    def _compare(self, step: dict[str, Any]) -> None:
        options = step["compare"]
        compare(options["what"], self._variables[options["a"]], self._variables[options["b"]], options, self._variables)

    def _ws(self, step: dict[str, Any]) -> None:
        session = step["ws"]
        run_session(self._base, session, self._key(session.get("auth", "KEY_A")), self._variables)

    def _key(self, name: str | None) -> str | None:
        """A variable's name, or the key itself."""
        return None if name is None else str(self._variables.get(name, name))

    def _ask(self, http: dict[str, Any]) -> Reply:
        """Send one request. Redirects are not followed."""
        asked = build({key: value for key, value in http.items() if key != "auth"}, self._variables)
        headers = dict(asked.get("headers", {}))
        key = self._key(http.get("auth", "KEY_A"))
        if key is not None:
            headers["Authorization"] = f"Bearer {key}"
        options: dict[str, Any] = {"headers": headers, "params": asked.get("query")}
        if "json" in asked:
            options["content"] = json.dumps(asked["json"], ensure_ascii=False).encode()
            headers.setdefault("Content-Type", "application/json")
        elif "body_text" in asked:
            options["content"] = as_bytes(asked["body_text"])
        elif "multipart" in asked:
            options["files"] = [_part(part) for part in asked["multipart"]]
        url = self._base + quote(asked["path"], safe="/%?&=:@!$'()*+,;~[]")
        return _exchange(asked["method"], url, asked.get("timeout_s", self._timeout_s), asked, options)

    def _expect(self, reply: Reply, expect: dict[str, Any], cut_by_us: bool) -> None:
        wanted = build(expect, self._variables)
        if "status" in wanted:
            statuses = wanted["status"] if isinstance(wanted["status"], list) else [wanted["status"]]
            assert reply.status in statuses, f"{reply.status}, not {statuses}: {reply.content[:500]!r}"
        for name, matcher in wanted.get("headers", {}).items():
            match(matcher, reply.headers.get(name), self._variables, f"header {name}")
        if not cut_by_us:
            assert reply.complete is wanted.get("complete", True), "cut" if not reply.complete else "not cut"
        if "max_seconds" in wanted:
            assert reply.seconds <= wanted["max_seconds"], f"took {reply.seconds:.1f} s"
        if "body" in wanted:
            check_body(reply, wanted["body"], self._variables)


def _part(part: dict[str, Any]) -> tuple[str, tuple[str | None, bytes, str | None]]:
    """A field or a file of a form, in httpx's terms."""
    if "file" not in part:
        return part["name"], (None, str(part["value"]).encode(), None)
    file = part["file"]
    content_type = file.get("content_type", "application/octet-stream")
    return part["name"], (file.get("filename", "file.wav"), as_bytes(file["bytes"]), content_type)


def _exchange(method: str, url: str, timeout_s: float, asked: dict[str, Any], options: dict[str, Any]) -> Reply:
    most = asked.get("abort_after_bytes")
    content, complete, began = bytearray(), True, time.monotonic()
    with (
        httpx.Client(timeout=timeout_s, trust_env=False) as client,
        client.stream(method, url, **options) as response,
    ):
        try:
            for piece in response.iter_raw():
                content += piece
                if most is not None and len(content) >= most:
                    break
        except httpx.RemoteProtocolError:
            complete = False
    headers = {name.lower(): value for name, value in response.headers.items()}
    return Reply(response.status_code, headers, bytes(content), complete, time.monotonic() - began)
