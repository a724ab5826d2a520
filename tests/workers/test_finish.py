"""Joining segments into the `out` log."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from speechmill.infra.messages import SpeechRequest
from speechmill.models.stage import Chunk, Mark, Resume, SlotFailed
from speechmill.workers.finish import FarmTask, Finish, Joined

RATE = 1000
PAUSE_MS = 50


def task(segments: int, rate: int = RATE, stretch: float = 1.0) -> FarmTask:
    request = SpeechRequest("v", 1, "wav", rate, 1, stretch=stretch, silence_ms=PAUSE_MS)
    return FarmTask("job", 1, -1, "", "v", 1, request=request, segments=segments, native_rate=RATE, token="1:a")


def pcm(length: int, start: int = 0) -> bytes:
    return (np.arange(start, start + length) % 30_000).astype("<i2").tobytes()


def feed(finish: Finish, audio: bytes, cuts: list[int], marks: tuple[Mark, ...] = ()) -> None:
    """One segment in chunks that end at `cuts`, then its end."""
    edges = sorted({0, *(cut for cut in cuts if cut < len(audio) // 2), len(audio) // 2})
    for start, end in pairwise(edges):
        inside = tuple(mark for mark in marks if start < mark.end <= end)
        finish.feed(0, Chunk(start, end, audio[2 * start : 2 * end], inside))
    finish.feed(0, Chunk(edges[-1], edges[-1], final=True))


def emissions(finish: Finish) -> list[Joined]:
    return [emission for emission in finish.step([0]) if isinstance(emission, Joined)]


def test_segments_are_joined_with_a_pause_between_and_none_at_the_end() -> None:
    finish = Finish()
    finish.open(0, task(2), Resume())
    feed(finish, pcm(100), [])
    feed(finish, pcm(60, 500), [])
    made = emissions(finish)
    assert b"".join(emission.payload for emission in made) == pcm(100) + bytes(2 * PAUSE_MS) + pcm(60, 500)
    assert [emission.joined for emission in made][-1] == 2
    assert made[-1].final
    assert made[-1].trailer == {"frames": 100 + PAUSE_MS + 60, "finish_reason": "stop"}


def test_one_segment_that_was_cut_off_is_told_of_all_also_by_a_successor() -> None:
    finish = Finish()
    finish.open(0, task(2), Resume())
    finish.feed(0, Chunk(0, 100, pcm(100)))
    finish.feed(0, Chunk(100, 100, final=True, trailer={"finish_reason": "length"}))
    written = emissions(finish)[-1]
    finish.close(0)
    finish.open(0, task(2), Resume(100 + PAUSE_MS, cursor=written.cursor))
    finish.feed(0, Chunk(0, 60, pcm(60)))
    finish.feed(0, Chunk(60, 60, final=True, trailer={"finish_reason": "stop"}))
    assert emissions(finish)[-1].trailer["finish_reason"] == "length"


def test_segments_without_a_sample_bring_no_pause_and_a_job_of_nothing_else_fails() -> None:
    finish = Finish()
    for texts in ([b"", pcm(100)], [b"", b""]):
        finish.open(0, task(2), Resume())
        for audio in texts:
            finish.feed(0, Chunk(0, len(audio) // 2, audio))
            finish.feed(0, Chunk(len(audio) // 2, len(audio) // 2, final=True))
        if any(texts):
            assert b"".join(emission.payload for emission in emissions(finish)) == pcm(100)
        else:
            with pytest.raises(SlotFailed, match="no audio"):
                finish.step([0])


@given(
    lengths=st.lists(st.integers(1, 300), min_size=1, max_size=4),
    cuts=st.lists(st.integers(1, 299), max_size=6),
    stop=st.integers(0, 6),
    rate=st.sampled_from([RATE, 800, 1600]),
    stretch=st.sampled_from([1.0, 0.7]),
)
def test_a_successor_continues_at_the_exact_sample(
    lengths: list[int], cuts: list[int], stop: int, rate: int, stretch: float
) -> None:
    segments = [pcm(length, 1000 * k) for k, length in enumerate(lengths)]

    def run(resume: Resume, first: int) -> list[Joined]:
        finish = Finish()
        finish.open(0, task(len(segments), rate, stretch), resume)
        for segment in segments[first:]:
            feed(finish, segment, cuts)
        return emissions(finish)

    whole = run(Resume(), 0)
    kept = whole[: stop % (len(whole) + 1)]
    written = b"".join(emission.payload for emission in kept)
    resume = Resume(len(written) // 2, cursor=kept[-1].cursor if kept else b"")
    first = kept[-1].joined if kept else 0
    rest = run(resume, first)
    assert written + b"".join(e.payload for e in rest) == b"".join(e.payload for e in whole)
    assert rest[-1].trailer == whole[-1].trailer


@given(cuts=st.lists(st.integers(1, 99), max_size=5), rate=st.sampled_from([RATE, 2000]))
def test_words_keep_their_places_in_the_joined_audio(cuts: list[int], rate: int) -> None:
    finish = Finish()
    finish.open(0, task(2, rate), Resume())
    words = (Mark("one", 10, 40), Mark("two", 50, 100))
    feed(finish, pcm(100), cuts, words)
    feed(finish, pcm(100), cuts, words)
    marks = [mark for emission in emissions(finish) for mark in emission.marks]
    scale = rate // RATE
    second = 100 + PAUSE_MS
    wanted = [(w.word, (w.start + at) * scale, (w.end + at) * scale) for at in (0, second) for w in words]
    assert [(mark.word, mark.start, mark.end) for mark in marks] == wanted


def test_a_job_without_any_audio_fails() -> None:
    finish = Finish()
    finish.open(0, task(1), Resume())
    finish.feed(0, Chunk(0, 0, final=True))
    with pytest.raises(SlotFailed):
        finish.step([0])


def test_a_job_that_has_no_audio_yet_does_not_fail_because_its_neighbour_is_done() -> None:
    finish = Finish()
    for slot in range(2):
        finish.open(slot, task(1), Resume())
    finish.feed(0, Chunk(0, 100, pcm(100)))
    finish.feed(0, Chunk(100, 100, final=True))
    finish.feed(1, Chunk(0, 0))
    made = finish.step([0, 1])
    assert [(emission.slot, emission.final) for emission in made] == [(0, False), (0, True)]
