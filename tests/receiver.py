"""Somebody else's server that is told of events."""

import json
import queue
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PATIENCE_S = 30.0


@dataclass(frozen=True, slots=True)
class Received:
    """One post as it came."""

    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    @property
    def message(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.body)
        return told


class Receiver:
    """Answers each post with the next of the given statuses, then with 204; a status may have headers."""

    def __init__(self, answers: Iterable[int | tuple[int, Mapping[str, str]]] = ()) -> None:
        self._answers = list(answers)
        self._received: queue.Queue[Received] = queue.Queue()
        self.may_answer = threading.Event()
        self.may_answer.set()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                answer = outer._answers.pop(0) if outer._answers else 204
                status, headers = answer if isinstance(answer, tuple) else (answer, {})
                outer._received.put(Received({name.lower(): value for name, value in self.headers.items()}, body))
                outer.may_answer.wait(PATIENCE_S)
                self.send_response(status)
                for name, value in {**headers, "Content-Length": "0"}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """The sender may have been killed."""

        self._server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/hook"
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def next(self) -> Received:
        """Wait for the next post. Raises queue.Empty when none comes."""
        return self._received.get(timeout=PATIENCE_S)

    @property
    def is_quiet(self) -> bool:
        """Whether every post has been looked at."""
        return self._received.empty()

    def __enter__(self) -> "Receiver":
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()
