"""`speechmill webhooks`: who is told of events."""

import json
import sys
import time
from typing import Annotated, Any
from urllib.parse import quote

import typer

from speechmill.cli import listen
from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url
from speechmill.cli.tables import show_deleted

app = typer.Typer(help="Webhooks: who is told of events, and a server to try it with.", no_args_is_help=True)
app.command("listen")(listen.listen)
EndpointId = Annotated[str, typer.Argument(help="From `speechmill webhooks list`.")]
ENDPOINTS = "/v1/webhook_endpoints"


@app.command("list")
def list_all(url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Endpoints of the key's project, newest first."""
    with Remote(url, key) as farm:
        for endpoint in farm.pages(ENDPOINTS):
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
    with Remote(url, key) as farm:
        made = farm.told("POST", ENDPOINTS, json=body)
    if not as_json:
        sys.stderr.write(f"{made['id']}; this is the only time the secret is shown:\n")
    _show(made, (made["signing_secret"],), as_json)


@app.command("delete")
def delete(endpoint: EndpointId, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """Stop telling an endpoint."""
    with Remote(url, key) as farm:
        told = farm.told("DELETE", _path(endpoint))
    show_deleted(endpoint, told, as_json)


@app.command("test")
def send_test(
    endpoint: EndpointId,
    event: Annotated[str, typer.Option(help="Event type.")] = "webhook.test",
    url: Url = HERE,
    key: Key = "",
    as_json: AsJson = False,
) -> None:
    """Send a test event, and print the status that the endpoint answers."""
    with Remote(url, key) as farm:
        answer = farm.told("POST", f"{_path(endpoint)}/test", json={"event_type": event})
    _show(answer, (f"the endpoint answers {answer['status_code']}",), as_json)
    if not 200 <= answer["status_code"] < 300:
        raise typer.Exit(1)


@app.command("deliveries")
def deliveries(endpoint: EndpointId, url: Url = HERE, key: Key = "", as_json: AsJson = False) -> None:
    """What an endpoint was sent, newest first."""
    with Remote(url, key) as farm:
        for one in farm.pages(f"{_path(endpoint)}/deliveries"):
            at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(one["created_at"]))
            tries = [attempt["error"] or str(attempt["status_code"]) for attempt in one["attempts"]]
            _show(one, (one["id"], at, one["event_type"], one["status"], ", ".join(tries)), as_json)


def _path(endpoint: str) -> str:
    return f"{ENDPOINTS}/{quote(endpoint, safe='')}"


def _show(told: dict[str, Any], parts: tuple[str, ...], as_json: bool) -> None:
    print(json.dumps(told, ensure_ascii=False) if as_json else "  ".join(part for part in parts if part), flush=True)
