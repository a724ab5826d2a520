"""All settings. Later sources win: defaults, a TOML profile, `SPEECHMILL_*` variables, `--set` on the command line.

`default.toml` beside this file writes the defaults out with their meaning; a test keeps the two equal.
"""

import json
import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource
from pydantic_settings.exceptions import SettingsError as PydanticSettingsError

PREFIX = "SPEECHMILL_"
PROFILES = Path(__file__).parent / "profiles"
PROFILE_VARIABLE = f"{PREFIX}PROFILE"
OTHER_VARIABLES = (
    PROFILE_VARIABLE,
    *(f"{PREFIX}{name}" for name in ("URL", "API_KEY", "WEBHOOK_SECRET", "FISH_KVCACHE_ATTN", "GOLDENS")),
)
"""Ours, but no settings."""
_PART = r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|[^."\'=]+'
"""Of a key: quoted as in TOML, or bare; unlike TOML's own, bare ones may have slashes in them."""
_KEY = re.compile(rf"(?:{_PART})(?:\.(?:{_PART}))*=")
_BARE = re.compile(r"[A-Za-z0-9_-]+")


class SettingsError(Exception):
    """Settings or a profile cannot be used; the text says which and why."""


class Section(BaseModel):
    """Unknown keys are errors, so that a typing mistake never passes silently."""

    model_config = ConfigDict(extra="forbid")


class Redis(Section):
    control_url: str = ""
    chunks_url: str = ""
    prefix: str = "tts"
    max_memory_mb: Annotated[int, Field(ge=64)] = 512
    memory_mark: Annotated[float, Field(gt=0, le=1)] = 0.8


class S3(Section):
    endpoint_url: str = ""
    public_endpoint_url: str = ""
    bucket: str = "tts-audio"
    region: str = "us-east-1"
    access_key: str = ""
    secret_key: str = ""


class Celery(Section):
    broker_url: str = ""
    threads: Annotated[int, Field(gt=0)] = 4
    sweep_every_s: Annotated[int, Field(gt=0)] = 60


ProfileName = Literal["native", "openai", "openwebui"]
JobClass = Literal["interactive", "normal", "batch"]
Scheduling = Literal["deadline", "arrival"]
SCOPES = ("speech", "jobs", "files", "batches", "voices:read", "voices:write", "webhooks", "admin", "local_media")


class Api(Section):
    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8091
    drain_s: Annotated[float, Field(ge=0)] = 60.0
    default_profile: ProfileName = "native"
    strict_params: bool = False
    elevenlabs: bool = False
    page: bool = True


class KeyLimits(Section):
    """0 is no limit."""

    requests_per_minute: Annotated[int, Field(ge=0)] = 0
    characters_per_minute: Annotated[int, Field(ge=0)] = 0
    concurrency: Annotated[int, Field(ge=0)] = 0
    queued_jobs: Annotated[int, Field(ge=0)] = 0
    characters_per_day: Annotated[int, Field(ge=0)] = 0
    characters_per_month: Annotated[int, Field(ge=0)] = 0
    audio_seconds_per_day: Annotated[int, Field(ge=0)] = 0
    audio_seconds_per_month: Annotated[int, Field(ge=0)] = 0


class ApiKey(Section):
    """What one key may do. In a profile `key` is the key itself; `speechmill keys` stores only its SHA-256."""

    key: Annotated[str, Field(repr=False)] = ""
    name: str = ""
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,63}$")] = "default"
    scopes: tuple[str, ...] = SCOPES[:-2]
    models: tuple[str, ...] = ()
    max_priority: JobClass = "interactive"
    profile: ProfileName | None = None
    limits: KeyLimits = KeyLimits()

    @field_validator("scopes")
    @classmethod
    def _are_known(cls, scopes: tuple[str, ...]) -> tuple[str, ...]:
        if unknown := set(scopes) - set(SCOPES):
            raise ValueError(f"unknown scope {', '.join(sorted(unknown))}; known: {', '.join(SCOPES)}")
        return scopes


class Auth(Section):
    enabled: bool | Literal["auto"] = "auto"
    public_lists: bool = True
    keys: tuple[ApiKey, ...] = ()


class Alias(Section):
    """Another name for a served model; "" is the one that requests get which name none, else the first."""

    model: str = ""
    profile: ProfileName | None = None


class Cors(Section):
    allow_origins: tuple[str, ...] = ()


class Fetch(Section):
    allowed_domains: tuple[str, ...] = ()
    allowed_ports: tuple[int, ...] = (80, 443)
    allowed_cidrs: tuple[str, ...] = ()


class Media(Section):
    local_root: str = ""


class Voices(Section):
    max: Annotated[int, Field(gt=0)] = 1000
    policy: Literal["overwrite", "immutable"] = "overwrite"
    consent_mode: Literal["string", "recorded"] = "string"
    precomputed: tuple[str, ...] = ()
    aliases: dict[str, str] = {}


