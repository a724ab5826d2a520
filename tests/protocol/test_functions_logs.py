"""What may be done to a log, and by whom: fence, emit, seal, close, follow, trim, retire."""

import zlib

import pytest

from speechmill.infra.keys import LogRef, Task, out_log
from speechmill.infra.messages import Claim, WordMark
from speechmill.infra.protocol import Append, close, emit, fence, follow, keep, retire, seal, trim, unfollow

from .farm import CODEC, TALKER, TTL_S, Farm, Writer

WORD = WordMark("word", 0, 2)


def codec(farm: Farm) -> Claim:
    """A claimed task whose log holds PCM."""
    farm.submit()
    farm.claim(TALKER)
    return farm.claim(CODEC)


def successor(farm: Farm, claimed: Claim) -> Claim:
    """The next owner of the task, while the first does not know yet."""
    farm.renew(claimed, lease_ms=0)
    farm.reap()
    return farm.claim(CODEC, "successor")


@pytest.fixture
def writer(farm: Farm) -> Writer:
    return farm.writer(codec(farm))


# -- fence ------------------------------------------------------------------------------------------------------------


def test_a_fence_makes_the_log_that_is_not_there(farm: Farm) -> None:
    claimed = codec(farm)
    stands = farm.fence(claimed)
    assert (stands.state, stands.end, stands.crc, stands.trailer) == ("ok", 0, 0, b"")


def test_a_newer_token_fences_the_older_one(farm: Farm) -> None:
    first = codec(farm)
    writer = farm.writer(first)
    assert writer.append(b"ab") == "ok"
    assert farm.fence(successor(farm, first)).state == "ok"
    assert writer.append(b"cd") == "fenced"


def test_an_older_token_cannot_fence(farm: Farm) -> None:
    first = codec(farm)
    farm.fence(successor(farm, first))
    assert farm.fence(first).state == "fenced"


def test_a_successor_goes_on_at_the_log_s_end_with_its_crc_and_cursor(farm: Farm) -> None:
    first = codec(farm)
    farm.writer(first).append(b"abc", cursor=b"\x00here")
    stands = farm.fence(successor(farm, first))
    assert (stands.end, stands.crc, stands.cursor) == (3, zlib.crc32(b"abc"), b"\x00here")


def test_a_fence_may_be_repeated(farm: Farm) -> None:
    claimed = codec(farm)
    farm.writer(claimed).append(b"abc")
    assert farm.fence(claimed).end == 3


def test_a_closed_log_takes_no_new_owner(farm: Farm) -> None:
    claimed = codec(farm)
    farm.run(close(farm.log(claimed), "{}", TTL_S))
    assert farm.fence(claimed).state == "closed"


def test_a_successor_sees_that_the_log_is_complete(farm: Farm) -> None:
    first = codec(farm)
    writer = farm.writer(first)
    writer.append(b"ab")
    writer.seal('{"frames": 2}')
    assert farm.fence(successor(farm, first)).trailer == b'{"frames": 2}'


def test_a_lost_log_is_made_again_from_where_its_reader_stands(farm: Farm) -> None:
    claimed = codec(farm)
    farm.writer(claimed).append(b"abcd")
    farm.lose(farm.log(claimed))
    writer = farm.writer(claimed, base=4)
    assert writer.end == 4
    assert writer.append(b"ef") == "ok"
    assert farm.audio(writer.log) == b"ef"


def test_a_log_that_begins_too_late_for_a_reader_is_made_again(farm: Farm) -> None:
    claimed = codec(farm)
    farm.writer(claimed, base=4).append(b"ef")
    writer = farm.writer(claimed, base=2)
    assert (writer.end, writer.crc) == (2, 0)
    assert farm.audio(writer.log) == b""


def test_a_log_that_holds_what_the_reader_wants_stays_as_it_is(farm: Farm) -> None:
    claimed = codec(farm)
    farm.writer(claimed).append(b"abcd")
    assert farm.writer(claimed, base=2).end == 4


