"""`speechmill up`: every process of a farm on one machine under one supervisor.

Children that crash are restarted with back-off and said so; a child that says its configuration is at fault (exit
code 78) ends the farm. Everything ends with the supervisor, whatever ends it.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speechmill.configs.settings import Settings
from speechmill.infra.embedded import DIE_WITH_PARENT, EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import EmbeddedFailed, FarmError
from speechmill.infra.precomputed import SKIPPED

CONFIG_FAULT = 78
"""Exit code (EX_CONFIG of sysexits.h) of a child that starting again would not help."""
BACKOFF_S = (0.5, 1.0, 2.0, 5.0, 10.0)
STEADY_S = 30.0
"""A child that ran so long has earned a quick restart again."""
POLL_S = 0.1
GRACE_S = 5.0
"""What a child may take beyond its own drain before it is killed."""
TELL_AFTER_S = 2.5
LOG_BYTES = 16 << 20
KEYED_BY_USERS = ("stages", "aliases", "checkpoints")
"""Settings whose keys are names that users choose: too free for the name of a variable."""


class ChildFailed(FarmError):
    """A child found its configuration at fault; the text is its last line."""

    code = "child_failed"


@dataclass(slots=True)
class Child:
    """One role as a process of its own."""

    name: str
    arguments: tuple[str, ...]
    log: Path
    log_start: int = 0
    """Byte at which the log of the running process begins."""
    process: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    crashes: int = 0
    restart_at: float = 0.0

    def last_line(self) -> str:
        """What it said last, for the message about its end."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return lines[-1] if lines else "no word"

    def told(self, event: str) -> Iterator[dict[str, Any]]:
        """What the running process has logged under this name."""
        if not self.log.exists():  # the data folder may be gone
            return
        with self.log.open("rb") as log:
            log.seek(self.log_start)
            for line in log:
                with contextlib.suppress(ValueError):  # a traceback, or a line that is being written
                    told = json.loads(line)
                    if isinstance(told, dict) and told.get("event") == event:
                        yield told

    def speaking(self) -> bool:
        """Whether it had tasks or streams to finish when it was told to end."""
        return any(told.get("held") or told.get("streams") for told in self.told("draining"))


