"""What one API process holds: settings, clients, the inbox, and what it knows of the workers."""

import asyncio
import time
from dataclasses import dataclass

from speechmill.api.listen import Listening
from speechmill.api.metrics import Metrics
from speechmill.configs.settings import Settings
from speechmill.infra.connect import make_async_client, make_objects
from speechmill.infra.errors import ConfigError, Overloaded
from speechmill.infra.jobs import parse_record, retirement
from speechmill.infra.keys import FARM_STAGES, Task, out_log
from speechmill.infra.messages import problem
from speechmill.infra.protocol import close, end_job
from speechmill.infra.spill import Spill
from speechmill.models.card import ModelCard
from speechmill.models.registry import cards

STALE_S = 0.5
"""How old what we know of the workers may be."""


@dataclass(frozen=True, slots=True)
class PoolState:
    """One stage's workers and queue."""

    workers: int
    queue: int
    oldest_ms: int
    leased: int


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model's stages by name, the farm's own included, and the jobs that nobody has started."""

    stages: dict[str, PoolState]
    queued: int
    oldest_ms: int

    @property
    def status(self) -> str:
        return "ready" if all(stage.workers for stage in self.stages.values()) else "no_workers"


class FarmState:
    """Shared by all requests of one API process."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.models = self._served(settings)
        self.client = make_async_client(settings)
        self.objects = make_objects(settings)
        self.listening = Listening(self.client, Spill(self.objects))
        self.metrics = Metrics()
        self.draining = False
        self._states: dict[str, tuple[float, ModelState | None]] = {}
        self._background: set[asyncio.Task[None]] = set()

    @staticmethod
    def _served(settings: Settings) -> tuple[ModelCard, ...]:
        known = cards()
        if unknown := [name for name in settings.models if name not in known]:
            raise ConfigError(f"unknown model {unknown[0]!r}; known: {', '.join(known)}")
        return tuple(known[name] for name in settings.models)

    async def state(self, card: ModelCard, fresh: bool = False) -> ModelState:
        """Workers and queues of a model, at most `STALE_S` old."""
        read, state = self._states.get(card.id, (0.0, None))
        if fresh or state is None or time.monotonic() - read > STALE_S:
            state = await self._read_state(card)
            self._states[card.id] = (time.monotonic(), state)
        return state

    async def _read_state(self, card: ModelCard) -> ModelState:
        server, keys = self.client.server("control"), self.client.keys
        now_ms = time.time() * 1000
        pools = [(stage.name, f"{card.id}/{stage.name}") for stage in card.stages]
        pools += [(name, f"farm/{name}") for name in FARM_STAGES]
        pipe = server.pipeline(transaction=False)
        pipe.zcard(keys.queued(card.id))
        pipe.zrange(keys.queued(card.id), 0, 0, withscores=True)
        for _, pool in pools:
            pipe.zcount(keys.workers(pool), now_ms, "+inf")
            pipe.hget(keys.leased(), pool)
            for job_class in ("interactive", "normal", "batch"):
                pipe.xinfo_stream(keys.ready(pool, job_class))
        answers = await pipe.execute(raise_on_error=False)
        queued, oldest = answers[0], answers[1]
        stages = {}
        for index, (name, _) in enumerate(pools):
            workers, leased, *queues = answers[2 + index * 5 : 7 + index * 5]
            streams = [queue for queue in queues if isinstance(queue, dict) and queue["length"]]
            ages = [now_ms - int(stream["first-entry"][0].split(b"-")[0]) for stream in streams]
            stages[name] = PoolState(
                workers, sum(stream["length"] for stream in streams), round(max(ages, default=0)), int(leased or 0)
            )
        age = round(now_ms - oldest[0][1]) if oldest else 0
        return ModelState(stages, queued, max(age, 0))

    async def store_ready(self) -> bool:
        """Whether the object store answers."""
        return await asyncio.to_thread(self.objects.ready)

    async def admit(self, card: ModelCard, interactive: bool) -> None:
        """Raises Overloaded before anything is queued."""
        if self.draining:
            raise Overloaded("the server is shutting down", "shutting_down", retry_after_s=5.0)
        state = await self.state(card)
        if state.status != "ready":
            raise Overloaded(f"no worker serves model {card.id} now", "no_workers", retry_after_s=5.0)
        waits_s = state.oldest_ms / 1000
        if interactive and waits_s > self.settings.limits.max_interactive_wait_s:
            raise Overloaded(f"requests wait {waits_s:.0f} s now", retry_after_s=waits_s)

    async def cancel(self, job: str, reason: str, error: str = "") -> None:
        """End a job early, in every stage."""
        self.metrics.cancelled.labels(reason).inc()
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
        task = asyncio.create_task(self.cancel(job, reason, error))
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def start(self) -> None:
        await self.client.load()
        self.listening.start()

    async def stop(self) -> None:
        if self._background:
            await asyncio.wait(self._background, timeout=5)
        await self.listening.stop()
        await self.client.close()
