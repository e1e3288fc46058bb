"""Contenders side by side: each workload means the same to all, and one table sums them up."""

from __future__ import annotations

import dataclasses
import json
import sys

import numpy as np
import pytest

import numbagrad as ng
from benchmarks import (
    copying,
    elementwise,
    formula,
    functions,
    gradients,
    indexing,
    libraries,
    limits,
    mapped,
    models,
    networks,
    optimisers,
    overview,
    picture,
    race,
    transformer_step,
    workers,
)
from benchmarks.__main__ import RACES, SUITES
from benchmarks.case import Row, uniform
from benchmarks.gradients import Gradient
from benchmarks.libraries import COMPILED, EAGER
from benchmarks.measure import Timing
from benchmarks.optimisers import Update
from benchmarks.workers import Unavailable, Worker

WORKLOADS = [
    pytest.param(work, id=work.name)
    for suite in RACES.values()
    for work in suite.WORKLOADS
    if isinstance(work, Gradient)
]
FUNCTION, FORMULA = formula.WORKLOADS[2], formula.WORKLOADS[0]
SMALL = Gradient("cube", lambda: [uniform(3)], lambda _, x: x * x * x, lambda _, x: x * x * x)


def agree(work, contender, reference=EAGER, steps=2):
    results = [work.build(each, 1) for each in (contender, reference)]
    for run, _ in results:
        for _ in range(steps):
            run()
    race.check_close(work.name, *[of() for _, of in results], work.tolerance)


@pytest.mark.peer
@pytest.mark.parametrize("work", WORKLOADS)
@pytest.mark.parametrize("peer", ["torch", "jax.jit"])
def test_peers_compute_what_numbagrad_does(work, peer):
    pytest.importorskip(libraries.MODULES[peer])
    agree(work, peer)


@pytest.mark.peer
@pytest.mark.parametrize("peer", ["HIPS autograd", "mygrad"])
def test_tapes_over_numpy_compute_what_numbagrad_does(peer):
    pytest.importorskip(libraries.MODULES[peer])
    for work in (FORMULA, elementwise.WORKLOADS[0]):
        agree(work, peer)


@pytest.mark.peer
@pytest.mark.parametrize("peer", ["torch", "jax.jit"])
def test_transformers_of_the_peers_train_alike(peer):
    pytest.importorskip(libraries.MODULES[peer])
    agree(transformer_step.WORKLOADS[0], peer)


@pytest.mark.peer
@pytest.mark.parametrize("work", mapped.WORKLOADS, ids=lambda work: work.name)
@pytest.mark.parametrize("peer", ["torch", "jax.jit"])
def test_peers_map_as_numbagrad_does(work, peer):
    pytest.importorskip(libraries.MODULES[peer])
    agree(work, peer)


@pytest.mark.peer
@pytest.mark.parametrize("kind", [models.Training, models.Inference])
@pytest.mark.parametrize("model", models.MODELS, ids=lambda model: model.name)
def test_models_of_torch_train_and_answer_alike(model, kind):
    pytest.importorskip("torch")
    agree(kind(model, 4), "torch")


@pytest.mark.peer
@pytest.mark.parametrize("network", networks.NETWORKS, ids=lambda network: network.name)
def test_networks_of_torch_train_alike(network):
    pytest.importorskip("torch")
    agree(network, "torch", steps=1)


def test_networks_have_names_of_their_own_and_gradients():
    names = [network.name for network in networks.NETWORKS]
    assert len(set(names)) == len(names) and [race.base(name) for name in names] == names
    run, results = networks.build(EAGER, names.index("radiance field"), 1)
    run()
    loss, moved = results()
    assert loss > 0 and moved.all()


def test_networks_that_draw_are_compared_in_eval_mode():
    names = [network.name for network in networks.NETWORKS]
    run, results = networks.build(EAGER, names.index("graph convolutions"), 1)
    run()
    (loss,) = results()
    assert results()[0] == loss  # though a step drops half of all values
    run()
    assert results()[0] != loss and abs(results()[0] - loss) < 0.01 * loss


@pytest.mark.peer
@pytest.mark.parametrize("work", functions.WORKLOADS, ids=lambda work: work.name)
def test_functions_of_torch_give_what_numbagrad_does(work):
    pytest.importorskip("torch")
    agree(work, "torch")


def test_functions_have_gradients_and_draws_have_shapes():
    x = functions.INPUTS["x"]().astype(np.float64)
    square = functions.Function("square", lambda F, x: x * x, backward=True)
    run, results = square.build(EAGER, 1)
    run()
    value, gx = results()
    race.check_close("square", [value], [x * x], 1e-6)
    incoming = uniform(*x.shape, 1)[..., 0]
    race.check_close("square", [gx], [2 * x * incoming], 1e-6)
    run, results = functions.WORKLOADS[-1].build(EAGER, 1)
    run()
    assert results()[0].tolist() == list(x.shape)