@dataclass(slots=True)
class Supervisor:
    """Starts the embedded servers that the settings ask for, then the roles; watches them all from one thread."""

    settings: Settings
    say: Callable[[str], None]
    children: list[Child] = field(default_factory=list)
    valkey: EmbeddedValkey | None = None
    s3: EmbeddedS3 | None = None
    stopping: bool = False
    hurried: bool = False

    def start(self) -> None:
        """Raises EmbeddedFailed or ConfigError in one line."""
        settings = self.settings
        logs = settings.data_dir / "logs"
        try:
            logs.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EmbeddedFailed(f"{logs} cannot be used for logs: {error.strerror}") from error
        if not settings.redis.control_url:
            self.valkey = EmbeddedValkey(settings.data_dir / "valkey", settings.redis.max_memory_mb)
            self.valkey.start()
        if not settings.s3.endpoint_url:
            self.s3 = EmbeddedS3(settings.data_dir / "s3")
            self.s3.launch()
        for name, arguments in roles(settings):
            child = Child(name, arguments, logs / f"{name}.log")
            self.children.append(child)
            self._spawn(child)
        if self.s3 is not None:
            self.s3.await_ready()

    def run(self, tick: Callable[[], bool]) -> None:
        """Watch until a signal, or until `tick` (called ten times a second) answers False. Raises ChildFailed."""
        try:
            while not self.stopping and tick():
                self._watch_servers()
                for child in self.children:
                    self._watch(child)
                time.sleep(POLL_S)
        except OSError as error:  # the data folder is gone, or cannot be written any more
            raise ChildFailed(f"{error.filename}: {error.strerror}") from error

    def stop(self) -> None:
        """End every process: the API first, once its streams are finished, the servers last."""
        self.stopping = True
        settings = self.settings
        self._end(self.children[:1], settings.api.drain_s + GRACE_S)
        self._end(self.children[1:], settings.worker.drain_s + GRACE_S)
        if self.s3 is not None:
            self.s3.stop()
        if self.valkey is not None:
            self.valkey.stop()

    def memory(self) -> Iterator[str]:
        """A line for each stage that takes much of it."""
        for child in self.children:
            for event in child.told("loaded"):
                if taken := event["memory_mb"]:
                    listed = ", ".join(f"{name} {_size(megabytes)}" for name, megabytes in taken.items())
                    yield f"{event['pool']} on {event['device']}: {listed}"

    def skipped(self) -> Iterator[str]:
        """A line for each precomputed voice that cannot be used, as the API says."""
        for event in self.children[0].told(SKIPPED):
            yield f"voice {event['voice']} of {event['source']} is skipped: {event['error']}"

    def signalled(self) -> None:
        """The first signal ends the farm in order, a second one at once."""
        self.hurried = self.stopping
        self.stopping = True

    def _end(self, children: list[Child], patience_s: float) -> None:
        running = [child for child in children if child.process and child.process.poll() is None]
        for child in running:
            child.process.terminate()  # type: ignore[union-attr]  # running
        until, told = time.monotonic() + patience_s, time.monotonic() + TELL_AFTER_S
        while running := [child for child in running if child.process and child.process.poll() is None]:
            if running and time.monotonic() > told:
                told = float("inf")
                self._tell_who_stays(running)
            if self.hurried or time.monotonic() > until:
                for child in running:
                    child.process.kill()  # type: ignore[union-attr]
            time.sleep(POLL_S / 2)

    def _tell_who_stays(self, running: list[Child]) -> None:
        speaking = [child.name for child in running if child.speaking()]
        names = ", ".join(speaking or (child.name for child in running))
        doing = "finishing what is being spoken" if speaking else "stopping"
        self.say(f"{names}: {doing}; press Ctrl-C again to stop at once")

    def _environment(self) -> Mapping[str, str]:
        """The children build their own settings; what only we know goes on top through variables."""
        effective: dict[str, str] = {}
        _flatten("SPEECHMILL", self.effective().model_dump(mode="json"), effective)
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPEECHMILL_")}
        return {**inherited, **effective, "PYTHONUNBUFFERED": "1"}

    def effective(self) -> Settings:
        """The settings with the embedded servers' addresses in them."""
        settings = self.settings
        redis = settings.redis
        if self.valkey is not None:
            redis = redis.model_copy(update={"control_url": self.valkey.url})
        s3 = settings.s3
        if self.s3 is not None:
            own = {"endpoint_url": self.s3.endpoint_url, "bucket": self.s3.bucket}
            s3 = s3.model_copy(update={**own, "access_key": self.s3.access_key, "secret_key": self.s3.secret_key})
        return settings.model_copy(update={"redis": redis, "s3": s3, "data_dir": settings.data_dir.absolute()})

    def _spawn(self, child: Child) -> None:
        if child.log.exists() and child.log.stat().st_size > LOG_BYTES:
            child.log.replace(child.log.with_suffix(".old.log"))
        command = [sys.executable, "-m", "speechmill.cli.main", *child.arguments]
        if sys.platform == "linux":
            command = [sys.executable, "-ISc", DIE_WITH_PARENT, str(os.getpid()), *command]
        with child.log.open("ab") as log:
            child.log_start = log.tell()
            # a session of its own: Ctrl-C in the terminal reaches the supervisor, which ends the children in order
            child.process = subprocess.Popen(
                command,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        child.started = time.monotonic()

    def _watch(self, child: Child) -> None:
        now = time.monotonic()
        if child.process is None:
            if now >= child.restart_at:
                self._spawn(child)
            return
        code = child.process.poll()
        if code is None:
            return
        if code == CONFIG_FAULT:
            raise ChildFailed(child.last_line().removeprefix("speechmill: "))
        child.crashes = 1 if now - child.started > STEADY_S else child.crashes + 1
        pause = BACKOFF_S[min(child.crashes, len(BACKOFF_S)) - 1]
        child.restart_at, child.process = now + pause, None
        self.say(f"{child.name} ended ({_describe(code)}); starting it again in {pause:g} s. Its log: {child.log}")

    def _watch_servers(self) -> None:
        for server in (self.valkey, self.s3):
            if server is not None and server.process is not None and server.process.poll() is not None:
                self.say(f"{server.name} ended ({_describe(server.process.returncode)}); starting it again")
                try:
                    server.start()
                except EmbeddedFailed as error:
                    raise ChildFailed(str(error)) from error


def roles(settings: Settings) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Every process of a farm by name, with its command line; the one list that deployments follow."""
    yield "api", ("api",)
    for group_index, group in enumerate(settings.workers):
        options = [part for model in group.models for part in ("--model", model)]
        options += ["--stage", ",".join(group.stages)] if group.stages else []
        for index in range(group.processes):
            yield f"worker-{group_index}-{index}", ("worker", *options)
    yield "celery", ("celery", "worker")
    yield "beat", ("celery", "beat")


def _describe(code: int) -> str:
    if code < 0:
        with contextlib.suppress(ValueError):
            return f"killed by {signal.Signals(-code).name}"
    return f"exit code {code}"


def _size(megabytes: int) -> str:
    return f"{megabytes} MB" if megabytes < 1000 else f"{megabytes / 1000:.2f} GB"


def _flatten(prefix: str, value: Any, into: dict[str, str]) -> None:
    """Nested settings as pydantic-settings reads them from the environment."""
    for key, inner in value.items():
        name = f"{prefix}{'_' if prefix == 'SPEECHMILL' else '__'}{key.upper()}"
        if isinstance(inner, dict) and key not in KEYED_BY_USERS:
            _flatten(name, inner, into)
        else:
            into[name] = inner if isinstance(inner, str) else json.dumps(inner)
