"""How programs look: lines of a width, and colours in Jupyter."""

from __future__ import annotations

import html
import re
import textwrap

WIDTH = 98
"""Columns of a printed program, less its indentation."""

COLOURS = {"input": "#0550ae", "state": "#953800", "fresh": "#116329", "constant": "#57606a"}
"""Colours of the names of memory, by its kind."""

COMMENT = "#57606a"


def wrapped(text: str, first: str, later: str) -> list[str]:
    """Lines of ``text``, indented by ``first`` and then ``later``."""
    lines = textwrap.wrap(
        text, WIDTH, initial_indent=first, subsequent_indent=later, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return [line.replace("\xa0", " ") for line in lines]


def solid(text: str) -> str:
    """``text`` that ``wrapped`` leaves on one line."""
    return text.replace(" ", "\xa0")


def without_parentheses(text: str) -> str:
    """``text`` without the parentheses that stand around all of it.

    >>> without_parentheses("(x + y)"), without_parentheses("(x + y) * (x - y)")
    ('x + y', '(x + y) * (x - y)')
    """
    depth = 0
    for k, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if k and k == len(text) - 1 and text[0] == "(" else text
    return text


def coloured(text: str, kinds: dict[str, str]) -> str:
    """HTML of a printed program: comments grey, names in the colour of their kind of memory.

    kinds: of the names. The words for kinds themselves have their colour too.
    """

    def shown(part: str) -> str:
        colour = COMMENT if part.startswith("#") else COLOURS.get(kinds.get(part, part))
        text = html.escape(part)
        return text if colour is None else f'<span style="color:{colour}">{text}</span>'

    return "".join(map(shown, re.split(r"(#[^\n]*|\b[A-Za-z_]\w*)", text)))
