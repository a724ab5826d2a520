"""When each word of a book is spoken: the farm tells it for each job, and the timeline says where that one begins."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from speechmill.cli.book.timeline import Placed, Timeline
from speechmill.cli.remote import Refused, Remote
from speechmill.cli.submit.patience import Patience
from speechmill.infra.errors import FarmError


@dataclass(frozen=True, slots=True)
class WordTimes:
    """Keeps in `folder` what it has asked for. `jobs` are those that spoke the pieces, by their names."""

    farm: Remote
    patience: Patience
    folder: Path
    jobs: Mapping[str, str]

    def fetch(self, timeline: Timeline) -> None:
        """All that is not there yet. Raises Refused, FarmError, Stopped."""
        for placed in _placed(timeline):
            path = self._path(placed)
            if path.exists():
                continue
            fresh = path.with_suffix(".part")
            fresh.write_text(json.dumps(self._asked(placed)), encoding="utf-8")
            fresh.replace(path)

    def words(self, timeline: Timeline) -> list[dict[str, Any]]:
        """`word`, `start_ms`, `end_ms` in the file's own time."""
        words = []
        for placed in _placed(timeline):
            start_ms = round(1000 * placed.start / timeline.rate)
            for word in json.loads(self._path(placed).read_text(encoding="utf-8")):
                moved = {"start_ms": start_ms + word["start_ms"], "end_ms": start_ms + word["end_ms"]}
                words.append({"word": word["word"], **moved})
        return words

    def _asked(self, placed: Placed) -> Any:
        path = f"/v1/audio/jobs/{quote(self.jobs[placed.piece.name], safe='')}/subtitles"
        try:
            return self.patience.until_done(lambda: self.farm.ask("GET", path, params={"format": "json"}).json())
        except Refused as error:
            if error.status not in (404, 410):
                raise
            raise FarmError(
                f"{placed.piece.place}: the farm knows no more when its words are spoken; delete {self.folder} to "
                "begin anew, or leave out --subtitles"
            ) from None

    def _path(self, placed: Placed) -> Path:
        return (self.folder / placed.piece.name).with_suffix(".json")


def _placed(timeline: Timeline) -> Iterator[Placed]:
    return (placed for span in timeline.spans for placed in span.placed)
