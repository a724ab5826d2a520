"""`speechmill webhooks` against an API and a receiver that are processes of their own."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2e.harness import START_S, Farm, eventually
from running import COMMAND, environment
from typer.testing import CliRunner, Result

from speechmill.cli.main import app
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey


@pytest.fixture
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, prefix: str, tmp_path: Path) -> Iterator[Farm]:
    farm = Farm(valkey, s3, prefix, tmp_path)
    farm.settings |= {
        "SPEECHMILL_WEBHOOKS__ALLOW_HTTP": "true",
        "SPEECHMILL_WEBHOOKS__ALLOWED_CIDRS": '["127.0.0.0/8"]',
    }
    farm.start_api()
    yield farm
    farm.stop()


def is_up(farm: Farm) -> bool:
    try:
        return httpx.get(f"{farm.base}/health", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def webhooks(farm: Farm, *arguments: str) -> Result:
    return CliRunner().invoke(app, ["webhooks", *arguments], env={"SPEECHMILL_URL": farm.base})


def listen(*options: str, **variables: str) -> tuple["subprocess.Popen[str]", str]:
    """A receiver and its URL."""
    command = [*COMMAND, "webhooks", "listen", "--port", "0", *options]
    receiver = subprocess.Popen(
        command, env=environment(**variables), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert receiver.stderr is not None
    return receiver, receiver.stderr.readline().removeprefix("listening on ").split(";")[0].strip()


def end(receiver: "subprocess.Popen[str]") -> tuple[str, str]:
    """What it has said on its two streams."""
    receiver.kill()
    return receiver.communicate()


def test_an_endpoint_is_made_tried_and_deleted_from_the_command_line(farm: Farm) -> None:
    open_to_all, anywhere = listen()
    eventually(lambda: is_up(farm), START_S, "the API answers")
    made = webhooks(farm, "create", f"{anywhere}/hook", "--event", "audio.job.succeeded", "--json")
    assert made.exit_code == 0, made.output
    endpoint = json.loads(made.stdout)
    listed = webhooks(farm, "list", "--json").stdout
    assert json.loads(listed)["id"] == endpoint["id"]
    assert endpoint["signing_secret"] not in listed
    assert webhooks(farm, "deliveries", endpoint["id"]).stdout == ""
    assert "the endpoint answers 204" in webhooks(farm, "test", endpoint["id"]).stdout
    said, _ = end(open_to_all)
    assert said.startswith("webhook.test  evt_")
    assert json.loads(webhooks(farm, "delete", endpoint["id"], "--json").stdout)["deleted"] is True
    again = webhooks(farm, "delete", endpoint["id"])
    assert "there is no such webhook endpoint" in str(again.exception)


def test_a_receiver_with_a_secret_takes_only_what_is_signed_with_it(farm: Farm) -> None:
    eventually(lambda: is_up(farm), START_S, "the API answers")
    made = webhooks(farm, "create", "http://127.0.0.1:9/hook", "--event", "webhook.test", "--json")
    endpoint = json.loads(made.stdout)
    receiver, url = listen("--json", SPEECHMILL_WEBHOOK_SECRET=endpoint["signing_secret"])
    path = f"{farm.base}/v1/webhook_endpoints/{endpoint['id']}"
    assert httpx.post(path, json={"url": url}).status_code == 200
    assert webhooks(farm, "test", endpoint["id"]).exit_code == 0
    httpx.post(f"{path}/rotate_secret", json={})
    refused = webhooks(farm, "test", endpoint["id"])
    assert (refused.exit_code, "the endpoint answers 400" in refused.stdout) == (1, True)
    said, complained = end(receiver)
    (line,) = said.splitlines()
    assert json.loads(line)["data"] == {"id": endpoint["id"]}
    assert "refused: the signature" in complained
