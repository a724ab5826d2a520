"""Codecs as stages: chunks, neighbours and interruptions change nothing that is heard."""

from importlib import import_module

import pytest
from codec_families import FISH, LIVE, QWEN, CodecFamily, log
from driving import assert_same_audio, drive, drive_together, length, payload, task
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmill.models.common.codec.decoder import POSITIONS
from speechmill.models.stage import CannotLoad, Chunk, Emission, Resume, SlotFailed, StageOptions

SEVERAL = settings(max_examples=8)
each_codec = pytest.mark.parametrize("codec", [FISH, QWEN], ids=lambda codec: codec.name)
sizes = st.lists(st.integers(1, 9), max_size=8)


@each_codec
@SEVERAL
@given(st.integers(1, 30), sizes, st.lists(st.integers(1, 9), min_size=1, max_size=3), st.booleans())
def test_any_chunks_give_the_audio_of_one_call(
    codec: CodecFamily, frames: int, arriving: list[int], chunks: list[int], live: bool
) -> None:
    codes = codec.codes(frames, frames)
    made = drive(codec.stage(tuple(chunks)), task("", live=live), log(codes, arriving))
    assert length(made) == frames * codec.frame_samples
    assert len(payload(made)) == 2 * length(made)
    assert_same_audio(made, codec.heard(codes))


@each_codec
@SEVERAL
@given(st.lists(st.tuples(st.integers(1, 24), sizes, st.booleans()), min_size=2, max_size=5))
def test_neighbours_at_other_places_change_nothing(codec: CodecFamily, work: list[tuple[int, list[int], bool]]) -> None:
    codes = [codec.codes(frames, seed) for seed, (frames, _, _) in enumerate(work)]
    together = drive_together(
        codec.stage(),
        [(task("", live=live), log(each, arriving)) for each, (_, arriving, live) in zip(codes, work, strict=True)],
    )
    for found, each in zip(together, codes, strict=True):
        assert_same_audio(found, codec.heard(each))


@each_codec
@SEVERAL
@given(st.data())
def test_a_stream_is_resumed_at_any_sample(codec: CodecFamily, data: st.DataObject) -> None:
    frames = data.draw(st.integers(1, 70))
    end = data.draw(st.integers(0, frames * codec.frame_samples))
    codes = codec.codes(frames, frames)
    made = drive(codec.stage(), task("", live=data.draw(st.booleans())), log(codes, data.draw(sizes)), Resume(end))
    assert_same_audio(made, codec.heard(codes)[end:])


@each_codec
@SEVERAL
@given(st.data())
def test_codes_that_come_while_a_resumed_stream_is_stepped_change_nothing(
    codec: CodecFamily, data: st.DataObject
) -> None:
    frames = data.draw(st.integers(1, 70))
    end = data.draw(st.integers(0, frames * codec.frame_samples))
    codes, made, stage = codec.codes(frames, frames), list[Emission](), codec.stage()
    stage.open(0, task("", live=True), Resume(end))
    for chunk in log(codes, [data.draw(st.integers(1, 9))] * frames):
        stage.feed(0, chunk)
        while not (made and made[-1].final) and stage.runnable(0):
            made += stage.step([0])
    stage.close(0)
    assert_same_audio(made, codec.heard(codes)[end:])


@each_codec
def test_a_resumed_stream_does_not_read_the_whole_log_again(codec: CodecFamily) -> None:
    stage, decoder = codec.load(), codec.decoder()
    seen = decoder.latent_reach + decoder.wave_reach
    codes, end = codec.codes(seen + 40), (seen + 30) * codec.frame_samples
    stage.open(0, task("", live=True), Resume(end))
    for chunk in log(codes, [7] * 100):
        stage.feed(0, chunk)
    assert len(stage._slots[0].waiting) == seen + 10


