"""Works without a farm around them, and runners whose stages always can go on."""

from collections.abc import Sequence

from speechmill.infra.keys import Task
from speechmill.infra.messages import Claim, Heard, SpeechRequest
from speechmill.models.card import StageCard
from speechmill.workers.runner import Runner
from speechmill.workers.work import Work

from .toy import Toy

RATE = 100.0


def work_of(
    job: str = "job",
    segment: int = 0,
    age_s: float = 0.0,
    *,
    live: bool = True,
    solo: bool = False,
    job_class: str = "interactive",
    stage: str = "voice",
    open_text: bool = False,
    heard: Heard = Heard(),  # noqa: B008  # frozen
) -> Work:
    """A task of a job of three segments of one stage; its `out` log has 1000 samples a second."""
    claim = Claim(
        task=Task(job, 1, segment, stage),
        token="1:a",
        text="text",
        attempts=0,
        solo=solo,
        base=-1,
        model="toy",
        stages=(stage,),
        segments=3,
        request=SpeechRequest("v", 1, "wav", 1000, 1, open_text=open_text),
        live=live,
        ttl_s=60,
        job_class=job_class,
        age_s=age_s,
        heard=heard,
    )
    return Work(claim=claim, pool=f"toy/{stage}", log=None)


def runner_of(name: str, works: Sequence[Work], light: bool = False, batch: int = 0) -> Runner:
    """All of the works are in its slots, and able."""
    card = StageCard(name=name, unit="pcm", rate=RATE, dtype="s16le", slots=64, batch=batch)
    runner = Runner(f"toy/{name}", card, Toy(), 64, light)
    runner.stage.runnable = lambda slot: True  # type: ignore[method-assign]
    for work in works:
        assert runner.reserve()
        runner.seat(work)
    return runner
