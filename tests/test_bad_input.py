"""Every kind of mistake gives a specific error and leaves everything as it was."""

from __future__ import annotations

import inspect
from types import SimpleNamespace

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.autograd import Function
from numbagrad.errors import (
    DeviceError,
    DimError,
    DomainError,
    DTypeError,
    FormatError,
    FormulaError,
    GradError,
    GraphFreedError,
    NotScalarError,
    ShapeError,
    StateDictError,
    VersionError,
)
from numbagrad.nn import functional

# Tensors ----------------------------------------------------------------------------------------


def make_tensors():
    """What the rows of the table work on."""
    return SimpleNamespace(
        row=ng.tensor([1.0, 2.0, 3.0]),
        matrix=ng.arange(6.0).view(2, 3),
        cube=ng.zeros(2, 3, 4),
        double=ng.ones(3, 3, dtype=ng.double),
        whole=ng.tensor([1, 2, 3]),
        truth=ng.tensor([True, False, True]),
        leaf=ng.tensor([1.0, 2.0, 3.0], requires_grad=True),
        wide=ng.ones(3, 1).expand(3, 4),
    )


SHAPES = [
    ("mm", lambda t: t.matrix.mm(t.matrix), r"mat1 and mat2 shapes cannot be multiplied"),
    ("mm of vectors", lambda t: t.row.mm(t.matrix), r"mm.*2.?D|matri"),
    ("matmul", lambda t: t.matrix @ t.matrix, r"matmul|mat1 and mat2"),
    ("matmul batches", lambda t: ng.ones(2, 3, 4) @ ng.ones(3, 4, 5), r"(?i)matmul|batch|match"),
    ("add", lambda t: t.matrix + ng.ones(2, 4), r"size of tensor a \(3\) must match .* b \(4\)"),
    ("maximum", lambda t: ng.maximum(t.row, ng.ones(4)), r"size of tensor a \(3\) must match"),
    ("compare", lambda t: t.row < ng.ones(2), r"size of tensor a \(3\) must match"),
    ("where", lambda t: ng.where(t.truth, ng.ones(4), 0.0), r"size of tensor a \(\d\) must match"),
    ("view", lambda t: t.matrix.view(4), r"shape '\[4\]' is invalid for input of size 6"),
    ("view -1", lambda t: t.matrix.view(4, -1), r"shape '\[4, -1\]' is invalid"),
    ("view strided", lambda t: t.matrix.t().view(6), r"view size is not compatible.*reshape"),
    ("reshape", lambda t: t.matrix.reshape(5), r"shape '\[5\]' is invalid for input of size 6"),
    ("expand", lambda t: t.row.expand(2, 4), r"expanded size.* \(4\) must match.* \(3\)"),
    ("cat", lambda t: ng.cat([t.matrix, ng.ones(3, 4)]), r"Sizes of tensors must match except"),
    ("stack", lambda t: ng.stack([t.row, ng.ones(4)]), r"stack expects each tensor to be equal"),
    ("permute", lambda t: t.matrix.permute(0), r"permute"),
    ("split", lambda t: t.row.split([1, 1]), r"split"),
    ("linear", lambda t: functional.linear(t.matrix, ng.ones(2, 4)), r"linear.*3.*4|mat1 and mat2"),
    ("layer_norm", lambda t: functional.layer_norm(t.matrix, (4,)), r"normalized_shape|layer_norm"),
    (
        "cross_entropy",
        lambda t: functional.cross_entropy(t.matrix, ng.tensor([0, 1, 1])),
        r"batch.?size|cross_entropy",
    ),
    ("mse_loss", lambda t: functional.mse_loss(t.row, ng.ones(4)), r"must match|mse_loss"),
    ("in place", lambda t: t.row.add_(ng.ones(2, 3)), r"doesn't match the broadcast shape"),
    ("assignment", lambda t: set_item(t.row, slice(0, 2), ng.ones(3)), r"(?i)shape|size|expand"),
    ("grad", lambda t: setattr(t.leaf, "grad", ng.ones(2)), r"size"),
    ("copy_", lambda t: t.row.copy_(ng.ones(4)), r"must match|broadcast"),
    ("backward", lambda t: (t.leaf * 2).backward(ng.ones(2)), r"shape of .*\[2\].*\[3\]"),
    ("ragged", lambda t: ng.tensor([[1.0, 2.0], [3.0]]), r"expected sequence of length 2 at dim 1"),
]

