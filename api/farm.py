"""What one API process holds: settings, clients, the inbox, and what it knows of the workers."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

from redis.exceptions import RedisError

from speechmill.api.listen import Listening
from speechmill.api.metrics import Metrics
from speechmill.api.references.remote import RemoteClips
from speechmill.api.watch import Watching
from speechmill.configs.settings import Settings
from speechmill.infra.connect import make_async_client, make_objects
from speechmill.infra.errors import ConfigError, Overloaded
from speechmill.infra.jobs import parse_record, retirement
from speechmill.infra.keys import FARM_STAGES, JOB_CLASSES, READY_QUEUES, Task, out_log
from speechmill.infra.messages import problem
from speechmill.infra.posting import Poster
from speechmill.infra.precomputed import read_precomputed
from speechmill.infra.protocol import close, end_job
from speechmill.models.card import ModelCard
from speechmill.models.checkpoints import described
from speechmill.models.registry import served

log = logging.getLogger(__name__)
T = TypeVar("T")
STALE_S = 0.5
TOO_STALE_S = 2.0
"""How old what we know of the workers may be."""
STORE_THREADS = 4
"""Of their own: an object store that hangs must not take those that encode."""
STORE_S = 5.0
CANCEL_PAUSES_S = (0.5, 2.0, 5.0, 10.0, 20.0)
"""Between tries to end a job while the server is away; what is missed then ends at its deadline."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """One stage's workers and queue."""

    names: tuple[str, ...]
    """Of live workers."""
    waiting: dict[str, int]
    """Tasks that wait for a worker: those of jobs that somebody hears already (`ongoing`), the others by class."""
    oldest_ms: int
    leased: int

    @property
    def workers(self) -> int:
        return len(self.names)

    @property
    def queue(self) -> int:
        return sum(self.waiting.values())


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model's stages by name, the farm's own included, and the jobs that nobody has started."""

    stages: dict[str, PoolState]
    queued: dict[str, int]
    """By class."""
    oldest_ms: dict[str, int]
    """How long the first of each class has waited."""
    memory_short: bool

    @property
    def status(self) -> str:
        return "ready" if all(stage.workers for stage in self.stages.values()) else "no_workers"


def served_models(settings: Settings) -> tuple[ModelCard, ...]:
    """Their cards, as their checkpoints have them. Raises ConfigError, in one line."""
    try:
        return tuple(described(card, settings.checkpoints) for card in served(settings.models))
    except LookupError as error:
        raise ConfigError(str(error)) from None


class FarmState:
    """Shared by all requests of one API process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models = served_models(settings)
        self.client = make_async_client(settings)
        self.objects = make_objects(settings)
        self._store_threads = ThreadPoolExecutor(STORE_THREADS, thread_name_prefix="store")
        self._store_answer: asyncio.Future[bool] | None = None
        self.listening = Listening(self.client, self.objects, self._store_threads)
        self.watching = Watching(self.client)
        self.remote = RemoteClips(settings)
        self.poster = Poster(settings)
        self.metrics = Metrics()
        self.precomputed = read_precomputed(settings.voices.precomputed, self._precomputed_widths(), self.objects)
        self.draining = False
        self.features_seen: dict[str, float] = {}
        """Features that are in the store, and when that was so; see `features.py`."""
        self._states: dict[str, tuple[float, ModelState | None]] = {}
        self._readings: dict[str, asyncio.Task[ModelState]] = {}
        self._background: set[asyncio.Task[None]] = set()

    def meant(self, name: str) -> ModelCard | None:
        """The model that goes by this id or alias."""
        by_id = {card.id: card for card in self.models}
        alias = self.settings.aliases.get(name)
        return by_id.get(name) if name in by_id or alias is None else by_id[alias.model or self.settings.meant_model]

    async def state(self, card: ModelCard, fresh: bool = False) -> ModelState:
        """Workers and queues of a model, at most `TOO_STALE_S` old; what is `STALE_S` old is read anew on the side.

        That there are no workers is never told from memory: nobody is turned away for what was true a moment ago.
        """
        read, state = self._states.get(card.id, (0.0, None))
        age_s = time.monotonic() - read
        if fresh or state is None or state.status != "ready" or age_s > TOO_STALE_S:
            return await self._refresh(card)
        if age_s > STALE_S:
            self._states[card.id] = (time.monotonic(), state)  # one reader is enough
            self._beside(self._refresh_if_possible(card))
        return state

    async def _refresh_if_possible(self, card: ModelCard) -> None:
        with contextlib.suppress(RedisError):  # whoever submits next hears of it
            await self._refresh(card)

    async def _refresh(self, card: ModelCard) -> ModelState:
        """Read once for all who ask at the same time."""
        reading = self._readings.get(card.id)
        if reading is None:
            reading = self._readings[card.id] = asyncio.create_task(self._read_state(card))
            reading.add_done_callback(lambda _: self._readings.pop(card.id))
        state = await asyncio.shield(reading)
        self._states[card.id] = (time.monotonic(), state)
        return state

    async def _read_state(self, card: ModelCard) -> ModelState:
        server, keys = self.client.server("control"), self.client.keys
        now_ms = time.time() * 1000
        pools = [(name, f"{card.id}/{name}") for name in card.stage_names]
        pools += [(name, f"farm/{name}") for name in FARM_STAGES if card.encode or name != "keep"]
        pipe = server.pipeline(transaction=False)
        for job_class in JOB_CLASSES:
            pipe.zcard(keys.queued(card.id, job_class))
            pipe.zrange(keys.queued(card.id, job_class), 0, 0, withscores=True)
        pipe.exists(keys.pressure())
        for _, pool in pools:
            pipe.zrangebyscore(keys.workers(pool), now_ms, "+inf")
            pipe.hget(keys.leased(), pool)
            for queue in READY_QUEUES:
                pipe.xinfo_stream(keys.ready(pool, queue))
        answers = await pipe.execute(raise_on_error=False)
        for answer in answers:
            if isinstance(answer, Exception) and "no such key" not in str(answer):
                raise answer
        counts, oldest = answers[: 2 * len(JOB_CLASSES) : 2], answers[1 : 2 * len(JOB_CLASSES) : 2]
        short, *answers = answers[2 * len(JOB_CLASSES) :]
        chunks = self.client.server("chunks")
        if chunks is not server:
            short = short or await chunks.exists(keys.pressure())
        stages, per_pool = {}, 2 + len(READY_QUEUES)
        for index, (name, _) in enumerate(pools):
            workers, leased, *queues = answers[index * per_pool : (index + 1) * per_pool]
            streams = {kind: queue for kind, queue in zip(READY_QUEUES, queues, strict=True) if isinstance(queue, dict)}
            waiting = [queue for queue in streams.values() if queue["length"]]
            ages = [now_ms - int(queue["first-entry"][0].split(b"-")[0]) for queue in waiting]
            stages[name] = PoolState(
                names=tuple(worker.decode() for worker in workers),
                waiting={kind: queue["length"] for kind, queue in streams.items()},
                oldest_ms=round(max([0, *ages])),
                leased=int(leased or 0),
            )
        waited = [max(round(now_ms - first[0][1]), 0) if first else 0 for first in oldest]
        queued = dict(zip(JOB_CLASSES, counts, strict=True))
        return ModelState(stages, queued, dict(zip(JOB_CLASSES, waited, strict=True)), bool(short))

    async def store_ready(self) -> bool:
        """Whether the object store answers, and soon. It is asked one question at a time, however many want to know."""
        if self._store_answer is None or self._store_answer.done():
            loop = asyncio.get_running_loop()
            self._store_answer = loop.run_in_executor(self._store_threads, self.objects.ready)
        done, _ = await asyncio.wait({self._store_answer}, timeout=STORE_S)
        return bool(done) and self._store_answer.result()

    async def admit(self, card: ModelCard, interactive: bool, patient: bool = False) -> None:
        """Raises Overloaded before anything is queued. What is `patient` may wait for a worker to come."""
        if self.draining:
            raise Overloaded("the server is shutting down", "shutting_down", retry_after_s=5.0)
        state = await self.state(card)
        if state.status != "ready" and not patient:
            raise Overloaded(f"no worker serves model {card.id} now", "no_workers", retry_after_s=5.0)
        if state.memory_short:
            raise Overloaded("memory is short: the work that is in must go on first", retry_after_s=5.0)
        waits_s = state.oldest_ms["interactive"] / 1000
        if interactive and waits_s > self.settings.limits.max_interactive_wait_s:
            raise Overloaded(f"requests wait {waits_s:.0f} s now", retry_after_s=waits_s)

    async def cancel(self, job: str, reason: str, error: str = "") -> None:
        """End a job early, in every stage."""
        state = "expired" if reason in ("deadline", "first_audio") else "cancelled"
        problem_text = error or problem("cancelled", "the job was cancelled")
        await self.client.run(end_job(job, state, problem_text))
        raw = await self.client.read_hash(self.client.keys.job(job))
        record = parse_record(job, raw)
        if record is None or record.state == "succeeded":
            return
        names = await self.client.read_set(self.client.keys.tasks(job))
        tasks = [Task.parse(name.decode()) for name in names]
        ttl_s = self.settings.retention.logs_s
        trailer = f'{{"error":{problem_text}}}'
        await self.client.run(close(out_log(job, record.take), trailer, ttl_s))
        for call in retirement(tasks, record.stages, ttl_s):
            await self.client.run(call)

    def cancel_soon(self, job: str, reason: str, error: str = "") -> None:
        """The same beside the request that is going away."""
        self.metrics.cancelled.labels(reason).inc()
        self._beside(self._cancel_at_last(job, reason, error))

    def _beside(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _cancel_at_last(self, job: str, reason: str, error: str) -> None:
        for pause_s in CANCEL_PAUSES_S:
            try:
                await self.cancel(job, reason, error)
            except RedisError as failure:
                log.warning("not cancelled", extra={"job": job, "error": type(failure).__name__})
                await asyncio.sleep(pause_s)
            else:
                return

    async def in_store(self, work: Callable[..., T], *arguments: object) -> T:
        """Run what blocks on the object store, in the threads that are kept for it."""
        return await asyncio.get_running_loop().run_in_executor(self._store_threads, work, *arguments)

    async def start(self) -> None:
        await self.client.load()
        self.listening.start()

    def _precomputed_widths(self) -> dict[str, frozenset[int]]:
        """Families that speak with precomputed voices, and how wide the embeddings are that their models take."""
        able = [card for card in self.models if "precomputed" in card.parameters.voice_kinds]
        return {
            card.family: frozenset(one.parameters.speaker_embedding for one in able if one.family == card.family)
            for card in able
        }

    async def stop(self) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=5)
        await self.watching.stop()
        await self.listening.stop()
        await self.client.close()
        self._store_threads.shutdown(wait=False, cancel_futures=True)
