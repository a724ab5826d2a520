"""Models without an engine: refused in one line, or spoken as tones where the settings say so."""

import threading

import pytest

from speechmill.configs.settings import Settings
from speechmill.infra.errors import ConfigError
from speechmill.infra.keys import Task
from speechmill.infra.messages import Claim, Heard, SpeechRequest
from speechmill.models.registry import cards
from speechmill.models.stage import Chunk, Resume
from speechmill.workers import loop as loop_module
from speechmill.workers.loop import Loop
from speechmill.workers.work import Feed, Open, Outcome, Work, Written
from speechmill.workers.worker import assign, model_runner

MODEL = "nineninesix/gepard-1.0"
POOL = f"{MODEL}/codec"


def settings(**test: object) -> Settings:
    return Settings.model_validate({"models": [MODEL], "test": test})


def claim() -> Claim:
    return Claim(
        task=Task("job_1", 1, 0, "codec"),
        token="1:a",
        text="Hello there.",
        attempts=0,
        solo=False,
        base=-1,
        model=MODEL,
        stages=("talker", "codec"),
        segments=1,
        request=SpeechRequest("default", 1, "wav", 22_050, 1),
        live=True,
        ttl_s=60,
        job_class="interactive",
        age_s=0.0,
        heard=Heard(),
    )


def test_a_model_without_an_engine_is_refused_unless_it_may_be_a_tone() -> None:
    with pytest.raises(ConfigError, match="no engine"):
        assign(settings(), (), ())
    assert (MODEL, "codec") in assign(settings(stand_in=True), (), ()).model_stages


def test_a_loop_with_nothing_else_to_do_goes_on_when_the_pace_allows_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_module, "IDLE_S", 1000.0)
    runner = model_runner(settings(stand_in=True, pace=0.2), cards()[MODEL], "codec")
    written: list[Written] = []
    ended = threading.Event()

    def note(outcome: Outcome) -> None:
        assert isinstance(outcome, Written)
        outcome.work.pending = 0
        written.append(outcome)
        if outcome.emission.final:
            ended.set()

    loop = Loop([runner], note)
    assert runner.reserve()
    work = Work(claim=claim(), pool=POOL, log=None)
    loop.put(Open(work, Resume(), {}))
    loop.put(Feed(work, Chunk(0, 1000, final=True)))
    thread = threading.Thread(target=loop.run, daemon=True)
    thread.start()
    assert ended.wait(20), "the loop waits for somebody to wake it"
    loop.stop()
    thread.join(20)
    assert len(written) > 1
