"""A page of sections that asks the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

import treewise
from treewise.data.whole_file import write_whole
from treewise.html_report import asset
from treewise.html_sections import Section


def write_section_page(
    path: str | Path, title: str, lead: str, sections: Sequence[Section], origins: Sequence[str]
) -> Path:
    """Write `sections`, at least one, whole or not at all; returns `path`. `origins`: where figures come from."""
    text = Template(asset("sections.html")).substitute(
        title=escape(title),
        version=escape(treewise.__version__),
        lead=escape(lead),
        first=sections[0].name,
        nav="".join(f'<a href="#{section.name}">{escape(section.title)}</a>' for section in sections),
        style=asset("page.css"),
        body="\n".join(section.html() for section in sections),
        script=asset("theme.js"),
        origins="".join(f"<p>{escape(line)}</p>" for line in origins),
    )
    return write_whole(path, text)
