"""What is done to the sound of a book to make it as loud as wanted: the same for all of its files."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speechmill.cli.book.limiter import Limiter
from speechmill.cli.book.loudness import Loudness
from speechmill.cli.book.timeline import Block, Timeline


@dataclass(frozen=True, slots=True)
class Level:
    """Without anything said the sound stays as it is."""

    gain_db: float = 0.0
    is_limited: bool = False

    def applied(self, blocks: Iterable[Block], timeline: Timeline) -> Iterator[Block]:
        gain = 10 ** (self.gain_db / 20)
        louder = (block * gain for block in blocks)
        return Limiter(timeline.rate, timeline.channels).held(louder) if self.is_limited else louder


def level_for(measured: Loudness, target_lufs: float) -> Level:
    gain_db = measured.gain_db(target_lufs)
    return Level(gain_db, measured.needs_limit(gain_db))