def test_codes_are_always_made_again_from_the_beginning(farm: Farm) -> None:
    farm.submit()
    talker = farm.claim(TALKER)
    assert farm.log(talker).on == "control"
    assert farm.writer(talker, base=7).end == 0


# -- emit -------------------------------------------------------------------------------------------------------------


def test_chunks_stand_at_their_ends(farm: Farm, writer: Writer) -> None:
    writer.append(b"abc")
    writer.append(b"de", marks=(WORD,))
    ids = [entry for entry, _ in farm.client.read_log(writer.log, "0-0", 10)]
    assert ids == [b"3-0", b"5-0", b"5-1"]


def test_a_repeated_append_is_ok_and_appends_once(farm: Farm, writer: Writer) -> None:
    command = emit(writer.log, writer.token, Append(0, 3, zlib.crc32(b"abc"), b"abc"), TTL_S)
    assert [farm.run(command), farm.run(command)] == ["ok", "ok"]
    assert farm.audio(writer.log) == b"abc"


def test_another_payload_for_the_same_place_is_not_a_repetition(farm: Farm, writer: Writer) -> None:
    writer.append(b"abc")
    other = Append(0, 3, zlib.crc32(b"xyz"), b"xyz")
    assert farm.run(emit(writer.log, writer.token, other, TTL_S)) == "lost"


@pytest.mark.parametrize("start", [0, 2, 4])
def test_a_chunk_that_does_not_begin_at_the_end_is_refused(farm: Farm, writer: Writer, start: int) -> None:
    writer.append(b"abc")
    assert farm.run(emit(writer.log, writer.token, Append(start, start + 2, 1, b"xy"), TTL_S)) == "lost"
    assert farm.audio(writer.log) == b"abc"


def test_a_log_that_is_gone_is_lost_to_its_owner(farm: Farm, writer: Writer) -> None:
    writer.append(b"abc")
    farm.lose(writer.log)
    assert writer.append(b"de") == "lost"
    assert not farm.server.exists(farm.keys.log(writer.log))


def test_nothing_is_appended_without_a_fence(farm: Farm) -> None:
    claimed = codec(farm)
    assert Writer(farm, farm.log(claimed), claimed.token).append(b"abc") == "lost"


def test_nothing_is_appended_behind_the_trailer(writer: Writer) -> None:
    writer.append(b"abc")
    writer.seal()
    assert writer.append(b"de") == "lost"


def test_what_was_moved_elsewhere_takes_the_end_of_its_log_not_with_it(farm: Farm, writer: Writer) -> None:
    writer.append(b"abc")
    writer.seal('{"frames": 3}')
    farm.run(trim(writer.log, 3))
    ((_, left),) = farm.server.xrange(farm.keys.log(writer.log))
    assert left == {b"t": b'{"frames": 3}'}


def test_nothing_is_appended_to_a_closed_log(farm: Farm, writer: Writer) -> None:
    farm.run(close(writer.log, "{}", TTL_S))
    assert writer.append(b"abc") == "closed"


def test_short_memory_refuses_audio_that_nobody_waits_for(farm: Farm, writer: Writer) -> None:
    farm.server.set(farm.keys.pressure(), 1, ex=60)
    assert writer.append(b"abc") == "full"
    farm.server.delete(farm.keys.pressure())
    assert writer.append(b"abc") == "ok"


def test_short_memory_does_not_refuse_the_segment_that_is_being_joined(farm: Farm, writer: Writer) -> None:
    farm.server.set(farm.keys.pressure(), 1, ex=60)
    assert writer.append(b"abc", urgent=True) == "ok"


def test_a_repeated_append_is_ok_although_memory_has_become_short(farm: Farm, writer: Writer) -> None:
    command = emit(writer.log, writer.token, Append(0, 3, 7, b"abc"), TTL_S)
    farm.run(command)
    farm.server.set(farm.keys.pressure(), 1, ex=60)
    assert farm.run(command) == "ok"


# -- followers --------------------------------------------------------------------------------------------------------


