"""XML from strangers: no entity is defined or fetched, so nothing can grow (expat, with declarations refused)."""

import html
from xml.etree import ElementTree
from xml.parsers import expat

from speechmill.infra.errors import BadInput

MOST_ELEMENTS = 200_000


def parse_xml(content: bytes, where: str) -> ElementTree.Element:
    """The root; tags are named `{namespace}name`. Raises BadInput, which says where."""
    builder, parser = ElementTree.TreeBuilder(), expat.ParserCreate(namespace_separator="}")
    left = MOST_ELEMENTS

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise BadInput(f"{where}: more than {MOST_ELEMENTS} elements")
        builder.start(_named(tag), {_named(name): value for name, value in attributes.items()})

    def end(tag: str) -> None:
        builder.end(_named(tag))

    def declared(*_: object) -> None:
        raise BadInput(f"{where}: it defines entities, which no book needs")

    def unknown(name: str, _is_parameter: bool) -> None:
        builder.data(html.unescape(f"&{name};"))

    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.EntityDeclHandler = declared
    parser.SkippedEntityHandler = unknown
    try:
        parser.Parse(content, True)
        return builder.close()
    except (expat.ExpatError, LookupError, ValueError, AssertionError) as error:
        raise BadInput(f"{where}: it is no XML ({error})") from None


def _named(name: str) -> str:
    return f"{{{name}" if "}" in name else name


def local_name(tag: str) -> str:
    """The name without its namespace."""
    return tag.rpartition("}")[2]
