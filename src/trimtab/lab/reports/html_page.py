"""Pages for people that need no other file: text, tables and pictures in one."""

from __future__ import annotations

import base64
import html
from pathlib import Path
from typing import Final

from trimtab.protocol.records import RecordsError

_STYLE: Final = """
body { font: 15px/1.5 sans-serif; color: #222; max-width: 1100px; margin: 2em auto; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-size: 14px }
th, td { border-bottom: 1px solid #ddd; padding: .25em .7em; text-align: left; vertical-align: top }
td.number { text-align: right; font-variant-numeric: tabular-nums }
.yes { color: #0a7d32 } .no { color: #b3261e } .unknown { color: #777 }
img { max-width: 100% }
"""


def write_page(path: Path, title: str, body: str) -> None:
    """Write a page; raises `RecordsError` if that cannot be done."""
    text = (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(title)}</title><style>{_STYLE}</style>"
        f"<h1>{html.escape(title)}</h1>{body}</html>\n"
    )
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise RecordsError(f"{path}: cannot be written: {error.strerror or error}") from None


def picture(alt: str, png: bytes) -> str:
    """A picture inside the page.

    >>> picture("a < b", b"PNG")
    '<p><img alt="a &lt; b" src="data:image/png;base64,UE5H"></p>'
    """
    return f'<p><img alt="{html.escape(alt)}" src="data:image/png;base64,{base64.b64encode(png).decode()}"></p>'
