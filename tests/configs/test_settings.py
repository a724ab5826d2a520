"""Where settings come from, who wins, and how a mistake is told."""

import os
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from speechmill.configs.settings import PROFILES, Settings, SettingsError, load

DEFAULTS = Path(str(resources.files("speechmill.configs"))) / "default.toml"


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("SPEECHMILL_"):
            monkeypatch.delenv(name)


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    path = tmp_path / "profile.toml"
    path.write_text("[api]\nport = 2\n")
    return path


def names(tree: dict[str, Any], above: str = "") -> set[str]:
    """Dotted names of all settings; what is keyed by the user's own names (`stages`) has none."""
    found = set()
    for key, value in tree.items():
        found |= names(value, f"{above}{key}.") if isinstance(value, dict) else {above + key}
    return found


def test_the_default_profile_writes_out_exactly_the_built_in_defaults() -> None:
    assert load(DEFAULTS).model_dump() == load().model_dump()
    assert names(tomllib.loads(DEFAULTS.read_text())) == names(Settings().model_dump())


def test_later_sources_win(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert load().api.port == 8091
    assert load(profile).api.port == 2
    monkeypatch.setenv("SPEECHMILL_API__PORT", "3")
    assert load(profile).api.port == 3
    assert load(profile, ["api.port=4"]).api.port == 4


def test_a_source_changes_only_what_it_names(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECHMILL_API__HOST", "::1")
    settings = load(profile, ["api.drain_s=5"])
    assert (settings.api.host, settings.api.port, settings.api.drain_s) == ("::1", 2, 5.0)


def test_the_profile_may_come_from_a_variable(profile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPEECHMILL_PROFILE", str(profile))
    assert load().api.port == 2


def test_a_stage_is_named_with_its_model(tmp_path: Path) -> None:
    path = tmp_path / "stages.toml"
    path.write_text('[stages."hibari/decoder"]\nslots = 3\n')
    assert load(path).stages["hibari/decoder"].slots == 3


@pytest.mark.parametrize("key", ['stages."Qwen/TTS-1.7B/talker".slots', "stages.'Qwen/TTS-1.7B/talker'.slots"])
def test_a_name_with_dots_is_quoted_on_the_command_line_as_in_a_file(key: str) -> None:
    assert load(assignments=[f"{key}=2"]).stages["Qwen/TTS-1.7B/talker"].slots == 2


def test_a_name_without_dots_may_have_quotes_and_needs_none(tmp_path: Path) -> None:
    for key in ('"a/b"', "a/b", '"a\\u002fb"'):
        assert load(assignments=[f"checkpoints.{key}=/c=d"]).checkpoints == {"a/b": Path("/c=d")}


@pytest.mark.parametrize(
    ("toml", "variables", "assignments", "told"),
    [
        ("[api]\nprot = 1", {}, [], "api.prot: there is no such setting"),
        ("[ap]\nport = 1", {}, [], "ap: there is no such setting"),
        ("", {"SPEECHMILL_API__PROT": "1"}, [], "api.prot: there is no such setting"),
        ("", {"SPEECHMILL_API_PORT": "1"}, [], "unknown variable SPEECHMILL_API_PORT"),
        ("", {}, ["api.prot=1"], "api.prot: there is no such setting"),
        ("", {}, ["api.port=many"], "api.port: "),
        ("", {}, ["api.port"], "expected KEY=VALUE"),
        ("", {}, ["api=1", "api.port=2"], "api is given a value by another --set"),
        ("", {}, ['stages."hibari/decoder.slots=2'], "expected KEY=VALUE"),
        ("", {}, ['stages."hi\\bari/\\q".slots=2'], "Unescaped"),
        ("", {}, ["stages.Qwen/TTS-1.7B.slots=2"], 'stages."Qwen/TTS-1".7B: there is no such setting'),
        ("", {"SPEECHMILL_MODELS": "hibari"}, [], 'models" from'),
        ("", {"SPEECHMILL_MODELS": "hibari"}, [], 'lists and tables as JSON, such as ["one", "two"]'),
        ("", {}, ["voices.precomputed=voices"], 'voices.precomputed: it must be a list, such as ["voices"]'),
        ("", {}, ["voices.precomputed=[voices]"], 'voices.precomputed: it must be a list, such as ["one", "two"]'),
        ("[fetch]\nallowed_ports = 80", {}, [], "fetch.allowed_ports: it must be a list, such as [80]"),
        ("", {}, ["models=[]"], "models: the list is too short"),
        ("", {}, ["checkpoints=/models"], 'checkpoints: it must be a table, such as {"name": "value"}'),
        ("", {}, ["checkpoints.hibari=[1]"], "checkpoints.hibari: it must be a path"),
        ("", {}, ["api=1"], "api: it must be a table"),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    toml: str,
    variables: dict[str, str],
    assignments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "profile.toml"
    path.write_text(toml)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError) as caught:
        load(path, assignments)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [None, b"api = [", b"\xff\xfe"])
def test_a_profile_that_cannot_be_read_is_one_line_that_names_it(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "profile.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SettingsError, match=f"cannot read profile {path}") as caught:
        load(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_a_profile_of_the_package_is_found_by_its_name_and_is_sound(name: str) -> None:
    assert load(Path(name)).model_dump() == load(PROFILES / f"{name}.toml").model_dump()


def test_an_unknown_profile_names_those_that_there_are() -> None:
    with pytest.raises(SettingsError, match=r"those by name: .*fish_speech_cpu"):
        load(Path("nobody"))
