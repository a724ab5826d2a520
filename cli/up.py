"""`speechmill up`: the whole farm on this machine, in the foreground."""

import json
import shlex
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from speechmill.cli.roles import Assignments, Model, Profile

if TYPE_CHECKING:
    from speechmill.configs.settings import Settings
    from speechmill.workers.supervisor import Supervisor

HELLO = "Hello! This sentence went through every part of the farm."
READY_S = 120.0
"""A child that has crashed by then keeps the farm from getting ready; one that loads weights may take longer."""


def up(
    profile: Profile = None,
    model: Model = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on (127.0.0.1).")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on (8091).")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the embedded servers and logs (./data).")] = None,
    assignments: Assignments = None,
    hello: Annotated[Path | None, typer.Option(help="Speak a first sentence into this WAV file once ready.")] = None,
    once: Annotated[bool, typer.Option("--once", help="Stop as soon as that is done.")] = False,
) -> None:
    """Start Valkey, an S3 server, the API, workers and Celery, and serve until Ctrl-C."""
    from speechmill.api.serve import check_port
    from speechmill.cli.common import farm_settings
    from speechmill.workers.supervisor import Supervisor

    own = [f"api.host={host}"] * (host is not None) + [f"api.port={port}"] * (port is not None)
    own += [f"data_dir={json.dumps(str(data_dir))}"] * (data_dir is not None)
    settings = farm_settings(profile, model, [*(assignments or ()), *own])
    _check_models(settings)
    check_port(settings.api.host, settings.api.port)
    _say(f"starting; logs are in {settings.data_dir / 'logs'}")
    supervisor = Supervisor(settings, _say)
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, lambda *_: supervisor.signalled())
    try:
        _serve(supervisor, settings, hello, once)
    finally:
        _say("stopping")
        supervisor.stop()
        _say("stopped")


def _check_models(settings: "Settings") -> None:
    """What the roles would end over. Raises ConfigError."""
    from speechmill.api.farm import served_models
    from speechmill.workers.worker import assign

    served_models(settings)
    for group in settings.workers:
        if group.processes:
            assign(settings, group.models, group.stages)


def _serve(supervisor: "Supervisor", settings: "Settings", hello: Path | None, once: bool) -> None:
    began = time.monotonic()
    supervisor.start()
    base = f"http://{_reachable(settings.api.host)}:{settings.api.port}"
    ready = told = False

    def tick() -> bool:
        nonlocal ready, told
        if ready:
            return True
        if _is_ready(base):
            ready = True
            _say(f"ready after {time.monotonic() - began:.1f} s: {base}")
            for line in (*supervisor.memory(), *supervisor.skipped()):
                _say(line)
            if hello is not None:
                _greet(base, hello, supervisor, once)
            if not once:
                _say_how(base, settings)
            return not once
        if time.monotonic() - began > READY_S:
            if any(child.crashes for child in supervisor.children):
                raise typer.Exit(_not_ready(supervisor))
            if not told:
                told = True
                _say("still loading; the logs tell how far it is")
        return True

    supervisor.run(tick)
    if once and not ready:
        raise typer.Exit(1)


def _not_ready(supervisor: "Supervisor") -> int:
    _say(f"not ready after {READY_S:.0f} s; see the logs:")
    for child in supervisor.children:
        _say(f"  {child.log}: {child.last_line()}")
    return 1


def _reachable(host: str) -> str:
    """Where a listener on all addresses is reached from here."""
    if host in ("0.0.0.0", ""):
        return "127.0.0.1"
    return "[::1]" if host == "::" else f"[{host}]" if ":" in host else host


def _is_ready(base: str) -> bool:
    import httpx

    try:
        return httpx.get(f"{base}/health/ready", timeout=2, trust_env=False).status_code == 200
    except httpx.HTTPError:
        return False


def _greet(base: str, hello: Path, supervisor: "Supervisor", once: bool) -> None:
    """Raises Refused, but for a sentence that the model alone cannot speak while the farm is to go on."""
    from speechmill.cli.remote import Refused, Remote
    from speechmill.cli.say import fetch

    began = time.monotonic()
    try:
        with _passing_key(supervisor) as key, Remote(base, key) as farm:
            settings = supervisor.settings
            spoken = fetch(farm, {"input": HELLO, "model": settings.meant_model, **_described(settings)}, hello)
    except Refused as refusal:
        if once or refusal.status != 400:
            raise
        _say(f"no first sentence: {refusal}")
        return
    _say(f"spoke {spoken.audio_s:.1f} s of audio into {hello} in {(time.monotonic() - began) * 1000:.0f} ms")


@contextmanager
def _passing_key(supervisor: "Supervisor") -> Iterator[str]:
    """A key for the block alone, where one is asked for; else ""."""
    from speechmill.api.callers import auth_enabled
    from speechmill.configs.settings import ApiKey
    from speechmill.infra.apikeys import create_key, revoke_key
    from speechmill.infra.connect import make_client

    if not auth_enabled(supervisor.settings):
        yield ""
        return
    client = make_client(supervisor.effective())
    record, key = create_key(client, ApiKey(name="the first sentence", scopes=("speech",)))
    try:
        yield key
    finally:
        revoke_key(client, record.id)
        client.close()


def _say_how(base: str, settings: "Settings") -> None:
    from speechmill.api.callers import auth_enabled
    from speechmill.models.registry import served

    asks = auth_enabled(settings)
    if asks and not settings.auth.keys:
        where = shlex.quote(f"data_dir={settings.data_dir.absolute()}")
        _say(f"every call needs a key; make one with: {sys.argv[0]} keys create --set {where}")
    for card in served(settings.models):
        if card.licence.note:
            _say(f"{card.id}: {card.licence.note}")
    named = {"model": settings.meant_model} if len(settings.models) > 1 and not settings.default_model else {}
    fields = {"input": "It was a bright cold day in April.", **named, **_who(settings), "response_format": "wav"}
    body = json.dumps(fields, ensure_ascii=False)
    shown = " -H 'Authorization: Bearer KEY'" if asks else ""
    _say("serving until Ctrl-C; try:")
    typed = f"{shown} -H 'Content-Type: application/json' -d {shlex.quote(body)} -o speech.wav"
    _say(f"  curl {base}/v1/audio/speech{typed}")


def _who(settings: "Settings") -> dict[str, str]:
    """What a request to the farm's model needs to say who speaks."""
    from speechmill.models.registry import cards

    if cards()[settings.meant_model].parameters.ref_audio == "required":
        return {"ref_audio": "data:audio/wav;base64,…", "ref_text": "What is said in it."}
    return _described(settings) or {"voice": "default"}


def _described(settings: "Settings") -> dict[str, str]:
    """The voice, to a model that makes it from a description."""
    from speechmill.models.registry import cards

    can = cards()[settings.meant_model].parameters
    return {"instructions": "A calm old man."} if can.instructions == "required" else {}


def _say(line: str) -> None:
    sys.stdout.write(f"speechmill: {line}\n")
    sys.stdout.flush()