class Webhooks(Section):
    allow_http: bool = False
    allowed_cidrs: tuple[str, ...] = ()
    timeout_s: Annotated[float, Field(gt=0, le=60)] = 15.0
    retries_s: tuple[Annotated[float, Field(gt=0)], ...] = (5, 300, 1800, 7200, 18_000, 36_000, 50_400, 72_000, 86_400)


class Testing(Section):
    """For test farms only."""

    fault_injection: bool = False
    stand_in: bool = False
    pace: Annotated[float, Field(ge=0)] = 0.0
    costs: dict[str, tuple[Annotated[float, Field(ge=0)], Annotated[float, Field(ge=0)]]] = {}


class Limits(Section):
    sync_input_chars: Annotated[int, Field(gt=0)] = 16_384
    job_input_chars: Annotated[int, Field(gt=0)] = 1_000_000
    instructions_chars: Annotated[int, Field(gt=0)] = 500
    ref_audio_seconds: tuple[float, float] = (1.0, 30.0)
    ref_audio_bytes: Annotated[int, Field(gt=0)] = 10_485_760
    batch_items: Annotated[int, Field(gt=0)] = 32
    bulk_items: Annotated[int, Field(gt=0)] = 10_000
    bulk_lines: Annotated[int, Field(gt=0)] = 100_000
    bulk_bytes: Annotated[int, Field(gt=0)] = 33_554_432
    bulk_window: Annotated[int, Field(gt=0)] = 256
    batch_lines: Annotated[int, Field(gt=0)] = 50_000
    ws_per_key: Annotated[int, Field(gt=0)] = 50
    body_bytes: Annotated[int, Field(gt=0)] = 16_777_216
    queue_depth: Annotated[int, Field(gt=0)] = 1000
    project_jobs: Annotated[int, Field(ge=0)] = 0
    max_interactive_wait_s: Annotated[float, Field(gt=0)] = 30.0
    first_audio_timeout_s: Annotated[float, Field(gt=0)] = 120.0
    sync_timeout_s: Annotated[float, Field(gt=0)] = 600.0
    stalled_client_s: Annotated[float, Field(gt=0)] = 60.0


class Retention(Section):
    logs_s: Annotated[int, Field(ge=0)] = 60
    sync_result_s: Annotated[int, Field(gt=0)] = 600
    result_s: Annotated[int, Field(gt=0)] = 86_400
    replay_window_s: Annotated[float, Field(gt=0)] = 120.0


class Worker(Section):
    scheduling: Scheduling = "deadline"
    lease_s: Annotated[float, Field(gt=0)] = 10.0
    stuck_step_s: Annotated[float, Field(gt=0)] = 60.0
    drain_s: Annotated[float, Field(ge=0)] = 10.0
    max_attempts: Annotated[int, Field(gt=0)] = 3
    max_rss_mb: Annotated[int, Field(ge=0)] = 0


class StageOverride(Section):
    """Per stage, by `"model/stage"`; what is not set comes from the model's card."""

    slots: Annotated[int | None, Field(gt=0)] = None
    threads: Annotated[int | None, Field(gt=0)] = None
    device: str | None = None
    live_chunks: tuple[int, ...] | None = None
    bulk_chunk: int | None = None


class WorkerGroup(Section):
    """Some equal worker processes. No models means every served one; no stages means all.

    Among stages, `models` stands for all of the models', `farm` for the farm's own.
    """

    models: tuple[str, ...] = ()
    stages: tuple[str, ...] = ()
    processes: Annotated[int, Field(ge=0)] = 1


