"""What a mask selects in a compiled function that does not know where the mask holds."""

from __future__ import annotations

import random

import numba
import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import RecordingError
from numbagrad.nn import functional as F

from .selecting import MASKS, agree, taught


def written(x, mask, value):
    z = x * 1
    z[mask] = value
    return z


def changed(x, mask, method, *args):
    z = x * 1
    part = z[mask]
    same = part
    getattr(part, method)(*args)
    z[mask] = same
    return z


def at_both(x, mask):
    """Each element of a mask of all, by its row and its column."""
    i, j = ng.where(mask)
    rows = ng.zeros_like(x).index_add(0, i, x[i] * (j + 1).to(x.dtype)[:, None])
    return rows.sum() + (x[i, j] * x[i, j, None].squeeze(1)).sum()


def at_places(x, places, value):
    z = x * 1
    z[places] = value
    return z


def more(x, places, y):
    z = x * 1
    z[places] += y[places].exp()
    return z


def placed(x, key, value):
    """``x[key] = value`` of a copy."""
    z = x * 1
    z[key] = value
    return z.exp().sum()


def less(x, mask):
    z = x * 1
    z[mask] -= 1
    z[mask] *= z[mask]
    return z


def through_ignored(x, y, m, w, k):
    """A quotient that is infinite where the mask does not hold, times what all rows share."""
    z = ng.where(m.unsqueeze(1), x, float("nan"))
    return ((1 / (z[m] - 1).log()) * w).sum()


def mask_written(x, m):
    """The mask is written after what it selects."""
    m = m | False
    rows = x[m]
    m.logical_not_()
    return (rows * rows).sum() + x[m].sum() * 3


