"""Random kernels: published words, no dependence on threads, distributions, edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from numbagrad.kernels.cpu import random as kernels

ONES = 0xFFFFFFFF


def state(seed=7, offset=0):
    return np.array([seed, offset], np.int64)


@pytest.mark.parametrize(
    ("counter", "key", "words"),
    [
        ((0,) * 4, (0,) * 2, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_words(counter, key, words):
    out = np.empty(4, np.int64)
    kernels.philox_block(out, np.array(counter, np.int64), np.array(key, np.int64))
    assert tuple(out) == words


FILLS = {
    "uniform": (kernels.uniform, np.float32, (0.0, 1.0), 1),
    "uniform_double": (kernels.uniform_double, np.float64, (0.0, 1.0), 2),
    "normal": (kernels.normal, np.float32, (0.0, 1.0), 1),
    "normal_double": (kernels.normal_double, np.float64, (0.0, 1.0), 2),
    "exponential": (kernels.exponential, np.float64, (1.0,), 2),
    "integers": (kernels.integers, np.int64, (-3, 10), 2),
    "bernoulli": (kernels.bernoulli, np.float32, (0.3,), 1),
}


@pytest.mark.parametrize("name", FILLS)
def test_an_element_depends_on_seed_offset_and_place_only(name):
    kernel, dtype, arguments, words = FILLS[name]
    whole = np.empty(999, dtype)
    kernel.serial(whole, state(), *arguments)
    threaded = np.empty(999, dtype)
    kernel.parallel(threaded, state(), *arguments)
    assert np.array_equal(whole, threaded)
    for n in (1, 2, 3, 5, 998):
        part = np.empty(n, dtype)
        kernel.serial(part, state(), *arguments)
        assert np.array_equal(part, whole[:n])
    skipped = 4 // words * 10  # ten counters further on
    part = np.empty(50, dtype)
    kernel.serial(part, state(offset=10), *arguments)
    assert np.array_equal(part, whole[skipped : skipped + 50])


DISTRIBUTIONS = {
    "uniform": stats.uniform.cdf,
    "uniform_double": stats.uniform.cdf,
    "normal": stats.norm.cdf,
    "normal_double": stats.norm.cdf,
    "exponential": stats.expon.cdf,
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_distribution(name):
    kernel, dtype, arguments, _ = FILLS[name]
    out = np.empty(200_000, dtype)
    kernel.serial(out, state(3), *arguments)
    assert stats.kstest(out, DISTRIBUTIONS[name]).pvalue > 1e-3
    pairs = out[: len(out) // 2 * 2].reshape(-1, 2)
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.01


def test_normal_is_box_and_muller_of_the_words():
    """Against math on the same words: the series are as good as their dtype."""
    n = 4096
    words = np.empty((n // 4, 4), np.int64)
    for i in range(n // 4):
        kernels.philox_block(words[i], np.array([i, 0, 0, 0]), np.array([7, 0]))
    flat = words.reshape(-1, 2).astype(np.uint64)
    u = (flat[:, 0] >> np.uint64(1)).astype(np.float64) * 2.0**-31 + 2.0**-32
    angle = 2 * np.pi * flat[:, 1].astype(np.float64) * 2.0**-32
    expected = np.sqrt(-2 * np.log(u))[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    out = np.empty(n, np.float32)
    kernels.normal.serial(out, state(), 0.0, 1.0)
    assert np.abs(out - expected.reshape(-1)).max() < 2e-6
    wide = words.astype(np.uint64)
    fraction = (wide[:, 0] >> np.uint64(5)).astype(float) * 2.0**-27
    fraction += (wide[:, 1] >> np.uint64(6)).astype(float) * 2.0**-53
    angle = 2 * np.pi * (wide[:, 2].astype(float) * 2.0**-32 + wide[:, 3].astype(float) * 2.0**-64)
    radius = np.sqrt(-2 * np.log(1 - fraction))
    expected = radius[:, None] * np.stack([np.cos(angle), np.sin(angle)], 1)
    double = np.empty(n // 2, np.float64)
    kernels.normal_double.serial(double, state(), 0.0, 1.0)
    assert np.abs(double - expected.reshape(-1)).max() < 1e-14


def test_uniform_never_reaches_the_upper_end():
    out = np.empty(100_000, np.float32)
    kernels.uniform.serial(out, state(), 1.0, 1.0 + 2.0**-22)
    assert out.min() >= 1 and out.max() < 1 + 2.0**-22


def test_integers_reach_every_value_of_every_width():
    out = np.empty(70_000, np.int64)
    kernels.integers.serial(out, state(), -2, 7)
    counts = np.bincount(out + 2)
    assert len(counts) == 7 and stats.chisquare(counts).pvalue > 1e-3
    kernels.integers.serial(out, state(), -(2**63), 0)  # all of int64
    assert (out < 0).mean() == pytest.approx(0.5, abs=0.01) and len(set(out)) == len(out)
    kernels.integers.serial(out, state(), 0, 3 * 2**40)
    assert out.min() >= 0 and out.max() < 3 * 2**40
    assert stats.kstest(out / (3 * 2**40), stats.uniform.cdf).pvalue > 1e-3


@pytest.mark.parametrize("p", [0.0, 0.25, 1.0])
def test_bernoulli_and_dropout_agree_on_the_probability(p):
    n = 40_001
    out = np.empty(n, np.float32)
    kernels.bernoulli.serial(out, state(), p)
    assert out.mean() == pytest.approx(p, abs=0.01 if 0 < p < 1 else 0)
    x = np.ones(n, np.float32)
    kernels.dropout.serial(out, x, state(), p, 2.0)
    assert set(np.unique(out)) <= {0.0, 2.0}
    assert (out == 0).mean() == pytest.approx(p, abs=0.01 if 0 < p < 1 else 0)


def test_bernoulli_each_counts_what_is_no_probability():
    out, bad = np.empty(4, np.float32), np.empty(1, np.int64)
    kernels.bernoulli_each.serial(out, bad, np.array([0.0, 1, 1, 0], np.float32), state())
    assert out.tolist() == [0, 1, 1, 0] and bad[0] == -1
    kernels.bernoulli_each.serial(out, bad, np.array([0, 2, np.nan, 0], np.float32), state())
    assert bad[0] == 1
    p = np.full(100_001, 0.5, np.float32)
    p[[3, 20_000, 100_000]] = 2, np.nan, -1
    few, many, bad_too = np.empty(p.size), np.empty(p.size), bad.copy()
    kernels.bernoulli_each.serial(few, bad, p, state())
    kernels.bernoulli_each(many, bad_too, p, state())
    assert bad[0] == bad_too[0] == 2
    np.testing.assert_array_equal(few, many)


def test_permutation_is_one_and_first_places_are_even():
    out = np.empty(1000, np.int64)
    kernels.permutation(out, state())
    assert np.array_equal(np.sort(out), np.arange(1000)) and (out != np.arange(1000)).any()
    firsts = np.zeros((5, 5), int)
    small = np.empty(5, np.int64)
    for offset in range(4000):
        kernels.permutation(small, state(1, 3 * offset))
        firsts[np.arange(5), small] += 1
    assert stats.chisquare(firsts.ravel()).pvalue > 1e-3


def test_multinomial_follows_the_weights():
    p = np.array([[0.0, 1, 2, 5], [1, 0, 0, 0]], np.float32)
    out, bad = np.empty((2, 40_000), np.int64), np.empty(1, np.int64)
    kernels.multinomial_again(out, bad, p, state())
    counts = np.bincount(out[0], minlength=4)
    assert bad[0] == -1 and counts[0] == 0 and set(out[1]) == {0}
    assert stats.chisquare(counts[1:], np.array([1, 2, 5]) / 8 * 40_000).pvalue > 1e-3
    firsts = np.zeros(4, int)
    once = np.empty((1, 3), np.int64)
    for offset in range(4000):
        kernels.multinomial_once(once, bad, p[:1], state(2, 8 * offset))
        assert sorted(once[0]) == [1, 2, 3]
        firsts[once[0, 0]] += 1
    assert stats.chisquare(firsts[1:], np.array([1, 2, 5]) / 8 * 4000).pvalue > 1e-3


@pytest.mark.parametrize(
    ("weights", "again", "once"),
    [([0.0, 0.0], 2, 2), ([1.0, 0.0], 0, 3), ([-1.0, 2.0], 1, 1), ([np.inf, 1.0], 1, 1)],
)
def test_multinomial_reports_bad_weights(weights, again, once):
    out, bad = np.empty((1, 2), np.int64), np.empty(1, np.int64)
    p = np.array([weights], np.float32)
    kernels.multinomial_again(out, bad, p, state())
    assert bad[0] == again - 1
    kernels.multinomial_once(out, bad, p, state())
    assert bad[0] == once - 1


def test_take_counters_moves_the_state():
    taken, position = np.empty(2, np.int64), state(5, 10)
    kernels.take_counters(taken, position, 7)
    assert taken.tolist() == [5, 10] and position.tolist() == [5, 17]