def test_compiled_and_eager_workloads_agree():
    agree(mapped.WORKLOADS[2], COMPILED)
    agree(FUNCTION, COMPILED)
    agree(models.Training(models.MODELS[0], 4), COMPILED)
    for network in networks.NETWORKS:
        if network.name in ("word2vec", "Gaussian process"):
            agree(network, COMPILED)


@pytest.mark.parametrize("optimizer", ["momentum", "Adam", "AdamW"])
def test_updates_move_parameters_as_the_pure_function_does(optimizer):
    work = Update(optimizer, tensors=2)
    run, moved = work.build(EAGER, 1)
    parameters, gradients_ = work.arrays()
    state = [np.zeros_like(p) for p in parameters for _ in range(optimisers.slots(optimizer))]
    count = np.float32(0)
    for _ in range(3):
        run()
        parameters, state, count = optimisers.update(
            np, optimizer, parameters, gradients_, state, count
        )
    expected = [x - y for x, y in zip(parameters, work.arrays()[0], strict=True)]
    race.check_close(optimizer, moved(), expected, work.tolerance)


@pytest.mark.peer
@pytest.mark.parametrize("peer", ["torch", "torch foreach", "torch fused", "jax.jit"])
@pytest.mark.parametrize("optimizer", ["momentum", "Adam", "AdamW"])
def test_optimisers_of_the_peers_move_parameters_alike(optimizer, peer):
    pytest.importorskip(libraries.MODULES[peer])
    agree(Update(optimizer, tensors=3), peer)


def test_indices_collide_where_they_say_so():
    assert len(np.unique(indexing.indices(10_000, (4096,), collide=True))) == indexing.DISTINCT
    assert len(np.unique(indexing.indices(10_000, (4096,), collide=False))) > 3000


def test_results_that_differ_by_a_thousandth_are_not_raced():
    right = [np.float32([1.0, 0.5])]
    race.check_close("same", right, right, 1e-4)
    with pytest.raises(AssertionError, match="wrong, result 0"):
        race.check_close("wrong", [right[0] + np.float32(0.001)], right, 1e-4)
    with pytest.raises(AssertionError, match="short gives 0 of 1"):
        race.check_close("short", [], right, 1e-4)


class Fake:
    """A contender in this process."""

    def __init__(self, result, error=None):
        self.result, self.error = result, error

    def build(self, suite, number):
        if self.error:
            raise Unavailable(self.error)
        return [np.float32([self.result])]

    def batch(self, number):
        return self.result * 1e-6


def test_who_cannot_run_is_named_and_who_is_wrong_stops_the_race():
    check = lambda what, *pair: race.check_close(what, *pair, tolerance=0.5)  # noqa: E731
    there = {COMPILED: Fake(1.0), "torch": Fake(1.25), "mygrad": Fake(0, "no such op")}
    times, reasons = race.race(there, "suite", 0, "work", check, rounds=3)
    assert reasons == {"mygrad": "no such op"} and list(times) == [COMPILED, "torch"]
    assert times["torch"].median == pytest.approx(1.25e-6)
    there["jax.jit"] = Fake(9.0)
    with pytest.raises(AssertionError, match=r"work, jax\.jit"):
        race.race(there, "suite", 0, "work", check, rounds=3)


def timing(seconds):
    return Timing(seconds, 0.0, seconds)


def test_compiled_is_compared_with_the_best_peer_and_eager_with_torch():
    names = (COMPILED, EAGER, "torch", "torch fused", "jax.jit")
    times = dict(zip(names, map(timing, (1.0, 4.0, 8.0, 5.0, 2.0)), strict=True))
    compiled, eager = race.rows("suite", "work", 2, times, {"mygrad": "absent"})
    assert (compiled.name, compiled.ratio, compiled.asked) == ("work, compiled / jax.jit", 0.5, 1.1)
    assert (eager.name, eager.ratio, eager.asked) == ("work, eager / torch fused", 0.8, 1.3)
    assert "jax.jit 2e+06 (2e+06); no mygrad: absent" in compiled.note
    assert compiled.contenders["torch"] == 8.0
    alone = race.rows("suite", "work", 1, {COMPILED: timing(1.0)}, {})
    assert [(row.name, row.peer) for row in alone] == [("work, compiled / no peer", None)]


def test_a_worker_runs_a_workload_and_is_replaced_when_it_is_too_slow(monkeypatch):
    worker = Worker(EAGER, 1)
    try:
        (y, gx) = worker.build("formula", formula.WORKLOADS.index(formula.WORKLOADS[-1]), 1)
        assert y.shape == gx.shape == (1,) and worker.batch(2) > 0
        monkeypatch.setattr(workers, "PATIENCE", 0)
        with pytest.raises(Unavailable, match="no answer in 0 s"):
            worker.build("formula", 0)
    finally:
        worker.close()


