"""One worker process: loads its stages, warms them, joins the farm, drains on SIGTERM."""

import logging
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from speechmill.configs.settings import Settings, StageOverride
from speechmill.infra.client import UNAVAILABLE
from speechmill.infra.connect import check_redis, make_client, make_objects
from speechmill.infra.errors import ConfigError
from speechmill.infra.expiry import register_object
from speechmill.infra.keys import FARM_STAGES, new_id
from speechmill.infra.protocol import handback
from speechmill.infra.spill import Spill
from speechmill.models.card import ModelCard, StageCard
from speechmill.models.checkpoints import find_checkpoint
from speechmill.models.registry import cards, has_engine, load_stage, require, served
from speechmill.models.stage import CannotLoad, NoDevice, Stage, StageOptions
from speechmill.models.tone import stages as tone
from speechmill.workers.assets import Assets
from speechmill.workers.finish import Finish
from speechmill.workers.intake import Intake
from speechmill.workers.keep import Keep
from speechmill.workers.keeper import Habits, Keeper
from speechmill.workers.loop import DeviceLost, Loop
from speechmill.workers.outlet import Hooks, Outlet
from speechmill.workers.runner import Runner
from speechmill.workers.spiller import Spiller
from speechmill.workers.store import Store
from speechmill.workers.work import Outcome, Work

log = logging.getLogger(__name__)
DEAD = 70
"""Exit code (EX_SOFTWARE of sysexits.h) of a worker that cannot go on; it is started again."""
FARM_SLOTS = 128
UPLOADS = 4
WITHOUT_GPU = 'a profile whose name ends in _cpu, or the stage\'s setting device = "cpu", does without'
SWITCH_S = 0.0005
"""Python's default of 5 ms between thread switches is longer than a hop through Redis."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What one worker process runs: (model, stage) pairs and farm stages."""

    model_stages: tuple[tuple[str, str], ...]
    farm_stages: tuple[str, ...]


def assign(settings: Settings, models: Sequence[str], stages: Sequence[str]) -> Assignment:
    """Nothing named means everything: all served models, all stages. `models` stands for all stages of models,
    `farm` for the farm's own; stages that only other models have are passed over. Raises ConfigError for an unknown
    name, where nothing is left, or for a model that nothing here computes.
    """
    try:
        chosen = served(models or settings.models)
        if not settings.test.stand_in:
            for card in chosen:
                require(card, find_checkpoint(card.id, settings.checkpoints))
    except LookupError as error:
        raise ConfigError(str(error)) from None
    pairs = [(card.id, name) for card in chosen for name in card.stage_names]
    of_models = {name for _, name in pairs}
    groups = {"models": of_models, "farm": set(FARM_STAGES)}
    wanted = set[str]().union(*(groups.get(name, {name}) for name in stages or groups))
    known = of_models | set(FARM_STAGES)
    anywhere = {name for card in cards().values() for name in card.stage_names}
    if (unknown := wanted - known - anywhere) or not wanted & known:
        offered = ", ".join([*groups, *sorted(of_models), *FARM_STAGES])
        raise ConfigError(f"unknown stage {', '.join(sorted(unknown or wanted))}; known: {offered}")
    wanted_pairs = tuple(pair for pair in pairs if pair[1] in wanted)
    return Assignment(wanted_pairs, tuple(name for name in FARM_STAGES if name in wanted))


def stage_options(card: StageCard, override: StageOverride, checkpoint: Path | None = None) -> StageOptions:
    """The card's values, overridden by the settings'."""
    return StageOptions(
        slots=override.slots or card.slots,
        device=override.device or card.device,
        threads=override.threads or card.threads,
        live_chunks=override.live_chunks if override.live_chunks is not None else card.live_chunks,
        bulk_chunk=override.bulk_chunk if override.bulk_chunk is not None else card.bulk_chunk,
        checkpoint=checkpoint,
    )


def model_runner(settings: Settings, card: ModelCard, stage_name: str) -> Runner:
    """Load and warm one stage of a model; `assign` has seen to it that one that cannot be computed may be a tone.

    Raises ConfigError, in one line, for a checkpoint that cannot be used.
    """
    pool = f"{card.id}/{stage_name}"
    stage_card = card.stage(stage_name)
    checkpoint = find_checkpoint(card.id, settings.checkpoints)
    options = stage_options(stage_card, settings.stages.get(pool, StageOverride()), checkpoint)
    began = time.monotonic()
    with _refusals(pool, options.device):
        if has_engine(card) and (card.own_weights or checkpoint is not None):
            stage = load_stage(card, stage_name, options)
        else:
            cost = settings.test.costs.get(stage_name, (0.0, 0.0))
            stage = tone.load(card, stage_name, options, settings.test.pace, cost)
        stage.warm()
    took_s, memory = round(time.monotonic() - began, 2), getattr(stage, "memory", {})
    megabytes = {name: round(size / 1e6) for name, size in memory.items()}
    where = {"pool": pool, "device": options.device, "slots": options.slots}
    log.info("loaded", extra={**where, "s": took_s, "memory_mb": megabytes})
    return Runner(pool, stage_card, stage, options.slots)


@contextmanager
def _refusals(pool: str, device: str) -> Iterator[None]:
    """Raises ConfigError, in one line, where a stage cannot be loaded: starting it again would not help."""
    try:
        yield
    except NoDevice as error:
        raise ConfigError(f"{pool}: {error}; {WITHOUT_GPU}") from None
    except CannotLoad as error:
        raise ConfigError(f"{pool}: {error}") from None
    except RuntimeError as error:
        if type(error).__name__ != "OutOfMemoryError":  # PyTorch's, which is not imported here
            raise
        advice = "give the stage fewer slots, or another device"
        raise ConfigError(f"{pool}: the memory of {device} ran out while it was loaded: {advice}") from None


