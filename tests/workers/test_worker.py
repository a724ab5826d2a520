"""The stage loop with everything real but the model."""

import threading
import time

from speechmill.infra.jobs import end
from speechmill.infra.keys import LogRef, Task, out_log
from speechmill.infra.protocol import retry

from .toy import PER_CHAR, RATE, Make, pcm_of, wait_for


def test_segments_are_spoken_joined_and_stored(make: Make) -> None:
    farm = make()
    farm.start()
    job = farm.submit("one", "two", "three")
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == pcm_of("one") + pcm_of("two") + pcm_of("three") == farm.stored(job)


def test_a_text_that_is_refused_fails_alone_and_at_once(make: Make) -> None:
    farm = make()
    farm.start()
    jobs = [farm.submit(text) for text in ("fine", "refuse", "also fine")]
    assert [farm.state(job) for job in jobs] == ["succeeded", "failed", "succeeded"]
    assert farm.record(jobs[1]).error == {"code": "generation_failed", "message": "cannot say this"}


def test_a_poisoned_text_fails_alone_although_it_breaks_the_batch_that_it_is_in(make: Make) -> None:
    farm = make()
    toy, _ = farm.start()
    assert farm.state(farm.submit("first")) == "succeeded", "before it is known how fast the stage is, it starts one"
    toy.batches.clear()
    texts = ["wait good 1", "wait good 2", "wait poison", "wait good 3"]
    jobs = [farm.submit(text) for text in texts]
    wait_for(lambda: len(toy.slots) == 4)
    toy.gate.set()
    assert [farm.state(job) for job in jobs] == ["succeeded", "succeeded", "failed", "succeeded"]
    assert len(toy.batches[0]) == 4
    assert [batch for batch in toy.batches[1:] if "wait poison" in batch] == [["wait poison"], ["wait poison"]]
    for job, text in zip(jobs, texts, strict=True):
        assert farm.record(job).state == "failed" or farm.out(job) == pcm_of(text)


def test_a_job_given_up_on_can_be_sent_again_with_new_logs(make: Make) -> None:
    farm = make()
    toy, _ = farm.start()
    job = farm.submit("poison", attempts=1)
    assert farm.state(job) == "failed"
    assert farm.client.server("control").zscore(farm.client.keys.dead(), job)
    toy.step = lambda slots: [toy._emit(slot) for slot in slots]  # type: ignore[method-assign]  # the model is mended
    assert farm.client.run(retry(job)) == "ok"
    assert farm.state(job) == "succeeded"
    assert farm.out(job, take=2) == pcm_of("poison")
    assert farm.client.server("control").zscore(farm.client.keys.dead(), job) is None


def test_a_stuck_step_loses_its_tasks_to_another_worker(make: Make) -> None:
    farm = make(worker={"lease_s": 0.6, "stuck_step_s": 0.3})
    toy, _ = farm.start(farm_stages=())
    toy.hang_s = 4.0
    job = farm.submit("hang on")
    wait_for(lambda: toy.batches)
    farm.start()
    began = time.monotonic()
    assert farm.state(job) == "succeeded"
    assert time.monotonic() - began < toy.hang_s
    assert farm.out(job) == pcm_of("hang on")


def test_jobs_that_were_at_a_lost_worker_keep_nobody_waiting(make: Make) -> None:
    farm = make()
    toy, _ = farm.start(farm_stages=())
    long, short = farm.submit("wait a long time"), farm.submit("short")
    wait_for(lambda: len(toy.slots) == 1 and toy.batches)
    farm.lose("farm/finish", "farm/store", jobs=2)
    farm.start()
    began = time.monotonic()
    new = []
    while time.monotonic() - began < 6:
        new.append(farm.submit("new"))
        time.sleep(1)
    assert [farm.state(job, within_s=5) for job in (short, *new)] == ["succeeded"] * (1 + len(new))
    toy.gate.set()
    assert farm.state(long) == "succeeded"


def test_draining_hands_unfinished_work_to_another_worker(make: Make) -> None:
    farm = make(worker={"drain_s": 0.2})
    toy, worker = farm.start()
    job = farm.submit("wait for it")
    wait_for(lambda: toy.slots)
    worker.drain()
    other, _ = farm.start()
    other.gate.set()
    assert farm.state(job, within_s=5) == "succeeded"
    task = farm.client.read_hash(farm.client.keys.task(Task(job, 1, 0, "voice")))
    assert task.get(b"attempts", b"0") == b"0"
    assert farm.out(job) == pcm_of("wait for it")


def test_cancelling_frees_the_slots_of_every_stage_at_once(make: Make) -> None:
    farm = make()
    toy, _ = farm.start()
    job = farm.submit("wait", "more")
    wait_for(lambda: toy.slots)
    end(farm.client, job, "cancelled", "", 60)
    wait_for(lambda: not toy.slots, within_s=1)
    assert farm.state(job, within_s=2) == "cancelled"
    wait_for(lambda: all(int(n) == 0 for n in farm.client.read_hash(farm.client.keys.leased()).values()), within_s=2)


