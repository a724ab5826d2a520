"""Which segments of a job run ahead, and how what somebody hears comes before what has not begun."""

from dataclasses import replace

from speechmill.infra.messages import Claim, Heard
from speechmill.infra.protocol import advance, renew

from .farm import CODEC, FINISH, TALKER, Farm

FIVE = ("a", "b", "c", "d", "e")


def claimable(farm: Farm) -> list[Claim]:
    """Take every talker task that there is."""
    taken: list[Claim] = []
    while isinstance(claimed := farm.ask(TALKER, f"w{len(taken)}"), Claim):
        taken.append(claimed)
    return taken


def segments(taken: list[Claim]) -> list[int | None]:
    return [claimed.task.segment for claimed in taken]


def test_so_many_segments_run_ahead_of_the_one_being_joined(farm: Farm) -> None:
    farm.submit(segments=FIVE, ahead=2)
    assert segments(claimable(farm)) == [0, 1, 2]


def test_one_segment_of_a_job_waits_at_a_time(farm: Farm) -> None:
    farm.submit(segments=FIVE)
    assert len(farm.ready(TALKER)) == 1


def test_a_joined_segment_lets_the_next_one_start(farm: Farm) -> None:
    farm.submit(segments=FIVE, ahead=1)
    claimable(farm)
    farm.claim(CODEC)
    finish = farm.claim(FINISH)
    assert farm.run(advance(finish.task, finish.token, 1, 100)) == "ok"
    assert segments(claimable(farm)) == [2]
    assert (farm.record(finish.task.job).joined, farm.record(finish.task.job).samples) == (1, 100)


def test_whoever_holds_tasks_of_a_job_that_somebody_hears_is_told_how_far_it_is(farm: Farm) -> None:
    job = farm.submit(segments=FIVE, live=True)
    for worker in ("w", "idle"):
        farm.server.xadd(farm.keys.inbox(worker), {"poke": ""})
    talker, codec, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    assert talker.heard == codec.heard == finish.heard == Heard(0, 0, None)
    farm.run(advance(finish.task, finish.token, 0, 40))
    farm.run(advance(finish.task, finish.token, 1, 100))
    news = [fields for _, fields in farm.server.xrange(farm.keys.inbox("w"))][1:]
    assert [fields[b"heard"].decode() for fields in news] == [job, job]
    first, second = (Heard.parse(*(fields[name] for name in (b"j", b"s", b"p", b"w"))) for fields in news)
    assert (first.joined, first.samples, second.joined, second.samples) == (0, 40, 1, 100)
    assert first.playing_s is not None
    assert second.playing_s is not None
    assert 0 <= first.playing_s <= second.playing_s < 60
    assert farm.server.xlen(farm.keys.inbox("idle")) == 1
    later = farm.claim(TALKER).heard
    (renewed,) = farm.run(renew(1000, [(codec.task, codec.token, 0)]))
    for told in (later, renewed.heard):
        assert (told.joined, told.samples) == (1, 100)
        assert told.playing_s is not None
        assert told.playing_s >= second.playing_s


def test_how_long_a_listener_stood_still_is_known_of_the_job_and_told_to_whoever_goes_on(farm: Farm) -> None:
    job = farm.submit(segments=FIVE, live=True)
    talker, _, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    farm.run(advance(finish.task, finish.token, 0, 24_000))
    for seconds_ago, samples, stalled_s in ((0.5, 24_000, 0), (11, 24_000, 10), (12, 240_000, 10), (60, 240_000, 50)):
        first_audio = int(farm.server.time()[0] * 1000 - seconds_ago * 1000)
        farm.server.hset(farm.keys.job(job), "first_audio", first_audio)
        farm.run(advance(finish.task, finish.token, 1, samples))
        (renewed,) = farm.run(renew(1000, [(talker.task, talker.token, 0)]))
        assert stalled_s <= renewed.heard.stalled_s < stalled_s + 2
    assert 50 <= farm.claim(TALKER).heard.stalled_s < 52


def test_nobody_is_told_of_a_job_that_nobody_hears(farm: Farm) -> None:
    farm.submit()
    farm.server.xadd(farm.keys.inbox("w"), {"poke": ""})
    finish = [farm.claim(pool) for pool in (TALKER, CODEC, FINISH)][-1]
    farm.run(advance(finish.task, finish.token, 1, 100))
    assert farm.server.xlen(farm.keys.inbox("w")) == 1