DTYPES = [
    ("mm", lambda t: t.double.mm(ng.ones(3, 3)), r"same dtype|float64.*float32|double != float"),
    ("mm of bool", lambda t: ng.ones(2, 3) @ t.whole.view(3, 1), r"dtype|int64"),
    ("mean", lambda t: t.whole.mean(), r"mean.*floating"),
    ("softmax", lambda t: t.whole.softmax(0), r"softmax.*(floating|implemented|int64)"),
    ("in place", lambda t: t.whole.add_(1.5), r"can't be cast"),
    ("in place division", lambda t: t.whole.div_(2), r"can't be cast"),
    ("negate bool", lambda t: -t.truth, r"bool.*not supported"),
    ("invert float", lambda t: ~t.row, r"(?i)invert|not|integer"),
    ("dtype", lambda t: ng.tensor([1.0], dtype="float99"), r"float99|dtype"),
    ("requires_grad", lambda t: ng.tensor([1], requires_grad=True), r"floating"),
    ("requires_grad_", lambda t: t.whole.requires_grad_(), r"floating"),
    ("requires_grad =", lambda t: setattr(t.truth, "requires_grad", True), r"floating"),
    ("Parameter", lambda t: nn.Parameter(t.whole), r"floating"),
    ("embedding", lambda t: functional.embedding(t.row, t.matrix), r"int|long|Long|Int"),
    ("default", lambda t: ng.set_default_dtype(ng.int64), r"float"),
    ("uniform_", lambda t: t.whole.uniform_(0, 1), r"(?i)uniform|float"),
    ("target", lambda t: functional.nll_loss(t.matrix, ng.ones(2)), r"(?i)target|long|int|class"),
]

DIMS = [
    (
        "sum",
        lambda t: t.matrix.sum(5),
        r"Dimension out of range \(expected .*\[-2, 1\], but got 5\)",
    ),
    ("negative", lambda t: t.matrix.max(-3), r"Dimension out of range .*\[-2, 1\], but got -3"),
    ("softmax", lambda t: t.matrix.softmax(2), r"Dimension out of range"),
    ("cat", lambda t: ng.cat([t.row, t.row], 1), r"Dimension out of range"),
    ("unsqueeze", lambda t: t.row.unsqueeze(3), r"Dimension out of range .*\[-2, 1\], but got 3"),
    ("squeeze", lambda t: t.row.squeeze(1), r"Dimension out of range"),
    ("transpose", lambda t: t.matrix.transpose(0, 2), r"Dimension out of range"),
    ("size", lambda t: t.matrix.size(2), r"Dimension out of range"),
    ("index", lambda t: t.matrix[2], r"index 2 is out of bounds for dimension 0 with size 2"),
    ("too many", lambda t: t.matrix[0, 0, 0], r"too many indices for tensor of dimension 2"),
    ("0-d", lambda t: ng.tensor(1.0)[0], r"invalid index of a 0-dim tensor|too many indices"),
    ("index tensor", lambda t: t.row[ng.tensor([0, 3])], r"index 3 is out of bounds"),
    ("index assignment", lambda t: set_item(t.row, [0, 7], 1.0), r"index 7 is out of bounds"),
    ("mask", lambda t: t.row[ng.tensor([True, False])], r"mask.*\[2\].*\[3\]"),
    ("gather", lambda t: t.matrix.gather(1, ng.tensor([[3]])), r"index 3 is out of bounds"),
    ("index_select", lambda t: t.row.index_select(0, ng.tensor([9])), r"(?i)index.*out of"),
    ("embedding", lambda t: functional.embedding(ng.tensor([2]), t.matrix), r"(?i)index.*out of"),
    ("target", lambda t: functional.nll_loss(t.matrix, ng.tensor([0, 3])), r"Target 3 is out of"),
]

