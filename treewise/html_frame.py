"""The frame of every page: head, header, links, footer. Pages hold all they need and ask the network for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib import resources
from string import Template

import treewise

FOLDER = "html_page"


def asset(name: str) -> str:
    """The text of one of the parts that pages are put together from."""
    return (resources.files("treewise") / FOLDER / name).read_text(encoding="utf-8")


def framed(
    title: str,
    lead: str,
    links: Sequence[tuple[str, str]],
    body: str,
    origins: Sequence[str],
    skip_to: str = "the figures",
    scripts: Sequence[str] = (),
    data: str = "",
) -> str:
    """A page around `body`, which is HTML as `data` is; everything else is plain text.

    `links`: (anchor, title) of the sections, at least one; `skip_to` calls the first of them. `origins`: where figures
    come from. `scripts`: assets that run behind the theme's, which read `data`.
    """
    return Template(asset("frame.html")).substitute(
        title=escape(title),
        version=escape(treewise.__version__),
        lead=escape(lead),
        first=links[0][0],
        skip_to=escape(skip_to),
        nav="".join(f'<a href="#{name}">{escape(text)}</a>' for name, text in links),
        style=asset("page.css"),
        body=body,
        data=data,
        script="".join(asset(name) for name in ("theme.js", *scripts)),
        origins="".join(f"<p>{escape(line)}</p>" for line in origins),
    )
