"""A reader takes every chunk and every mark once, in order, whatever reaches it and in whatever way."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from speechmill.infra.client import Entry, _together
from speechmill.infra.messages import LogChunk, WordMark
from speechmill.infra.protocol import Hole, LogReader, Misaligned

CONTENT = bytes(range(200))
WORD_ENDS = (3, 4, 10, 11, 25, 40, 41, 60, 90)
"""Where words end in the content; a mark goes with the chunk that covers its end."""


def marks(start: int, end: int) -> bytes:
    words = [[f"w{at}", max(at - 2, 0), at] for at in WORD_ENDS if start < at <= end]
    return json.dumps(words).encode() if words else b""


def chunk_entries(start: int, end: int) -> list[Entry]:
    made: list[Entry] = [(f"{end}-0".encode(), {b"s": str(start).encode(), b"d": CONTENT[start:end]})]
    if words := marks(start, end):
        made.append((f"{end}-1".encode(), {b"m": words}))
    return made


def chunk_hint(start: int, end: int, small: bool = True) -> dict[bytes, bytes]:
    payload = CONTENT[start:end] if small else b""
    return {b"l": b"log", b"s": str(start).encode(), b"e": str(end).encode(), b"d": payload, b"m": marks(start, end)}


class Reading(RuleBasedStateMachine):
    """One log of one byte a frame, written, lost, made again with other borders and trimmed while it is read."""

    frame_bytes = 1

    def __init__(self) -> None:
        super().__init__()
        self.reader = LogReader(0, self.frame_bytes)
        self.entries: list[Entry] = []
        self.hints: list[dict[bytes, bytes]] = []
        self.first = self.end = 0
        self.sealed = False
        self.taken: list[LogChunk] = []
        self.spilled = False
        self.misaligned = False

    @initialize(position=st.integers(0, 12))
    def begin(self, position: int) -> None:
        """Somebody who comes back reads on behind what was heard."""
        self.begun = position if self.frame_bytes else 0
        self.reader = LogReader(self.begun, self.frame_bytes)

    def take(self, chunks: list[LogChunk]) -> None:
        self.taken += chunks

    @precondition(lambda self: not self.sealed and self.end < 100)
    @rule(frames=st.integers(1, 12), small=st.booleans())
    def append(self, frames: int, small: bool) -> None:
        start, self.end = self.end, self.end + frames
        self.entries += chunk_entries(start, self.end)
        self.hints.append(chunk_hint(start, self.end, small))

    @precondition(lambda self: not self.sealed)
    @rule()
    def seal(self) -> None:
        self.sealed = True
        self.entries.append((f"{self.end}-2".encode(), {b"t": b'{"frames": 1}'}))
        self.hints.append({b"l": b"log", b"e": str(self.end).encode(), b"t": b'{"frames": 1}'})

    @precondition(lambda self: self.hints)
    @rule(data=st.data())
    def hear(self, data: st.DataObject) -> None:
        """Any hint that was ever sent, once more or for the first time."""
        try:
            self.take(self.reader.hint(data.draw(st.sampled_from(self.hints))))
        except Misaligned:
            self.misaligned = True
        except Hole:
            self.read(8)

    @rule(count=st.integers(2, 8))
    def read(self, count: int) -> None:
        after = tuple(int(part) for part in self.reader.entry.split("-"))
        found = [e for e in self.entries if tuple(int(part) for part in e[0].split(b"-")) > after][:count]
        try:
            self.take(self.reader.entries(_together(found, count)))
        except Misaligned:
            self.misaligned = True
        except Hole:
            assert self.reader.position < self.first
            self.take(self.reader.spilled(0, CONTENT[: self.first]) if self.frame_bytes else [])
            self.spilled = True

    @precondition(lambda self: not self.sealed)
    @rule(data=st.data())
    def lose(self, data: st.DataObject) -> None:
        """The log is made again, from the reader's position at the latest."""
        self.entries = []
        self.first = self.end = data.draw(st.integers(0, self.reader.position)) if self.frame_bytes else 0

    @precondition(lambda self: not self.sealed and self.frame_bytes and self.entries)
    @rule(data=st.data())
    def trim(self, data: st.DataObject) -> None:
        borders = [int(entry.split(b"-")[0]) for entry, _ in self.entries if entry.endswith(b"-0")]
        self.first = data.draw(st.sampled_from(borders))
        self.entries = [e for e in self.entries if int(e[0].split(b"-")[0]) > self.first]

    @invariant()
    def every_chunk_once_and_in_order(self) -> None:
        position = self.begun if hasattr(self, "begun") else 0
        for chunk in self.taken:
            assert chunk.start in (position, chunk.end)
            assert chunk.payload == (CONTENT[position : chunk.end] if chunk.start != chunk.end else b"")
            position = chunk.end
        assert position == self.reader.position

    @invariant()
    def every_mark_once_and_in_order(self) -> None:
        begun = self.begun if hasattr(self, "begun") else 0
        ends = [mark.end for chunk in self.taken for mark in chunk.marks]
        assert ends == sorted(set(ends))
        if not self.spilled:
            assert ends == [at for at in WORD_ENDS if begun < at <= self.reader.position]

    @invariant()
    def it_ends_with_the_trailer_and_not_before(self) -> None:
        trailers = [chunk for chunk in self.taken if chunk.trailer is not None]
        assert len(trailers) == self.reader.ended
        assert not self.reader.ended or (self.sealed and self.taken[-1].trailer is not None)

    def teardown(self) -> None:
        """What is there can always be read to its end."""
        if not self.sealed:
            self.seal()
        for _ in range(60):
            self.read(8)
        assert self.misaligned or self.reader.position >= self.end
        assert self.misaligned or self.reader.ended or self.reader.position > self.end
        self.every_chunk_once_and_in_order()


