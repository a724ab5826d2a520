"""Checks of this machine: Python, packages, disk, port, encoders, models."""

import importlib.util
import io
import shutil
import socket
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from speechmill.cli.doctor.finding import Finding, fail, ok, warn
from speechmill.configs.settings import Settings

if TYPE_CHECKING:
    from speechmill.models.card import ModelCard
    from speechmill.models.stage import StageOptions

PYTHON = (3, 11)
SCARCE_BYTES = 5 << 30
PACKAGES = ("speechmill", "fastapi", "redis", "boto3", "celery", "httpx", "av")


def check_python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < PYTHON:
        return fail("python", found, f"install Python {PYTHON[0]}.{PYTHON[1]} or newer")
    return ok("python", found)


def check_packages() -> Finding:
    found, missing = [], []
    for name in PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            missing.append(name)
    if missing:
        return fail("packages", f"missing: {', '.join(missing)}", "pip install speechmill, or `make run` in its folder")
    return ok("packages", ", ".join(found))


def check_torch() -> Finding:
    if importlib.util.find_spec("torch") is None:
        advice = "hosts that run workers need it: pip install 'speechmill[worker]'"
        return warn("torch", "not installed", advice)
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return ok("torch", f"{torch.__version__}, {device}")


def check_disk(settings: Settings) -> Finding:
    from speechmill.infra.embedded import FREE_DISK_MB

    folder = settings.data_dir.absolute()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(there).free
    what = f"{free / (1 << 30):.1f} GB free for {folder}"
    if free >> 20 < FREE_DISK_MB:
        return fail("disk", what, f"the embedded servers want {FREE_DISK_MB} MB: make room, or take another --data-dir")
    return ok("disk", what) if free >= SCARCE_BYTES else warn("disk", what, "results need room: watch it")


def check_port(settings: Settings) -> Finding:
    host, port = settings.api.host, settings.api.port
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            advice = "fine if that is your farm (see `farm`); else `--port` gives another one"
            return warn("port", f"{host}:{port} cannot be listened on: {error.strerror}", advice)
    return ok("port", f"{host}:{port} is free")


def check_encoders() -> Finding:
    """Speaks a tenth of a second of silence in every format; no program of the system takes part."""
    from speechmill.infra.encode import AudioFormat, complete_file

    broken = []
    for audio_format in get_args(AudioFormat):
        try:
            complete_file(audio_format, [bytes(4800)], 24_000, 1, io.BytesIO())
        except Exception as error:  # whatever it is, this format does not work
            broken.append(f"{audio_format} ({error})")
    if broken:
        return fail("encoders", ", ".join(broken), "install the packages av and soundfile again")
    return ok("encoders", ", ".join(get_args(AudioFormat)))


def check_models(settings: Settings) -> Iterator[Finding]:
    """Of every model that is to be served; what runs on the CPU and brings its weights is loaded."""
    from speechmill.models.checkpoints import find_checkpoint
    from speechmill.models.registry import require, served

    for name in settings.models:
        checkpoint = find_checkpoint(name, settings.checkpoints)
        try:
            (card,) = served([name])
            if settings.test.stand_in:
                yield ok(f"model {name}", "a tone stands in for it")
                continue
            require(card, checkpoint)
        except LookupError as error:
            yield fail(f"model {name}", str(error), "see `models` and `checkpoints` in configs/default.toml")
            continue
        if importlib.util.find_spec("torch") is None:
            yield warn(f"model {name}", "not tried without torch", "see `torch`")
        elif missing := _missing_device(settings, card):
            yield missing
        else:
            yield _looked_at(card, checkpoint) if checkpoint is not None else _loaded(settings, card)


def _missing_device(settings: Settings, card: "ModelCard") -> Finding | None:
    from speechmill.models.common.device import usable_device
    from speechmill.models.stage import CannotLoad
    from speechmill.workers.worker import WITHOUT_GPU

    for stage in card.stage_names:
        try:
            usable_device(_options(settings, card, stage).device)
        except CannotLoad as error:
            return fail(f"model {card.id}", f"{stage}: {error}", WITHOUT_GPU)
    return None


def _options(settings: Settings, card: "ModelCard", stage: str) -> "StageOptions":
    from speechmill.configs.settings import StageOverride
    from speechmill.workers.worker import stage_options

    return stage_options(card.stage(stage), settings.stages.get(f"{card.id}/{stage}", StageOverride()))


def _looked_at(card: "ModelCard", checkpoint: Path) -> Finding:
    from speechmill.models.checkpoints import check_checkpoint

    check, findings = f"model {card.id}", check_checkpoint(card.id, checkpoint)
    if findings:
        return fail(check, "; ".join(findings), f"download {checkpoint} again")
    return ok(check, f"{checkpoint} is complete, {card.licence.weights}")


def _loaded(settings: Settings, card: "ModelCard") -> Finding:
    from speechmill.models.registry import load_stage

    check = f"model {card.id}"
    for stage in card.stages:
        options = _options(settings, card, stage.name)
        if options.device != "cpu":
            return warn(check, f"{stage.name} runs on {options.device}, and was not tried", "start a worker to see")
        try:
            load_stage(card, stage.name, options)
        except Exception as error:  # anything may be wrong with weights
            return fail(
                check, f"{stage.name} cannot be loaded: {error}", "install its package again, or see its weights"
            )
    return ok(check, f"{', '.join(stage.name for stage in card.stages)} loaded, {card.licence.weights}")