# name: function of x (5, 3), y (5, 3), a mask (5), w (3), classes (5)
ROWS = {
    "mask written": lambda x, y, m, w, k: mask_written(x, m),
    "classes from 1": lambda x, y, m, w, k: F.embedding((k % 3 + 3)[m] - 3, x).sum(),
    "gathered from 1": lambda x, y, m, w, k: (
        x[m].gather(1, ((k % 3 + 3)[m] - 3).unsqueeze(1)).sum()
    ),
    "chances of twice as much": lambda x, y, m, w, k: F.binary_cross_entropy(
        (x.sigmoid() * 0.5)[m] * 1.9, (y.detach() * 0 + 1)[m]
    ),
    "sum": lambda x, y, m, w, k: x[m].sum(),
    "mean": lambda x, y, m, w, k: x[m].mean(),
    "mean of rows": lambda x, y, m, w, k: x[m].mean(0),
    "mean of columns": lambda x, y, m, w, k: x[m].mean(1).sum(),
    "mean by axis": lambda x, y, m, w, k: x[m].mean(axis=0, keepdims=True),
    "sum of both": lambda x, y, m, w, k: x[m].sum((0, 1), keepdim=True),
    "sum in float32": lambda x, y, m, w, k: x[m].sum(dtype=ng.float32),
    "product": lambda x, y, m, w, k: x[m].prod(),
    "elements": lambda x, y, m, w, k: x[x > 0].sum() + x[m.unsqueeze(1) & (y > 0)].mean(),
    "formula": lambda x, y, m, w, k: (x[m] * w + y[m].exp()).tanh().sum(),
    "number beside": lambda x, y, m, w, k: (2 - x[m] / 3).pow(2).mean(),
    "row beside": lambda x, y, m, w, k: (x[m] - x[:1]).abs().sum(),
    "operands in turn": lambda x, y, m, w, k: (w - x[m]).sum(0),
    "root": lambda x, y, m, w, k: ng.sqrt(ng.relu(x)[x > 0]).sum(),
    "nothing of others": through_ignored,
    "mean squares": lambda x, y, m, w, k: F.mse_loss(x[m], y[m]),
    "mse by method": lambda x, y, m, w, k: ((x[m] - y[m]) ** 2).mean(),
    "smooth l1": lambda x, y, m, w, k: F.smooth_l1_loss(x[m], y[m], reduction="sum"),
    "l1 each": lambda x, y, m, w, k: F.l1_loss(x[m], y[m], reduction="none").mean(),
    "chances": lambda x, y, m, w, k: F.binary_cross_entropy(x[m].sigmoid(), y[m].sigmoid()),
    "logits": lambda x, y, m, w, k: F.binary_cross_entropy_with_logits(x[m], y[m].sigmoid()),
    "divergence": lambda x, y, m, w, k: F.kl_div(x[m], y[m].exp(), reduction="batchmean"),
    "classes": lambda x, y, m, w, k: F.cross_entropy(x[m], k[m]),
    "classes weighed": lambda x, y, m, w, k: F.cross_entropy(x[m], k[m], y[0].exp().detach()),
    "classes summed": lambda x, y, m, w, k: F.cross_entropy(x[m], k[m], reduction="sum"),
    "classes each": lambda x, y, m, w, k: F.cross_entropy(x[m], k[m], reduction="none").sum(),
    "classes smooth": lambda x, y, m, w, k: F.cross_entropy(x[m], k[m], label_smoothing=0.1),
    "chances of classes": lambda x, y, m, w, k: F.cross_entropy(x[m], y[m].softmax(1)),
    "likelihood": lambda x, y, m, w, k: F.nll_loss(F.log_softmax(x, 1)[m], k[m]),
    "softmax": lambda x, y, m, w, k: (F.softmax(x[m], dim=1) * w).sum(),
    "rows, then all": lambda x, y, m, w, k: x[m].amax(1).mean() + x[m].std(-1).sum(),
    "layer norm": lambda x, y, m, w, k: F.layer_norm(x[m], (3,), w, y[0]).exp().log1p().mean(),
    "rms norm": lambda x, y, m, w, k: F.rms_norm(x[m], 3, w).sum(),
    "slope": lambda x, y, m, w, k: F.prelu(x[m], w).log().nansum(),
    "gathered": lambda x, y, m, w, k: x[m].gather(1, k[m].unsqueeze(1)).log().nanmean(1).nansum(),
    "norm": lambda x, y, m, w, k: F.normalize(x[m], dim=1).sum() + x[m].norm(dim=1).sum(),
    "similarity": lambda x, y, m, w, k: F.cosine_similarity(x[m], y[m], dim=1).mean(),
    "right answers": lambda x, y, m, w, k: (x[m].argmax(1) == k[m]).float().mean(),
    "right ones": lambda x, y, m, w, k: (x[m].max(1)[1] == k[m]).sum(),
    "any and all": lambda x, y, m, w, k: (x[m] > 0).any() & (y[m] < 9).all(),
    "linear": lambda x, y, m, w, k: F.linear(x[m], y[:4], w.sum() + w.new_zeros(4)).exp().sum(),
    "matrix": lambda x, y, m, w, k: (x[m] @ y[:3]).log1p().nansum(),
    "column": lambda x, y, m, w, k: x[m, 1].sum() + x[m, :2].mean() + x[m][:, 0].sum(),
    "places": lambda x, y, m, w, k: (x[m].unsqueeze(1) * y[m].unsqueeze(2)).mean(),
    "vector": lambda x, y, m, w, k: (x[m].view(-1) * y[m].flatten()).sum(),
    "rows apart": lambda x, y, m, w, k: (x[m].reshape(-1, 3, 1) * w).sum(),
    "table": lambda x, y, m, w, k: F.embedding(k[m], y).mean(),
    "masked_select": lambda x, y, m, w, k: ng.masked_select(x, m.unsqueeze(1)).sum(),
    "two masks": lambda x, y, m, w, k: (x[m] * y[m.clone()]).sum(),
    "another dtype": lambda x, y, m, w, k: (x[m].float() * k[m].unsqueeze(1)).sum(),
    "chosen": lambda x, y, m, w, k: ng.where(x[m] > 0, x[m], y[m]).sum(),
    "limited": lambda x, y, m, w, k: x[m].clamp(-0.5, 0.5).masked_fill(y[m] > 0, 3.0).mean(),
    "detached": lambda x, y, m, w, k: (x[m].detach() * y[m].clone()).sum(),
    "written": lambda x, y, m, w, k: written(x, m, 0),
    "a row written": lambda x, y, m, w, k: written(x, m, w),
    "a column written": lambda x, y, m, w, k: written(x, m, y[m].mean(1).unsqueeze(1)),
    "rows written": lambda x, y, m, w, k: written(x, m, y[m] * 2),
    "elements written": lambda x, y, m, w, k: written(x, x > 0, y[x > 0]),
    "ints written": lambda x, y, m, w, k: written(x, m, k[m].unsqueeze(1)),
    "written in place": lambda x, y, m, w, k: changed(x, m, "mul_", y[m]),
    "less": lambda x, y, m, w, k: less(x, m),
    "a part of rows written": lambda x, y, m, w, k: placed(x, (m, 1), 0.0),
    "parts of rows": lambda x, y, m, w, k: placed(x, (m, slice(1, None)), y[m, 1:] * w[1:]),
    "columns written": lambda x, y, m, w, k: placed(x.t(), (slice(None), m), 2),
    "last written": lambda x, y, m, w, k: placed(x.t() * 1, (..., None, m), w[0]),
    "in one row": lambda x, y, m, w, k: placed(x.t().exp(), (1, m), y[m, 0]),
    "of one row": lambda x, y, m, w, k: x.t()[1, m].sum() + x.t()[0][m].mean(),
    "at places": lambda x, y, m, w, k: (x[(i := ng.where(m)[0])] * y[m] + w[i % 3, None]).sum(),
    "at places of two": lambda x, y, m, w, k: at_both(x, y > 0),
    "a row before": lambda x, y, m, w, k: x[m.nonzero().squeeze(1) - 1].log1p().nansum(),
    "the column of places": lambda x, y, m, w, k: (
        x[m.nonzero()[:, 0]].index_select(1, k[:2] % 3).sum()
    ),
    "selected at places": lambda x, y, m, w, k: x.index_select(0, m.nonzero().flatten()).sum(0),
    "added at places": lambda x, y, m, w, k: x.index_add(0, k[m] % 5, y[m] * w, alpha=2),
    "added in place": lambda x, y, m, w, k: (x * 1).index_add_(0, ng.where(m)[0], y[m].exp()),
    "written at places": lambda x, y, m, w, k: at_places(x, ng.where(m)[0], y[m]),
    "a row at places": lambda x, y, m, w, k: at_places(x, (m.nonzero().view(-1),), w),
    "a number at places": lambda x, y, m, w, k: at_places(x, ng.where(m)[0] - 5, 3),
    "more at places": lambda x, y, m, w, k: more(x, k.remainder(3).nonzero().squeeze(1), y),
    "counted": lambda x, y, m, w, k: x[0].sum() * (k * m).bincount(minlength=9),
    "counted by weight": lambda x, y, m, w, k: w.sum() * ng.bincount(m.int(), y[:, 0].detach(), 2),
    "sizes of a row": lambda x, y, m, w, k: (
        x[m].sum() / x[m].shape[-1] + sum(y[m].shape[1:]) * len(x[m].shape)
    ),
    "turned rows": lambda x, y, m, w, k: (x[m].flip(1) * w + ng.flip(y[m], (-1,))).exp().sum(),
    "gates": lambda x, y, m, w, k: (F.glu(ng.cat([x, y], 1)[m], 1) * w).sum(),
    "one of classes": lambda x, y, m, w, k: (F.one_hot(k[m], 3) * x[m]).sum(),
    "angles": lambda x, y, m, w, k: F.cosine_embedding_loss(x[m], y[m], (2 * (k % 2) - 1)[m], 0.1),
    "angles beside others": lambda x, y, m, w, k: F.cosine_embedding_loss(
        x[m], y[m].sin(), (2 * (k % 2) - 1)[m], reduction="none"
    ).sum(),
    "sides": lambda x, y, m, w, k: F.triplet_margin_loss(x[m], y[m].sin(), y[m] * w, swap=True),
    "a copy": lambda x, y, m, w, k: (z := x * 1, p := z[m], z.zero_(), p.sum())[-1],
}


