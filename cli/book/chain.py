"""A row of FFmpeg's filters that sound goes through, block by block."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import TYPE_CHECKING

from speechmill.cli.book.frames import FORMAT, LAYOUTS, frame_of

if TYPE_CHECKING:
    import av

    from speechmill.cli.book.timeline import Block


class Chain:
    """`filters` are names and arguments. What comes out is in the frames that both methods answer."""

    def __init__(self, rate: int, channels: int, filters: Sequence[tuple[str, str]]) -> None:
        import av.filter

        self._rate, self._at = rate, 0
        self._graph = av.filter.Graph()
        last = self._graph.add_abuffer(
            sample_rate=rate, format=FORMAT, layout=LAYOUTS[channels], time_base=Fraction(1, rate)
        )
        for name, arguments in [*filters, ("abuffersink", "")]:
            link = self._graph.add(name, arguments or None)
            last.link_to(link)
            last = link
        self._graph.configure()

    def feed(self, block: "Block") -> "Iterator[av.AudioFrame]":
        self._graph.push(frame_of(block, self._rate, self._at))
        self._at += len(block)
        yield from self._ready()

    def finish(self) -> "Iterator[av.AudioFrame]":
        self._graph.push(None)
        yield from self._ready()

    def _ready(self) -> "Iterator[av.AudioFrame]":
        import av

        while True:
            try:
                frame = self._graph.pull()
            except (av.BlockingIOError, av.EOFError):
                return
            assert isinstance(frame, av.AudioFrame)
            yield frame
