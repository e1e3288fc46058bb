"""What the op table cannot say of products, normalisations and losses."""

import itertools

import numpy as np
import pytest

import numbagrad as ng
import numbagrad.nn.functional as F
from numbagrad.errors import VersionError

RNG = np.random.default_rng(7)


def leaf(*shape):
    return ng.tensor(RNG.standard_normal(shape)).requires_grad_()


def check_twice(function, *inputs):
    assert ng.autograd.gradcheck(function, inputs)
    assert ng.autograd.gradgradcheck(function, inputs)


# -- products --------------------------------------------------------------------------------------


def test_products_of_views_copy_nothing_and_agree():
    x, w = leaf(4, 6), leaf(6, 6)
    for left, right in itertools.product(
        (x, x[:, ::2], x[1:3, :3], x[:, 3:], x[:1].expand(4, 6)), (w, w.t(), w[::2], w[:3, 1:])
    ):
        k = min(left.shape[1], right.shape[0])
        left, right = left[:, :k], right[:k]
        expected = left.detach().numpy() @ right.detach().numpy()
        np.testing.assert_allclose((left @ right).detach().numpy(), expected, atol=1e-12)
    check_twice(lambda x, w: x[:, ::2] @ w.t()[:3], x, w)


def test_attention_shapes():
    q, k = leaf(2, 3, 4, 5), leaf(2, 3, 4, 5)
    scores = q @ k.transpose(-2, -1)
    expected = q.detach().numpy() @ k.detach().numpy().swapaxes(-2, -1)
    np.testing.assert_allclose(scores.detach().numpy(), expected, atol=1e-12)
    check_twice(lambda q, k: (q.transpose(1, 2) @ k.transpose(1, 2).mT).sum(0), q, k)


def test_linear_with_one_output_feature_and_any_rank():
    for shape in ((3,), (2, 3), (2, 2, 3), (0, 3)):
        check_twice(F.linear, leaf(*shape), leaf(1, 3), leaf(1))


def test_linear_of_a_view():
    x, w, b = leaf(6, 4), leaf(3, 8), leaf(6)
    check_twice(lambda x, w, b: F.linear(x.t()[:, :4], w[:, ::2], b[::2]), x, w, b)


def test_linear_gives_only_the_gradients_asked_for():
    for wanted in itertools.product((False, True), repeat=3):
        inputs = [leaf(2, 3), leaf(4, 3), leaf(4)]
        inputs = [t if keep else t.detach() for t, keep in zip(inputs, wanted, strict=True)]
        out = F.linear(*inputs)
        assert out.requires_grad == any(wanted)
        if any(wanted):
            out.sum().backward()
        assert [t.grad is not None for t in inputs] == list(wanted)


def test_linear_names_the_sizes_that_differ():
    with pytest.raises(ValueError, match=r"x has 3 features, weight expects 2.*\[2, 3\]"):
        F.linear(ng.ones(2, 3), ng.ones(4, 2))
    with pytest.raises(ValueError, match="bias has shape"):
        F.linear(ng.ones(2, 3), ng.ones(4, 3), ng.ones(3))
    with pytest.raises(TypeError, match="same dtype"):
        F.linear(ng.ones(2, 3), ng.ones(4, 3).double())


def test_integer_products():
    x = ng.tensor([[1, 2], [3, 4]])
    assert (x @ x).tolist() == [[7, 10], [15, 22]]
    assert F.linear(x, x).tolist() == [[5, 11], [11, 25]]
    assert (x @ ng.tensor([1, 1])).tolist() == [3, 7]
    with pytest.raises(TypeError, match="not implemented for 'Bool'"):
        x.bool() @ x.bool()


def test_einsum_of_odd_sizes():
    check_twice(lambda x, y: ng.einsum("ij,ij->j", x, y), leaf(3, 1), leaf(3, 4))
    check_twice(
        lambda x, y, z: ng.einsum("ij,jk,ik->", x, y, z), leaf(2, 3), leaf(3, 2), leaf(2, 2)
    )
    x, y = leaf(2, 3, 4), leaf(5, 4)
    found = ng.einsum("...j,kj->...k", x, y)
    np.testing.assert_allclose(found.detach(), np.einsum("...j,kj->...k", x.detach(), y.detach()))


