"""The commands without a farm: help, and one line for whatever goes wrong."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from running import COMMAND, environment, speechmill
from typer.main import get_command
from typer.testing import CliRunner

from speechmill.cli.again import coming_back
from speechmill.cli.bench.farm import free_port
from speechmill.cli.common import settings_from
from speechmill.cli.main import app
from speechmill.cli.tables import show_fields, show_table
from speechmill.configs.settings import PROFILES
from speechmill.infra.embedded import EmbeddedValkey

CONFIG_FAULT = 78
GOLDENS = Path(__file__).parents[1] / "goldens" / "qwen3_tts"
QWEN = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
HELP_OF_ALL = """
import sys
from typer.main import get_command
from speechmill.cli.main import app

def show(command, path):
    with command.make_context(" ".join(path), ["--help"], resilient_parsing=True) as context:
        print(command.get_help(context))
    for name, inner in getattr(command, "commands", {}).items():
        show(inner, [*path, name])

show(get_command(app), ["speechmill"])
heavy = {"torch", "onnxruntime", "transformers", "celery", "fastapi", "boto3"} & set(sys.modules)
sys.exit(f"loaded {heavy}" if heavy else 0)
"""


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, inner in getattr(command, "commands", {}).items():
        yield from commands(inner, (*path, name))


def assert_one_line(done: subprocess.CompletedProcess[str], code: int, told: str) -> None:
    """One line for the user; a role may have logged lines of JSON before it."""
    lines = [line for line in done.stderr.splitlines() if not line.startswith("{")]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("speechmill: ")
    assert told in lines[0]
    assert done.returncode == code


@pytest.mark.parametrize("path", list(commands(get_command(app))), ids=" ".join)
def test_every_command_explains_itself(path: tuple[str, ...]) -> None:
    done = CliRunner().invoke(app, [*path, "--help"])
    assert done.exit_code == 0
    assert "Usage:" in done.output


def test_help_loads_nothing_heavy() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_OF_ALL], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_port_in_use_is_one_line_and_starts_nothing(tmp_path: Path) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        done = speechmill("up", "--port", port, "--data-dir", "data", cwd=tmp_path)
    assert_one_line(done, CONFIG_FAULT, f"cannot listen on 127.0.0.1:{port}")
    assert "choose another with --port" in done.stderr
    assert not (tmp_path / "data").exists()


def test_an_unknown_setting_is_one_line(tmp_path: Path) -> None:
    done = speechmill("up", "--set", "api.prot=1", cwd=tmp_path)
    assert_one_line(done, CONFIG_FAULT, "api.prot: there is no such setting")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ('stages."hibar/decoder".slots=2', 'stages."hibar/decoder": it must be a model and its stage'),
        ("stages.hibari.slots=2", 'stages."hibari": it must be a model and its stage'),
        ('stages."hibari/talker".slots=2', 'stages."hibari/talker": hibari has no such stage; it has: '),
        ("checkpoints.hibar=/data", 'checkpoints."hibar": unknown model; known: '),
    ],
)
def test_a_setting_of_a_model_or_stage_that_nothing_knows_is_one_line(tmp_path: Path, given: str, told: str) -> None:
    assert_one_line(speechmill("config", "--set", given, cwd=tmp_path), CONFIG_FAULT, told)


def test_a_profile_and_variables_may_name_known_stages_only(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('[stages."hibar/decoder"]\nslots = 2\n')
    from_file = speechmill("config", "--profile", "own.toml", cwd=tmp_path)
    variables = {"SPEECHMILL_STAGES": '{"hibar/decoder": {"slots": 2}}'}
    for done in (from_file, speechmill("config", cwd=tmp_path, **variables)):
        assert_one_line(done, CONFIG_FAULT, 'stages."hibar/decoder": it must be a model')


def test_profiles_of_the_package_name_models_and_stages_that_there_are() -> None:
    for profile in PROFILES.glob("*.toml"):
        settings_from(profile, [])


def test_an_unreadable_profile_is_one_line(tmp_path: Path) -> None:
    done = speechmill("config", "--profile", "missing.toml", cwd=tmp_path)
    assert_one_line(done, CONFIG_FAULT, "cannot read profile missing.toml")


def test_a_role_without_its_server_says_what_to_set(tmp_path: Path) -> None:
    for role in (["worker"], ["api", "--port", str(free_port())]):
        assert_one_line(speechmill(*role, cwd=tmp_path), CONFIG_FAULT, "redis.control_url is not set")


def test_an_unknown_model_is_one_line(tmp_path: Path) -> None:
    done = speechmill("worker", "--model", "nobody", cwd=tmp_path)
    assert_one_line(done, CONFIG_FAULT, "unknown model 'nobody'; known: ")


def test_a_folder_or_model_that_there_is_not_starts_nothing(tmp_path: Path) -> None:
    wrong = {"./none": "no such folder: ./none", "nobody": "unknown model 'nobody'; known: "}
    for model, told in wrong.items():
        done = speechmill("up", "--port", str(free_port()), "--model", model, cwd=tmp_path)
        assert_one_line(done, CONFIG_FAULT, told)
    twice = ("--model", str(GOLDENS / "base"), "--model", QWEN)
    assert_one_line(speechmill("up", *twice, cwd=tmp_path), CONFIG_FAULT, f"{QWEN} is named twice")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("named", "told"),
    [
        ("/none", "no such folder: /none"),
        ("hibari", "hibari needs no checkpoint"),
        ("nobody", "unknown model 'nobody'; known: "),
        ("some/body", "hf download some/body puts it there"),
    ],
)
def test_a_checkpoint_that_cannot_be_checked_is_one_line(tmp_path: Path, named: str, told: str) -> None:
    assert_one_line(speechmill("models", "check", named, cwd=tmp_path, HF_HUB_CACHE="cache"), 1, told)


def test_the_doctor_fails_a_stage_whose_device_is_not_there(tmp_path: Path) -> None:
    devices = "".join(f'[stages."{QWEN}/{stage}"]\ndevice = "cpu"\n' for stage in ("talker", "codec", "encode"))
    (tmp_path / "cpu.toml").write_text(devices)
    (tmp_path / "gpu.toml").write_text(devices.replace("cpu", "cuda:99", 1))

    def found(profile: str) -> tuple[str, str]:
        options = ("--profile", profile, "--model", str(GOLDENS / "base"), "--url", f"http://127.0.0.1:{free_port()}")
        done = speechmill("doctor", "--json", *options, cwd=tmp_path)
        (finding,) = [one for one in map(json.loads, done.stdout.splitlines()) if one["check"] == f"model {QWEN}"]
        return finding["level"], finding["what"] + finding["advice"]

    assert found("cpu.toml")[0] == "ok"
    level, told = found("gpu.toml")
    assert (level, "talker: device 'cuda:99' is not there" in told, "_cpu" in told) == ("fail", True, True)


def test_a_missing_package_is_one_line_that_says_how_to_get_it(valkey: EmbeddedValkey) -> None:
    program = "import sys; sys.modules['torch'] = None; from speechmill.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "worker", "--set", f"redis.control_url={valkey.url}"],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert_one_line(done, CONFIG_FAULT, "the package 'torch' is missing: pip install 'speechmill[worker]'")


def test_the_effective_settings_hide_secrets() -> None:
    secrets = ["s3.secret_key=swordfish", "redis.control_url=redis://user:swordfish@host/0"]
    secrets += ["redis.chunks_url=rediss://:swordfish@host", "celery.broker_url=redis://swordfish:swordfish@host"]
    done = CliRunner().invoke(app, ["config", *(part for secret in secrets for part in ("--set", secret))])
    assert done.exit_code == 0
    assert '"control_url": "redis://user:***@host/0"' in done.output
    assert done.output.count("swordfish") == 1  # a user's name is none


def test_speaking_through_a_stopped_farm_is_one_line(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    done = speechmill("say", "hello", "--url", url, cwd=tmp_path)
    assert_one_line(done, 1, f"{url} does not answer")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--url", "localhost:x"), "--url http://localhost:x: Invalid port"),
        (("--url", "ftp://host"), "it must be such as http://127.0.0.1:8091"),
        (("--url", "host:99999"), "it must be such as"),
        (("--key", "schlüssel"), "--key: a key has only ASCII characters"),
    ],
)
def test_what_is_no_address_or_no_key_is_one_line(tmp_path: Path, options: tuple[str, str], told: str) -> None:
    assert_one_line(speechmill("jobs", "list", *options, cwd=tmp_path), 1, told)


def test_a_command_that_is_shown_has_no_key_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    said = "To come back, with the key in SPEECHMILL_API_KEY:\n  speechmill submit a.txt --json"
    for given in (["submit", "a.txt", "--key", "sk-1", "--json"], ["submit", "--key=sk-1", "a.txt", "-", "--json"]):
        monkeypatch.setattr(sys, "argv", ["speechmill", *given])
        assert coming_back(["-"]) == said


def test_other_peoples_text_does_not_steer_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    show_table([{"id": "a\x1b[2J\x9b1m\u202eb\nc"}], {"id": lambda record: record["id"]}, as_json=False)
    show_fields({"name": "a\x1b[2J\rb"}, as_json=False)
    assert capsys.readouterr().out == "a [2J 1m b c\nname\ta [2J b\n"


def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """A limit on the size of files stands for it."""
    (tmp_path / "a.txt").write_text("".join(f"Number {number}.\n" for number in range(20_000)))
    limited = 'ulimit -f 512; exec "$@"'
    done = subprocess.run(
        ["sh", "-c", limited, "sh", *COMMAND, "submit", "a.txt", "--dry-run"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_one_line(done, 1, "state: ")


def test_seeds_of_a_groups_jobs_and_states_of_a_job_are_not_for_a_retry() -> None:
    for wrong, why in ((("jobgrp_1", "--new-seed"), "is a group"), (("job_1", "--state", "failed"), "is no group")):
        done = CliRunner().invoke(app, ["jobs", "retry", *wrong])
        assert (done.exit_code, why in done.output) == (2, True)


def test_dead_letters_of_a_stopped_farm_are_one_line(tmp_path: Path) -> None:
    assert_one_line(speechmill("dead", "list", cwd=tmp_path), 1, "no farm runs on data")
