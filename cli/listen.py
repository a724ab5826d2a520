"""`speechmill webhooks listen`: a server that receives events, to try a farm with."""

import json
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Annotated, Any

import typer

MOST_BYTES = 1 << 20


class _Refused(Exception):
    """The text may be shown."""


class _Receiver(ThreadingHTTPServer):
    """Prints what is posted to it."""

    daemon_threads = True

    def __init__(self, address: tuple[str, int], secret: str, as_json: bool) -> None:
        super().__init__(address, _Handler)
        self._secret = secret
        self._as_json = as_json

    def take(self, headers: dict[str, str], body: bytes) -> None:
        """Raises _Refused for what is no event, or not signed with the secret where there is one."""
        from speechmill.infra.signatures import BadSignature, verify

        try:
            if self._secret:
                verify(self._secret, headers, body, time.time())
            event: dict[str, Any] = json.loads(body)
            told = json.dumps(event["data"], ensure_ascii=False)
            line = json.dumps(event, ensure_ascii=False) if self._as_json else f"{event['type']}  {event['id']}  {told}"
        except BadSignature as error:
            raise _Refused(str(error)) from None
        except (ValueError, KeyError, TypeError):
            raise _Refused("this is no event") from None
        print(line, flush=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Receiver

    def do_POST(self) -> None:
        size = self.headers.get("content-length", "")
        try:
            if not size.isdecimal() or int(size) > MOST_BYTES:
                raise _Refused("the body has no length, or is too large")
            self.server.take({name.lower(): value for name, value in self.headers.items()}, self.rfile.read(int(size)))
        except _Refused as reason:
            sys.stderr.write(f"refused: {reason}\n")
            self.send_error(400, str(reason))
            return
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """The events themselves are printed."""


def listen(
    port: Annotated[int, typer.Option(help="Port to listen on; 0 for any.")] = 8095,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    secret: Annotated[
        str, typer.Option(help="Refuse what is not signed with it.", envvar="SPEECHMILL_WEBHOOK_SECRET")
    ] = "",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
) -> None:
    """Receive events and print them, until Ctrl-C. Farms send to private addresses only where webhooks.* allows it."""
    with _Receiver((host, port), secret, as_json) as server:
        note = "" if secret else "; signatures are not checked without --secret"
        sys.stderr.write(f"listening on http://{host}:{server.server_port}{note}\n")
        sys.stderr.flush()
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            sys.stderr.write("stopped\n")
