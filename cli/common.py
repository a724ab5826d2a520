"""What the commands share: settings from options, and errors as one line."""

import contextlib
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from speechmill.configs.settings import Settings, SettingsError, load
from speechmill.infra.errors import ConfigError, FarmError

if TYPE_CHECKING:
    from speechmill.infra.client import Client

CONFIG_FAULT = 78
"""EX_CONFIG: the supervisor does not restart a role that ends so."""


def settings_from(profile: Path | None, assignments: Sequence[str] | None) -> Settings:
    """Raises SettingsError, in one line, also for what names a model or a stage that nothing here knows."""
    settings = load(profile, assignments or ())
    if settings.stages or settings.checkpoints:
        _check_names(settings)
    return settings


def _check_names(settings: Settings) -> None:
    from speechmill.models.registry import cards

    known = ", ".join(cards())
    for place in settings.stages:
        model, _, stage = place.rpartition("/")
        if model not in cards():
            told = f"it must be a model and its stage, such as hibari/decoder; known models: {known}"
            raise SettingsError(f"settings: stages.{json.dumps(place)}: {told}")
        if stage not in (stages := cards()[model].stage_names):
            told = f"{model} has no such stage; it has: {', '.join(stages)}"
            raise SettingsError(f"settings: stages.{json.dumps(place)}: {told}")
    if unknown := [model for model in settings.checkpoints if model not in cards()]:
        raise SettingsError(f"settings: checkpoints.{json.dumps(unknown[0])}: unknown model; known: {known}")


def chosen_models(models: Sequence[str]) -> tuple[list[str], list[str]]:
    """Ids of models that are named by id or by the folder of a checkpoint, and the settings that say where these are.

    Raises ConfigError for a folder that there is not, or that holds no checkpoint, and for two of one model.
    """
    from speechmill.models.checkpoints import folder_named, recognise

    ids, places = [], []
    for name in models:
        try:
            folder = folder_named(name)
            ids.append(recognise(folder) if folder else name)
        except LookupError as error:
            raise ConfigError(str(error)) from None
        if folder:
            places.append(f"checkpoints.{json.dumps(ids[-1])}={json.dumps(str(folder.absolute()))}")
    if twice := [model for model in ids if ids.count(model) > 1]:
        raise ConfigError(f"{twice[0]} is named twice; a farm serves one checkpoint of each model")
    return ids, places


def farm_settings(
    profile: Path | None, models: Sequence[str] | None, assignments: Sequence[str] | None
) -> Settings:
    """Of a farm that serves these models alone, where some are named. Raises as the two above do."""
    ids, own = chosen_models(models or ())
    own += [f"models={json.dumps(ids)}"] if ids else []
    return settings_from(profile, [*(assignments or ()), *own])


def control_client(profile: Path | None, assignments: Sequence[str] | None) -> "Client":
    """A client of the farm that the settings name, else of the one that runs on this machine's data folder."""
    from speechmill.infra.connect import check_redis, make_client
    from speechmill.infra.embedded import running_valkey

    settings = settings_from(profile, assignments)
    if not settings.redis.control_url:
        settings.redis.control_url = running_valkey(settings.data_dir / "valkey")
    check_redis(settings)
    return make_client(settings)


def fail(message: str, code: int = 1) -> NoReturn:
    sys.stderr.write(f"speechmill: {message}\n")
    sys.exit(code)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """Foreseen failures become one line on standard error."""
    try:
        yield
    except SettingsError as error:
        fail(str(error), CONFIG_FAULT)
    except ModuleNotFoundError as error:
        fail(f"the package {error.name!r} is missing: pip install 'speechmill[worker]'", CONFIG_FAULT)
    except OSError as error:
        fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
    except FarmError as error:
        fail(str(error), CONFIG_FAULT if error.code == "config_error" else 1)
