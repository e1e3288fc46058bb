"""Rows of the recurrent networks over sequences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from op_table import NO_METHOD, Case, Draw, Sample, sample, wrong
from scipy.special import expit


def rnn(activation: Callable[..., Any]) -> Callable[..., Any]:
    """A step of a simple network: of the gates' input, the state's part, and the states."""

    def step(given: Any, held: Any, state: Any) -> Any:
        return [activation(given + held)]

    return step


def lstm(given: Any, held: Any, state: Any) -> Any:
    """A step of long short-term memory."""
    enter, keep, new, leave = np.split(given + held, 4, -1)
    c = expit(keep) * state[1] + expit(enter) * np.tanh(new)
    return [expit(leave) * np.tanh(c), c]


def gru(given: Any, held: Any, state: Any) -> Any:
    """A step of a gated recurrent unit."""
    (reset, update, new), (hr, hu, hn) = np.split(given, 3, -1), np.split(held, 3, -1)
    new = np.tanh(new + expit(reset + hr) * hn)
    update = expit(update + hu)
    return [update * state[0] + (1 - update) * new]


def layers(step: Callable[..., Any]) -> Callable[..., Any]:
    """The oracle of a whole network, of a step."""

    def oracle(
        x: Any, hx: Any, params: Any, biased: bool, depth: int, p: float, train: bool, both: bool,
        batch_first: bool,
    ) -> Any:  # fmt: skip
        states = hx if isinstance(hx, tuple) else (hx,)
        x = np.swapaxes(x, 0, 1) if batch_first else x
        directions, ends = 1 + both, []
        each = len(params) // (depth * directions)
        for k in range(depth):
            outs = []
            for direction in range(directions):
                at = k * directions + direction
                w_ih, w_hh, *more = params[at * each : (at + 1) * each]
                b_ih, b_hh = more[:2] if biased else (0, 0)
                state, out = [s[at] for s in states], {}
                for t in range(len(x))[:: -1 if direction else 1]:
                    state = step(x[t] @ w_ih.T + b_ih, state[0] @ w_hh.T + b_hh, state)
                    if each % 2:
                        state[0] = state[0] @ more[-1].T
                    out[t] = state[0]
                outs.append(np.stack([out[t] for t in range(len(x))]))
                ends.append(state)
            x = np.concatenate(outs, -1)
        x = np.swapaxes(x, 0, 1) if batch_first else x
        return (x, *[np.stack(end) for end in zip(*ends, strict=True)])

    return oracle


def params(
    draw: Draw, gates: int, features: int, m: int, biased: bool, *layers: int, width: int = 0
) -> list:
    """Weights and biases; layers: for each, the directions; width: of a projection, if any."""
    found, h = [], width or m
    for k, directions in enumerate(layers):
        for _ in range(directions):
            found += [draw(gates * m, h * directions if k else features), draw(gates * m, h)]
            found += [draw(gates * m), draw(gates * m)] if biased else []
            found += [draw(width, m)] if width else []
    return found


def calls(gates: int) -> Callable[[Draw], list[Sample]]:
    """A layer; both directions and two layers without biases, batch first; no rows; projected."""

    def samples(draw: Draw) -> list[Sample]:
        def hx(*shape: int) -> Any:
            return (draw(*shape), draw(*shape)) if gates == 4 else draw(*shape)

        own = params(draw, gates, 2, 2, True, 1)
        deep = params(draw, gates, 1, 1, False, 2, 2)
        options = (0.0, True, False, False)
        found = [
            sample(draw(3, 2, 2), hx(1, 2, 2), own, True, 1, *options),
            sample(draw(1, 2, 1), hx(4, 1, 1), deep, False, 2, 0.5, False, True, True),
            sample(draw(2, 0, 2), hx(1, 0, 2), own, True, 1, *options, kind="empty"),
        ]
        if gates == 4:
            narrow = params(draw, gates, 1, 2, True, 1, width=1)
            states = draw(1, 1, 1), draw(1, 1, 2)
            found.append(sample(draw(2, 1, 1), states, narrow, True, 1, *options))
        return found

    return samples


def mistakes(gates: int) -> tuple:
    """Sizes that do not fit, other dtypes, no steps."""

    def ones(*shape: int) -> np.ndarray:
        return np.ones(shape)  # in float32 PyTorch's lstm takes features that do not fit

    def call(x: Any, hx: Any, weights: list, words: str) -> Any:
        state = (hx, hx) if gates == 4 else hx
        options = (False, 1, 0.0, False, False, False)
        return wrong(x, state, weights, *options, raises=RuntimeError, words=words)

    good = [ones(gates * 3, 2), ones(gates * 3, 3)]
    state = ones(1, 2, 3)
    return (
        call(ones(0, 2, 2), state, good, "sequence length"),
        call(ones(4, 2, 5), state, good, r"input.size\(-1\)|size mismatch|shapes cannot"),
    )


def row(name: str, gates: int, step: Callable[..., Any]) -> Case:
    """The row of a network."""
    return Case(
        name,
        calls(gates),
        layers(step),
        method=NO_METHOD,
        domain=(-1.0, 1.0),
        rtol64=1e-11,
        errors=mistakes(gates),
    )


def cell(name: str, gates: int, step: Callable[..., Any]) -> Case:
    """The row of a single step on given weights."""

    def samples(draw: Draw) -> list[Sample]:
        def hx(*shape: int) -> Any:
            return (draw(*shape), draw(*shape)) if gates == 4 else draw(*shape)

        bare = params(draw, gates, 3, 2, False, 1)
        return [
            sample(draw(2, 3), hx(2, 2), *params(draw, gates, 3, 2, True, 1)),
            sample(draw(1, 3), hx(1, 2), *bare),
            sample(draw(0, 3), hx(0, 2), *bare, kind="empty"),
        ]

    def oracle(x: Any, hx: Any, w_ih: Any, w_hh: Any, b_ih: Any = 0, b_hh: Any = 0) -> Any:
        state = list(hx) if gates == 4 else [hx]
        out = step(x @ w_ih.T + b_ih, state[0] @ w_hh.T + b_hh, state)
        return tuple(out) if gates == 4 else out[0]

    ones = np.ones((2, 3))
    hx = (ones, ones) if gates == 4 else ones
    bad = wrong(ones, hx, ones, ones, raises=RuntimeError, words=".")
    return Case(
        name, samples, oracle, method=NO_METHOD, domain=(-1.0, 1.0), rtol64=1e-11, errors=(bad,)
    )


CASES = [
    cell("rnn_tanh_cell", 1, rnn(np.tanh)),
    cell("rnn_relu_cell", 1, rnn(lambda x: np.maximum(x, 0))),
    cell("lstm_cell", 4, lstm),
    cell("gru_cell", 3, gru),
    row("rnn_tanh", 1, rnn(np.tanh)),
    row("rnn_relu", 1, rnn(lambda x: np.maximum(x, 0))),
    row("lstm", 4, lstm),
    row("gru", 3, gru),
]