def test_a_library_that_is_not_here_is_sought_in_the_other_python(monkeypatch):
    monkeypatch.setenv("PYTENSOR_PYTHON", "elsewhere")
    monkeypatch.setitem(libraries.MODULES, "pytensor", "no_such_module")
    assert libraries.python_of("pytensor") == "elsewhere"
    monkeypatch.setitem(libraries.MODULES, "pytensor", "json")
    assert libraries.python_of("pytensor") == libraries.python_of(EAGER) == sys.executable


def records():
    """Rows of three suites as they are kept: name, threads, ratio, asked."""
    return {
        "steps": [
            row("steps", "net, momentum / pytensor", 0.5, 0.5),
            row("steps", "net, momentum / by hand", 1.0, 1.2),
        ],
        "formula": [
            row("formula", "f, compiled / jax.jit", 1.2, 1.1),
            row("formula", "f, eager / torch", 0.8, 1.3),
            row("formula", "f, compiled / jax.jit", 0.25, 1.1, 2),
            row("formula", "f, compiled / no peer", None, None, 4),
        ],
        "layers": [row("layers", "sum", 0.2, None)],
        "limits": [dataclasses.asdict(Row("limits", "copy of 4 MB", "GB/s", 31.25))],
    }


def row(suite, name, ratio, asked, threads=1):
    peer = None if ratio is None else 1.0
    made = Row(suite, name, "s", ratio or 1.0, peer=peer, asked=asked, threads=threads)
    return {**dataclasses.asdict(made), "ratio": ratio}


def test_one_table_has_ours_the_best_peer_and_what_was_asked():
    found = overview.lines(records())
    assert [(line.name, line.threads) for line in found] == [
        *[("net, momentum", 1), ("f", 1), ("f", 2), ("sum", 1)]
    ]
    both = found[1]
    assert both.compiled.peer == "jax.jit" and both.compiled.verdict == "MISSED"
    assert both.eager.ratio == 0.8 and both.eager.verdict == "met"
    assert found[3].compiled is None and found[3].eager.verdict == ""
    assert overview.means(found) == pytest.approx({"compiled": 0.15 ** (1 / 3), "eager": 0.4})
    text = overview.text(records())
    assert "| f             | 1       | 800 ms | 1.2 s    | jax.jit" in text
    assert "compiled: geometric mean 0.53, asked 0.6, met; 1 of 3 over 1.1, the most 1.20" in text
    assert "1 thread(s): copy of 4 MB 31.2 GB/s" in text


def test_suites_that_share_a_name_keep_their_rows():
    kept = {
        "reductions": [row("reductions", "sum, eager / torch", 1.5, 1.3)],
        "layers": [row("layers", "sum", 0.2, None)],
    }
    found = [(line.name, line.eager.ratio) for line in overview.lines(kept)]
    assert found == [("sum", 1.5), ("sum (layers)", 0.2)]


def test_rows_make_the_same_table_as_what_is_kept(tmp_path):
    rows = race.rows("formula", "f", 1, {COMPILED: timing(1.0), "torch": timing(2.0)}, {})
    (tmp_path / "formula.json").write_text(json.dumps({"rows": overview.records(rows)["formula"]}))
    assert overview.kept(tmp_path) == overview.records(rows)
    assert overview.text({}) == ""


def test_the_picture_has_a_panel_for_compiled_and_one_for_eager(tmp_path):
    found = overview.lines(records())
    assert picture.bars(found, "compiled") == [
        ("net, momentum", {1: 0.5}),
        ("f", {1: 1.2, 2: 0.25}),
    ]
    assert picture.bars(found, "eager") == [("f", {1: 0.8}), ("sum", {1: 0.2})]
    picture.draw(found, tmp_path / "ratios.png")
    assert (tmp_path / "ratios.png").read_bytes().startswith(b"\x89PNG")


def test_every_suite_of_the_table_is_measured():
    assert set(overview.SUITES) <= set(SUITES) and set(RACES) <= set(overview.SUITES)


@pytest.mark.parametrize("way", [copying.by_loop, copying.by_memcpy])
def test_copies_copy_each_number(way):
    x, y = uniform(1001), np.zeros(1001, np.float32)
    way(1)(y, x)
    np.testing.assert_array_equal(y, x)


def test_operations_of_the_limits_move_what_they_say():
    x = ng.tensor(uniform(4, 6))
    for op in limits.OPERATIONS:
        result = op.call(ng, x, x)
        assert op.moved == (1 if result.numel() < x.numel() else op.moved)
        assert op.moved in (1, 2, 3)


def test_gradients_take_integers_along_and_differentiate_the_rest():
    work = Gradient(
        "take",
        lambda: [uniform(5), np.array([3, 3, 0])],
        *[lambda _, x, index: x[index]] * 2,
    )
    y, gx = work.build(EAGER, 1)[1]()
    g = uniform(3)
    np.testing.assert_array_equal(y, uniform(5)[[3, 3, 0]])
    np.testing.assert_allclose(gx, [g[2], 0, 0, g[0] + g[1], 0])
    assert gradients.suite_of([work])(EAGER, 0, 1)[0]()[0].tolist() == y.tolist()
