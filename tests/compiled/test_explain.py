"""``step.explain()`` counts bytes and flops, and says what was fused."""

from __future__ import annotations

import pytest

import numbagrad as ng
from numbagrad.compiled import rates
from numbagrad.errors import RecordingError


@ng.compile
def loss(x, weight):
    return ng.relu(x @ weight * 2.0 + 1.0).sum()


def test_rows_bytes_flops_and_totals():
    x, weight = ng.ones(8, 16), ng.ones(16, 4)
    assert loss(x, weight).item() == 33.0 * 32
    found = loss.explain()
    product, loop = found.rows
    assert product.kind == "product" and product.shape == (8, 4, 16)
    assert product.flops == 2 * 8 * 4 * 16
    assert product.nbytes == 4 * (8 * 16 + 16 * 4 + 8 * 4)
    assert loop.kind == "loop" and loop.iterations == 32
    assert loop.what.startswith("mul, add, relu, sum at test_explain.py:")
    assert loop.nbytes == 4 * (32 + 1)
    assert loop.flops > 3 * 32
    assert found.nbytes == product.nbytes + loop.nbytes
    assert found.flops == product.flops + loop.flops
    assert found.seconds == pytest.approx(product.seconds + loop.seconds)
    assert found.unfused.launches == 5
    assert found.work < found.unfused.temporaries


def test_it_prints_and_renders():
    loss(ng.ones(8, 16), ng.ones(16, 4))
    found = loss.explain()
    lines = repr(found).splitlines()
    assert lines[0] == ("loss: 5 launches became 1 loop, 1 product and 0 kernels called by address")
    assert lines[-1].startswith("total")
    assert "8 x 4 x 16" in lines[-3] and "share" in lines[-4]
    assert max(map(len, lines[4:])) <= 140
    shown = found._repr_html_()
    assert shown.count("<tr>") == 4 and "<td>product</td>" in shown
    assert "became 1 loop" in loss._repr_html_()


def test_the_gradient_program_is_explained_too():
    @ng.compile
    def square(x):
        return (x * x).sum()

    with pytest.raises(RecordingError, match="call the function once"):
        square.explain()
    assert "compiled" in square._repr_html_()
    square(ng.ones(3, requires_grad=True))
    found = square.explain()
    assert found.backward.name == "square_backward" and found.backward.count("loop") == 1
    assert "square_backward: " in repr(found) and "square_backward: " in found._repr_html_()


def test_kernels_called_by_address_move_what_they_read_and_write():
    @ng.compile
    def sort(x):
        return ng.sort(x).values

    sort(ng.arange(6.0))
    found = sort.explain()
    assert found.count("kernel") >= 1
    kernel = next(row for row in found.rows if row.kind == "kernel")
    assert kernel.flops is None and kernel.nbytes >= 2 * 24


def test_the_rates_of_this_machine_are_measured_once():
    found = rates.rates()
    assert found is rates.rates()
    assert min(found.memory, found.cache, found.products, found.loops) > 1e7
    assert "GFLOP/s in products" in str(found)
    assert rates.cache_bytes() >= 2**15
