"""Arguments and functions of PyTorch's that public code uses around models, beside PyTorch's."""

from __future__ import annotations

import importlib

import pytest

import numbagrad as ng

nn = ng.nn


def test_loading_that_takes_the_tensors_themselves():
    source = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).double()
    state = source.state_dict()
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].bias.requires_grad_(False)
    keys = model.load_state_dict(state, assign=True)
    assert not keys.missing_keys and not keys.unexpected_keys
    assert model[0].weight.dtype is ng.float64 and isinstance(model[0].weight, nn.Parameter)
    assert model[0].weight.requires_grad and not model[0].bias.requires_grad
    assert model[0].weight.data_ptr() == source[0].weight.data_ptr()
    assert model[1].running_mean.data_ptr() == source[1].running_mean.data_ptr()
    assert model(ng.ones(3, 2, dtype=ng.float64)).dtype is ng.float64
    kept = nn.Linear(2, 2).state_dict(keep_vars=True)
    layer = nn.Linear(2, 2)
    layer.load_state_dict(kept, assign=True)
    assert layer.weight is kept["weight"] and next(layer.parameters()) is kept["weight"]
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        layer.load_state_dict(nn.Linear(3, 2).state_dict(), assign=True)
    assert layer.weight is kept["weight"]
    step = ng.compile(lambda x: layer(x).sum())
    x = ng.ones(1, 2)
    for _ in range(2):
        assert step(x).item() == pytest.approx(layer(x).sum().item())
        layer.load_state_dict(nn.Linear(2, 2).state_dict(), assign=True)


def test_compile_by_keyword():
    double = ng.compile(model=lambda x: x * 2, fullgraph=True)
    assert double(ng.ones(2)).tolist() == [2.0, 2.0]
    assert ng.compiler.compile is ng.compile
    with pytest.raises(TypeError, match="unexpected keyword argument 'modle'"):
        ng.compile(modle=lambda x: x)


def test_linearize_as_pytorchs():
    x, y = [1.0, 2.0], [[0.5], [1.5]]
    found = []
    libraries = [ng]
    try:
        libraries.append(importlib.import_module("torch"))
    except ImportError:
        pass
    for lib in libraries:

        def function(a, b, lib=lib):
            return {"product": lib.sin(a) * b, "first": a * a, "none": b.detach() * 0 + 1}

        primals = [lib.tensor(v, dtype=lib.float64) for v in (x, y)]
        out, along = lib.func.linearize(function, *primals)
        tangents = [lib.ones_like(p) * k for k, p in enumerate(primals, 2)]
        values = [out, along(*tangents), along(*[-t for t in tangents])]
        found.append([{k: v.tolist() for k, v in each.items()} for each in values])
    for each in found[1:]:
        for mine, theirs in zip(found[0], each, strict=True):
            assert mine.keys() == theirs.keys()
            for key in mine:
                assert ng.tensor(mine[key]).allclose(ng.tensor(theirs[key]))


def test_linearize_gives_gradients_and_checks():
    x = ng.tensor([2.0], requires_grad=True)
    out, along = ng.func.linearize(lambda a: a**3, x)
    along(ng.ones(1)).backward()
    assert out.item() == 8 and x.grad.item() == 12
    with pytest.raises(RuntimeError, match="tangents must have the shapes"):
        along(ng.ones(2))


def test_batch_norms_by_the_batch_alone():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Sequential(nn.BatchNorm1d(2)))
    assert ng.func.replace_all_batch_norm_modules_(model) is model
    assert model[1].running_mean is None and not model[2][0].track_running_stats
    x = ng.randn(8, 2)
    assert model.eval()(x).mean(0).abs().max().item() < 1e-5
    assert "1.running_mean" not in model.state_dict()
