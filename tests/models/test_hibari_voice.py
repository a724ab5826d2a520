"""The embedded voice against the check values of its spec (infrastructure.md §7.6) and against itself."""

from functools import cache
from itertools import accumulate

import numpy as np
import pytest
import torch
from driving import as_log, assert_same_audio, drive, drive_together, length, loaded, marks, payload, samples, task
from hibari import Hibari
from hypothesis import given, settings
from hypothesis import strategies as st

from speechmill.models.common.pcm import to_s16
from speechmill.models.common.spectral import OverlapAdd
from speechmill.models.hibari import codes
from speechmill.models.hibari.decoder import BINS, Decoder
from speechmill.models.hibari.prosody import Prosody
from speechmill.models.hibari.signal import HOP, WINDOW, NoiseKey, PulseTrain, combine
from speechmill.models.hibari.stages import load
from speechmill.models.hibari.text import Reader
from speechmill.models.hibari.weights import load_weights
from speechmill.models.stage import Chunk, Emission, Resume, Stage, StageOptions

TEXT = "Hello there. ... The birch canoe slid on the smooth planks, in 1937!"
GREETING = "Hello there."
CANOE = "The birch canoe slid on the smooth planks."
schedules = st.lists(st.integers(1, 60), min_size=1, max_size=6).map(tuple)


def near(value: float) -> object:
    return pytest.approx(value, rel=2e-3)


@cache
def decoder() -> Decoder:
    return Decoder(load_weights())


@cache
def piece(sentence: str) -> codes.Piece:
    ids = Reader().read(sentence)[0].ids
    return Prosody(load_weights())(ids, 1.0)


@cache
def parts(sentence: str) -> torch.Tensor:
    """Network rows of a whole sentence: [frames, 5·601], magnitudes first."""
    stream = decoder().stream()
    stream.ended = True
    return decoder()([stream], [decoder().features(piece(sentence))])[0]


def noiseless(sentence: str) -> torch.Tensor:
    frames = piece(sentence).frames
    pulses = PulseTrain(torch.from_numpy(piece(sentence).f0)).spectra(0, frames)
    return OverlapAdd(WINDOW, HOP).add(
        combine(parts(sentence).clone(), pulses, torch.zeros(frames, 2, BINS)), last=True
    )


def prosody_log(text: str, **changes: object) -> list[Chunk]:
    return as_log(drive(loaded("hibari", "prosody"), task(text, **changes)))


@cache
def text_log() -> tuple[Chunk, ...]:
    return tuple(prosody_log(TEXT))


@cache
def whole_text() -> list[Emission]:
    return drive(loaded("hibari", "decoder"), task(TEXT), text_log())


def live_decoder(schedule: tuple[int, ...]) -> Stage:
    return load("decoder", StageOptions(slots=4, live_chunks=schedule))


def test_durations_are_the_spec_s() -> None:
    assert piece(GREETING).durations.tolist() == [13, 2, 3, 2, 3, 2, 2, 2, 3, 3, 12, 7, 1]
    assert piece(GREETING).frames == 110
    assert piece(CANOE).durations.sum() == 106


@pytest.mark.parametrize(("sentence", "mean", "count"), [(GREETING, 215.25, 50), (CANOE, 200.87, 131)])
def test_pitch_is_the_spec_s(sentence: str, mean: float, count: int) -> None:
    voiced = piece(sentence).f0[piece(sentence).f0 > 40]
    assert len(voiced) == count
    assert voiced.mean() == near(mean)


def test_prosody_and_network_activations_are_the_spec_s() -> None:
    assert piece(GREETING).f0[24:26].tolist() == [near(198.26), near(231.16)]
    assert piece(GREETING).energy[24] == near(3.578)
    features = decoder().features(piece(GREETING))[20, :4]
    assert features.tolist() == pytest.approx([0.0266, -0.0194, 0.0043, -0.1007], abs=6e-5)
    assert parts(GREETING)[20:24, 100].tolist() == [near(value) for value in (-9.674, -8.865, -6.087, -4.975)]
    assert parts(GREETING)[:, :BINS].std().item() == near(3.434)


def test_the_pulse_train_is_the_spec_s() -> None:
    pulses = PulseTrain(torch.from_numpy(piece(GREETING).f0)).samples(0, piece(GREETING).frames)
    assert pulses[9000:9004].tolist() == [near(value) for value in (0.5389, -1.3883, 0.1968, -0.9794)]


@pytest.mark.parametrize(
    ("sentence", "count", "rms", "peak"), [(GREETING, 33_000, 0.04018, 0.25999), (CANOE, 63_600, 0.04771, 0.34637)]
)
def test_audio_without_noise_is_the_spec_s(sentence: str, count: int, rms: float, peak: float) -> None:
    audio = noiseless(sentence)
    assert len(audio) == count
    assert audio.square().mean().sqrt().item() == near(rms)
    assert audio.abs().max().item() == near(peak)


def test_the_wheel_s_own_quantised_graph_says_nearly_the_same() -> None:
    wheel = Hibari()
    feed = {"ids": piece(CANOE).ids[None].astype(np.int64), "speed": np.ones(1, np.float32)}
    lh, _, _, _, _, f0 = (output[0] for output in wheel.sess.run(None, feed))
    assert np.abs(lh.T - parts(CANOE)[:, :BINS].numpy()).mean() < 0.1
    assert np.abs(f0 - piece(CANOE).f0).max() < 8


@settings(max_examples=15)
@given(schedules)
def test_any_chunking_gives_the_audio_of_the_whole(schedule: tuple[int, ...]) -> None:
    assert_same_audio(drive(live_decoder(schedule), task(TEXT, live=True), text_log()), samples(whole_text()))