class Settings(BaseSettings):
    """One object, built once at the edge and passed down."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_nested_delimiter="__", extra="forbid", nested_model_default_partial_update=True
    )

    models: Annotated[tuple[str, ...], Field(min_length=1)] = ("hibari",)
    default_model: str = ""
    data_dir: Path = Path("data")
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    redis: Redis = Redis()
    s3: S3 = S3()
    celery: Celery = Celery()
    api: Api = Api()
    limits: Limits = Limits()
    retention: Retention = Retention()
    worker: Worker = Worker()
    workers: tuple[WorkerGroup, ...] = (WorkerGroup(stages=("models",)), WorkerGroup(stages=("farm",)))
    checkpoints: dict[str, Path] = {}
    stages: dict[str, StageOverride] = {}
    aliases: dict[str, Alias] = {name: Alias(profile="openai") for name in ("tts-1", "tts-1-hd", "gpt-4o-mini-tts")}
    auth: Auth = Auth()
    cors: Cors = Cors()
    fetch: Fetch = Fetch()
    media: Media = Media()
    voices: Voices = Voices()
    webhooks: Webhooks = Webhooks()
    test: Testing = Testing()

    @model_validator(mode="after")
    def _names_served_models(self) -> Self:
        named = {f"alias {name!r}": alias.model for name, alias in self.aliases.items()}
        for what, model in {**named, "default_model": self.default_model}.items():
            if model and model not in self.models:
                raise ValueError(f"{what} names {model!r}, which is not served: {', '.join(self.models)}")
        return self

    @property
    def meant_model(self) -> str:
        """The model that is meant where none is named: the default one, else the first."""
        return self.default_model or self.models[0]

    @property
    def chunks_url(self) -> str:
        return self.redis.chunks_url or self.redis.control_url


def _parse_set(assignment: str) -> tuple[list[str], Any]:
    key = _KEY.match(assignment)
    if key is None:
        such = "such as api.port=8092, or 'stages.\"hibari/decoder\".slots=2'"
        raise SettingsError(f"--set {assignment}: expected KEY=VALUE, {such}")
    text = assignment[key.end() :]
    try:
        path = [_unquoted(part) for part in re.findall(_PART, key[0])]
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"--set {assignment}: {error}") from None
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    return path, value


def _unquoted(part: str) -> str:
    return str(tomllib.loads(f"part = {part}")["part"]) if part[0] in "\"'" else part


def _dotted(path: Iterable[str | int]) -> str:
    """A key as it is written: names with dots or slashes in them are quoted."""
    parts = map(str, path)
    return ".".join(part if _BARE.fullmatch(part) else json.dumps(part, ensure_ascii=False) for part in parts)


def _nest(assignments: Sequence[str]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for assignment in assignments:
        path, value = _parse_set(assignment)
        branch = tree
        for key in path[:-1]:
            branch = branch.setdefault(key, {})
            if not isinstance(branch, dict):
                raise SettingsError(f"--set {assignment}: {key} is given a value by another --set")
        branch[path[-1]] = value
    return tree


def _check_variables() -> None:
    """pydantic-settings passes over top-level variables that it does not know, a single underscore for two included."""
    known = {PREFIX + name.upper() for name in Settings.model_fields} | set(OTHER_VARIABLES)
    for name in os.environ:
        if name.upper().startswith(PREFIX) and name.upper().partition("__")[0] not in known:
            raise SettingsError(f"settings: unknown variable {name}; sections take two underscores: {PREFIX}API__PORT")


_TABLE = 'it must be a table, such as {"name": "value"}'
_MEANT = {
    "extra_forbidden": "there is no such setting",
    "dict_type": _TABLE,
    "model_type": _TABLE,
    "model_attributes_type": _TABLE,
    "path_type": "it must be a path",
    "too_short": "the list is too short",
    "too_long": "the list is too long",
}
"""What users are told where pydantic speaks of Python's types."""
_SOME = '["one", "two"]'


def _list_of(given: object) -> str:
    """How a list of what was given for one is written."""
    return _SOME if str(given)[:1] in "[{" else json.dumps([given], ensure_ascii=False, default=str)


def _explain(error: ValidationError) -> str:
    """One line: which setting, and what is wrong with it."""
    faults = []
    for fault in error.errors():
        where = _dotted(fault["loc"])
        message = _MEANT.get(fault["type"], fault["msg"].removeprefix("Value error, "))
        if fault["type"] == "tuple_type":
            message = f"it must be a list, such as {_list_of(fault['input'])}"
        faults.append(f"{where}: {message}" if where else message)
    return "; ".join(faults)


def _profile(named: Path | None) -> Path | None:
    """A file, or one of those that come with the package, by its name. Raises SettingsError in one line."""
    path = named or (Path(os.environ[PROFILE_VARIABLE]) if os.environ.get(PROFILE_VARIABLE) else None)
    if path is None:
        return None
    own = PROFILES / f"{path}.toml"
    path = own if not path.exists() and path.name == str(path) and own.exists() else path
    try:
        tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        known = ", ".join(sorted(found.stem for found in PROFILES.glob("*.toml")))
        raise SettingsError(f"cannot read profile {path}: {error}; those by name: {known}") from error
    return path


def load(profile: Path | None = None, assignments: Sequence[str] = ()) -> Settings:
    """Build the settings. The profile falls back to `SPEECHMILL_PROFILE`. Raises SettingsError in one line."""
    _check_variables()
    path = _profile(profile)

    class Profiled(Settings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            *_: Any,
            **__: Any,
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            sources = (init_settings, env_settings)
            return (*sources, TomlConfigSettingsSource(settings_cls, path)) if path else sources

    try:
        return Profiled(**_nest(assignments))
    except ValidationError as error:
        raise SettingsError(f"settings: {_explain(error)}") from error
    except PydanticSettingsError as error:
        raise SettingsError(f"settings: {error}; variables hold lists and tables as JSON, such as {_SOME}") from error
