"""A page of sections that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from treewise.data.whole_file import write_whole
from treewise.html_frame import framed
from treewise.html_sections import Section


def write_section_page(
    path: str | Path, title: str, lead: str, sections: Sequence[Section], origins: Sequence[str]
) -> Path:
    """Write `sections`, at least one, whole or not at all; returns `path`. `origins`: where figures come from."""
    links = [(section.name, section.title) for section in sections]
    body = "\n".join(section.html() for section in sections)
    return write_whole(path, framed(title, lead, links, body, origins))