def test_singular_matrix_is_an_error():
    for function in (ng.linalg.inv, lambda x: ng.linalg.solve(x, ng.ones(2)), ng.linalg.cholesky):
        with pytest.raises(RuntimeError, match=r"linalg\.\w+: .*(singular|positive-definite)"):
            function(ng.zeros(2, 2))


# -- softmax and normalisation ---------------------------------------------------------------------


def test_softmax_twice_along_every_dim():
    for dim in range(3):
        check_twice(lambda x, d=dim: F.softmax(x, d), leaf(2, 3, 4))
        check_twice(lambda x, d=dim: F.log_softmax(x, d), leaf(2, 3, 4))
        check_twice(lambda x, d=dim: ng.logsumexp(x, (d, (d + 1) % 3)), leaf(2, 3, 4))


def test_logsumexp_of_nothing_and_of_infinities():
    inf = float("inf")
    x = ng.tensor([[-inf, -inf], [inf, 0.0], [0.0, -inf]])
    assert ng.logsumexp(x, 1).tolist() == [-inf, inf, 0.0]
    assert ng.logsumexp(ng.zeros(2, 0), 1).tolist() == [-inf, -inf]
    assert ng.logsumexp(ng.tensor([1, 2]), 0).dtype is ng.float32


def test_layer_norm_twice_in_every_form():
    for weight, bias in itertools.product((None, leaf(2, 3)), (None, leaf(2, 3))):
        tensors = [t for t in (weight, bias) if t is not None]

        def function(x, *affine, weighted=weight is not None, biased=bias is not None):
            affine = list(affine)
            w = affine.pop(0) if weighted else None
            return F.layer_norm(x, (2, 3), w, affine.pop(0) if biased else None)

        check_twice(function, leaf(4, 2, 3), *tensors)


# -- losses ----------------------------------------------------------------------------------------

TARGETS = {
    (4, 3): np.array([2, 0, 1, 2]),
    (3,): np.array(1),
    (2, 3, 2, 2): np.array([[[0, 2], [1, 1]], [[2, 2], [0, 1]]]),
}


@pytest.mark.peer
@pytest.mark.parametrize("shape", TARGETS)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_class_losses_as_torch(shape, reduction):
    torch = pytest.importorskip("torch")
    data, target, weight = RNG.standard_normal(shape), TARGETS[shape], np.array([0.5, 2.0, 1.0])
    for weighted, ignore, smoothing in itertools.product((0, 1), (-100, 1), (0.0, 0.3)):
        if reduction == "mean" and (target == ignore).all():
            continue  # NaN; see the test below
        options = {"ignore_index": ignore, "reduction": reduction}
        for name in ("nll_loss", "cross_entropy"):
            if name == "cross_entropy":
                options["label_smoothing"] = smoothing
            results = []
            for library, functional in ((torch, torch.nn.functional), (ng, F)):
                x = library.tensor(data, requires_grad=True)
                out = getattr(functional, name)(
                    x,
                    library.tensor(target),
                    library.tensor(weight) if weighted else None,
                    **options,
                )
                (grad,) = library.autograd.grad((out * out).sum(), x, create_graph=True)
                (second,) = library.autograd.grad((grad**2).sum(), x)
                results.append((out.detach().numpy(), grad.detach().numpy(), second.numpy()))
            for expected, found in zip(*results, strict=True):
                np.testing.assert_allclose(found, expected, atol=1e-12, rtol=1e-10)


def test_mean_of_ignored_targets_is_nan_with_a_gradient_of_zero():
    for loss in (F.cross_entropy, F.nll_loss):
        for create_graph in (False, True):
            x = leaf(2, 3)
            out = loss(x, ng.tensor([-100, -100]))
            assert out.isnan()
            (grad,) = ng.autograd.grad(out, x, create_graph=create_graph)
            assert grad.tolist() == [[0.0] * 3] * 2


