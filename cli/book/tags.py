"""What an audio file says of itself, by the names that FFmpeg gives to each container's own tags."""

from dataclasses import dataclass

from speechmill.cli.book.languages import UNKNOWN, three_letters

AUDIOBOOK = "2"
"""iTunes' kind of media (`stik`)."""


@dataclass(frozen=True, slots=True)
class Tags:
    """Of a book, and of a file for one chapter where `track` is such as `3/12`."""

    title: str
    album: str
    author: str
    language: str
    """BCP 47, or empty."""
    narrator: str
    track: str = ""

    @property
    def language_code(self) -> str:
        """ISO 639-2."""
        return three_letters(self.language)

    def named(self) -> dict[str, str]:
        told = {
            "title": self.title,
            "album": self.album,
            "artist": self.author,
            "album_artist": self.author,
            "composer": self.narrator,
            "genre": "Audiobook",
            "language": self.language_code if self.language_code != UNKNOWN else "",
            "track": self.track,
            "media_type": AUDIOBOOK,
            "comment": f"Synthetic speech: {self.narrator}",
        }
        return {name: value for name, value in told.items() if value}
