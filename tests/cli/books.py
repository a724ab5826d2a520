"""EPUB files for tests, made part by part so that any of them may be wrong."""

import zipfile
from collections.abc import Mapping
from pathlib import Path

CONTAINER = """<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>
<rootfile full-path="OPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>"""
XHTML = "application/xhtml+xml"
METADATA = """<metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>The Mill</dc:title>
<dc:creator>A. Miller</dc:creator><dc:creator>B. Baker</dc:creator><dc:language>en-GB</dc:language>
<dc:identifier id="own">urn:isbn:1</dc:identifier><meta name="cover" content="image"/></metadata>"""


def package(items: Mapping[str, str], spine: str, metadata: str = METADATA) -> str:
    """`items` are the attributes of manifest items by id, `spine` what is in it."""
    manifest = "".join(f'<item id="{name}" {attributes}/>' for name, attributes in items.items())
    return (
        '<package xmlns="http://www.idpf.org/2007/opf" version="3.0" unique-identifier="own">'
        f"{metadata}<manifest>{manifest}</manifest>{spine}</package>"
    )


def page(body: str) -> str:
    return f"<html xmlns='http://www.w3.org/1999/xhtml'><head><title>Not heard</title></head><body>{body}</body></html>"


def write_epub(path: Path, files: Mapping[str, str | bytes]) -> Path:
    """An archive with the container and these files, any of which may be another container."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {"META-INF/container.xml": CONTAINER, **files}.items():
            archive.writestr(name, content)
    return path


def two_chapters() -> dict[str, str | bytes]:
    """An EPUB 3 whose first file holds two chapters and whose second goes on with the last one."""
    items = {
        "nav": f'href="nav.xhtml" properties="nav" media-type="{XHTML}"',
        "one": f'href="text/one%20two.xhtml" media-type="{XHTML}"',
        "rest": f'href="text/rest.xhtml" media-type="{XHTML}"',
        "image": 'href="cover.jpg" media-type="image/jpeg"',
    }
    links = '<li><a href="text/one%20two.xhtml">First</a></li><li><a href="text/one%20two.xhtml#b">Second</a></li>'
    one = (
        "<h1>First</h1><p>It is <em>early</em>.<a epub:type='noteref' href='#n'>1</a></p>"
        "<aside epub:type='footnote' id='n'>Not heard.</aside><h1 id='b'>Second</h1><p>It&nbsp;is<br/>late.</p>"
    )
    return {
        "OPS/book.opf": package(items, '<spine><itemref idref="one"/><itemref idref="rest"/></spine>'),
        "OPS/nav.xhtml": page(f'<nav epub:type="toc"><ol>{links}</ol></nav>'),
        "OPS/text/one two.xhtml": page(one),
        "OPS/text/rest.xhtml": page("<p>And over.</p><script>no()</script>"),
        "OPS/cover.jpg": b"\xff\xd8picture",
    }
