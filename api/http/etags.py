"""`If-None-Match`: lists of entity tags, strong and weak (RFC 9110 §13.1.2). Parsing takes linear time."""

import re

_TAG = re.compile(r'[ \t]*(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"[ \t]*(?:,|\Z)')
_EMPTY = re.compile(r"[ \t]*,")


def is_known(header: str | None, tag: str) -> bool:
    """Whether the client has the representation `tag` (without its quotes) already. What is no list holds nothing."""
    tags = parse_tags(header or "")
    return tag in tags or "*" in tags


def parse_tags(header: str) -> frozenset[str]:
    """The tags of a list, compared weakly: `W/` counts for nothing. `*` alone is every tag; malformed is none."""
    if header.strip(" \t") == "*":
        return frozenset("*")
    found, at = set[str](), 0
    while at < len(header):
        if match := _TAG.match(header, at):
            found.add(match[1])
        elif not (match := _EMPTY.match(header, at)):
            return frozenset()
        at = match.end()
    return frozenset(found - {"*"})