def operands(mask):
    ng.manual_seed(3)
    x, y, w = (ng.randn(*s, dtype=ng.float64) for s in ((5, 3), (5, 3), (3,)))
    tensors = [t.requires_grad_() for t in (x, y, w)]
    return (*tensors[:2], ng.tensor(MASKS[mask]), tensors[2], ng.tensor([0, 2, 1, 1, 0]))


@pytest.mark.parametrize("name", ROWS)
def test_as_eagerly_with_each_mask(name):
    compiled = ng.compile(lambda *given: taught(ROWS[name], given))
    for mask in MASKS:
        expected, got = taught(ROWS[name], operands(mask)), compiled(*operands(mask))
        tolerance = 1e-6 if "float32" in name or "dtype" in name else 1e-12
        agree(got, expected, tolerance, mask)
    assert compiled.cache_info().recordings == 1


@pytest.mark.parametrize("name", ["mean squares", "formula", "nothing of others", "rows written"])
def test_gradients_of_both_orders(name):
    """Numerically: the first of a compiled function, and the second of one that takes the first."""
    x, y, m, w, k = operands("some")
    w = w.detach().abs() + 0.5
    given = [t.detach().abs() + 1.5 if name == "nothing of others" else t.detach() for t in (x, y)]
    given = [t.requires_grad_() for t in given]
    assert ng.autograd.gradcheck(ng.compile(lambda x, y: ROWS[name](x, y, m, w, k)), given)

    def slope(x, y):
        out = ROWS[name](x, y, m, w, k)
        return ng.autograd.grad((out * out).sum(), x, create_graph=True)[0]

    assert ng.autograd.gradcheck(ng.compile(slope), given)