class Worker:
    """Wires the threads of one process together. `run` returns after the drain."""

    def __init__(self, settings: Settings, runners: Sequence[Runner], farm_stages: Sequence[str]) -> None:
        self.name = f"{socket.gethostname()}-{os.getpid()}-{new_id('w')[-6:]}"
        self._settings = settings
        self._client = make_client(settings)
        self._objects = make_objects(settings)
        self._assets = Assets(self._objects)
        self._uploads = ThreadPoolExecutor(UPLOADS, thread_name_prefix="upload")
        self._loop = Loop([*runners, *map(self._farm_runner, farm_stages)], self._outcome, settings.worker.scheduling)
        self._build_threads()
        self._draining = threading.Event()

    def _build_threads(self) -> None:
        settings, spill = self._settings, Spill(self._objects)
        habits = Habits(
            lease_s=settings.worker.lease_s,
            stuck_step_s=settings.worker.stuck_step_s,
            memory_mark=settings.redis.memory_mark,
            logs_ttl_s=settings.retention.logs_s,
            max_rss_mb=settings.worker.max_rss_mb,
        )
        self._spiller = Spiller(self._client, spill, self._register, settings.retention.replay_window_s)
        lease_ms = int(habits.lease_s * 1000)
        self._intake = Intake(self._client, self._loop, self.name, lease_ms, spill, self._assets)
        self._outlet = Outlet(
            self._client, self.name, Hooks(self._loop.put, self._done, self._written), habits.logs_ttl_s
        )
        self._keeper = Keeper(self._client, self._loop, self._intake, self.name, habits)
        self._intake.failed = self._outlet.put
        self._keeper.too_big = self.drain
        self._keeper.memory_short = self._spiller.memory_short
        self._loop.freed = self._intake.poke
        self._loop.hand_over = self._intake.hand_over

    def _farm_runner(self, name: str) -> Runner:
        stage: Stage = Finish()
        if name != "finish":
            filing = Store if name == "store" else Keep
            stage = filing(self._objects, self._register, self._uploads, lambda: self._loop.wake())
        card = StageCard(name=name, unit="pcm", rate=1.0, dtype="s16le", slots=FARM_SLOTS)
        return Runner(f"farm/{name}", card, stage, FARM_SLOTS, light=True)

    def _register(self, key: str, due: float) -> None:
        register_object(self._client, key, due)

    def _outcome(self, outcome: Outcome) -> None:
        self._outlet.put(outcome)

    def _written(self, work: Work) -> None:
        self._spiller.note(work)
        self._loop.wake()

    def _done(self, work: Work) -> None:
        self._intake.let_go(work)
        self._intake.disown(work)
        self._spiller.forget(work)

    def drain(self) -> None:
        """Claim nothing more, finish what can be finished in time, hand the rest back, stop."""
        if not self._draining.is_set():
            self._draining.set()
            threading.Thread(target=self._drain, name="drain", daemon=True).start()

    def _drain(self) -> None:
        log.info("draining", extra={"held": len(self._intake.held())})
        self._intake.drain()
        until = time.monotonic() + self._settings.worker.drain_s
        while time.monotonic() < until and (self._intake.moving() or not self._outlet.idle()):
            time.sleep(0.05)
        self._loop.stop()

    def run(self) -> None:
        """Until drained."""
        self._client.load()
        self._keeper.start()
        self._outlet.start()
        self._spiller.start()
        self._assets.start()
        self._intake.start()
        log.info("ready", extra={"worker": self.name, "pools": list(self._loop.runners)})
        try:
            self._loop.run()
        except DeviceLost:
            log.critical("device lost", extra={"worker": self.name})
            os._exit(DEAD)  # what was in work goes on elsewhere when its leases lapse
        self._leave()

    def _leave(self) -> None:
        until = time.monotonic() + 2
        while not self._outlet.idle() and time.monotonic() < until:
            time.sleep(0.01)
        self._outlet.stop()
        with suppress(*UNAVAILABLE):  # the leases lapse then
            for work in self._intake.held():
                self._client.run(handback(work.task, work.claim.token))
        self._keeper.stop()
        self._spiller.stop()
        self._intake.stop()
        self._assets.stop()
        self._uploads.shutdown(cancel_futures=True)
        self._client.close()
        log.info("left", extra={"worker": self.name})


def run(settings: Settings, models: Sequence[str], stages: Sequence[str]) -> None:
    """Body of `speechmill worker`."""
    sys.setswitchinterval(SWITCH_S)
    assignment = assign(settings, models, stages)
    check_redis(settings)  # what is wrong there is said before the models are loaded
    runners = [model_runner(settings, cards()[model], stage) for model, stage in assignment.model_stages]
    worker = Worker(settings, runners, assignment.farm_stages)
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda *_: worker.drain())
    threading.excepthook = _end_process
    worker.run()


def _end_process(failure: threading.ExceptHookArgs) -> None:
    """A worker without one of its threads is none: end, and let others take its tasks."""
    where = "".join(traceback.format_tb(failure.exc_traceback))
    log.critical("thread died", extra={"error": repr(failure.exc_type), "trace": where})
    os._exit(DEAD)