PLAIN = [
    ("device", lambda t: ng.set_default_device("tpu"), DeviceError, r"'cpu' or 'cuda'.*tpu"),
    ("GPU 1", lambda t: ng.set_default_device("cuda:1"), DeviceError, r"CUDA_VISIBLE_DEVICES=1"),
    ("duplicate dims", lambda t: t.matrix.sum((0, 0)), RuntimeError, r"multiple times"),
    ("item", lambda t: t.row.item(), RuntimeError, r"3 elements cannot be converted to Scalar"),
    ("bool", lambda t: bool(t.row), RuntimeError, r"more than one value is ambiguous"),
    ("empty bool", lambda t: bool(ng.ones(0)), RuntimeError, r"no values is ambiguous"),
    ("text", lambda t: ng.tensor(["a"]), TypeError, r"'str'"),
    ("iterate", lambda t: list(ng.tensor(1.0)), TypeError, r"iteration over a 0-d tensor"),
    ("numpy", lambda t: t.leaf.numpy(), RuntimeError, r"requires grad.*detach\(\)\.numpy\(\)"),
    ("max of nothing", lambda t: ng.ones(0).max(), (RuntimeError, IndexError), r"max"),
    ("negative size", lambda t: ng.zeros(-1), (RuntimeError, ValueError), r"negative"),
    ("arange", lambda t: ng.arange(0, 5, 0), (RuntimeError, ValueError), r"step must be nonzero"),
    ("wrong type", lambda t: t.row + "text", TypeError, r"str|text"),
    ("list", lambda t: t.row.mm([1.0]), TypeError, r"mm.*Tensor.*list|list"),
    ("cat nothing", lambda t: ng.cat([]), (RuntimeError, ValueError), r"non-empty list"),
    ("power", lambda t: t.whole**-1, RuntimeError, r"negative integer powers"),
    ("t", lambda t: t.cube.t(), RuntimeError, r"<= 2"),
    (
        "dropout",
        lambda t: functional.dropout(t.row, 1.5),
        ValueError,
        r"between 0 and",
    ),
    ("Dropout", lambda t: nn.Dropout(-0.1), ValueError, r"between 0 and"),
    (
        "reduction",
        lambda t: functional.mse_loss(t.row, t.row, reduction="avg"),
        ValueError,
        r"avg",
    ),
]


def set_item(x, index, value):
    x[index] = value


def rows():
    for name, call, match in SHAPES:
        yield pytest.param(call, ShapeError, match, id=f"shape: {name}")
    for name, call, match in DTYPES:
        yield pytest.param(call, DTypeError, match, id=f"dtype: {name}")
    for name, call, match in DIMS:
        yield pytest.param(call, DimError, match, id=f"dim: {name}")
    for name, call, error, match in PLAIN:
        yield pytest.param(call, error, match, id=f"value: {name}")


@pytest.mark.parametrize("call, error, match", list(rows()))
def test_a_mistake_is_named_and_changes_nothing(call, error, match):
    tensors = make_tensors()
    before = {name: state(x) for name, x in vars(tensors).items()}
    with pytest.raises(error, match=match):
        call(tensors)
    assert {name: state(x) for name, x in vars(tensors).items()} == before
    assert ng.is_grad_enabled()
    assert ng.get_default_dtype() is ng.float32
    assert ng.get_default_device().type == "cpu"


def state(x):
    """Everything about a tensor that a failed call must leave alone."""
    return (x.tolist(), x.shape, x.dtype, x._version, x.requires_grad, x.grad, x.grad_fn)


def test_key_errors_are_what_a_user_of_pytorch_would_catch():
    for ours, theirs in [
        (ShapeError, (RuntimeError, ValueError)),
        (DTypeError, (RuntimeError, TypeError)),
        (DimError, (IndexError,)),
        (GradError, (RuntimeError,)),
        (StateDictError, (RuntimeError,)),
        (FormatError, (ValueError,)),
        (DeviceError, (RuntimeError,)),
    ]:
        for error in theirs:
            assert issubclass(ours, error)


# Devices ----------------------------------------------------------------------------------------


def has_gpu():
    return getattr(ng, "cuda", None) is not None and ng.cuda.is_available()


