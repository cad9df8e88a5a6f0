"""A comparison as one page of HTML that asks nothing of anybody: no script, no outside address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

_STYLE = """
body{margin:0 auto;max-width:88rem;padding:2rem 1.25rem 4rem;background:#fff;color:#1a1c1e;
font:16px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
h1{font-size:1.6rem;margin:0 0 .6rem}h2{font-size:1.2rem;margin:2.2rem 0 .6rem}
ul{margin:.4rem 0;padding-left:1.2rem}p{margin:.4rem 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;vertical-align:top;padding:.35rem .7rem;border-bottom:1px solid #d8dde3}
td{white-space:nowrap}tbody tr:nth-child(even){background:#f5f7f9}
svg{max-width:100%;height:auto;display:block;margin:1rem 0}
@media print{body{max-width:none;padding:0;font-size:10pt}tr,svg{break-inside:avoid}}
"""


def comparison_page(title: str, parts: Mapping[str, str], drawings: Mapping[str, str]) -> str:
    """Tables and lists (Markdown) under their names, each after its chart (SVG) if it has one."""
    blocks = [f"<h1>{escape(title)}</h1>"]
    for name, text in parts.items():
        blocks += [f"<h2>{escape(name)}</h2>", drawings.get(name, ""), _block(text)]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style></head>\n<body>\n"
        + "\n".join(block for block in blocks if block)
        + "\n</body></html>\n"
    )


def _block(text: str) -> str:
    """A Markdown table or list as HTML."""
    lines = text.splitlines()
    if lines and lines[0].startswith("|"):
        cells = [[c.strip() for c in line.strip("|").split("|")] for line in lines]
        head, body = _row(cells[0], "th"), "".join(_row(row, "td") for row in cells[2:])
        return (
            f'<div class="scroll"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
        )
    items = "".join(f"<li>{escape(line.removeprefix('- '))}</li>" for line in lines if line)
    return f"<ul>{items}</ul>"


def _row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(c)}</{tag}>" for c in cells) + "</tr>"