@settings(max_examples=20)
@given(st.floats(0, 1), st.booleans())
def test_a_decoder_resumes_at_any_sample(share: float, live: bool) -> None:
    end = round(share * length(whole_text()))
    rest = drive(loaded("hibari", "decoder"), task(TEXT, live=live), text_log(), Resume(end))
    assert_same_audio(rest, samples(whole_text())[end:])
    assert marks(rest) == [mark for mark in marks(whole_text()) if mark.start >= end]


@settings(max_examples=5)
@given(schedules)
def test_neighbours_of_other_lengths_change_nothing(schedule: tuple[int, ...]) -> None:
    tasks = [task(TEXT, live=True), task(CANOE, live=True, seed=3), task(GREETING, live=True)]
    logs = [text_log(), prosody_log(CANOE), prosody_log(GREETING)]
    stage = live_decoder(schedule)
    together = drive_together(stage, list(zip(tasks, logs, strict=True)))
    for spoken, log, found in zip(tasks, logs, together, strict=True):
        assert_same_audio(found, samples(drive(stage, spoken, log)))


def test_the_same_schedule_gives_the_same_bytes() -> None:
    once, again = (drive(loaded("hibari", "decoder"), task(TEXT, live=True), text_log()) for _ in range(2))
    assert once == again


def test_the_first_live_chunk_is_small() -> None:
    emissions = drive(loaded("hibari", "decoder"), task(CANOE, live=True), prosody_log(CANOE))
    assert emissions[0].frames == 6 * HOP


def test_a_decoder_waits_for_input_and_ends_with_it() -> None:
    stage = loaded("hibari", "decoder")
    first, *_ = text_log()
    stage.open(0, task(TEXT), Resume())
    assert not stage.runnable(0)
    stage.feed(0, first)
    assert [emission.final for emission in stage.step([0])] == [False]
    assert not stage.runnable(0)
    stage.feed(0, Chunk(first.end, first.end, b"", final=True))
    assert stage.step([0]) == [Emission(0, final=True)]
    stage.close(0)


def test_an_end_that_arrives_before_the_audio_is_made_is_kept() -> None:
    first, *_ = text_log()
    log = [first, Chunk(first.end, first.end, b"", final=True)]
    assert length(drive(loaded("hibari", "decoder"), task(TEXT), log)) == first.end * HOP


def test_noise_is_normal_and_named_by_frame() -> None:
    key = NoiseKey(seed=-5, take=1, segment=2)
    noise = key.noise(10, 80)
    assert noise.shape == (80, 2, BINS)
    assert torch.equal(noise[15:25], key.noise(25, 10))
    assert noise.mean().abs() < 0.02
    assert noise.std().item() == pytest.approx(1, abs=0.02)
    assert noise.pow(4).mean().item() == pytest.approx(3, abs=0.15)
    assert torch.corrcoef(noise.flatten(1))[0, 1:].abs().max() < 0.15


@pytest.mark.parametrize("speed", [0.5, 2.0])
def test_speed_divides_the_length(speed: float) -> None:
    normal, changed = prosody_log(CANOE)[-1].end, prosody_log(CANOE, params={"speed": speed})[-1].end
    assert changed == pytest.approx(normal / speed, rel=0.25)


def test_text_that_cannot_be_spoken_is_passed_over() -> None:
    prosody = loaded("hibari", "prosody")
    prosody.open(3, task("你好"), Resume())
    (only,) = prosody.step([3])
    prosody.close(3)
    assert (only.frames, only.final) == (0, True)


def test_punctuation_alone_is_a_tenth_of_a_second_of_silence() -> None:
    audio = samples(drive(loaded("hibari", "decoder"), task("..."), prosody_log("...")))
    assert audio.tolist() == [0] * 2400


def test_each_emission_of_prosody_is_one_piece() -> None:
    pieces = [codes.decode(chunk.payload) for chunk in text_log()]
    assert [len(found.ids) > 0 for found in pieces] == [True, False, True]
    assert list(accumulate(found.frames for found in pieces)) == [chunk.end for chunk in text_log()]


def test_codes_survive_the_wire_and_other_versions_are_refused() -> None:
    sent = codes.encode(piece(CANOE))
    received = codes.decode(sent)
    assert codes.encode(received) == sent
    assert np.array_equal(received.f0, piece(CANOE).f0)
    with pytest.raises(ValueError, match="version"):
        codes.decode(b"\x02" + sent[1:])
    with pytest.raises(ValueError, match="size"):
        codes.decode(sent[:-1])
    with pytest.raises(ValueError, match="durations"):
        codes.decode(sent[:52] + b"\x09" + sent[53:])


def test_samples_are_rounded_half_to_even_and_saturate() -> None:
    values = torch.tensor([0.5, 1.5, -0.5, -2.5, 40000, -40000, float("nan"), float("inf")]) / 32768
    assert np.frombuffer(to_s16(values), "<i2").tolist() == [0, 2, 0, -2, 32767, -32768, 0, 32767]


def test_a_long_segment_is_spoken_in_pieces_without_losing_a_word() -> None:
    text = ", ".join(["and the quick brown fox jumps over the lazy dog again"] * 15) + "."
    log = prosody_log(text)
    assert len(log) > 1
    assert [mark.word for chunk in log for mark in chunk.marks] == text.split()


def test_a_gpu_is_refused_at_load() -> None:
    with pytest.raises(ValueError, match="CPU"):
        load("decoder", StageOptions(slots=1, device="cuda"))


def test_payloads_are_all_there_is_in_a_log() -> None:
    assert len(payload(whole_text())) == 2 * text_log()[-1].end * HOP