def test_a_log_that_was_lost_is_made_again_and_the_result_is_the_same(make: Make) -> None:
    farm = make(worker={"lease_s": 2.0})
    toy, _ = farm.start()
    job = farm.submit("first", "wait second")
    wait_for(lambda: farm.client.server("chunks").exists(farm.client.keys.log_meta(out_log(job, 1))))
    wait_for(lambda: len(farm.out(job)) == len(pcm_of("first")))
    lost = LogRef(Task(job, 1, 1, "voice"), "chunks")
    farm.client.server("chunks").delete(farm.client.keys.log(lost), farm.client.keys.log_meta(lost))
    toy.gate.set()
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == pcm_of("first") + pcm_of("wait second")


def test_the_out_log_itself_may_be_lost(make: Make) -> None:
    farm = make(worker={"lease_s": 2.0})
    toy, _ = farm.start()
    job = farm.submit("first", "wait second")
    wait_for(lambda: farm.client.server("chunks").exists(farm.client.keys.log_meta(out_log(job, 1))))
    wait_for(lambda: len(farm.out(job)) == len(pcm_of("first")))
    out = out_log(job, 1)
    farm.client.server("chunks").delete(farm.client.keys.log(out), farm.client.keys.log_meta(out))
    toy.gate.set()
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == farm.stored(job) == pcm_of("first") + pcm_of("wait second")


def test_audio_made_ahead_waits_while_memory_is_short_and_the_segment_in_turn_does_not(make: Make) -> None:
    farm = make()
    chunks = farm.client.server("chunks")
    chunks.set(farm.client.keys.pressure(), 1)
    toy, _ = farm.start()
    job = farm.submit("wait first", "second")
    wait_for(lambda: len(toy.batches) >= len("second"))
    time.sleep(0.3)
    ahead = farm.client.keys.log_meta(LogRef(Task(job, 1, 1, "voice"), "chunks"))
    assert chunks.hget(ahead, "end") == b"0"
    toy.gate.set()
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == pcm_of("wait first") + pcm_of("second")
    chunks.delete(farm.client.keys.pressure())


def test_tasks_without_input_give_their_slots_to_tasks_that_have_some(make: Make) -> None:
    farm = make()
    toy, _ = farm.start(slots=4, farm_stages=())
    blocked = [farm.submit("wait") for _ in range(3)]
    wait_for(lambda: len(toy.slots) == 3)
    farm.start(slots=1)
    assert farm.state(farm.submit("free"), within_s=5) == "succeeded"
    toy.gate.set()
    assert [farm.state(job) for job in blocked] == ["succeeded"] * 3


def test_a_long_out_log_is_spilled_and_can_still_be_read_from_the_start(make: Make) -> None:
    farm = make(retention={"replay_window_s": 2.0})
    farm.start()
    segments = ["a segment of some length"] * 12
    job = farm.submit(*segments)
    wanted = pcm_of(segments[0]) * len(segments)
    assert farm.state(job) == "succeeded"
    assert farm.stored(job) == wanted
    out = out_log(job, 1)
    wait_for(lambda: int(farm.client.server("chunks").hget(farm.client.keys.log_meta(out), "first") or 0) > 0)
    pieces, position = [], 0
    while piece := farm.spill.read(out, position):
        pieces.append(piece[1])
        position = piece[0] + len(piece[1]) // 2
    end, first = (int(farm.client.read_hash(farm.client.keys.log_meta(out))[name]) for name in (b"end", b"first"))
    assert end - first >= 2.0 * RATE
    assert position > 0
    assert b"".join(pieces) == wanted[: 2 * position]


def test_many_jobs_at_once_leave_nothing_behind(make: Make) -> None:
    farm = make()
    toys = [farm.start()[0] for _ in range(2)]
    texts = [("x" * (1 + n % 7), "y" * (1 + n % 3)) for n in range(60)]
    jobs = [farm.submit(*segments) for segments in texts]
    assert {farm.state(job, within_s=60) for job in jobs} == {"succeeded"}
    for job, segments in zip(jobs, texts, strict=True):
        assert farm.stored(job) == b"".join(map(pcm_of, segments))
    wait_for(lambda: not any(toy.slots for toy in toys))
    leased = farm.client.read_hash(farm.client.keys.leased())
    assert {int(count) for count in leased.values()} == {0}
    assert farm.client.server("control").zcard(farm.client.keys.live()) == 0


def test_threads_of_a_worker_end_with_it(make: Make) -> None:
    farm = make()
    before = set(threading.enumerate())
    _, worker = farm.start()
    assert farm.state(farm.submit("x" * PER_CHAR)) == "succeeded"
    worker.drain()
    wait_for(lambda: not (set(threading.enumerate()) - before - {threading.current_thread()}), within_s=10)