def test_what_goes_on_with_a_job_that_is_heard_passes_jobs_that_have_not_begun(farm: Farm) -> None:
    heard = farm.submit(segments=FIVE, live=True)
    first = farm.claim(TALKER)
    farm.submit(live=True)
    farm.submit(segments=FIVE)
    assert farm.ready(TALKER, "ongoing") == [f"{heard}/1/1/talker"]
    assert farm.claim(TALKER).task == replace(first.task, segment=1)
    farm.claim(CODEC)
    finish = farm.claim(FINISH)
    farm.run(advance(finish.task, finish.token, 0, 40))
    assert farm.ready(FINISH, "ongoing") == []
    farm.handback(finish)
    assert farm.ready(FINISH, "ongoing") == [str(finish.task)]
    farm.handback(first)
    assert farm.ready(TALKER, "ongoing") == [str(first.task)], "it plays, so its first segment is awaited as well"


def test_what_is_far_ahead_of_what_is_heard_waits_in_its_class_until_it_is_next(farm: Farm) -> None:
    heard = farm.submit(segments=FIVE, live=True)
    farm.claim(TALKER)
    start = farm.submit(live=True)
    assert farm.claim(TALKER).task.segment == 1
    assert [task.split("/")[0] for task in farm.ready(TALKER)] == [start, heard]
    farm.claim(CODEC)
    farm.claim(CODEC)
    finish = farm.claim(FINISH)
    farm.run(advance(finish.task, finish.token, 0, 40))
    assert farm.ready(TALKER, "ongoing") == []
    farm.run(advance(finish.task, finish.token, 1, 80))
    assert farm.ready(TALKER, "ongoing") == [f"{heard}/1/2/talker"]
    assert farm.ready(TALKER) == [f"{start}/1/0/talker"]
    assert farm.claim(TALKER).task.segment == 2
    assert farm.ready(CODEC, "ongoing") == [f"{heard}/1/2/codec"]


def test_who_waits_for_input_lets_others_pass_although_it_is_heard(farm: Farm) -> None:
    farm.submit(live=True)
    talker, _, finish = (farm.claim(pool) for pool in (TALKER, CODEC, FINISH))
    farm.run(advance(finish.task, finish.token, 0, 40))
    start = farm.submit(live=True)
    farm.handback(talker, parked=True)
    assert farm.ready(TALKER, "ongoing") == []
    assert [farm.claim(TALKER).task.job for _ in range(2)] == [start, talker.task.job]


def test_nothing_is_younger_than_now_although_the_clock_was_set_back(farm: Farm) -> None:
    job = farm.submit(live=True)
    for field in ("created", "first_audio"):
        farm.server.hset(farm.keys.job(job), field, 1 << 50)
    claimed = farm.claim(TALKER)
    assert (claimed.age_s, claimed.heard.playing_s) == (0, 0)


def test_a_job_that_nobody_hears_waits_its_turn_for_every_segment(farm: Farm) -> None:
    farm.submit(segments=FIVE)
    farm.claim(TALKER)
    assert farm.ready(TALKER, "ongoing") == []
    assert len(farm.ready(TALKER)) == 1


def test_an_old_finish_cannot_advance(farm: Farm) -> None:
    farm.submit()
    farm.claim(TALKER)
    farm.claim(CODEC)
    old = farm.claim_lapsed(FINISH)
    farm.reap()
    farm.claim(FINISH)
    assert farm.run(advance(old.task, old.token, 1, 100)) == "fenced"


def test_a_chained_segment_waits_for_the_one_before(farm: Farm) -> None:
    farm.submit(segments=FIVE, order="chained")
    (first,) = claimable(farm)
    farm.write_all(first)
    (second,) = claimable(farm)
    assert second.task.segment == 1


def test_the_first_segment_comes_alone_and_then_the_rest_where_the_card_says_so(farm: Farm) -> None:
    farm.submit(segments=FIVE, order="first_then_rest")
    (first,) = claimable(farm)
    farm.write_all(first)
    assert segments(claimable(farm)) == [1, 2, 3, 4]


def test_nothing_but_a_first_claim_makes_another_segment_wait(farm: Farm) -> None:
    job = farm.submit(segments=FIVE)
    first = farm.claim(TALKER)
    farm.handback(first)
    assert farm.claim(TALKER).task.segment == 1
    again = farm.claim(TALKER)
    assert again.task == first.task
    assert farm.ready(TALKER) == [f"{job}/1/2/talker"]
    farm.commit(again)
    assert farm.ready(TALKER) == [f"{job}/1/2/talker"]


def test_a_segment_that_is_taken_again_does_not_let_more_run_ahead(farm: Farm) -> None:
    farm.submit(segments=FIVE, ahead=1)
    taken = claimable(farm)
    farm.handback(taken[0])
    assert segments(claimable(farm)) == [0]