def inbox(farm: Farm, reader: str = "r") -> list[dict[bytes, bytes]]:
    """What has come since the inbox was made."""
    return [fields for _, fields in farm.server.xrange(farm.keys.inbox(reader))][1:]


def register(farm: Farm, log: LogRef, reader: str = "r") -> None:
    farm.server.xadd(farm.keys.inbox(reader), {"poke": "1"})
    farm.run(follow(log, reader, TTL_S))


def test_followers_are_sent_small_chunks_whole(farm: Farm, writer: Writer) -> None:
    register(farm, writer.log)
    writer.append(b"ab", marks=(WORD,))
    (hint,) = inbox(farm)
    assert hint == {b"l": writer.log.name.encode(), b"s": b"0", b"e": b"2", b"d": b"ab", b"m": b'[["word", 0, 2]]'}


def test_followers_of_large_chunks_are_told_only_that_there_is_one(farm: Farm, writer: Writer) -> None:
    register(farm, writer.log)
    writer.append(bytes(8193))
    (hint,) = inbox(farm)
    assert (hint[b"e"], hint[b"d"]) == (b"8193", b"")


def test_a_repeated_append_sends_no_second_hint(farm: Farm, writer: Writer) -> None:
    register(farm, writer.log)
    command = emit(writer.log, writer.token, Append(0, 3, 7, b"abc"), TTL_S)
    farm.run(command)
    farm.run(command)
    assert len(inbox(farm)) == 1


def test_followers_hear_that_the_log_is_complete(farm: Farm, writer: Writer) -> None:
    register(farm, writer.log)
    writer.seal('{"frames": 0}')
    (hint,) = inbox(farm)
    assert (hint[b"e"], hint[b"t"]) == (b"0", b'{"frames": 0}')


def test_a_follower_whose_inbox_is_gone_is_forgotten(farm: Farm, writer: Writer) -> None:
    farm.run(follow(writer.log, "nobody", TTL_S))
    writer.append(b"ab")
    assert not farm.server.exists(farm.keys.inbox("nobody"))
    assert not farm.server.exists(f"{farm.keys.log(writer.log)}:subs")


def test_a_follower_that_left_hears_nothing(farm: Farm, writer: Writer) -> None:
    register(farm, writer.log)
    farm.run(unfollow(writer.log, "r"))
    writer.append(b"ab")
    assert inbox(farm) == []


def test_following_tells_where_the_log_stands(farm: Farm, writer: Writer) -> None:
    writer.append(b"ab")
    writer.seal('{"frames": 2}')
    stands = farm.run(follow(writer.log, "r", TTL_S))
    assert (stands.first, stands.end, stands.trailer, stands.header) == (0, 2, b'{"frames": 2}', b"{}")


def test_a_log_may_be_followed_before_it_is_there(farm: Farm) -> None:
    claimed = codec(farm)
    register(farm, farm.log(claimed))
    assert farm.run(follow(farm.log(claimed), "r", TTL_S)) is None
    farm.writer(claimed).append(b"ab")
    assert len(inbox(farm)) == 1


# -- the end of a log -------------------------------------------------------------------------------------------------


def test_a_seal_may_be_repeated(farm: Farm, writer: Writer) -> None:
    writer.append(b"ab")
    assert [writer.seal(), writer.seal()] == ["ok", "ok"]
    assert [entry for entry, _ in farm.client.read_log(writer.log, "0-0", 10)] == [b"2-0", b"2-2"]


def test_an_old_owner_cannot_seal(farm: Farm) -> None:
    first = codec(farm)
    writer = farm.writer(first)
    farm.fence(successor(farm, first))
    assert writer.seal() == "fenced"


def test_a_log_that_is_gone_cannot_be_sealed(farm: Farm, writer: Writer) -> None:
    farm.lose(writer.log)
    assert writer.seal() == "lost"


def test_a_log_that_does_not_end_where_its_writer_does_is_not_sealed(farm: Farm) -> None:
    claimed = codec(farm)
    writer = farm.writer(claimed)
    writer.append(b"ab")
    farm.lose(writer.log)
    farm.fence(claimed)  # arrives a second time
    assert writer.seal() == "lost"


