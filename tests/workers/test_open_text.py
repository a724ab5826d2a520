"""Workers that speak a text while it is still being written."""

import zlib

from speechmill.infra.jobs import end
from speechmill.infra.keys import new_id, out_log, text_log
from speechmill.infra.open_text import TextWriter
from speechmill.infra.protocol import Append, claim, emit, fence, handback
from speechmill.workers.finish import Cursor

from .toy import Make, ToyFarm, pcm_of, wait_for


def send(farm: ToyFarm, writer: TextWriter, *pieces: str, last: bool = False) -> None:
    calls = [*map(writer.append, pieces), *([writer.seal()] if last else [])]
    assert set(farm.client.run_all(calls)) == {"ok"}


def heard(farm: ToyFarm, job: str, text: str) -> None:
    wait_for(lambda: farm.out(job) == pcm_of(text))


def test_what_is_there_is_spoken_and_the_rest_as_it_comes(make: Make) -> None:
    farm = make()
    toy, _ = farm.start()
    job, writer = farm.submit_open("Hel")
    heard(farm, job, "Hel")
    assert (toy.tasks[0].text, toy.tasks[0].open) == ("", True)
    send(farm, writer, "lo ", "there")
    heard(farm, job, "Hello there")
    send(farm, writer, ".", last=True)
    assert farm.state(job) == "succeeded"
    assert farm.stored(job) == pcm_of("Hello there.")


def test_another_worker_reads_the_text_from_its_beginning_and_goes_on_where_the_audio_ends(make: Make) -> None:
    farm = make(worker={"drain_s": 0.2})
    _, worker = farm.start()
    job, writer = farm.submit_open("Hello ")
    heard(farm, job, "Hello ")
    farm.end(worker)
    other, _ = farm.start()
    send(farm, writer, "again", last=True)
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == pcm_of("Hello again")
    assert other.batches[0] == ["Hello again"]


def test_a_text_that_ends_without_more_ends_the_job(make: Make) -> None:
    farm = make()
    farm.start()
    job, writer = farm.submit_open("Hello")
    heard(farm, job, "Hello")
    send(farm, writer, last=True)
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == pcm_of("Hello")


def test_a_text_that_turns_out_to_be_unspeakable_is_refused_then(make: Make) -> None:
    farm = make()
    farm.start()
    job, writer = farm.submit_open("I re")
    heard(farm, job, "I re")
    send(farm, writer, "fuse")
    assert farm.state(job) == "failed"
    assert farm.record(job).error == {"code": "generation_failed", "message": "cannot say this"}


def test_a_text_that_is_lost_ends_its_job_and_says_so(make: Make) -> None:
    farm = make()
    farm.start()
    job, _ = farm.submit_open("Hello")
    heard(farm, job, "Hello")
    control, keys = farm.client.server("control"), farm.client.keys
    control.delete(keys.log(text_log(job)), keys.log_meta(text_log(job)))
    assert farm.state(job) == "failed"
    assert farm.record(job).error == {
        "code": "generation_failed",
        "message": "the text that was sent is not kept any more",
    }


def test_who_waits_for_text_gives_the_place_to_who_has_some(make: Make) -> None:
    farm = make()
    farm.start(farm_stages=())
    farm.start(slots=1)
    waiting = [farm.submit_open("Well ") for _ in range(5)]
    for job, _ in waiting:
        heard(farm, job, "Well ")
    assert farm.state(farm.submit("free"), within_s=10) == "succeeded"
    for _, writer in waiting:
        send(farm, writer, "done", last=True)
    assert [farm.state(job) for job, _ in waiting] == ["succeeded"] * 5
    assert [farm.stored(job) for job, _ in waiting] == [pcm_of("Well done")] * 5


def test_who_lost_its_worker_while_it_waited_for_text_keeps_nobody_waiting(make: Make) -> None:
    farm = make()
    silent, writer = farm.submit_open()
    told, other = farm.submit_open()
    farm.lose("toy/voice", jobs=2)
    farm.start()
    send(farm, other, "Hello", last=True)
    assert farm.state(told) == "succeeded"
    assert farm.state(farm.submit("new")) == "succeeded"
    send(farm, writer, "bye", last=True)
    assert farm.state(silent) == "succeeded"


def test_who_goes_on_with_a_job_says_that_it_was_begun_to_be_heard(make: Make) -> None:
    """Its predecessor appended the first audio and could not say so."""
    farm = make()
    job, writer = farm.submit_open("Hello")
    out = out_log(job, 1)
    farm.start(farm_stages=())
    wait_for(lambda: not isinstance(farm.client.run(claim("farm/finish", "lost", new_id("n"), 60_000, 0)), str))
    token = farm.client.read_hash(farm.client.keys.task(out.task))[b"token"].decode()
    pcm = pcm_of("Hello")[:200]
    append = Append(0, 100, zlib.crc32(pcm), pcm, cursor=Cursor().encode())
    farm.client.run_all([fence(out, token, -1, 60, "{}"), emit(out, token, append, 60)])
    farm.client.run(handback(out.task, token))
    assert not farm.record(job).first_audio
    farm.start()
    wait_for(lambda: farm.record(job).first_audio)
    send(farm, writer, last=True)
    assert farm.state(job) == "succeeded"
    assert farm.out(job) == pcm_of("Hello")


def test_a_cancelled_job_waits_for_no_text(make: Make) -> None:
    farm = make()
    toy, _ = farm.start()
    job, _ = farm.submit_open("Hello")
    heard(farm, job, "Hello")
    end(farm.client, job, "cancelled", "", 60)
    wait_for(lambda: not toy.slots, within_s=1)
    assert farm.state(job, within_s=2) == "cancelled"