def test_a_step_with_masks_of_each_batch():
    """Recorded once, and as eagerly, with an optimiser and masks among the arguments."""
    nets, losses = [], []
    for wrap in (lambda f: f, ng.compile):
        ng.manual_seed(1)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
        optimizer = ng.optim.Adam(net.parameters(), lr=0.05)

        @wrap
        def step(x, y, mask, net=net, optimizer=optimizer):
            optimizer.zero_grad()
            out = net(x)
            loss = F.cross_entropy(out[mask], y[mask]) + net(x[mask]).square().mean()
            loss.backward()
            optimizer.step()
            return loss

        ng.manual_seed(2)
        batches = [(ng.randn(7, 4), ng.randint(0, 3, (7,)), ng.rand(7) > 0.4) for _ in range(6)]
        losses.append([step(*batch).item() for batch in batches])
        nets.append(net)
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)
    assert step.cache_info().recordings == 1
    for p, q in zip(*[net.parameters() for net in nets], strict=True):
        np.testing.assert_allclose(p.detach(), q.detach(), rtol=1e-4, atol=1e-6)


def test_a_tensor_with_one_row_for_each():
    """Its rows stand beside those that are selected; of another number they are refused."""
    eager = lambda x, m, y: F.mse_loss(x[m] * y, y) + written(x, m, y).sum()  # noqa: E731
    compiled = ng.compile(eager)
    x, y = ng.randn(5, 3, dtype=ng.float64), ng.randn(3, 3, dtype=ng.float64).requires_grad_()
    for mask in ([True, False, True, True, False], [False, True, True, False, True]):
        m, z = ng.tensor(mask), y.detach().requires_grad_()
        expected, got = eager(x, m, y), compiled(x, m, z)
        assert got.item() == pytest.approx(expected.item(), rel=1e-12)
        want = ng.autograd.grad(expected, y)[0]
        np.testing.assert_allclose(ng.autograd.grad(got, z)[0], want, rtol=1e-12)
    before = x.clone()
    for mask in ([True] * 5, [False] * 5):
        with pytest.raises(ng.errors.ShapeError, match=r"mismatch.*3, 3.*rows that a mask selects"):
            compiled(x, ng.tensor(mask), y)
    assert ng.equal(x, before)


def test_masks_that_differ_are_refused_in_the_call():
    compiled = ng.compile(lambda x, m, n: (x[m] * x[n]).sum())
    m = ng.tensor([True, False])
    assert compiled(ng.ones(2), m, m.clone()).item() == 1.0
    with pytest.raises(ng.errors.ShapeError, match="mul: two masks select different"):
        compiled(ng.ones(2), m, m.logical_not())


