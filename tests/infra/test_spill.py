"""Audio that has left its log."""

import pytest

from speechmill.infra import spill as spill_module
from speechmill.infra.embedded import EmbeddedS3
from speechmill.infra.keys import out_log
from speechmill.infra.messages import WordMark
from speechmill.infra.objects import ObjectStore
from speechmill.infra.protocol import LogReader
from speechmill.infra.spill import Spill

PCM = bytes(range(200))
WORDS = (WordMark("one", 0, 10), WordMark("two", 20, 60))


def test_a_reader_gets_pieces_and_words_from_the_start(s3: EmbeddedS3, bucket: str) -> None:
    spill, log = Spill(ObjectStore(bucket, s3.endpoint_url, s3.access_key, s3.secret_key)), out_log("job_a", 1)
    spill.write(log, 0, 60, PCM[:120], WORDS)
    spill.write(log, 60, 100, PCM[120:])
    reader, chunks = LogReader(0, 2), []
    while piece := spill.read(log, reader.position):
        chunks += reader.spilled(*piece)
    assert b"".join(chunk.payload for chunk in chunks) == PCM
    assert [chunk.marks for chunk in chunks] == [WORDS, ()]


def test_a_reader_may_begin_inside_a_piece_and_another_log_is_not_touched(s3: EmbeddedS3, bucket: str) -> None:
    spill, log = Spill(ObjectStore(bucket, s3.endpoint_url, s3.access_key, s3.secret_key)), out_log("job_a", 1)
    spill.write(log, 0, 100, PCM, WORDS)
    assert spill.read(log, 15) == (15, PCM[30:], WORDS[1:])
    assert spill.read(log, 60) == (60, PCM[120:], ())
    assert spill.read(log, 100) is None
    assert spill.read(out_log("job_a", 2), 0) is None


def test_each_word_comes_once_where_pieces_overlap_and_a_piece_is_read_in_parts(
    s3: EmbeddedS3, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spill_module, "READ_BYTES", 50)
    spill, log = Spill(ObjectStore(bucket, s3.endpoint_url, s3.access_key, s3.secret_key)), out_log("job_a", 1)
    last = WordMark("rounded", 60, 101)
    spill.write(log, 0, 30, PCM[:60], WORDS[:1])
    spill.write(log, 0, 100, PCM, (*WORDS, last))
    for start in (0, 10, 30):
        reader, words = LogReader(start, 2), []
        while piece := spill.read(log, reader.position):
            words += [word for chunk in reader.spilled(*piece) for word in chunk.marks]
        assert words == [word for word in (*WORDS, last) if word.end > start]


def test_a_piece_that_was_made_again_with_other_last_bits_stays_as_it_was(s3: EmbeddedS3, bucket: str) -> None:
    spill, log = Spill(ObjectStore(bucket, s3.endpoint_url, s3.access_key, s3.secret_key)), out_log("job_a", 1)
    spill.write(log, 0, 100, PCM, WORDS)
    spill.write(log, 0, 100, PCM[::-1], WORDS[:1])
    assert spill.read(log, 0) == (0, PCM, WORDS)
