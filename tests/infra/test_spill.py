"""Audio that has left its log."""

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
    assert spill.read(log, 50) == (50, PCM[100:], ())
    assert spill.read(log, 100) is None
    assert spill.read(out_log("job_a", 2), 0) is None