def test_class_losses_twice():
    target, weight = ng.tensor([2, -100, 0]), ng.tensor([0.5, 2.0, 1.0]).double()
    for reduction in ("mean", "sum", "none"):
        check_twice(
            lambda x, r=reduction: F.cross_entropy(
                x, target, weight, reduction=r, label_smoothing=0.1
            ),
            leaf(3, 3),
        )
        check_twice(lambda x, r=reduction: F.nll_loss(x, target, weight, reduction=r), leaf(3, 3))


def test_wrong_targets_name_what_is_wrong():
    x = ng.zeros(3, 4)
    for loss in (F.cross_entropy, F.nll_loss):
        with pytest.raises(IndexError, match=r"Target 4 is out of bounds.*position 1"):
            loss(x, ng.tensor([0, 4, 9]))
        with pytest.raises(IndexError, match="Target -1 is out of bounds"):
            loss(x, ng.tensor([0, 1, -1]))
        with pytest.raises(ValueError, match=r"batch_size \(3\).*\(2\)"):
            loss(x, ng.tensor([0, 1]))
        with pytest.raises(ValueError, match="weight"):
            loss(x, ng.tensor([0, 1, 2]), ng.ones(3))
        with pytest.raises(RuntimeError, match="int64"):
            loss(x, ng.zeros(3))
    with pytest.raises(ValueError, match="label_smoothing"):
        F.cross_entropy(x, ng.tensor([0, 1, 2]), label_smoothing=2.0)


def test_target_changed_before_backward_is_noticed():
    for loss in (F.cross_entropy, F.nll_loss):
        target, x = ng.tensor([0, 1]), leaf(2, 3)
        out = loss(x, target)
        target.add_(1)
        with pytest.raises(VersionError):
            out.backward()


def test_bce_with_logits_is_stable_and_has_the_gradient_at_zero():
    x = ng.tensor([-200.0, 0.0, 200.0]).requires_grad_()
    out = F.binary_cross_entropy_with_logits(x, ng.tensor([1.0, 1.0, 1.0]), reduction="none")
    np.testing.assert_allclose(out.detach(), [200.0, np.log(2), 0.0], rtol=1e-6)
    out.sum().backward()
    assert x.grad.tolist() == [-1.0, -0.5, 0.0]


MODES = "use_mm_for_euclid_dist_if_necessary use_mm_for_euclid_dist donot_use_mm_for_euclid_dist"


@pytest.mark.parametrize("mode", [*MODES.split(), None])
@pytest.mark.parametrize("shapes", [((3, 2), (4, 2)), ((30, 3), (2, 30, 3)), ((2, 28, 1), (1, 1))])
def test_distances_by_every_mode(mode, shapes):
    x, y = (ng.randn(*shape, dtype=ng.double, requires_grad=True) for shape in shapes)
    out = ng.cdist(x, y, compute_mode=mode)
    apart = x.detach().numpy()[..., :, None, :] - y.detach().numpy()[..., None, :, :]
    np.testing.assert_allclose(out.detach().numpy(), np.sqrt((apart**2).sum(-1)), rtol=1e-9)
    assert ng.autograd.gradcheck(lambda x, y: ng.cdist(x, y, compute_mode=mode), (x, y))