def kept(x, m):
    KEPT["part"] = x[m]
    return KEPT["part"].sum()


def written_beside(rows):
    beside = rows.detach()
    rows += 1
    return beside.sum()


def scaled(x, m):
    return F.embedding(ng.tensor([0, 2, 1])[m], x, scale_grad_by_freq=True).sum()


KEPT: dict = {}
OTHER = ng.ones(2, 2)

# name: function of x (3, 2) and a mask (3), what the error says of it
REFUSED = {
    "len": (lambda x, m: len(x[m]), "len"),
    "list of sizes": (lambda x, m: list(x[m].shape), "shape"),
    "same shape": (lambda x, m: x[m].shape == x.shape, "shape"),
    "turned round": (lambda x, m: x[m].flip(0), "flip over all rows"),
    "gates of rows": (lambda x, m: F.glu(x[m], 0), "glu over all rows"),
    "one distance": (
        lambda x, m: F.triplet_margin_loss(x[:, 0][m], x[:, 1][m], x[:, 0][m]),
        "triplet_margin_loss of operands",
    ),
    "one side": (
        lambda x, m: F.triplet_margin_loss(x[m], x[m].sin(), x[0]),
        "triplet_margin_loss of operands",
    ),
    "one target": (
        lambda x, m: F.cosine_embedding_loss(x[m], x[m].sin(), ng.ones(1)),
        "cosine_embedding_loss of operands",
    ),
    "as many classes as there are": (lambda x, m: F.one_hot(m.long()[m]), "one_hot"),
    "shape": (lambda x, m: x[m].shape[0], "shape"),
    "size": (lambda x, m: x[m].size(0), "size"),
    "number of elements": (lambda x, m: x[m].sum() / x[m].numel(), "numel"),
    "printed": (lambda x, m: print(x[m]), "print"),
    "normalised over rows": (lambda x, m: nn.functional.batch_norm(x[m], None, None), "batch_norm"),
    "product of rows": (lambda x, m: ng.matmul(OTHER, x[m]), "matmul"),
    "two ranks": (lambda x, m: x[m] * x[m].sum(1), "1 and 2 dimensions do not"),
    "more dimensions": (lambda x, m: x[m] * ng.ones(2, 3, 2), r"mul with a tensor.*\[2, 3, 2\]"),
    "number of places": (lambda x, m: len(m.nonzero()), "len"),
    "places of columns": (lambda x, m: x[:, ng.where(m)[0] % 2].sum(), "such an index"),
    "places written": (lambda x, m: placed(x, (ng.where(m)[0], 0), 1), "writing at such an index"),
    "places beyond": (lambda x, m: placed(x, ng.where(m)[0] + 9, 1), "out of bounds|out of range"),
    "added at others": (
        lambda x, m: x.index_add(1, ng.where(m)[0], x),
        "index_add other than at selected rows",
    ),
    "a large int": (lambda x, m: (m * 4).bincount(minlength=3), "negative, or not less than"),
    "in brackets": (lambda x, m: x[:, m[:2]].sum(), "nonzero"),
    "does not fit": (lambda x, m: written(x, m, ng.ones(4)).sum(), r"setitem.*\[4\].*\[2\]"),
    "mask does not fit": (lambda x, m: x[m[:2]], "shape of the mask"),
    "weights": (lambda x, m: F.mse_loss(x[m], x[m], weight=x[m]), "mse_loss with weight"),
    "a part of it is written": (lambda x, m: x[m][:, 0].mul_(2), "mul_ beside a view"),
    "written beside a view": (lambda x, m: written_beside(x[m]), "add_ beside a view"),
    "an index of one row": (lambda x, m: x[m].gather(1, ng.tensor([[0, 1]])), "of one row"),
    "rows counted": (lambda x, m: scaled(x, m), "embedding with max_norm or scale"),
    "kept": (kept, "part"),
    "attribute": (lambda x, m: x[m].backward(), "backward"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_needs_their_number_is_refused(name):
    function, words = REFUSED[name]
    KEPT.clear()
    KEPT["part"] = None
    x, m = ng.randn(3, 2), ng.tensor([True, False, True])
    before = x.clone()
    with pytest.raises((RecordingError, ValueError, IndexError), match=words):
        ng.compile(function)(x, m)
    assert ng.equal(x, before) and KEPT == {"part": None}


def test_an_error_names_the_line_and_ways_out():
    with pytest.raises(RecordingError) as caught:
        ng.compile(lambda x: x[x > 0].mode())(ng.ones(3))
    for words in ("test_selected.py:", "ng.where(mask, x, y)", "mask.sum()", "ignore_index"):
        assert words in str(caught.value)


def test_of_each_element_of_a_vmap():
    """A mask of each element, and one that all share, inside of a compiled function."""
    rows = lambda x, m, n: ng.vmap(lambda x, m: x[m].sum() + x[n].exp().sum())(x, m)  # noqa: E731
    compiled = ng.compile(rows)
    for _ in range(3):
        x, m, n = ng.randn(4, 3, dtype=ng.float64), ng.rand(4, 3) > 0.5, ng.rand(3) > 0.5
        np.testing.assert_allclose(compiled(x, m, n), rows(x, m, n), rtol=1e-12)
    assert compiled.cache_info().recordings == 1


# -- masks that are the same in each call ----------------------------------------------------------


def others(x):
    """What each row is like the others: a mask that only the sizes decide."""
    n = x.size(0)
    return (x @ x.t())[~ng.eye(n, dtype=ng.bool)].view(n, n - 1).softmax(1)


def upper(x):
    n = len(x)
    pairs = (x @ x.t())[ng.triu(ng.ones(n, n), 1) > 0]
    i, j = ng.nonzero(ng.tril(ng.ones(3, 3)) > 0, as_tuple=True)
    return pairs.reshape(-1, 2) * pairs.shape[0], (x[i] * x[j]).prod(1)


def marked(x):
    """A mask that is written, used, and written again."""
    m = ng.zeros(len(x), dtype=ng.bool)
    m[1] = m[3] = True
    first = x[m].view(3, 2)
    m[0] = True
    return first.sum(1), x[m].reshape(9), x[:, m[:3]]


def every_other(x):
    m = ng.arange(len(x)) % 2 == 0
    z = x * 1
    z[m] = x[m].flip(0)
    return z, ng.masked_select(x.t(), m).reshape(3, -1)


@pytest.mark.parametrize("function", [others, upper, marked, every_other])
def test_masks_of_sizes_and_numbers_alone_are_known(function):
    x = ng.tensor(np.random.default_rng(0).standard_normal((5, 3)), requires_grad=True)
    compiled = ng.compile(function)
    for _ in range(2):
        results = []
        for call in (function, compiled):
            out = call(x)
            out = out if isinstance(out, tuple) else (out,)
            (g,) = ng.autograd.grad(sum((o * o).sum() for o in out), x)
            results.append([t.detach().numpy() for t in (*out, g)])
        for e, g in zip(*results, strict=True):
            assert e.shape == g.shape
            np.testing.assert_allclose(g, e, 1e-12)
    assert compiled.cache_info().recordings == 1


@ng.kernel
def drawing(out):
    for i in range(out.size):
        out[i] = random.random() > 0.5


@numba.njit
def marking(out, x):
    for i in range(out.size):
        out[i] = x[i] > 0


def launched(kernel, *args):
    m = ng.zeros(4, dtype=ng.bool)
    ng.launch(kernel, m, *args)
    return m


def test_masks_that_are_drawn_or_given_are_not_known():
    x, wide = ng.ones(4, 2), ng.ones(4)
    for mask in (
        lambda: ng.rand(4) > 0.5,
        lambda: wide > 0,
        lambda: ng.bernoulli(wide) > 0,
        lambda: launched(drawing),
        lambda: launched(marking, wide),
    ):
        with pytest.raises(RecordingError, match="shape"):
            ng.compile(lambda x, mask=mask: x[mask()].shape[0])(x)
