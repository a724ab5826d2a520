"""Who runs next."""

from speechmill.infra.keys import Task
from speechmill.infra.messages import Claim, SpeechRequest
from speechmill.models.card import StageCard
from speechmill.workers.batcher import choose, pick
from speechmill.workers.runner import Runner
from speechmill.workers.work import Work

from .toy import Toy

RATE = 100.0


def work(age_s: float = 0.0, *, live: bool = True, solo: bool = False, job_class: str = "interactive") -> Work:
    request = SpeechRequest("v", 1, "wav", 1000, 1)
    claim = Claim(
        task=Task("job", 1, 0, "voice"),
        token="1:a",
        text="text",
        attempts=0,
        solo=solo,
        base=-1,
        model="toy",
        stages=("voice",),
        segments=3,
        joined=0,
        request=request,
        live=live,
        ttl_s=60,
        job_class=job_class,
        age_s=age_s,
        samples=0,
    )
    return Work(claim=claim, pool="toy/voice", log=None)


def test_the_listener_that_runs_dry_first_goes_first() -> None:
    fed, starving, new = work(age_s=5), work(age_s=5), work(age_s=0)
    fed.made = 2000  # twenty seconds of audio after five
    starving.made = 100  # one second of audio after five
    assert choose([fed, new, starving], RATE, 2) == [starving, new]


def test_work_that_nobody_hears_waits_and_the_batch_class_waits_longest() -> None:
    bulk, buffered, live = work(9, live=False, job_class="batch"), work(5, live=False), work(0)
    assert choose([bulk, buffered, live], RATE, 3) == [live, buffered, bulk]


def test_what_nobody_hears_is_finished_in_the_order_in_which_it_came() -> None:
    begun, next_one = work(9, live=False), work(8, live=False)
    begun.made = 2000
    assert choose([next_one, begun], RATE, 1) == [begun]


def test_the_last_places_are_spare() -> None:
    runner = Runner("toy/voice", StageCard(name="voice", unit="pcm", rate=RATE, dtype="s16le", slots=32), Toy(), 32)
    places = [runner.reserve() for _ in range(33)]
    assert places == ["any"] * 30 + ["spare"] * 2 + [None]
    runner.unreserve()
    assert runner.crowded
    assert runner.reserve() == "spare"


def test_a_suspect_runs_alone_after_the_others() -> None:
    suspect, other = work(9, solo=True), work(0)
    assert choose([suspect, other], RATE, 4) == [other]
    assert choose([suspect], RATE, 4) == [suspect]
    assert len(choose([suspect, work(solo=True)], RATE, 4)) == 1


def test_a_later_segment_has_a_later_deadline() -> None:
    first, third = work(), work()
    third.claim = Claim(**{**_fields(third.claim), "task": Task("job", 1, 2, "voice")})
    third.__post_init__()
    assert third.deadline > first.deadline


def _fields(claim: Claim) -> dict[str, object]:
    return {name: getattr(claim, name) for name in Claim.__slots__}


def _runner(name: str, works: list[Work], light: bool = False) -> Runner:
    runner = Runner(name, StageCard(name=name, unit="pcm", rate=RATE, dtype="s16le", slots=4), Toy(), 4, light)
    runner.stage.runnable = lambda slot: True  # type: ignore[method-assign]
    runner.works = dict(enumerate(works))
    return runner


def test_light_stages_step_at_once_and_the_others_by_need() -> None:
    light, calm, urgent = (
        _runner("light", [work(0)], light=True),
        _runner("calm", [work(0)]),
        _runner("urgent", [work(9)]),
    )
    assert pick([calm, urgent, light]) == (light, [light.works[0]])
    assert pick([calm, urgent]) == (urgent, [urgent.works[0]])
    assert pick([_runner("empty", [])]) is None
