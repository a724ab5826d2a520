"""What an EPUB says of itself: the package document, and whether anybody may read it (EPUB 2.0.1 and 3.3)."""

import posixpath
from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit
from xml.etree.ElementTree import Element

from speechmill.cli.submit.sources.archive import Archive
from speechmill.cli.submit.sources.safe_xml import local_name, parse_xml
from speechmill.cli.submit.sources.xhtml import plain
from speechmill.infra.errors import BadInput

CONTAINER = "META-INF/container.xml"
ENCRYPTION = "META-INF/encryption.xml"
OBFUSCATIONS = frozenset({"http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC"})
"""Of fonts, which nobody hears."""
PROTECTIONS = {
    "META-INF/license.lcpl": "Readium LCP",
    "META-INF/sinf.xml": "Apple FairPlay",
    "META-INF/rights.xml": "Adobe ADEPT",
}
"""Files that tell whose protection it is."""


@dataclass(frozen=True, slots=True)
class Resource:
    """An entry of the manifest; `path` is its name in the archive."""

    path: str
    media_type: str
    properties: frozenset[str]


@dataclass(slots=True)
class Package:
    """The package document."""

    path: str
    title: str = ""
    authors: tuple[str, ...] = ()
    language: str = ""
    identifier: str = ""
    manifest: dict[str, Resource] = field(default_factory=dict)
    spine: list[Resource] = field(default_factory=list)
    """Documents in reading order."""
    cover: Resource | None = None
    ncx: Resource | None = None

    @property
    def nav(self) -> Resource | None:
        return next((one for one in self.manifest.values() if "nav" in one.properties), None)


def resolve(base: str, href: str) -> tuple[str, str]:
    """The name in the archive that a link in `base` leads to, and the fragment."""
    try:
        link = urlsplit(href)
    except ValueError:
        return "", ""
    path = posixpath.join(posixpath.dirname(base), unquote(link.path)) if link.path else base
    return posixpath.normpath(path).lstrip("/"), unquote(link.fragment)


def refuse_encrypted(archive: Archive) -> None:
    """Raises BadInput, which names the protection, where more than fonts is encrypted."""
    if ENCRYPTION not in archive.names:
        return
    root = parse_xml(archive.read(ENCRYPTION), f"{archive.path}: {ENCRYPTION}")
    for data in _all(root, "EncryptedData"):
        methods = {method.get("Algorithm", "") for method in data if local_name(method.tag) == "EncryptionMethod"}
        if not methods or methods - OBFUSCATIONS:
            whose = next((name for file, name in PROTECTIONS.items() if file in archive.names), "an unknown scheme")
            raise BadInput(f"{archive.path}: it is protected against copying ({whose}) and cannot be read")


def read_package(archive: Archive) -> Package:
    """Raises BadInput."""
    container = parse_xml(archive.read(CONTAINER), f"{archive.path}: {CONTAINER}")
    path = next((file.get("full-path", "") for file in _all(container, "rootfile")), "")
    if not path:
        raise BadInput(f"{archive.path}: {CONTAINER} in it names no package document")
    root = parse_xml(archive.read(path), f"{archive.path}: {path}")
    package = Package(path)
    _read_metadata(root, package)
    for item in _all(root, "item"):
        place = resolve(path, item.get("href", ""))[0]
        properties = frozenset(item.get("properties", "").split())
        package.manifest[item.get("id", "")] = Resource(place, item.get("media-type", ""), properties)
    _read_spine(root, package, f"{archive.path}: {path}")
    package.cover = _cover(root, package)
    return package


def _read_metadata(root: Element, package: Package) -> None:
    package.title = next(_texts(root, "title"), "")
    package.authors = tuple(dict.fromkeys(_texts(root, "creator")))
    package.language = next(_texts(root, "language"), "")
    own = root.get("unique-identifier")
    identifiers = [one for one in _all(root, "identifier") if own is None or one.get("id") == own]
    package.identifier = plain("".join(identifiers[0].itertext())) if identifiers else ""


def _read_spine(root: Element, package: Package, where: str) -> None:
    spine = next(_all(root, "spine"), None)
    if spine is None:
        raise BadInput(f"{where} has no spine, so no reading order")
    for reference in _all(spine, "itemref"):
        resource = package.manifest.get(reference.get("idref", ""))
        if resource is not None and reference.get("linear") != "no":
            package.spine.append(resource)
    by_type = (one for one in package.manifest.values() if one.media_type == "application/x-dtbncx+xml")
    package.ncx = package.manifest.get(spine.get("toc", "")) or next(by_type, None)


def _cover(root: Element, package: Package) -> Resource | None:
    """As EPUB 3 says it, else as EPUB 2 files do."""
    named = [one for one in package.manifest.values() if "cover-image" in one.properties]
    for meta in _all(root, "meta"):
        if meta.get("name") == "cover" and (resource := package.manifest.get(meta.get("content", ""))):
            named.append(resource)
    return next((one for one in named if one.media_type.startswith("image/")), None)


def _all(element: Element, name: str) -> "filter[Element]":
    return filter(lambda one: local_name(one.tag) == name, element.iter())


def _texts(element: Element, name: str) -> "filter[str]":
    return filter(None, (plain("".join(one.itertext())) for one in _all(element, name)))