def test_gradients_of_distances_between_equal_rows():
    x = ng.randn(40, 3, dtype=ng.double, requires_grad=True)
    ng.cdist(x, x.detach()).sum().backward()
    grad, x.grad = x.grad, None
    ng.cdist(x, x.detach(), compute_mode="donot_use_mm_for_euclid_dist").sum().backward()
    assert ng.isfinite(grad).all()
    np.testing.assert_allclose(grad.numpy(), x.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_distances_of_float32_lose_few_digits():
    x, y = ng.randn(64, 8), ng.randn(50, 8)
    exact = ng.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    np.testing.assert_allclose(ng.cdist(x, y).numpy(), exact.numpy(), rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="compute_mode"):
        ng.cdist(x, y, compute_mode="fast")


# -- vectors of length one, distances and what else is one node ------------------------------------

# name: function of a library's modules and leaves, their shapes, whether it is differentiated twice
ONE_NODE = {
    "cosines": (lambda L, F, x, y: F.cosine_similarity(x, y), [(4, 3), (4, 3)], True),
    "cosines of columns": (lambda L, F, x, y: F.cosine_similarity(x, y, 0), [(4, 3), (4, 3)], True),
    "cosines of pairs": (
        lambda L, F, x, y: F.cosine_similarity(x[:, None], y[None], -1),
        [(4, 3), (5, 3)],
        True,
    ),
    "cosine of two": (lambda L, F, x, y: F.cosine_similarity(x, y, 0), [(4,), (4,)], True),
    "a matrix times a vector": (lambda L, F, x, y: x @ y, [(4, 3), (3,)], True),
    "a turned matrix times a vector": (lambda L, F, x, y: x.T @ y, [(3, 4), (3,)], True),
    "gated halves": (lambda L, F, x: F.glu(x), [(4, 6)], True),
    "gated halves of rows": (lambda L, F, x: F.glu(x, 0), [(4, 3)], True),
    "gated halves of columns": (lambda L, F, x: F.glu(x.T, -2), [(3, 4)], True),
    "a cosine of a repeated size": (
        lambda L, F, x, y: F.cosine_similarity(x, y, 1),
        [(4, 1), (4, 3)],
        True,
    ),
    "short vectors": (lambda L, F, x, y: F.cosine_similarity(x, y, 1, 50.0), [(4, 3)] * 2, True),
    "cosines of one's own": (lambda L, F, x: F.cosine_similarity(x, x * 2), [(4, 3)], True),
    "units": (lambda L, F, x: F.normalize(x), [(4, 3)], True),
    "units of columns": (lambda L, F, x: F.normalize(x, dim=0), [(4, 3)], True),
    "units over all": (lambda L, F, x: F.normalize(x, dim=(0, 1)), [(4, 3)], True),
    "short units": (lambda L, F, x: F.normalize(x, eps=50.0), [(4, 3)], True),
    "units of norm 3": (lambda L, F, x: F.normalize(x, 3.0), [(4, 3)], True),
    "distances": (lambda L, F, x, y: L.cdist(x, y), [(4, 3), (5, 3)], True),
    "distances in batches": (lambda L, F, x, y: L.cdist(x, y), [(2, 1, 4, 3), (3, 5, 3)], True),
    "distances by product": (
        lambda L, F, x, y: L.cdist(x, y, compute_mode="use_mm_for_euclid_dist"),
        [(2, 4, 3), (5, 3)],
        True,
    ),
    "distances of norm 1": (lambda L, F, x, y: L.cdist(x, y, 1.0), [(4, 3), (5, 3)], False),
    "repeated": (lambda L, F, x: x.repeat(2, 1, 3), [(2, 3)], True),
    "repeated once": (lambda L, F, x: x.repeat(1, 1), [(2, 3)], True),
    "repeated never": (lambda L, F, x: x.repeat(0, 2), [(2, 3)], True),
    "repeated number": (lambda L, F, x: x.repeat(3), [()], True),
    "singular values": (lambda L, F, x: L.linalg.svdvals(x), [(4, 3)], True),
    "of several": (lambda L, F, x: L.linalg.svdvals(x), [(2, 3, 4)], True),
    "eigenvalues": (lambda L, F, x: L.linalg.eigvalsh(x + x.mT), [(3, 3)], True),
    "logsumexp": (lambda L, F, x: x.logsumexp(1), [(4, 3)], True),
    "norms": (lambda L, F, x: x.norm(dim=1), [(4, 3)], True),
    "largest": (lambda L, F, x: x.amax(1), [(4, 3)], False),
    "deviations": (lambda L, F, x: x.std(1), [(4, 3)], True),
}


@pytest.mark.parametrize("name", ONE_NODE)
def test_what_is_one_node_is_differentiated_to_any_order(name):
    function, shapes, twice = ONE_NODE[name]
    given = [leaf(*shape) for shape in shapes]
    assert ng.autograd.gradcheck(lambda *xs: function(ng, F, *xs), given)
    if twice:
        assert ng.autograd.gradgradcheck(lambda *xs: function(ng, F, *xs), given)


@pytest.mark.peer
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", [n for n in ONE_NODE if n != "short vectors"])
def test_what_is_one_node_is_torchs_each_time(name, dtype):
    """Also when it only launches what it remembers, and of what needs a gradient in part.

    But for vectors shorter than eps: PyTorch takes their gradient for that of longer ones. Numbers
    are not near zero: a cosine's gradient by x is a difference of numbers of the size of 1 / x,
    which is 0 where x repeats one number, and what is left is rounding of these.
    """
    torch = pytest.importorskip("torch")
    function, shapes, _ = ONE_NODE[name]
    tolerance = 1e-12 if dtype == "float64" else 2e-5
    for turn in range(40):
        drawn = [RNG.standard_normal(shape) for shape in shapes]
        arrays = [(a + np.copysign(0.25, a)).astype(dtype) for a in drawn]
        ours, theirs = ([m.tensor(a) for a in arrays] for m in (ng, torch))
        for k in range(len(arrays)):
            if turn % 3 != 1 or k == len(arrays) - 1:
                ours[k].requires_grad_(), theirs[k].requires_grad_()
        got = function(ng, F, *ours)
        expected = function(torch, torch.nn.functional, *theirs)
        weights = RNG.standard_normal(tuple(expected.shape)).astype(dtype)
        (got * ng.tensor(weights)).sum().backward()
        (expected * torch.tensor(weights)).sum().backward()
        np.testing.assert_allclose(got.detach(), expected.detach(), tolerance, tolerance)
        for x, t in zip(ours, theirs, strict=True):
            assert (x.grad is None) == (t.grad is None)
            if x.grad is not None:
                np.testing.assert_allclose(x.grad, t.grad, 10 * tolerance, 10 * tolerance)


def test_vectors_of_zeros_and_of_large_numbers():
    x, y = ng.zeros(2, 3, requires_grad=True), ng.ones(2, 3, requires_grad=True)
    for found in (F.cosine_similarity(x, y), F.normalize(x), ng.cdist(x, x.detach())):
        assert found.tolist() == ng.zeros_like(found).tolist()
    ng.cdist(x, x.detach()).sum().backward()
    assert x.grad.tolist() == [[0.0] * 3] * 2
    large = ng.full((1, 3), 1e30)  # whose product is infinite
    assert F.cosine_similarity(large / 1e12, large / 1e12).item() == pytest.approx(1.0, rel=1e-6)
    nan = ng.tensor([[float("nan"), 1.0]])
    assert F.normalize(nan).isnan().all() and F.cosine_similarity(nan, nan).isnan().all()
    for wrong in (2, -3):
        with pytest.raises(IndexError, match="out of range"):
            F.cosine_similarity(y, y, wrong)
        with pytest.raises(IndexError, match="out of range"):
            F.normalize(y, dim=wrong)


@pytest.mark.parametrize("name", ["cross_entropy", "nll_loss"])
def test_weights_of_classes_have_no_gradient(name):
    loss, weight = getattr(F, name), ng.ones(4, requires_grad=True)
    x, classes = ng.randn(3, 4), ng.tensor([0, 1, 2])
    with pytest.raises(RuntimeError, match="not differentiable with respect to argument 'weight'"):
        loss(x, classes, weight=weight)
    with ng.no_grad():
        expected = loss(x, classes, weight=weight)
    assert loss(x, classes, weight=weight.detach()).item() == expected.item()
