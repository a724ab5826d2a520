"""`speechmill book` from a text to an audio book, which is checked with tools that had no part in making it."""

import json
import signal
import struct
import subprocess
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import av
import httpx
import mutagen
import numpy as np
import pyloudnorm
import pytest
import soundfile
from books import XHTML, package, page, write_epub
from e2e.harness import Farm
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from running import COMMAND, environment, speechmill
from typer.testing import CliRunner, Result

from speechmill.cli.book.chosen import chosen
from speechmill.cli.book.loudness import Meter
from speechmill.cli.book.markdown import read_markdown_book
from speechmill.cli.book.plain_text import read_text_book
from speechmill.cli.book.script import PIECE_CHARS, Pauses, script_of
from speechmill.cli.main import app
from speechmill.cli.submit.sources.epub import Chapter
from speechmill.cli.submit.sources.xhtml import Paragraph
from speechmill.infra.embedded import EmbeddedS3, EmbeddedValkey
from speechmill.infra.errors import BadInput

FERRY = Path(__file__).with_name("ferry.md")
"""Written for this test: two chapters."""
PAUSE_CHAPTER_S = 1.5


@pytest.fixture(scope="module")
def farm(valkey: EmbeddedValkey, s3: EmbeddedS3, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Farm]:
    farm = Farm(valkey, s3, "test-book:", tmp_path_factory.mktemp("farm"))
    farm.start_worker()
    farm.start_api()
    farm.await_ready()
    yield farm
    farm.stop()


def book(farm: Farm, *arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["book", *map(str, arguments)], env={"SPEECHMILL_URL": farm.base})


def jobs(farm: Farm) -> int:
    """How many the farm has been given."""
    listed = httpx.get(f"{farm.base}/v1/audio/jobs", params={"limit": 100}).json()
    assert not listed["has_more"]
    return len(listed["data"])


def chapters() -> dict[str, list[str]]:
    """Titles and paragraphs of the ferry book."""
    parts = FERRY.read_text(encoding="utf-8").removeprefix("# ").split("\n# ")
    split = [[" ".join(block.split()) for block in part.strip().split("\n\n")] for part in parts]
    return {title: paragraphs for title, *paragraphs in split}