@pytest.mark.skipif(has_gpu(), reason="there is a GPU")
@pytest.mark.parametrize(
    "call",
    [
        lambda: ng.ones(2, device="cuda"),
        lambda: ng.ones(2).to("cuda"),
        lambda: ng.ones(2).cuda(),
        lambda: nn.Linear(2, 2).to("cuda"),
        lambda: nn.Linear(2, 2).cuda(),
    ],
)
def test_a_missing_gpu_is_named(call):
    with pytest.raises(DeviceError, match="cuda"):
        call()


def test_an_unknown_device_is_named():
    with pytest.raises(DeviceError, match="toaster"):
        ng.ones(2, device="toaster")


# The tape ---------------------------------------------------------------------------------------


def test_backward_needs_a_graph():
    with pytest.raises(GradError, match="does not require grad and does not have a grad_fn"):
        ng.ones(1).sum().backward()


def test_backward_of_several_elements_needs_a_gradient():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    with pytest.raises(NotScalarError, match="only for scalar outputs"):
        y.backward()
    assert x.grad is None
    y.sum().backward()  # the graph is still there
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_second_backward_is_refused_and_keeps_the_gradient():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(GraphFreedError, match="retain_graph=True"):
        y.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_a_failing_backward_leaves_leaves_that_come_later_alone_and_the_mode_on():
    class Fails(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1.0

        @staticmethod
        def backward(ctx, g):
            raise KeyError("mine")

    x = ng.tensor([1.0], requires_grad=True)
    with pytest.raises(KeyError, match="mine"):
        Fails.apply(x).sum().backward()
    assert x.grad is None
    assert ng.is_grad_enabled()
    (x * 3.0).sum().backward()
    assert x.grad.tolist() == [3.0]


@pytest.mark.parametrize(
    "returned, error, match",
    [
        (lambda g: (g, g), GradError, r"incorrect number of gradients \(expected 1, got 2\)"),
        (lambda g: ng.ones(5), ShapeError, r"invalid gradient at index 0 - got \[5\]"),
        (lambda g: 3.0, (GradError, TypeError), r"float"),
    ],
)
def test_wrong_gradients_are_refused(returned, error, match):
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2.0

        @staticmethod
        def backward(ctx, g):
            return returned(g)

    x = ng.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(error, match=match):
        Wrong.apply(x).sum().backward()
    assert x.grad is None


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.add_(1.0),
        lambda x: x.zero_(),
        lambda x: set_item(x, 0, 5.0),
        lambda x: x[1:].mul_(2.0),
        lambda x: x.view(3, 1).copy_(ng.ones(3, 1)),
    ],
)
def test_writing_to_a_leaf_that_needs_a_gradient(write):
    x = ng.tensor([1.0, 2.0, 3.0], requires_grad=True)
    with pytest.raises(GradError, match=r"leaf .*in-place operation"):
        write(x)
    assert x.tolist() == [1.0, 2.0, 3.0] and x.is_leaf and x._version == 0


def test_writing_to_what_backward_needs():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    inner = x * 1.0
    y = inner.exp()
    z = y * y
    y.add_(1.0)
    with pytest.raises(VersionError, match="modified by an inplace operation"):
        z.sum().backward()
    assert x.grad is None


@pytest.mark.parametrize(
    "write",
    [lambda x: x.add_(ng.ones(3, 4)), lambda x: x.zero_(), lambda x: set_item(x, [0], 5.0)],
)
def test_writing_to_an_expanded_tensor(write):
    x = ng.ones(3, 1)
    with pytest.raises(RuntimeError, match="single memory location"):
        write(x.expand(3, 4))
    assert x.tolist() == [[1.0]] * 3


@pytest.mark.parametrize("make", [lambda p: ng.optim.SGD(p, lr=0.1), lambda p: ng.optim.Adam(p)])
def test_a_step_between_forward_and_backward(make):
    weight = ng.tensor([1.0, 2.0], requires_grad=True)
    optimizer = make([weight])
    weight.grad = ng.ones(2)
    loss = (weight * weight).sum()
    optimizer.step()
    with pytest.raises(VersionError, match="modified by an inplace operation"):
        loss.backward()
    assert weight.grad.tolist() == [1.0, 1.0]


def test_grad_of_what_is_not_in_the_graph():
    x, other = (ng.tensor([1.0], requires_grad=True) for _ in range(2))
    y = (x * 2.0).sum()
    with pytest.raises(GradError, match="allow_unused=True"):
        ng.autograd.grad(y, other)
    with pytest.raises(GradError, match=r"requires? grad"):
        ng.autograd.grad(y, ng.ones(1))


