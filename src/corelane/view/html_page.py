"""One self-contained HTML file: no script, no request, light and dark; every text is escaped.

The content security policy forbids what would load anything. The page is well-formed XML, too, so that any
parser can check it.
"""

from collections.abc import Collection, Iterable, Sequence

from corelane.view.svg import SANS, escaped
from corelane.view.tables import printable

_STYLE = """
:root{color-scheme:light dark;--bg:#ffffff;--fg:#1f2328;--muted:#59636e;--line:#d1d9e0;--soft:#f6f8fa;
--good:#1a7f37;--bad:#b42318;--accent:#2f6fb7}
@media (prefers-color-scheme:dark){:root{--bg:#0d1117;--fg:#e6edf3;--muted:#9198a1;--line:#3d444d;
--soft:#151b23;--good:#3fb950;--bad:#ff7b72;--accent:#6cb0f5}}
body{margin:0 auto;max-width:1100px;padding:28px 24px 48px;background:var(--bg);color:var(--fg);
line-height:1.5;font-family:SANS;font-size:15px}
h1{font-size:24px;line-height:1.25;margin:0 0 4px}h2{font-size:18px;margin:36px 0 10px}
h3{font-size:15px;margin:26px 0 6px;overflow-wrap:anywhere}
p{margin:6px 0;max-width:90ch;overflow-wrap:anywhere}.sub{color:var(--muted);margin-bottom:20px}
.wide{overflow-x:auto;margin:8px 0 14px}
table{border-collapse:collapse;font-size:13.5px;font-variant-numeric:tabular-nums;min-width:50%}
th{text-align:left;color:var(--muted);font-weight:600;border-bottom:2px solid var(--line);
vertical-align:bottom}
th,td{padding:6px 14px 6px 0}td{border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:break-word}
td.n,th.n{text-align:right;white-space:nowrap}tr.best td{background:var(--soft);font-weight:600}
pre{background:var(--soft);border:1px solid var(--line);border-radius:6px;padding:10px 12px;font-size:12.5px;
white-space:pre-wrap;overflow-wrap:anywhere;margin:8px 0}
ul{margin:6px 0;padding-left:20px}li{margin:3px 0;max-width:90ch;overflow-wrap:anywhere}
svg{max-width:100%;min-width:640px;height:auto;display:block}
.c-grid{stroke:var(--line)}.c-text{fill:var(--fg)}.c-soft{fill:var(--muted)}.c-area{fill:var(--soft)}
.c-bad{fill:var(--bad)}.c-good{fill:var(--good)}.c-accent{fill:var(--accent)}.c-now{stroke:var(--bad)}
footer{margin-top:40px;color:var(--muted);font-size:12.5px;border-top:1px solid var(--line);padding-top:10px}
@media print{body{max-width:none;padding:0}.wide{overflow:visible}}
""".replace("SANS", SANS)
_NAMESPACE = ' xmlns="http://www.w3.org/2000/svg"'
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(title: str, subtitle: str, parts: Iterable[str], footer: str) -> str:
    """Return the file; `parts` are elements, the other arguments plain texts."""
    head = (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"/>'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"/>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>'
        f"<title>{text(title)}</title><style>{_STYLE}</style></head><body>"
    )
    heading = f'<h1>{text(title)}</h1><p class="sub">{text(subtitle)}</p>'
    return "\n".join([head, heading, *parts, f"<footer>{text(footer)}</footer></body></html>"]) + "\n"


def text(plain: str) -> str:
    """Escape a text for an element or an attribute; what is not printable is shown as its code."""
    return escaped(printable(plain))


def element(name: str, plain: str) -> str:
    """Return a text in an element."""
    return f"<{name}>{text(plain)}</{name}>"


def items(plain: Iterable[str]) -> str:
    """Return texts as a list; empty without any."""
    listed = "".join(element("li", each) for each in plain if each)
    return f"<ul>{listed}</ul>" if listed else ""


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    texts: int = 1,
    also: Collection[int] = (),
    best: int = -1,
) -> str:
    """Return a table; the first `texts` columns, and those in `also`, are texts, the others numbers.

    Row `best` stands out.
    """

    def cells(tag: str, row: Sequence[str]) -> str:
        classes = ["" if i < texts or i in also else ' class="n"' for i in range(len(row))]
        return "".join(f"<{tag}{css}>{text(cell)}</{tag}>" for css, cell in zip(classes, row, strict=True))

    marks = {best: ' class="best"'}
    body = "".join(f"<tr{marks.get(i, '')}>{cells('td', row)}</tr>\n" for i, row in enumerate(rows))
    head = f"<thead><tr>{cells('th', headings)}</tr></thead>"
    return f'<div class="wide"><table>{head}<tbody>\n{body}</tbody></table></div>'


def picture(svg: str) -> str:
    """Return a drawing as part of the page, which has no need of its namespace."""
    return f'<div class="wide">{svg.replace(_NAMESPACE, "", 1)}</div>'
