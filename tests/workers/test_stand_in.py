"""Models without an engine: refused in one line, or spoken as tones where the settings say so."""

import threading
from pathlib import Path

import pytest

from speechmill.configs.settings import PROFILES, Settings, load
from speechmill.infra.errors import ConfigError
from speechmill.infra.keys import FARM_STAGES, Task
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


@pytest.mark.parametrize("profile", sorted(path.stem for path in PROFILES.glob("*.toml")))
def test_the_workers_of_a_profile_of_the_package_share_all_stages_of_any_model_of_its_family(profile: str) -> None:
    settings = load(Path(profile), ["test.stand_in=true"])
    (named,) = settings.models
    family = cards()[named].family
    for card in [card for card in cards().values() if card.family == family]:
        shares = [assign(settings, [card.id], group.stages) for group in settings.workers]
        assert sorted(pair for share in shares for pair in share.model_stages) == sorted(
            (card.id, stage) for stage in card.stage_names
        )
        assert {stage for share in shares for stage in share.farm_stages} == set(FARM_STAGES)


@pytest.mark.parametrize("stages", [["encode"], ["codec", "decodr"]])
def test_stages_that_nothing_has_are_refused_with_those_that_there_are(stages: list[str]) -> None:
    with pytest.raises(ConfigError, match=f"unknown stage {stages[-1]}; known: models, farm, codec, talker, finish"):
        assign(settings(stand_in=True), (), stages)


def test_a_device_that_is_not_there_is_one_line_that_says_how_to_do_without() -> None:
    checkpoint = Path(__file__).parents[1] / "goldens" / "qwen3_tts" / "base"
    model = "Qwen/Qwen3-TTS-12Hz-1.7B-Base"
    given = [f'checkpoints."{model}"={checkpoint}', f'stages."{model}/talker".device=cuda:99']
    with pytest.raises(ConfigError, match=r"^Qwen/.*/talker: device 'cuda:99' is not there.*ends in _cpu"):
        model_runner(load(assignments=given), cards()[model], "talker")
    with pytest.raises(ConfigError, match=r"^hibari/decoder: hibari runs on the CPU only$"):
        model_runner(load(assignments=["stages.hibari/decoder.device=cuda"]), cards()["hibari"], "decoder")


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