@pytest.mark.parametrize(
    "source, match",
    [("while", r"while|loop|return"), ("call", r"print"), ("unknown", r"undefined_name")],
)
def test_formulas_that_cannot_be_translated(source, match):
    def loops(x):
        while x > 0.0:
            x = x - 1.0
        return x

    def prints(x):
        print(x)
        return x

    def unknown(x):
        return x * undefined_name  # noqa: F821

    formula = {"while": loops, "call": prints, "unknown": unknown}[source]
    with pytest.raises(FormulaError, match=match):
        ng.elementwise(formula)(ng.ones(1))


# Modules, optimizers, data ----------------------------------------------------------------------


def parameters_of(module):
    return {name: p.tolist() for name, p in module.state_dict().items()}


STATES = {
    "unknown": (lambda s: s.update(extra=ng.ones(1)), r"Unexpected key\(s\).*\"extra\""),
    "missing": (lambda s: s.pop("bias"), r"Missing key\(s\).*\"bias\""),
    "size": (lambda s: s.update(weight=ng.ones(2, 9)), r"size mismatch for weight.*\[2, 9\]"),
    "no tensor": (lambda s: s.update(weight="text"), r"weight"),
}


@pytest.mark.parametrize("spoil, match", STATES.values(), ids=STATES.keys())
def test_load_state_dict_refuses_and_loads_nothing(spoil, match):
    module = nn.Linear(3, 2)
    before = parameters_of(module)
    state_dict = nn.Linear(3, 2).state_dict()
    spoil(state_dict)
    with pytest.raises(StateDictError, match=match):
        module.load_state_dict(state_dict)
    assert parameters_of(module) == before


def test_load_state_dict_not_strict_reports():
    module = nn.Linear(3, 2)
    report = module.load_state_dict({"weight": ng.ones(2, 3), "extra": ng.ones(1)}, strict=False)
    assert report.missing_keys == ["bias"] and report.unexpected_keys == ["extra"]
    assert module.weight.tolist() == [[1.0] * 3] * 2


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda: ng.optim.SGD([], lr=0.1), ValueError, r"empty parameter list"),
        (lambda: ng.optim.SGD([ng.ones(1)], lr=-1.0), ValueError, r"(?i)learning rate"),
        (lambda: ng.optim.Adam([ng.ones(1)], betas=(1.5, 0.9)), ValueError, r"(?i)beta"),
        (lambda: ng.optim.SGD([3.0], lr=0.1), TypeError, r"(?i)tensor"),
        (lambda: ng.optim.SGD([leaf_result()], lr=0.1), ValueError, r"leaf"),
    ],
)
def test_optimizers_check_their_arguments(call, error, match):
    with pytest.raises(error, match=match):
        call()


def leaf_result():
    return ng.ones(1, requires_grad=True) * 2.0


@pytest.mark.parametrize(
    "call, match",
    [
        (lambda d: d.TensorDataset(ng.ones(3), ng.ones(4)), r"(?i)size|length"),
        (lambda d: d.DataLoader(d.TensorDataset(ng.ones(3)), batch_size=0), r"batch_size"),
        (lambda d: d.random_split(d.TensorDataset(ng.ones(3)), [1, 1]), r"(?i)sum"),
    ],
)
def test_data_checks_its_arguments(call, match):
    from numbagrad import data

    with pytest.raises(ValueError, match=match):
        call(data)


@pytest.mark.parametrize(
    "name",
    "mse_loss l1_loss smooth_l1_loss huber_loss kl_div poisson_nll_loss soft_margin_loss "
    "hinge_embedding_loss binary_cross_entropy binary_cross_entropy_with_logits "
    "multilabel_soft_margin_loss".split(),
)
def test_a_loss_of_shapes_that_do_not_fit_names_itself(name):
    with pytest.raises(ShapeError, match=rf"^{name}: .*\[3\].*\[4\]|^{name}: .*\[4\].*\[3\]"):
        getattr(ng.nn.functional, name)(ng.ones(3), ng.ones(4))


