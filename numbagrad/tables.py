"""Text for people: sizes, counts and times in units, places, aligned columns, HTML for Jupyter."""

from __future__ import annotations

import html
import sys
from collections.abc import Collection, Sequence

__all__ = ["aligned", "count_text", "html_table", "plural", "shortened", "show_file"]
__all__ += ["size_text", "time_text"]


def plural(n: int, word: str, ending: str = "s") -> str:
    """
    >>> plural(1, "kernel"), plural(2, "launch", "es")
    ('1 kernel', '2 launches')
    """
    return f"{n} {word}{'' if n == 1 else ending}"


def size_text(nbytes: float) -> str:
    """
    >>> size_text(1536000)
    '1.54 MB'
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:.3g} {unit}"
    return f"{nbytes:.0f} B"


def count_text(n: float) -> str:
    """
    >>> count_text(1536000)
    '1.54 M'
    """
    for unit, size in ((" G", 1e9), (" M", 1e6), (" k", 1e3)):
        if n >= size:
            return f"{n / size:.3g}{unit}"
    return f"{n:.0f}"


def time_text(seconds: float) -> str:
    """
    >>> time_text(1.5e-6), time_text(0.0025), time_text(2.5)
    ('1.50 us', '2.50 ms', '2.50 s')
    """
    if seconds < 1e-3:
        return f"{seconds * 1e6:.2f} us"
    return f"{seconds * 1e3:.2f} ms" if seconds < 1 else f"{seconds:.2f} s"


def shortened(text: str, longest: int) -> str:
    """``text``, cut off if it is longer."""
    return text if len(text) <= longest else f"{text[: longest - 3]}..."


def aligned(rows: Sequence[Sequence[str]], right: Collection[int]) -> list[str]:
    """A line for each row. right: the columns that end where they are widest."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            c.rjust(w) if k in right else c.ljust(w)
            for k, (c, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def html_table(told: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Sentences and a table, of which the first row is the head."""
    head, *rest = rows
    body = "".join(_html_row(row, "td") for row in rest)
    text = "<br>".join(map(html.escape, told))
    return f"<p>{text}</p><table>{_html_row(head, 'th')}{body}</table>"


def _html_row(row: Sequence[str], tag: str) -> str:
    return f"<tr>{''.join(f'<{tag}>{html.escape(c)}</{tag}>' for c in row)}</tr>"


def show_file(name: str) -> str:
    """``name``, or the prompt of the cell that IPython gave it to: ``In[3]``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    told = getattr(getattr(shell, "compile", None), "format_code_name", lambda _: None)(name)
    return name if told is None else str(told[1])
