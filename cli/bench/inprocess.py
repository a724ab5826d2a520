"""What the farm is measured against: the same stages, batcher and chunking in one process, without Redis."""

import itertools
import json
import sys
import time
from dataclasses import asdict, dataclass, field

from speechmill.cli.bench.load import Level, Sample, summarise
from speechmill.cli.bench.texts import line_text, request_text
from speechmill.configs.settings import Settings, StageOverride, load
from speechmill.infra.keys import Task, new_id
from speechmill.infra.messages import Claim, Heard, SpeechRequest
from speechmill.infra.segments import split
from speechmill.models.card import ModelCard
from speechmill.models.registry import cards, load_stage
from speechmill.models.stage import Chunk, Emission, Resume
from speechmill.workers.batcher import pick
from speechmill.workers.opening import stage_task
from speechmill.workers.runner import Runner
from speechmill.workers.work import Work
from speechmill.workers.worker import stage_options


@dataclass(slots=True)
class _Job:
    """One request: its segments go through the stages one ahead of the other, as in the farm."""

    segments: list[str]
    began: float
    first_s: float = 0.0
    samples: int = 0
    finished: int = 0
    next_segment: int = 0
    works: dict[int, Work] = field(default_factory=dict)


class InProcess:
    """Drives the model's stages for closed-loop clients in the calling thread.

    `live` clients listen to requests of three sentences; the others want lines of one and wait for the whole of it.
    """

    def __init__(self, settings: Settings, model: str, live: bool) -> None:
        self.card: ModelCard = cards()[model]
        self._live = live
        self._runners: list[Runner] = []
        for stage_card in self.card.stages:
            pool = f"{model}/{stage_card.name}"
            options = stage_options(stage_card, settings.stages.get(pool, StageOverride()))
            stage = load_stage(self.card, stage_card.name, options)
            stage.warm()
            self._runners.append(Runner(pool, stage_card, stage, options.slots))
        self._owner: dict[Work, _Job] = {}
        self._logs: dict[Work, list[Chunk]] = {}
        """What has come for works that wait for a slot."""
        self._queue: list[list[Work]] = []

    def measure(self, clients: int, requests: int) -> Level:
        """The level's figures, after a warm-up."""
        self._serve(clients, clients)
        began = time.perf_counter()
        return summarise(self._serve(clients, requests), time.perf_counter() - began)

    def _serve(self, clients: int, requests: int) -> list[Sample]:
        numbers, done = iter(range(requests)), []
        self._queue = [[] for _ in self._runners]
        active = [self._begin(number) for number in itertools.islice(numbers, clients)]
        while active:
            self._advance()
            for job in [job for job in active if job.finished == len(job.segments)]:
                total_s = time.perf_counter() - job.began
                done.append(Sample(job.first_s, total_s, job.samples / self.card.sample_rate))
                active.remove(job)
                active += [self._begin(number) for number in itertools.islice(numbers, 1)]
        return done

    def _begin(self, number: int) -> _Job:
        text = request_text(number) if self._live else line_text(number)
        job = _Job(split(text, self.card.segments.max_chars), time.perf_counter())
        self._start_segment(job)
        return job

    def _start_segment(self, job: _Job) -> None:
        if job.next_segment < len(job.segments) and job.next_segment <= job.finished + self.card.segments.ahead:
            self._queue[0].append(self._work(job, job.next_segment, self.card.stages[0].name))
            job.next_segment += 1

    def _work(self, job: _Job, segment: int, stage: str) -> Work:
        request = SpeechRequest("heart", 1, "pcm", self.card.sample_rate, 1, params={"speed": 1.0})
        claim = Claim(
            task=Task(new_id("job"), 1, segment, stage),
            token="",
            text=job.segments[segment],
            attempts=0,
            solo=False,
            base=-1,
            model=self.card.id,
            stages=tuple(stage.name for stage in self.card.stages),
            segments=len(job.segments),
            request=request,
            live=self._live,
            ttl_s=60,
            job_class="interactive" if self._live else "batch",
            age_s=time.perf_counter() - job.began,
            heard=Heard(job.finished, job.samples),
        )
        work = Work(claim=claim, pool=f"{self.card.id}/{stage}", log=None)
        self._owner[work] = job
        return work

    def _advance(self) -> None:
        """Fill free slots, then the step that is needed most."""
        for index, runner in reversed(list(enumerate(self._runners))):
            while self._queue[index] and runner.reserve():
                self._open(index, self._queue[index].pop(0))
        chosen = pick(list(reversed(self._runners)), time.monotonic(), "arrival")
        if chosen is not None:
            runner, batch = chosen
            index = self._runners.index(runner)
            for emission in runner.stage.step([work.slot for work in batch]):
                self._take(index, runner.works[emission.slot], emission)

    def _open(self, index: int, work: Work) -> None:
        runner = self._runners[index]
        slot = runner.seat(work)
        runner.stage.open(slot, stage_task(work.claim, {}), Resume())
        for chunk in self._logs.pop(work, []):
            runner.stage.feed(slot, chunk)
        job, task = self._owner[work], work.task
        if index + 1 < len(self._runners):
            follower = self._work(job, task.segment or 0, self.card.stages[index + 1].name)
            job.works[task.segment or 0] = follower
            self._queue[index + 1].append(follower)
        if index == 0:
            self._start_segment(job)

    def _take(self, index: int, work: Work, emission: Emission) -> None:
        job, runner = self._owner[work], self._runners[index]
        chunk = Chunk(work.made, work.made + emission.frames, emission.payload, emission.marks)
        work.made += emission.frames
        if index + 1 == len(self._runners):
            job.first_s = job.first_s or time.perf_counter() - job.began
            job.samples += emission.frames
        else:
            self._pass_on(index + 1, job.works[work.task.segment or 0], chunk, emission.final)
        if emission.final:
            runner.unseat(work)
            del self._owner[work]
            if index + 1 == len(self._runners):
                job.finished += 1
                self._start_segment(job)

    def _pass_on(self, index: int, follower: Work, chunk: Chunk, final: bool) -> None:
        chunks = [chunk] + [Chunk(chunk.end, chunk.end, b"", final=True)] * final
        if follower.slot < 0:  # not opened yet
            self._logs.setdefault(follower, []).extend(chunks)
            return
        for one in chunks:
            self._runners[index].stage.feed(follower.slot, one)


def main() -> None:
    """Answer lines of `clients requests` on standard input with figures as JSON, one line each.

    Arguments: the model, `live` or `bulk`, then settings.
    """
    model, kind, *assignments = sys.argv[1:]
    contender = InProcess(load(assignments=assignments), model, kind == "live")
    for line in sys.stdin:
        clients, requests = map(int, line.split())
        sys.stdout.write(json.dumps(asdict(contender.measure(clients, requests))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