def test_chances_out_of_range_are_refused():
    """Logits where probabilities are due: NaN would be learned from."""
    good = ng.tensor([[0.0, 0.5], [1.0, 0.25]])
    target = ng.ones(2, 2)
    assert ng.nn.functional.binary_cross_entropy(good, target).isfinite()
    assert ng.nn.BCELoss()(ng.ones(0), ng.ones(0)).isnan()
    compiled = ng.compile(ng.nn.functional.binary_cross_entropy)
    compiled(good, target)
    for value in (1.5, -0.1, float("nan"), float("inf")):
        bad = good.clone()
        bad[1, 0] = value
        for function in (ng.nn.functional.binary_cross_entropy, compiled):
            for x in (bad, bad.t().contiguous().t()):
                with pytest.raises(DomainError, match=r"between 0 and 1, element 2 .*sigmoid"):
                    function(x, target)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss"])
def test_sizes_that_broadcast_in_a_loss_are_warned_of(name, recwarn):
    function = getattr(ng.nn.functional, name)
    function(ng.ones(3, 1), ng.ones(3, 1))
    assert not recwarn
    with pytest.warns(UserWarning, match=rf"{name}: Using a target size \(\[3\]\).*\[3, 1\]"):
        function(ng.ones(3, 1), ng.ones(3))


def test_messages_name_what_came():
    for text in ("cuda:x", "cpu:", "cuda:-1"):
        with pytest.raises(DeviceError, match=f"Invalid device string: '{text}'"):
            ng.device(text)
    with pytest.raises(TypeError, match=r"sizes of a layer must be ints, got \[2, 'a'\]"):
        ng.nn.Linear("a", 2)
    with pytest.raises(TypeError, match=r"'function' object to '0'.*nn.ReLU\(\)"):
        ng.nn.Sequential(ng.relu)
    with pytest.raises(DTypeError, match=r"cross_entropy: .*\.long\(\).*of input, \[2, 3\]"):
        ng.nn.functional.cross_entropy(ng.ones(2, 3), ng.ones(2))
    with pytest.raises(IndexError, match=r"^embedding: index out of range in self: index 5 is"):
        ng.nn.Embedding(4, 2)(ng.tensor([5]))


def of_tensors():
    """The public functions whose first parameter is a tensor, with how many they need."""
    for module in (ng, ng.nn.functional):
        for name in module.__all__:
            function = getattr(module, name)
            if not inspect.isfunction(function):
                continue
            needed = list(inspect.signature(function).parameters.values())
            needed = [p for p in needed if p.default is p.empty and p.kind in (0, 1)]
            if needed and str(needed[0].annotation) == "Tensor":
                yield pytest.param(function, len(needed), id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("function, count", list(of_tensors()))
def test_what_is_no_tensor_is_named(function, count):
    """A user of NumPy forgets ``ng.tensor``: an array, where it is not taken for one, a list."""
    array = np.ones((2, 2), np.float32)
    for given in (array, array.tolist(), "text"):
        try:
            function(given, *[1] * (count - 1))
        except AttributeError as error:
            pytest.fail(f"{error}")
        except (TypeError, ValueError, RuntimeError, IndexError) as error:
            assert str(error)
    assert (array == 1).all()


def test_tensors_of_another_library_are_named(tmp_path):
    foreign = type("Tensor", (), {"__module__": "torch"})()
    x = ng.ones(2)
    calls = [
        lambda: x + foreign, lambda: foreign * x, lambda: x.add(foreign),
        lambda: ng.cat([x, foreign]), lambda: ng.matmul(x, foreign),
        lambda: ng.optim.SGD([foreign], 0.1),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(TypeError, match=r"torch\.Tensor"):
            call()
    with pytest.raises(RuntimeError, match=r"received torch\.Tensor\. Convert it with"):
        ng.nn.Linear(2, 2).load_state_dict({"weight": foreign, "bias": foreign})
    for start in (b"PK\x03\x04archive/data.pkl", b"\x80\x02"):
        (tmp_path / "x.pt").write_bytes(start + bytes(40))
        with pytest.raises(ValueError, match=r"is a pickle, .*safetensors\.torch\.save_file"):
            ng.load(tmp_path / "x.pt")
