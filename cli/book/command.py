"""`speechmill book`: the command itself."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from speechmill.cli.remote import HERE, AsJson, Key, Remote, Url

if TYPE_CHECKING:
    from speechmill.cli.book.cover import Picture
    from speechmill.cli.book.progress import BookDisplay
    from speechmill.cli.submit.sources.epub import Book

HELP = """Read BOOK aloud into an audio book with chapters.

BOOK is an .epub without copy protection, .md (chapters by headings) or .txt (chapters by lines such as "Chapter 1").
--out ends in .m4b (chapters, cover, subtitles inside), .mp3 or .flac (chapters, cover), .opus (chapters) or .wav, or is
a folder, which gets an .mp3 for each chapter.

The same command again goes on where the last one stopped, whatever stopped it: the farm keeps at work, and what was
fetched lies in a folder beside --out that ends in .work, or in .speechmill-book where --out is a folder itself.

Exit codes: 0 the book is there; 1 it cannot be made; 2 parts of it cannot be spoken, or the command was not
understood; 130 stopped by Ctrl-C, which leaves the farm at work.
"""


def book(
    source: Annotated[Path, typer.Argument(metavar="BOOK", help="An .epub, .md or .txt file.")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The audio book; else BOOK's name with .m4b, in this folder.")
    ] = None,
    voice: Annotated[str, typer.Option(help="Who reads.")] = "default",
    model: Annotated[str | None, typer.Option(help="Model id; needed where several are served.")] = None,
    instructions: Annotated[str | None, typer.Option(help="How to read, or what the voice is like.")] = None,
    speed: Annotated[float, typer.Option(min=0.25, max=4.0, help="Tempo.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Same seed, same reading.")] = 1,
    chapters: Annotated[str | None, typer.Option(metavar="1,3-5", help="Only these; numbers as --list tells.")] = None,
    show_list: Annotated[bool, typer.Option("--list", help="Tell the chapters and their lengths; no speech.")] = False,
    pause_paragraph: Annotated[
        float, typer.Option(min=0, max=60, metavar="S", help="Silence behind a paragraph; twice it behind a heading.")
    ] = 0.6,
    pause_chapter: Annotated[float, typer.Option(min=0, max=60, metavar="S", help="Silence behind a chapter.")] = 2.0,
    bitrate: Annotated[
        int, typer.Option(min=16, max=320, metavar="KBPS", help="For lossy files; an .mp3 takes 160 at most.")
    ] = 64,
    loudness: Annotated[float, typer.Option(min=-40, max=-8, metavar="LUFS", help="Of the whole book.")] = -18.0,
    no_loudness: Annotated[bool, typer.Option("--no-loudness", help="As loud as the model speaks.")] = False,
    cover: Annotated[Path | None, typer.Option(help="JPEG or PNG; else the book's own.")] = None,
    title: Annotated[str | None, typer.Option(help="Else the book's own.")] = None,
    author: Annotated[str | None, typer.Option(help="Else the book's own.")] = None,
    subtitles: Annotated[
        Literal["srt", "vtt"] | None, typer.Option(help="Written beside the book, and into an .m4b.")
    ] = None,
    skip_failed: Annotated[bool, typer.Option("--skip-failed", help="Leave out what cannot be spoken.")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the .work folder when the book is there.")] = False,
    as_json: AsJson = False,
    url: Url = HERE,
    key: Key = "",
) -> None:
    from speechmill.cli.book.assembling import Finish
    from speechmill.cli.book.call import Call
    from speechmill.cli.book.chosen import chosen
    from speechmill.cli.book.listing import listing
    from speechmill.cli.book.model import facts_of, narrator, request_of
    from speechmill.cli.book.progress import BookDisplay
    from speechmill.cli.book.reading import read_book
    from speechmill.cli.book.script import Pauses, script_of
    from speechmill.cli.book.tags import Tags

    read = read_book(source)
    numbers = chosen(chapters or "1-", len(read.chapters))
    pauses = Pauses(pause_paragraph, pause_chapter)
    with Remote(url, key) as farm, BookDisplay(as_json) as display:
        if show_list:
            display.conclude(*listing(script_of(read.chapters, numbers, {}, pauses), speed, farm))
            return
        name = title or read.title
        finish = Finish(
            out=(out or Path(f"{source.stem}.m4b")).resolve(),
            tags=Tags(name, name, author or ", ".join(read.authors), read.language, narrator=""),
            cover=_cover(cover, read, display),
            bit_rate=1000 * bitrate,
            loudness=None if no_loudness else loudness,
            subtitles=subtitles,
        )
        finish.check()
        facts = facts_of(farm, model, times_words=subtitles is not None)
        wishes = {"voice": voice, "model": model, "seed": seed, "speed": speed, "instructions": instructions}
        request = request_of(facts, read.language, wishes)
        scenes = script_of(read.chapters, numbers, request, pauses)
        code = Call(farm, display, scenes, finish.read_by(narrator(facts, voice)), skip_failed, keep).carry_out()
    if code:
        raise typer.Exit(code)


book.__doc__ = HELP


def _cover(asked: Path | None, read: "Book", display: "BookDisplay") -> "Picture | None":
    """A book can be heard without its own picture, but not without the one that was asked for."""
    from speechmill.cli.book.cover import picture_of, read_picture
    from speechmill.infra.errors import BadInput

    if asked is not None:
        return read_picture(asked)
    if read.cover is None:
        return None
    try:
        return picture_of(read.cover.content, "the book's cover")
    except BadInput as error:
        display.say(f"{error}; it is left out")
        return None
