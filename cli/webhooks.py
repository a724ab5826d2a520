"""`speechmill webhooks`: who is told of events."""

import json
import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from speechmill.cli import listen

app = typer.Typer(help="Webhooks: who is told of events, and a server to try it with.", no_args_is_help=True)
app.command("listen")(listen.listen)
Url = Annotated[str, typer.Option(help="Where the farm is.", envvar="SPEECHMILL_URL")]
Key = Annotated[str, typer.Option(help="API key, where one is asked for.", envvar="SPEECHMILL_API_KEY")]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object a line.")]
EndpointId = Annotated[str, typer.Argument(help="From `speechmill webhooks list`.")]
HERE = "http://127.0.0.1:8091"
ENDPOINTS = "/v1/webhook_endpoints"
PAGE = 100


@app.command("list")
def list_all(url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Endpoints of the key's project, newest first."""
    for endpoint in _pages(url, key, ENDPOINTS):
        state = "enabled" if endpoint["enabled"] else f"disabled: {endpoint['disabled_reason']}"
        _show(endpoint, (endpoint["id"], endpoint["name"], endpoint["url"], state), as_json)


@app.command("create")
def create(
    to: Annotated[str, typer.Argument(metavar="URL", help="Where to send events.")],
    event: Annotated[list[str], typer.Option(help="Event type, such as audio.job.succeeded; repeatable.")],
    name: Annotated[str, typer.Option(help="For people to tell endpoints apart.")] = "webhook",
    include_result_url: Annotated[bool, typer.Option("--include-result-url", help="Tell where the audio is.")] = False,
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Make an endpoint and print the secret that signs what it gets. It is shown this once."""
    body = {"name": name, "url": to, "event_types": event, "include_result_url": include_result_url}
    made = _call(url, key, "POST", ENDPOINTS, body)
    if not as_json:
        sys.stderr.write(f"{made['id']}; this is the only time the secret is shown:\n")
    _show(made, (made["signing_secret"],), as_json)


@app.command("delete")
def delete(endpoint: EndpointId, url: Url = HERE, key: Key = "") -> None:
    """Stop telling an endpoint."""
    _call(url, key, "DELETE", _path(endpoint))
    sys.stderr.write(f"deleted {endpoint}\n")


@app.command("test")
def send_test(
    endpoint: EndpointId,
    event: Annotated[str, typer.Option(help="Event type.")] = "webhook.test",
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Send a test event, and print the status that the endpoint answers."""
    answer = _call(url, key, "POST", f"{_path(endpoint)}/test", {"event_type": event})
    _show(answer, (f"the endpoint answers {answer['status_code']}",), as_json)
    if not 200 <= answer["status_code"] < 300:
        raise typer.Exit(1)


@app.command("deliveries")
def deliveries(endpoint: EndpointId, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """What an endpoint was sent, newest first."""
    for one in _pages(url, key, f"{_path(endpoint)}/deliveries"):
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["created_at"]))
        tries = [attempt["error"] or str(attempt["status_code"]) for attempt in one["attempts"]]
        _show(one, (one["id"], at, one["event_type"], one["status"], ", ".join(tries)), as_json)


def _path(endpoint: str) -> str:
    return f"{ENDPOINTS}/{quote(endpoint, safe='')}"


def _show(told: dict[str, Any], parts: tuple[str, ...], as_json: bool) -> None:
    print(json.dumps(told, ensure_ascii=False) if as_json else "  ".join(part for part in parts if part), flush=True)


def _pages(url: str, key: str, path: str) -> list[dict[str, Any]]:
    """Everything in a list, page after page."""
    found: list[dict[str, Any]] = []
    page: dict[str, Any] = {"has_more": True}
    while page["has_more"]:
        after = f"&after={found[-1]['id']}" if found else ""
        page = _call(url, key, "GET", f"{path}?limit={PAGE}{after}")
        found += page["data"]
    return found


def _call(url: str, key: str, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    """Raises FarmError with the server's own message."""
    import httpx

    from speechmill.cli.common import refusal
    from speechmill.infra.errors import FarmError

    base = url.rstrip("/").removesuffix("/v1")
    shown = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        answer = httpx.request(method, f"{base}{path}", json=body, headers=shown, timeout=60, trust_env=False)
    except httpx.HTTPError as error:
        advice = "say where the farm is with --url or SPEECHMILL_URL"
        raise FarmError(f"{base} does not answer ({error}); {advice}") from error
    if answer.status_code != 200:
        raise FarmError(refusal(answer, base))
    told: dict[str, Any] = answer.json()
    return told