def picture() -> bytes:
    """A PNG of 8 × 8 pixels."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    rows = (b"\0" + b"\x30\x60\x90" * 8) * 8
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def epub(path: Path) -> Path:
    """The ferry book with a cover."""
    files: dict[str, str | bytes] = {"OPS/cover.png": picture()}
    items = {"image": 'href="cover.png" media-type="image/png"'}
    for number, (title, paragraphs) in enumerate(chapters().items()):
        body = "".join(f"<p>{one}</p>" for one in paragraphs)
        files[f"OPS/{number}.xhtml"] = page(f"<h1>{title}</h1>{body}")
        items[f"c{number}"] = f'href="{number}.xhtml" media-type="{XHTML}"'
    files["OPS/book.opf"] = package(items, '<spine><itemref idref="c0"/><itemref idref="c1"/></spine>')
    return write_epub(path, files)


def heard(path: Path) -> tuple[NDArray[np.float64], int]:
    """Samples of one channel, full scale is 1; and their rate."""
    with av.open(str(path)) as container:
        frames = [frame.to_ndarray().reshape(-1) for frame in container.decode(audio=0)]
        rate = container.streams.audio[0].rate
    scale = 32768 if frames[0].dtype == np.int16 else 1
    return np.concatenate(frames).astype(np.float64) / scale, rate


def test_an_epub_becomes_an_m4b_with_chapters_cover_tags_subtitles_and_the_loudness_of_audio_books(
    farm: Farm, tmp_path: Path
) -> None:
    out = tmp_path / "ferry.m4b"
    made = book(
        farm,
        epub(tmp_path / "ferry.epub"),
        "-o",
        out,
        "--subtitles",
        "srt",
        "--pause-chapter",
        PAUSE_CHAPTER_S,
        "--json",
    )
    assert made.exit_code == 0, made.output
    told = json.loads(made.stdout)
    assert [Path(one).name for one in told["files"]] == ["ferry.m4b", "ferry.srt"]
    assert not (tmp_path / "ferry.m4b.work").exists()

    samples, rate = heard(out)
    assert abs(len(samples) / rate - told["duration_s"]) < 0.05
    assert abs(pyloudnorm.Meter(rate).integrated_loudness(samples) + 18) < 0.5
    assert np.abs(samples).max() < 1

    file = mutagen.File(out)
    assert file["\xa9nam"] == ["The Mill"]
    assert file["\xa9ART"] == ["A. Miller, B. Baker"]
    assert file["\xa9wrt"] == ["heart (hibari)"]
    assert (file["\xa9gen"], file["stik"]) == (["Audiobook"], [2])
    assert bytes(file["covr"][0]) == picture()
    assert [mark.title for mark in file.chapters] == list(chapters())
    first, second = (round(mark.start * rate) for mark in file.chapters)
    assert first == 0
    pause = samples[second - round((PAUSE_CHAPTER_S - 0.1) * rate) : second]
    assert np.abs(pause).max() < 0.001 < np.abs(samples[second : second + rate]).max()

    with av.open(str(out)) as container:
        assert container.streams.audio[0].language == "eng"
        track = [bytes(packet)[2:].decode() for packet in container.demux(subtitles=0)]
    shown = " ".join(" ".join(track).split())
    assert all(paragraph in shown for title, paragraphs in chapters().items() for paragraph in [title, *paragraphs[:1]])
    assert "* * *" not in shown
    assert shown.split()[-5:] == (tmp_path / "ferry.srt").read_text(encoding="utf-8").split()[-5:]


def test_a_book_that_was_interrupted_and_killed_goes_on_and_is_the_same_with_no_job_twice(
    farm: Farm, tmp_path: Path
) -> None:
    arguments = ["book", str(FERRY), "--chapters", "2", "--keep", "--speed", "1.1"]
    reference = CliRunner().invoke(
        app, [*arguments, "-o", str(tmp_path / "whole.wav")], env={"SPEECHMILL_URL": farm.base}
    )
    assert reference.exit_code == 0, reference.output
    pieces = sorted((tmp_path / "whole.wav.work").glob("*.flac"))
    before = jobs(farm)

    command = [*COMMAND, *arguments, "-o", str(tmp_path / "cut.wav")]
    there = tmp_path / "cut.wav.work"
    codes = []
    for end in (signal.SIGINT, signal.SIGKILL):
        had = len(list(there.glob("*.flac")))
        with subprocess.Popen(
            command, env=environment(SPEECHMILL_URL=farm.base), stderr=subprocess.PIPE, text=True
        ) as process:
            while len(list(there.glob("*.flac"))) <= had and process.poll() is None:
                time.sleep(0.005)
            process.send_signal(end)
            assert process.stderr is not None
            said = process.stderr.read()
        codes.append(process.returncode)
        if end == signal.SIGINT:
            assert "To come back:\n  speechmill book " in said
    assert codes == [130, -signal.SIGKILL]
    assert not (tmp_path / "cut.wav").exists()

    resumed = book(farm, *arguments[1:], "-o", tmp_path / "cut.wav")
    assert resumed.exit_code == 0, resumed.output
    assert jobs(farm) - before == len(pieces) > 5
    for piece in pieces:
        ours, theirs = (soundfile.read(folder / piece.name, dtype="int16")[0] for folder in (there, piece.parent))
        assert len(ours) == len(theirs)
        assert np.abs(ours.astype(int) - theirs).max() <= 1
    assert len(heard(tmp_path / "cut.wav")[0]) == len(heard(tmp_path / "whole.wav")[0])

    again = book(farm, *arguments[1:], "-o", tmp_path / "cut.wav", "--no-loudness", "--json")
    assert (again.exit_code, json.loads(again.stdout)["lufs"]) == (0, None)
    assert jobs(farm) - before == len(pieces)


@pytest.mark.parametrize(("ending", "tolerance_s"), [("mp3", 0.06), ("flac", 0), ("opus", 0.001)])
def test_other_kinds_of_files_have_the_chapters_too(
    farm: Farm, tmp_path: Path, ending: str, tolerance_s: float
) -> None:
    source = tmp_path / "short.txt"
    source.write_text("Chapter 1\n\nThe bell rang.\n\nChapter 2\n\nNobody came.\n", encoding="utf-8")
    (tmp_path / "cover.png").write_bytes(picture())
    out = tmp_path / f"short.{ending}"
    made = book(farm, source, "-o", out, "--cover", tmp_path / "cover.png", "--author", "Nobody", "--json")
    assert made.exit_code == 0, made.output
    samples, rate = heard(out)
    assert abs(len(samples) / rate - json.loads(made.stdout)["duration_s"]) <= tolerance_s
    assert abs(pyloudnorm.Meter(rate).integrated_loudness(samples) + 18) < 0.5
    with av.open(str(out)) as container:
        marks = container.chapters()
        assert [mark["metadata"]["title"] for mark in marks] == ["Chapter 1", "Chapter 2"]
    start_s = marks[1]["start"] * float(marks[1]["time_base"])
    at = round(start_s * rate)
    assert np.abs(samples[at - rate : at - rate // 10]).max() < 0.002 < np.abs(samples[at : at + rate]).max()


def test_a_folder_gets_a_file_for_each_chapter(farm: Farm, tmp_path: Path) -> None:
    source = tmp_path / "short.md"
    source.write_text("# One: A/B\n\nThe bell rang.\n\n# Two\n\nNobody came.\n", encoding="utf-8")
    made = book(farm, source, "-o", tmp_path / "short", "--subtitles", "vtt", "--title", "Bells")
    assert made.exit_code == 0, made.output
    names = ["1_One_A_B.mp3", "1_One_A_B.vtt", "2_Two.mp3", "2_Two.vtt"]
    assert sorted(path.name for path in (tmp_path / "short").iterdir()) == names
    tags = mutagen.File(tmp_path / "short/2_Two.mp3").tags
    assert [str(tags[name]) for name in ("TIT2", "TALB", "TRCK")] == ["Two", "Bells", "2/2"]
    assert "00:00:00." in (tmp_path / "short/2_Two.vtt").read_text(encoding="utf-8")


def test_a_folder_that_is_there_is_a_place_for_a_book_and_keeps_what_is_in_it(
    farm: Farm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.txt").write_text("The bell rang.\n", encoding="utf-8")
    assert book(farm, "short.txt", "-o", ".").exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1_1.mp3", "short.txt"]


def test_a_work_folder_with_other_things_in_it_is_refused_and_left_alone(farm: Farm, tmp_path: Path) -> None:
    (tmp_path / "b.m4b.work" / ".speechmill").mkdir(parents=True)
    mine = tmp_path / "b.m4b.work" / "mine.txt"
    mine.write_text("Mine.")
    refused = book(farm, FERRY, "-o", tmp_path / "b.m4b")
    assert "this one holds other things" in str(refused.exception)
    assert mine.read_text() == "Mine."


def test_what_cannot_be_spoken_is_named_and_can_be_left_out(farm: Farm, tmp_path: Path) -> None:
    source = tmp_path / "mixed.md"
    source.write_text("# Signs\n\nThe bell rang.\n\nᚠᚢᚦ\n", encoding="utf-8")
    refused = book(farm, source, "-o", tmp_path / "mixed.wav")
    assert refused.exit_code == 2
    assert "chapter 1, paragraph 3: " in refused.stderr
    assert "--skip-failed" in refused.stderr
    made = book(farm, source, "-o", tmp_path / "mixed.wav", "--skip-failed", "--json")
    assert (made.exit_code, json.loads(made.stdout)["skipped"]) == (0, 1)


def test_an_unknown_voice_is_said_in_the_farms_words(farm: Farm, tmp_path: Path) -> None:
    failed = speechmill("book", str(FERRY), "-o", "x.m4b", "--voice", "nobody", cwd=tmp_path, SPEECHMILL_URL=farm.base)
    assert failed.returncode == 1
    assert "there is no such voice" in failed.stderr
    assert len(failed.stderr.splitlines()) == 1


def test_the_list_tells_chapters_and_lengths_without_a_farm(tmp_path: Path) -> None:
    listed = speechmill("book", str(FERRY), "--list", "--json", cwd=tmp_path, SPEECHMILL_URL="http://127.0.0.1:9")
    assert listed.returncode == 0, listed.stderr
    told = json.loads(listed.stdout)
    assert [one["title"] for one in told["chapters"]] == list(chapters())
    assert told["characters"] == sum(one["characters"] for one in told["chapters"]) > 2500
    assert told["time_s"] is None
    lines = speechmill("book", str(FERRY), "--list", "--chapters", "2", cwd=tmp_path).stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["2", lines[1].split()[0]]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "content", "options", "complaint"),
    [
        ("b.epub", b"no archive", [], "it is no EPUB"),
        ("b.pdf", b"%PDF", [], "a book ends in .epub"),
        ("b.txt", b"\n \n", [], "there is no text in it"),
        ("b.txt", b"* * *", ["--list"], "nothing in it that could be spoken"),
        ("b.txt", b"Hello.", ["-o", "none/b.m4b"], "there is no folder"),
        ("b.txt", b"Hello.", ["-o", "b.doc"], "an audio book ends in one of .m4b"),
        ("b.txt", b"Hello.", ["--chapters", "2"], "the book has the chapters 1 to 1"),
        ("b.txt", b"Hello.", ["--cover", "b.txt"], "a cover is a JPEG or PNG file"),
        ("b.txt", b"\xff\xfeH\0", [], "UTF-16"),
    ],
)
def test_what_is_no_book_or_no_place_for_one_is_said_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: bytes, options: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(content)
    failed = CliRunner().invoke(app, ["book", name, *options])
    assert failed.exit_code == 1
    assert isinstance(failed.exception, BadInput)
    assert complaint in str(failed.exception)
    assert "\n" not in str(failed.exception)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_protected_book_is_refused_by_name(tmp_path: Path) -> None:
    encrypted = (
        '<encryption xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><EncryptedData '
        'xmlns="http://www.w3.org/2001/04/xmlenc#"><EncryptionMethod Algorithm="http://www.w3.org/2001/04/'
        'xmlenc#aes128-cbc"/></EncryptedData></encryption>'
    )
    write_epub(tmp_path / "b.epub", {"META-INF/encryption.xml": encrypted, "META-INF/rights.xml": "<rights/>"})
    failed = CliRunner().invoke(app, ["book", str(tmp_path / "b.epub"), "-o", str(tmp_path / "b.m4b")])
    assert "protected against copying (Adobe ADEPT)" in str(failed.exception)


@given(st.sets(st.integers(1, 40), min_size=1))
def test_chapters_that_are_listed_one_by_one_are_those_chosen(numbers: set[int]) -> None:
    assert chosen(", ".join(map(str, numbers)), 40) == sorted(numbers)


@given(st.text(alphabet="0123456789,- x", max_size=12))
def test_any_choice_of_chapters_is_understood_or_refused(asked: str) -> None:
    try:
        numbers = chosen(asked, 9)
    except BadInput:
        return
    assert numbers == sorted(set(numbers))
    assert set(numbers) <= set(range(1, 10))


@given(st.text(max_size=200))
def test_any_text_is_read_as_a_book_and_no_word_is_lost(text: str) -> None:
    read = [one for chapter in read_text_book(text).chapters for one in chapter.paragraphs]
    assert " ".join(one.text for one in read).split() == text.split()


@given(st.text(alphabet="#ab \n-*`>|[]()1.", max_size=80))
def test_any_markdown_is_read(text: str) -> None:
    assert all(chapter.paragraphs for chapter in read_markdown_book(text).chapters)


def test_chapters_of_a_text_begin_at_its_headings() -> None:
    text = "By Somebody\n\nChapter 1. The Start\n\nIt began.\n\nCHAPTER II\n\nPart of it went on.\n\nEpilogue\n\nDone."
    titles = [chapter.title for chapter in read_text_book(text).chapters]
    assert titles == ["", "Chapter 1. The Start", "CHAPTER II", "Epilogue"]


def test_chapters_of_markdown_are_its_highest_headings_that_repeat() -> None:
    front = "---\ntitle: 'A B'\nauthor: C\n---\n"
    text = "# A B\n\nFor D.\n\n## One\n\nText.\n\n### Within\n\n```\ncode\n```\n\n## Two\n\nEnd.\n"
    read = read_markdown_book(front + text)
    assert (read.title, read.authors) == ("A B", ("C",))
    assert [chapter.title for chapter in read.chapters] == ["A B", "One", "Two"]
    assert [one.text for one in read.chapters[1].paragraphs] == ["One", "Text.", "Within"]


@pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
def test_the_ends_of_lines_do_not_change_a_book_in_markdown(end: str) -> None:
    text = "---\ntitle: A\n---\n# One\n\nA page\fends, a line\u2028too.\n\n# Two\n\nEnd.\n"
    read = read_markdown_book(text.replace("\n", end))
    assert read.title == "A"
    assert [[one.text for one in chapter.paragraphs][1:] for chapter in read.chapters] == [
        ["A page ends, a line too."],
        ["End."],
    ]


def test_long_paragraphs_are_cut_between_sentences_and_silence_follows_the_kind_of_paragraph() -> None:
    sentence = "It rained on the mill, and it rained on the river. "
    source = read_markdown_book(f"# Rain\n\n{sentence * 60}\n\n***\n\nThen it stopped.\n").chapters
    (scene,) = script_of(source, [1], {"voice": "v"}, Pauses(0.5, 3))
    texts = [json.loads(piece.body)["request"]["input"] for piece in scene.pieces]
    assert " ".join(texts).split() == ["Rain", *(sentence * 60).split(), "Then", "it", "stopped."]
    assert max(map(len, texts)) <= PIECE_CHARS
    assert [piece.pause_s for piece in scene.pieces] == [1.0, 0.12, 0.12, 0.5, 3]


def test_a_line_without_words_is_a_longer_silence() -> None:
    paragraphs = (Paragraph("One."), Paragraph("* * *"), Paragraph("Two."))
    (scene,) = script_of([Chapter("", paragraphs)], [1], {}, Pauses(0.5, 3))
    assert [piece.pause_s for piece in scene.pieces] == [1.0, 3]


@pytest.mark.parametrize("rate", [16_000, 24_000, 48_000])
def test_loudness_is_measured_as_another_meter_does(rate: int) -> None:
    """With a loud and a soft half, so that the gates matter."""
    drawn = np.random.default_rng(rate).standard_normal((8 * rate, 1)) * 0.05
    drawn[4 * rate :] *= 0.01
    meter = Meter(rate, 1)
    for block in np.array_split(drawn.astype(np.float32), 37):
        meter.feed(block)
    measured = meter.finish()
    assert abs(measured.lufs - pyloudnorm.Meter(rate).integrated_loudness(drawn)) < 0.2
    assert measured.peak_dbtp >= 20 * np.log10(np.abs(drawn).max()) - 0.1
