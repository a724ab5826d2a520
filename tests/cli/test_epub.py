"""Books: what is read of them, and that nothing but BadInput comes of broken ones."""

import zipfile
from pathlib import Path

import pytest
from books import XHTML, package, page, two_chapters, write_epub
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from speechmill.cli.submit.sources.epub import read_epub
from speechmill.cli.submit.sources.xhtml import read_document
from speechmill.infra.errors import BadInput


def test_chapters_follow_the_table_of_contents_and_go_on_in_files_that_it_does_not_name(tmp_path: Path) -> None:
    book = read_epub(write_epub(tmp_path / "a.epub", two_chapters()))
    assert (book.title, book.authors, book.language) == ("The Mill", ("A. Miller", "B. Baker"), "en-GB")
    assert book.identifier == "urn:isbn:1"
    assert book.cover is not None
    assert (book.cover.content, book.cover.media_type) == (b"\xff\xd8picture", "image/jpeg")
    told = [(chapter.title, [(one.text, one.is_heading) for one in chapter.paragraphs]) for chapter in book.chapters]
    assert told == [
        ("First", [("First", True), ("It is early.", False)]),
        ("Second", [("Second", True), ("It is late.", False), ("And over.", False)]),
    ]


def test_an_epub_2_has_its_titles_from_the_ncx(tmp_path: Path) -> None:
    point = "<navPoint><navLabel><text>From the table</text></navLabel><content src='one.html'/></navPoint>"
    doctype = '<!DOCTYPE ncx PUBLIC "-//NISO//DTD ncx 2005-1//EN" "http://www.daisy.org/z3986/2005/ncx-2005-1.dtd">'
    items = {
        "ncx": 'href="toc.ncx" media-type="application/x-dtbncx+xml"',
        "one": f'href="one.html" media-type="{XHTML}"',
        "two": f'href="two.html" media-type="{XHTML}"',
    }
    files: dict[str, str | bytes] = {
        "OPS/book.opf": package(items, '<spine toc="ncx"><itemref idref="one"/><itemref idref="two"/></spine>'),
        "OPS/toc.ncx": f"{doctype}<ncx xmlns='http://www.daisy.org/z3986/2005/ncx/'><navMap>{point}</navMap></ncx>",
        "OPS/one.html": page("<p>One.</p>"),
        "OPS/two.html": page("<h2>By its heading</h2><p>Two.</p>"),
    }
    book = read_epub(write_epub(tmp_path / "a.epub", files))
    assert [chapter.title for chapter in book.chapters] == ["From the table", "By its heading"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"META-INF/container.xml": "<container/>"}, "names no package document"),
        ({"OPS/book.opf": "<package"}, "it is no XML"),
        ({"OPS/book.opf": "<package/>"}, "no spine"),
        ({"OPS/book.opf": '<!DOCTYPE p [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><package>&b;</package>'}, "entities"),
        ({"OPS/text/rest.xhtml": b"\xff\xff"}, "its text cannot be read"),
        ({"OPS/text/rest.xhtml": bytes(33 << 20)}, "too large"),
        ({"OPS/text/one two.xhtml": page(""), "OPS/text/rest.xhtml": page("<img/>")}, "there is no text in it"),
    ],
)
def test_a_broken_book_is_refused_with_its_reason(tmp_path: Path, changes: dict[str, str | bytes], reason: str) -> None:
    path = write_epub(tmp_path / "a.epub", {**two_chapters(), **changes})
    with pytest.raises(BadInput, match=reason):
        read_epub(path)


@pytest.mark.parametrize(
    ("file", "name"),
    [("rights.xml", "Adobe ADEPT"), ("sinf.xml", "Apple FairPlay"), ("license.lcpl", "Readium LCP"), ("x", "unknown")],
)
def test_a_protected_book_is_refused_by_the_name_of_its_protection(tmp_path: Path, file: str, name: str) -> None:
    method = '<EncryptionMethod Algorithm="http://www.w3.org/2001/04/xmlenc#aes128-cbc"/>'
    encryption = f"<encryption><EncryptedData>{method}</EncryptedData></encryption>"
    files = {**two_chapters(), "META-INF/encryption.xml": encryption, f"META-INF/{file}": "x"}
    with pytest.raises(BadInput, match=f"protected against copying .*{name}"):
        read_epub(write_epub(tmp_path / "a.epub", files))


def test_obfuscated_fonts_do_not_make_a_book_unreadable(tmp_path: Path) -> None:
    method = '<EncryptionMethod Algorithm="http://www.idpf.org/2008/embedding"/>'
    encryption = f"<encryption><EncryptedData>{method}</EncryptedData></encryption>"
    files = {**two_chapters(), "META-INF/encryption.xml": encryption}
    assert len(read_epub(write_epub(tmp_path / "a.epub", files)).chapters) == 2


def assert_read_or_refused(path: Path) -> None:
    """Anything that is raised but BadInput fails the test."""
    refused, book = "", None
    try:
        book = read_epub(path)
    except BadInput as error:
        refused = str(error)
    assert book or (str(path) in refused and "\n" not in refused)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_is_damaged_in_a_book_is_bad_input_or_no_harm(tmp_path: Path, data: st.DataObject) -> None:
    path = write_epub(tmp_path / "a.epub", two_chapters())
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))] if data.draw(st.booleans()) else content)
    assert_read_or_refused(path)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=st.sampled_from(sorted(two_chapters())), text=st.text() | st.binary())
def test_any_content_of_any_part_of_a_book_is_bad_input_or_no_harm(
    tmp_path: Path, name: str, text: str | bytes
) -> None:
    content = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    path = write_epub(tmp_path / "a.epub", {**two_chapters(), name: content})
    assert zipfile.is_zipfile(path)
    assert_read_or_refused(path)


@given(st.text(alphabet="<>/ apbrh1'\"=&;![]-?x\n", max_size=200))
def test_paragraphs_are_never_empty_and_have_one_line(markup: str) -> None:
    assert all(one.text.strip() and "\n" not in one.text for one in read_document(markup).paragraphs)