def test_closing_tells_listeners_why(farm: Farm, writer: Writer) -> None:
    register(farm, writer.log)
    writer.append(b"ab")
    farm.run(close(writer.log, '{"error": {}}', TTL_S))
    assert inbox(farm)[-1][b"t"] == b'{"error": {}}'
    assert farm.run(seal(writer.log, writer.token, "{}")) == "closed"


def test_closing_leaves_a_complete_log_as_it_is(farm: Farm, writer: Writer) -> None:
    writer.append(b"ab")
    writer.seal('{"frames": 2}')
    farm.run(close(writer.log, '{"error": {}}', TTL_S))
    assert farm.run(follow(writer.log, "r", TTL_S)).trailer == b'{"frames": 2}'


def test_a_log_that_never_began_can_be_closed(farm: Farm) -> None:
    log = out_log(farm.submit(), 1)
    farm.run(close(log, '{"error": {}}', TTL_S))
    assert farm.run(fence(log, "1:late", -1, TTL_S, "{}")).state == "closed"
    assert farm.run(follow(log, "r", TTL_S)).trailer == b'{"error": {}}'


def test_trimming_drops_what_ends_at_the_position_or_before(farm: Farm, writer: Writer) -> None:
    for payload in (b"ab", b"cd", b"ef"):
        writer.append(payload, marks=(WORD,))
    farm.run(trim(writer.log, 4))
    assert farm.audio(writer.log) == b"ef"
    assert farm.run(follow(writer.log, "r", TTL_S)).first == 4


def test_trimming_never_moves_the_beginning_back(farm: Farm, writer: Writer) -> None:
    for payload in (b"ab", b"cd"):
        writer.append(payload)
    farm.run(trim(writer.log, 4))
    assert farm.run(trim(writer.log, 2)) == 0
    assert farm.run(follow(writer.log, "r", TTL_S)).first == 4


def test_a_trimmed_log_goes_on_at_its_end(farm: Farm, writer: Writer) -> None:
    writer.append(b"ab")
    farm.run(trim(writer.log, 2))
    assert writer.append(b"cd") == "ok"


def test_retired_logs_go_at_once_or_in_time(farm: Farm, writer: Writer) -> None:
    other = LogRef(Task(farm.submit(), 1, 0, "codec"), "chunks")
    farm.run(fence(other, "1:x", -1, TTL_S, "{}"))
    writer.append(b"ab")
    farm.run(follow(writer.log, "r", TTL_S))
    farm.run(retire([writer.log], 5, "chunks"))
    farm.run(retire([other], 0, "chunks"))
    assert {farm.server.ttl(name) for name in farm.names(f"log:{writer.log.name}*")} == {5}
    assert not farm.names(f"log:{other.name}*")


def test_a_reader_keeps_a_log_for_longer_but_never_for_less(farm: Farm, writer: Writer) -> None:
    writer.append(b"ab")
    for ttl_s, left in ((2 * TTL_S, 2 * TTL_S), (TTL_S, 2 * TTL_S)):
        farm.run(keep(writer.log, ttl_s))
        assert farm.server.ttl(farm.keys.log(writer.log)) >= left - 1


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_every_key_of_a_log_goes_in_time_by_itself(farm: Farm, writer: Writer, chunks: int) -> None:
    for _ in range(chunks):
        writer.append(b"ab", marks=(WORD,))
    writer.seal()
    farm.run(follow(writer.log, "r", TTL_S))
    names = farm.names(f"log:{writer.log.name}*")
    assert len(names) == 3
    assert all(0 < farm.server.ttl(name) <= TTL_S for name in names)


def test_a_log_that_is_made_again_goes_in_time_too(farm: Farm) -> None:
    claimed = codec(farm)
    farm.writer(claimed).append(b"abcd")
    farm.lose(farm.log(claimed))
    farm.writer(claimed, base=2).append(b"cd")
    assert all(farm.server.ttl(name) > 0 for name in farm.names(f"log:{farm.log(claimed).name}*"))