@each_codec
def test_what_a_resumed_stream_has_said_is_caught_up_with_before_there_are_new_codes(codec: CodecFamily) -> None:
    stage, codes, said = codec.load((8,)), codec.codes(30), 20
    stage.open(0, task("", live=True), Resume(said * codec.frame_samples))
    stage.feed(0, Chunk(0, said, log(codes[:said])[0].payload))
    while stage.runnable(0):
        assert stage.step([0]) == []
    assert stage._slots[0].frame == said
    stage.feed(0, Chunk(said, len(codes), log(codes[said:])[0].payload, final=True))
    made: list[Emission] = []
    while not (made and made[-1].final):
        made += stage.step([0])
    assert [emission.frames // codec.frame_samples for emission in made] == [8, 2]
    assert_same_audio(made, codec.heard(codes)[said * codec.frame_samples :])


@each_codec
def test_what_is_heard_first_is_heard_after_the_first_small_chunk(codec: CodecFamily) -> None:
    made = drive(codec.stage(), task("", live=True), log(codec.codes(20)))
    assert [emission.frames // codec.frame_samples for emission in made] == [*LIVE, 20 - sum(LIVE)]


@each_codec
def test_a_slot_that_waits_for_codes_is_not_runnable(codec: CodecFamily) -> None:
    waiting, chunks = codec.stage((4,)), log(codec.codes(6), [3])
    waiting.open(3, task("", live=True), Resume())
    waiting.feed(3, Chunk(0, 3, chunks[0].payload))
    assert not waiting.runnable(3)
    waiting.feed(3, chunks[1])
    assert waiting.runnable(3)
    waiting.close(3)


@each_codec
def test_a_hurried_slot_makes_one_piece_of_what_is_there_and_sounds_the_same(codec: CodecFamily) -> None:
    codes = codec.codes(20)
    first, *rest = log(codes, [3, 2])
    hurried = codec.stage((8,))
    hurried.open(0, task("", live=True), Resume())
    hurried.hurry(0)
    assert not hurried.runnable(0), "there is nothing to make it of"
    hurried.feed(0, first)
    assert hurried.runnable(0)
    made = hurried.step([0])
    assert [emission.frames for emission in made] == [3 * codec.frame_samples]
    hurried.feed(0, rest[0])
    assert not hurried.runnable(0), "once is once"
    hurried.feed(0, rest[1])
    while not made[-1].final:
        made += hurried.step([0])
    hurried.close(0)
    assert_same_audio(made, codec.heard(codes))


@each_codec
def test_a_log_without_codes_makes_no_audio(codec: CodecFamily) -> None:
    made = drive(codec.stage(), task(""), [Chunk(0, 0, final=True)])
    assert [(emission.frames, emission.final) for emission in made] == [(0, True)]


@each_codec
def test_one_step_is_bounded_however_much_waits(codec: CodecFamily) -> None:
    busy = codec.load()
    for slot in range(3):
        busy.open(slot, task(""), Resume())
        busy.feed(slot, log(codec.codes(50))[0])
    first = busy.step([2, 0, 1])
    assert [emission.slot for emission in first] == [2]


@each_codec
def test_codes_beyond_what_positions_reach_are_refused(codec: CodecFamily) -> None:
    refusing = codec.stage()
    refusing.open(5, task(""), Resume())
    with pytest.raises(SlotFailed, match="frames at once"):
        refusing.feed(5, Chunk(POSITIONS, POSITIONS + 1, log(codec.codes(1))[0].payload))
    refusing.close(5)


@each_codec
def test_codes_that_the_codec_has_not_are_refused_in_their_slot_alone(codec: CodecFamily) -> None:
    stage, codes = codec.load(), codec.codes(5)
    for slot in range(2):
        stage.open(slot, task(""), Resume())
    stage.feed(0, log(codes)[0])
    beyond = codes.clone()
    beyond[3, -1] = codec.decoder().codebooks[-1]
    with pytest.raises(SlotFailed, match="none of the codec's") as failure:
        stage.feed(1, log(beyond)[0])
    assert failure.value.slot == 1
    stage.close(1)
    assert_same_audio(stage.step([0]), codec.heard(codes))


@each_codec
@pytest.mark.parametrize("stage", ["talker", "codec", "encode"])
def test_no_stage_is_loaded_without_a_checkpoint(codec: CodecFamily, stage: str) -> None:
    family = import_module(f"speechmill.models.{codec.name}.stages")
    with pytest.raises(CannotLoad, match="from a checkpoint only"):
        family.load(stage, StageOptions(slots=1))