class ReadingWhole(Reading):
    """The same for payloads that cannot be cut."""

    frame_bytes = 0


Reading.TestCase.settings = ReadingWhole.TestCase.settings = settings(max_examples=300, stateful_step_count=25)
TestReading = Reading.TestCase
TestReadingWhole = ReadingWhole.TestCase


@given(position=st.integers(0, 30), start=st.integers(0, 30), frames=st.integers(1, 10))
def test_a_chunk_that_begins_behind_the_position_is_a_hole(position: int, start: int, frames: int) -> None:
    for way in ("hint", "entries"):
        reader = LogReader(position, 1)
        chunks = apply(reader, way, start, start + frames)
        if start > position:
            assert chunks is None
            assert reader.position == position
        else:
            assert (
                b"".join(chunk.payload for chunk in chunks or []) == CONTENT[position : max(start + frames, position)]
            )


@given(position=st.integers(0, 30), start=st.integers(0, 30), frames=st.integers(1, 10))
def test_a_chunk_that_cannot_be_cut_is_taken_whole_or_not(position: int, start: int, frames: int) -> None:
    for way in ("hint", "entries"):
        reader = LogReader(position, 0)
        chunks = apply(reader, way, start, start + frames)
        expected = CONTENT[start : start + frames] if start == position else b""
        assert b"".join(chunk.payload for chunk in chunks or []) == expected


def apply(reader: LogReader, way: str, start: int, end: int) -> list[LogChunk] | None:
    """None for a hole."""
    try:
        return reader.hint(chunk_hint(start, end)) if way == "hint" else reader.entries(chunk_entries(start, end))
    except Hole:
        return None


def test_what_was_read_before_a_hole_is_not_lost() -> None:
    reader = LogReader(0, 1)
    (chunk,) = reader.entries([*chunk_entries(0, 2), *chunk_entries(5, 6)])
    assert (chunk.end, reader.position) == (2, 2)
    with pytest.raises(Hole):
        reader.entries(chunk_entries(5, 6))


def test_a_notice_without_payload_sends_the_reader_to_the_log() -> None:
    reader = LogReader(0, 1)
    with pytest.raises(Hole):
        reader.hint(chunk_hint(0, 2, small=False))
    assert reader.position == 0


def test_other_borders_of_a_log_made_again_are_told_apart_from_a_hole() -> None:
    reader = LogReader(3, 0)
    with pytest.raises(Misaligned):
        reader.hint(chunk_hint(0, 5))


def test_marks_of_a_cut_chunk_are_not_told_twice() -> None:
    reader = LogReader(0, 1)
    reader.entries(chunk_entries(0, 3))
    (chunk,) = reader.hint(chunk_hint(0, 5))
    assert chunk.marks == (WordMark("w4", 2, 4),)


def test_a_failure_of_a_log_that_was_lost_is_heard_all_the_same() -> None:
    reader = LogReader(0, 1)
    reader.entries(chunk_entries(0, 3))
    failure: dict[str, Any] = {"error": {"code": "cancelled"}}
    (chunk,) = reader.hint({b"l": b"log", b"e": b"0", b"t": json.dumps(failure).encode()})
    assert chunk.trailer == failure
    assert reader.ended


def test_nothing_is_taken_after_the_end() -> None:
    reader = LogReader(0, 1)
    reader.entries([(b"0-2", {b"t": b"{}"})])
    assert reader.hint(chunk_hint(0, 2)) == []
