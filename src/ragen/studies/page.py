"""A study's report as one HTML file: no script, no link to anything outside, every text escaped."""

import re
from html import escape

from ragen.studies.content import Content, Table
from ragen.studies.figure import CAPTION

_STYLE = """
:root { color-scheme: light }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 75rem; margin: 2rem auto; padding: 0 1rem }
body { color: #1a1a1a; background: #fff }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2rem }
dt { font-weight: 600 } dd { margin: 0 0 .4rem 0 }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 14px }
th, td { text-align: left; padding: .2rem .7rem; border-bottom: 1px solid #ddd; vertical-align: top }
th { border-bottom: 2px solid #888 }
pre { background: #f5f5f5; padding: .7rem; overflow-x: auto; font-size: 13px }
figure { margin: 0; overflow-x: auto } figure svg { min-width: 60rem; max-width: 100%; height: auto }
.verdict { border-left: 4px solid #0072b2; padding-left: .8rem }
"""


def html_page(content: Content) -> str:
    """The whole page. Numbers are those of the Markdown; the curves stand in it as SVG."""
    about = "\n".join(f"<dt>{escape(what)}</dt><dd>{_marked(said)}</dd>" for what, said in content.about)
    tables = "\n".join(f"<h2>{escape(title)}</h2>\n{_table(table)}" for title, table in content.tables.items())
    verdict = "\n".join(f"<p>{_marked(part)}</p>" for part in content.verdict.split("\n\n"))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(content.title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>{escape(content.title)}</h1>
<dl>
{about}
</dl>
<h2>Verdict</h2>
<div class="verdict">
{verdict}
</div>
{tables}
<h2>Curves</h2>
<figure>
{content.figure}
<figcaption>{escape(CAPTION)}</figcaption>
</figure>
<h2>Settings</h2>
<pre>{escape(content.settings)}</pre>
<h2>Runs</h2>
{_table(content.runs)}
</body>
</html>
"""


def _table(table: Table) -> str:
    lines = []
    for number, line in enumerate(table):
        tag = "td" if number else "th"
        lines.append("<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in line) + "</tr>")
    return "\n".join(["<table>", *lines, "</table>"])


def _marked(text: str) -> str:
    """Escaped text, with `code` and _emphasis_ of a whole paragraph as Markdown has them."""
    safe = re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))
    return re.sub(r"^_(.*)_$", r"<em>\1</em>", safe, flags=re.DOTALL)
