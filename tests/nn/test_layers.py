"""Every layer against torch: repr, state, value, gradients; and against its functional twin."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Row:
    """A layer: its class, arguments, and the shapes of what it is called with.

    indices: below this integer, instead of floating input. target: "same", "unit" (in (0, 1)),
    "logs", or a number of classes.
    """

    kind: str
    args: tuple = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    shapes: tuple[Shape, ...] = ((4, 6),)
    indices: int | None = None
    target: Any = None
    domain: tuple[float, float] = (-3.0, 3.0)
    same_repr: bool = True
    rtol: float = 1e-9  # torch rounds some constants to float32

    def __repr__(self) -> str:
        arguments = [*map(repr, self.args), *[f"{k}={v!r}" for k, v in self.kwargs.items()]]
        return f"{self.kind}({', '.join(arguments)})"


UNIT = {"domain": (0.05, 0.95), "target": "unit"}
PADS = ("Zero", "Reflection", "Replication", "Circular")
ROWS = [
    Row("Identity", (1,), {"other": 2}),
    Row("Linear", (6, 3)),
    Row("Linear", (6, 1), shapes=((6,),)),
    Row("Linear", (6, 3), {"bias": False}, shapes=((2, 4, 6),)),
    Row("Bilinear", (6, 5, 3), shapes=((4, 6), (4, 5))),
    Row("Bilinear", (6, 5, 1), {"bias": False}, shapes=((2, 4, 6), (2, 4, 5))),
    Row("Flatten", shapes=((2, 3, 4),)),
    Row("Flatten", (0, 1), shapes=((2, 3, 4),)),
    Row("Unflatten", (1, (2, 3))),
    *[
        Row(kind)
        for kind in """
            ReLU ReLU6 Tanh Sigmoid SiLU Mish GELU LeakyReLU ELU SELU CELU Softplus Softsign
            Tanhshrink Hardtanh Hardswish LogSigmoid GLU PReLU
        """.split()
    ],
    Row("GELU", ("tanh",)),
    Row("LeakyReLU", (0.3,)),
    Row("LeakyReLU", (), {"negative_slope": 0.2}),
    Row("ELU", (0.7,)),
    Row("Hardsigmoid", rtol=1e-7),
    Row("CELU", (0.7,), rtol=1e-7),
    Row("Softplus", (2.0, 3.0)),
    Row("Softshrink", (0.7,), same_repr=False),
    Row("Hardshrink", (0.7,), same_repr=False),
    Row("Hardtanh", (-0.5, 2.0)),
    Row("Threshold", (0.5, -1.0)),
    Row("GLU", (0,)),
    Row("PReLU", (6,)),
    Row("Softmax", (1,)),
    Row("Softmax2d", shapes=((2, 3, 2, 2),)),
    Row("Softmax2d", shapes=((3, 2, 2),)),
    Row("LogSoftmax", (0,)),
    Row("Softmin", (), {"dim": -1}),
    Row("LayerNorm", (6,)),
    Row("LayerNorm", ((4, 6),), {"eps": 0.1}, shapes=((2, 4, 6),)),
    Row("LayerNorm", (6,), {"elementwise_affine": False}),
    Row("LayerNorm", (6,), {"bias": False}),
    Row("RMSNorm", (6,)),
    Row("RMSNorm", ((4, 6),), {"eps": 0.1, "elementwise_affine": False}, shapes=((2, 4, 6),)),
    Row("Conv1d", (4, 6, 3), {"stride": 2, "padding": 1}, shapes=((2, 4, 7),)),
    Row("Conv2d", (2, 4, 3), shapes=((2, 2, 5, 6),)),
    Row("Conv2d", (2, 4, (3, 2), 1, "same"), {"groups": 2, "bias": False}, shapes=((2, 2, 5, 6),)),
    Row("Conv1d", (4, 2, 3, 1, 2), {"padding_mode": "reflect"}, shapes=((2, 4, 7),)),
    Row("Conv2d", (2, 2, 2, 1, "same"), {"padding_mode": "circular"}, shapes=((2, 3, 4),)),
    Row(
        "Conv3d",
        (2, 2, 2),
        {"padding": (1, 0, 3), "padding_mode": "replicate"},
        shapes=((1, 2, 3, 2, 3),),
    ),
    Row("Unfold", (2,), {"padding": 1}, shapes=((2, 2, 3, 2),)),
    Row("Fold", ((3, 4), (2, 3)), {"stride": (1, 1)}, shapes=((2, 12, 4),)),
    Row("Conv3d", (2, 2, 2), {"dilation": 2}, shapes=((1, 2, 3, 4, 3),)),
    Row("ConvTranspose1d", (4, 2, 3, 2), shapes=((2, 4, 3),)),
    Row("ConvTranspose2d", (2, 4, 3, 2, 1, 1, 2), shapes=((2, 2, 3, 2),)),
    Row("ConvTranspose3d", (2, 2, 2), {"bias": False}, shapes=((1, 2, 2, 2, 3),)),
    Row("MaxPool1d", (2,), shapes=((2, 3, 5),)),
    Row("MaxPool2d", (3, 2, 1), {"ceil_mode": True}, shapes=((2, 3, 6, 6),)),
    Row("MaxPool3d", (2,), shapes=((1, 2, 4, 4, 4),)),
    Row("AvgPool1d", (3, 1, 1), shapes=((2, 3, 5),)),
    Row("AvgPool2d", (2,), {"count_include_pad": False}, shapes=((2, 3, 6, 6),)),
    Row("AvgPool3d", (2, 1), shapes=((1, 2, 3, 3, 3),)),
    Row("AdaptiveAvgPool1d", (2,), shapes=((2, 3, 5),)),
    Row("AdaptiveAvgPool2d", ((2, None),), shapes=((2, 3, 5, 4),)),
    Row("AdaptiveMaxPool1d", (2,), shapes=((2, 3, 5),)),
    Row("AdaptiveMaxPool2d", (2,), shapes=((2, 3, 5, 4),)),
    Row("AdaptiveAvgPool3d", ((2, None, 1),), shapes=((2, 3, 5, 2, 4),)),
    Row("AdaptiveMaxPool3d", (2,), shapes=((3, 5, 4, 3),)),
    Row("LPPool1d", (2, 3), {"ceil_mode": True}, shapes=((2, 3, 5),)),
    Row("LPPool1d", (float("inf"), 2, 1), shapes=((3, 5),)),
    Row("LPPool2d", (1.5, (2, 3)), {"stride": 2}, shapes=((2, 3, 5, 6),), domain=(0.1, 3.0)),
    Row("LPPool2d", (-float("inf"), 2), shapes=((2, 3, 5, 6),)),
    Row("LPPool3d", (3, 2), shapes=((1, 2, 4, 4, 4),), domain=(0.1, 3.0)),
    Row("BatchNorm1d", (6,)),
    Row("BatchNorm1d", (3,), {"affine": False, "momentum": None}, shapes=((4, 3, 5),)),
    Row("BatchNorm2d", (3,), {"eps": 0.1}, shapes=((2, 3, 4, 2),)),
    Row("BatchNorm3d", (2,), {"track_running_stats": False}, shapes=((2, 2, 2, 3, 2),)),
    Row("InstanceNorm1d", (3,), shapes=((2, 3, 5),)),
    Row("InstanceNorm2d", (3,), {"affine": True}, shapes=((3, 4, 2),)),
    Row("InstanceNorm3d", (2,), {"track_running_stats": True}, shapes=((2, 2, 2, 3, 2),)),
    Row("GroupNorm", (2, 4), shapes=((2, 4, 3),)),
    Row("GroupNorm", (2, 4), {"bias": False}, shapes=((2, 4, 3),)),
    Row("BatchNorm1d", (6,), {"bias": False}),
    Row("GroupNorm", (1, 4), {"affine": False}, shapes=((2, 4, 3, 2),)),
    Row("Embedding", (5, 3), shapes=((2, 4),), indices=5),
    Row("Embedding", (5, 3), {"padding_idx": -2}, shapes=((7,),), indices=5),
    Row("CosineSimilarity", shapes=((4, 6), (4, 6)), same_repr=False),
    Row("PairwiseDistance", shapes=((4, 6), (4, 6)), same_repr=False),
    Row("PairwiseDistance", (1.0, 1e-3, True), shapes=((4, 6), (6,)), same_repr=False),
    Row("ZeroPad2d", (1,), shapes=((2, 3, 4),)),
    Row("ZeroPad2d", ((1, -1, 0, 2),), shapes=((2, 2, 3, 4),)),
    Row("ConstantPad2d", (1, 0.5), shapes=((2, 3, 4),)),
    Row("ReflectionPad2d", ((2, 1, 0, 1),), shapes=((2, 3, 4),)),
    Row("ReplicationPad2d", (2,), shapes=((2, 2, 3, 4),)),
    Row("PixelShuffle", (2,), shapes=((3, 8, 2, 3),)),
    Row("PixelUnshuffle", (2,), shapes=((3, 2, 4, 6),)),
    *(Row(f"{kind}Pad1d", ((2, 1),), shapes=((2, 3, 4),)) for kind in PADS),
    *(Row(f"{kind}Pad2d", ((1, 2, 0, 1),), shapes=((2, 2, 3, 4),)) for kind in PADS),
    *(Row(f"{kind}Pad3d", (1,), shapes=((1, 2, 2, 3, 4),)) for kind in PADS),
    *(Row(f"ConstantPad{d}d", (1, 2.5), shapes=((2, 2, 3, 4),)) for d in (1, 2, 3)),
    Row("UpsamplingNearest2d", (), {"scale_factor": 2}, shapes=((2, 2, 3, 4),)),
    Row("UpsamplingBilinear2d", ((5, 7),), shapes=((2, 2, 3, 4),)),
    Row("ChannelShuffle", (3,), shapes=((2, 6, 3, 4),)),
    Row("Upsample", (), {"scale_factor": 2}, shapes=((2, 2, 3, 4),)),
    Row("Upsample", (), {"size": (5, 7), "mode": "bilinear"}, shapes=((2, 2, 3, 4),)),
    Row("EmbeddingBag", (5, 3), shapes=((2, 4),), indices=5, same_repr=False),
    Row("EmbeddingBag", (5, 3), {"mode": "max"}, shapes=((2, 4),), indices=5, same_repr=False),
    Row(
        "EmbeddingBag",
        (5, 3),
        {"mode": "mean", "padding_idx": 1},
        shapes=((3, 4),),
        indices=5,
        same_repr=False,
    ),
    *[Row(kind, (6, 5), shapes=((4, 6), (4, 5))) for kind in ("RNNCell", "GRUCell")],
    Row("RNNCell", (6, 5, False, "relu"), shapes=((6,), (5,))),
    Row("GRUCell", (6, 5, False), shapes=((4, 6),)),
    *[
        Row(kind, (), {"reduction": reduction, **options}, **{"target": "same", **given})
        for reduction in ("mean", "sum", "none")
        for kind, options, given in (
            ("MSELoss", {}, {}),
            ("L1Loss", {}, {}),
            ("SmoothL1Loss", {"beta": 0.5}, {}),
            ("HuberLoss", {"delta": 0.5}, {}),
            ("BCELoss", {}, UNIT),
            ("BCEWithLogitsLoss", {}, {"target": "unit"}),
            ("KLDivLoss", {}, {"target": "unit"}),
            ("KLDivLoss", {"log_target": True}, {}),
            ("NLLLoss", {"ignore_index": 2}, {"target": 6}),
            ("CrossEntropyLoss", {"label_smoothing": 0.1}, {"target": 6}),
        )
    ],
    Row("KLDivLoss", (), {"reduction": "batchmean"}, target="unit"),
    Row("CrossEntropyLoss", target=6, shapes=((2, 6, 3),)),
]


def draw(row: Row, dtype: str) -> list[np.ndarray]:
    """The arguments of a call, target included."""
    random = np.random.default_rng(7)
    arrays: list[np.ndarray] = []
    for shape in row.shapes:
        if row.indices is None:
            arrays.append(random.uniform(*row.domain, shape).astype(dtype))
        else:
            arrays.append(random.integers(0, row.indices, shape))
    shape = row.shapes[0]
    if row.target == "same":
        arrays.append(random.uniform(-2, 2, shape).astype(dtype))
    elif row.target == "unit":
        arrays.append(random.uniform(0.05, 0.95, shape).astype(dtype))
    elif row.target is not None:
        arrays.append(random.integers(0, row.target, shape[:1] + shape[2:]))
    return arrays


def run(library: Any, row: Row, module: Any, arrays: list[np.ndarray]) -> dict[str, np.ndarray]:
    """Output and all gradients of a call, by name."""
    inputs = [library.tensor(a) for a in arrays]
    for i, tensor in enumerate(inputs):
        if arrays[i].dtype.kind == "f":
            tensor.requires_grad_()
    if isinstance(module, library.nn.Module) and row.target is not None:
        inputs[-1].requires_grad_(False)
    out = module(*inputs)
    weights = np.random.default_rng(3).uniform(0.5, 1.5, tuple(out.shape)).astype(arrays[0].dtype)
    if arrays[0].dtype.kind != "f":
        weights = weights.astype("float64")
        weights += 0.5
    if out.requires_grad:
        (out * library.tensor(np.asarray(weights)).to(out.dtype)).sum().backward()
    found = {"out": out.detach().numpy()}
    for i, tensor in enumerate(inputs):
        if tensor.grad is not None:
            found[f"input {i}"] = tensor.grad.numpy()
    for name, parameter in module.named_parameters():
        found[name] = parameter.grad.numpy()
    return found


@pytest.mark.peer
@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_layer_is_torchs(row):
    torch = pytest.importorskip("torch")
    ours = getattr(nn, row.kind)(*row.args, **row.kwargs).double()
    theirs = getattr(torch.nn, row.kind)(*row.args, **row.kwargs).double()
    if row.same_repr:
        assert repr(ours) == repr(theirs)
    state = theirs.state_dict()
    ours.load_state_dict({name: ng.tensor(t.numpy()) for name, t in state.items()})
    assert list(ours.state_dict()) == list(state)
    arrays = draw(row, "float64")
    found, expected = run(ng, row, ours, arrays), run(torch, row, theirs, arrays)
    assert sorted(found) == sorted(expected)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=row.rtol, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_layer_in_float32(row):
    module = getattr(nn, row.kind)(*row.args, **row.kwargs)
    single = run(ng, row, module, draw(row, "float32"))
    assert all(v.dtype == "float32" for v in single.values() if v.dtype.kind == "f")
    module.zero_grad()
    double = run(ng, row, module.double(), draw(row, "float64"))
    for name, value in double.items():
        scale = max(1.0, np.abs(value).max(initial=0))
        np.testing.assert_allclose(single[name], value, atol=3e-5 * scale, err_msg=name)


@pytest.mark.parametrize("row", ROWS, ids=repr)
def test_layer_copies_and_pickles(row):
    module = getattr(nn, row.kind)(*row.args, **row.kwargs)
    arrays = draw(row, "float32")
    expected = run(ng, row, module, arrays)
    module.zero_grad()
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert repr(twin) == repr(module)
        found = run(ng, row, twin, arrays)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)
        assert all(p.grad is None for p in module.parameters())


INPLACE = """
    ReLU ReLU6 SiLU Mish LeakyReLU ELU SELU CELU Hardtanh Hardsigmoid Hardswish
""".split()


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_writes_into_the_input(name):
    x = ng.tensor([-1.0, 0.5, 2.0])
    expected = getattr(nn, name)()(x).tolist()
    module = getattr(nn, name)(inplace=True)
    assert module(x) is x and x.tolist() == expected
    assert "inplace=True" in repr(module)


def test_inplace_has_the_same_gradient():
    grads = []
    for inplace in (False, True):
        x = ng.tensor([-1.0, 0.5, 2.0], requires_grad=True)
        nn.LeakyReLU(0.1, inplace)(x * 2.0).sum().backward()
        grads.append(x.grad.tolist())
    assert grads[0] == grads[1]


def test_options_are_attributes_that_count():
    module = nn.LeakyReLU(negative_slope=0.5)
    module.negative_slope = 0.25
    assert module(ng.tensor([-4.0])).tolist() == [-1.0]
    with pytest.raises(TypeError, match="LeakyReLU: got an unexpected keyword argument 'slope'"):
        nn.LeakyReLU(slope=1)
    with pytest.raises(TypeError, match="Threshold: missing a required argument: 'value'"):
        nn.Threshold(1.0)


def test_loss_weights_are_buffers():
    weight = ng.tensor([1.0, 2.0, 3.0])
    module = nn.CrossEntropyLoss(weight=weight)
    assert list(module.state_dict()) == ["weight"]
    assert next(iter(module.double().buffers())).dtype is ng.float64
    assert list(nn.CrossEntropyLoss().state_dict()) == []


def test_dropout():
    module = nn.Dropout(0.25)
    x = ng.tensor(np.ones(100000, "float32"))
    out = module(x).numpy()
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 0.01
    assert module.eval()(x).tolist() == x.tolist()
    assert repr(module) == "Dropout(p=0.25, inplace=False)"
    with pytest.raises(ValueError, match="between 0 and 1"):
        nn.Dropout(1.5)


def test_rrelu():
    x = ng.tensor(np.full((1000,), -2.0), requires_grad=True)
    module = nn.RReLU(0.1, 0.3)
    module(x).sum().backward()
    slopes = x.grad.numpy()
    assert slopes.min() >= 0.1 and slopes.max() <= 0.3 and abs(slopes.mean() - 0.2) < 0.01
    np.testing.assert_allclose(module.eval()(x).detach().numpy(), -0.4)
    assert module(ng.tensor([3.0])).tolist() == [3.0]
    assert repr(module) == "RReLU(lower=0.1, upper=0.3)"
    with pytest.raises(ValueError, match="rrelu: lower"):
        nn.functional.rrelu(x, 0.5, 0.1)


@pytest.mark.parametrize("name,shape", [("Dropout1d", (50, 40, 3)), ("Dropout2d", (50, 40, 2, 2))])
def test_dropout_of_channels(name, shape):
    module = getattr(nn, name)(0.25)
    out = module(ng.ones(shape)).numpy().reshape(50 * 40, -1)
    assert (out == out[:, :1]).all()
    assert set(np.unique(out)) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((out == 0).mean() - 0.25) < 0.05
    assert module.eval()(ng.ones(shape)).numpy().min() == 1
    with pytest.raises(ValueError, match="dimension"):
        module.train()(ng.ones(3))


@pytest.mark.peer
@pytest.mark.parametrize("bias", [True, False])
def test_lstm_cell_is_torchs(bias):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTMCell(3, 4, bias).double()
    ours = nn.LSTMCell(3, 4, bias).double()
    state = {name: ng.tensor(t.numpy()) for name, t in theirs.state_dict().items()}
    ours.load_state_dict(state)
    assert repr(ours) == repr(theirs)
    draw = np.random.default_rng(0)
    arrays = [draw.normal(size=size) for size in ((2, 3), (2, 4), (2, 4))]
    found = []
    for library, cell in ((ng, ours), (torch, theirs)):
        x, h, c = (library.tensor(a).requires_grad_() for a in arrays)
        first = cell(x)
        h2, c2 = cell(x, (h, c))
        (h2.sum() + (c2 * c2).sum() + first[0].sum()).backward()
        grads = [p.grad for p in (x, h, c, *cell.parameters())]
        found.append([t.detach().numpy() for t in (*first, h2, c2, *grads)])
    for mine, other in zip(*found, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-12)
    with pytest.raises(ValueError, match="input_size"):
        ours(ng.ones(2, 5, dtype=ng.double))
    with pytest.raises(ValueError, match="hidden state"):
        nn.GRUCell(3, 4)(ng.ones(2, 3), ng.ones(1, 4))


@pytest.mark.peer
def test_dirac_is_torchs():
    torch = pytest.importorskip("torch")
    for shape, groups in (((4, 2, 3), 1), ((4, 2, 3, 4), 2)):
        ours = nn.init.dirac_(ng.empty(shape), groups)
        theirs = torch.nn.init.dirac_(torch.empty(shape), groups)
        assert ours.tolist() == theirs.tolist()


def test_dropouts_gradient_has_the_same_zeros():
    x = ng.tensor(np.ones(1000, "float32"), requires_grad=True)
    out = nn.Dropout(0.5)(x)
    out.sum().backward()
    assert out.tolist() == x.grad.tolist()


def test_padding_row_is_zero_and_stays():
    module = nn.Embedding(4, 2, padding_idx=1)
    assert module.weight[1].tolist() == [0.0, 0.0]
    module(ng.tensor([0, 1, 1])).sum().backward()
    assert module.weight.grad.tolist() == [[1.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]]
    with pytest.raises(ValueError, match="Padding_idx must be within"):
        nn.Embedding(4, 2, padding_idx=4)


def test_embedding_from_pretrained_shares_and_freezes():
    table = ng.tensor([[1.0, 2.0], [3.0, 4.0]])
    module = nn.Embedding.from_pretrained(table)
    assert not module.weight.requires_grad
    table[0, 0] = 9.0
    assert module(ng.tensor([0])).tolist() == [[9.0, 2.0]]
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad


def test_linear_says_what_does_not_fit():
    with pytest.raises(ValueError, match="linear"):
        nn.Linear(4, 3)(ng.tensor(np.ones((2, 5), "float32")))


def test_dtype_and_device_arguments():
    module = nn.Linear(2, 2, dtype=ng.float64, device="cpu")
    assert module.weight.dtype is ng.float64 and module.bias.dtype is ng.float64
    with pytest.raises(RuntimeError, match="cuda"):
        nn.Linear(2, 2, device="cuda")


def test_initial_ranges():
    module = nn.Linear(100, 200)
    bound = 1 / np.sqrt(100)
    for parameter in module.parameters():
        values = parameter.detach().numpy()
        assert np.abs(values).max() <= bound and values.std() > 0.5 * bound
    values = nn.Embedding(100, 100).weight.detach().numpy()
    assert abs(values.mean()) < 0.05 and abs(values.std() - 1) < 0.05


SMOOTH = """
    celu hardshrink hardsigmoid hardswish hardtanh mish selu softshrink softsign tanhshrink glu
    relu6
""".split()


@pytest.mark.parametrize("name", SMOOTH)
def test_activations_have_gradients_of_any_order(name):
    function = getattr(nn.functional, name)
    x = ng.tensor(np.array([-4.0, -1.7, -0.3, 0.2, 0.8, 3.7]), requires_grad=True)
    assert ng.autograd.gradcheck(function, x)
    assert ng.autograd.gradgradcheck(function, x)


@pytest.mark.parametrize("name", ["prelu", "bilinear", "cosine_similarity"])
def test_composed_functions_have_gradients_of_any_order(name):
    draw = np.random.default_rng(0)
    shapes = {"prelu": [(2, 3), (3,)], "bilinear": [(2, 3), (2, 4), (2, 3, 4), (2,)]}
    inputs = [
        ng.tensor(draw.uniform(0.2, 1, shape), requires_grad=True)
        for shape in shapes.get(name, [(2, 3), (2, 3)])
    ]
    assert ng.autograd.gradcheck(getattr(nn.functional, name), inputs)
    assert ng.autograd.gradgradcheck(getattr(nn.functional, name), inputs)


@pytest.mark.peer
def test_cosine_similarity_is_torchs():
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(4, 5)), draw.normal(size=(4, 5))
    y[1] = 0
    expected = torch.nn.functional.cosine_similarity(torch.tensor(x), torch.tensor(y), dim=0)
    found = nn.functional.cosine_similarity(ng.tensor(x), ng.tensor(y), dim=0)
    np.testing.assert_allclose(found.numpy(), expected.numpy(), rtol=1e-12)


def test_margin_losses_as_modules_are_their_functions():
    x, y = ng.randn(4, 3), ng.tensor([[1.0, -1.0, 1.0]] * 4)
    labels, var = ng.tensor([0, 2, 1, 1]), ng.rand(4, 3) + 0.5
    F = nn.functional
    for module, function, given, options in [
        (nn.HingeEmbeddingLoss, F.hinge_embedding_loss, (x, y), {"margin": 0.5}),
        (nn.SoftMarginLoss, F.soft_margin_loss, (x, y), {"reduction": "sum"}),
        (nn.PoissonNLLLoss, F.poisson_nll_loss, (x, y.abs()), {"full": True}),
        (nn.GaussianNLLLoss, F.gaussian_nll_loss, (x, y, var), {"full": True}),
        (nn.MultiMarginLoss, F.multi_margin_loss, (x, labels), {"p": 2}),
        (nn.MultiLabelSoftMarginLoss, F.multilabel_soft_margin_loss, (x, y.relu()), {}),
        (nn.MarginRankingLoss, F.margin_ranking_loss, (x, x.flip(0), y), {"margin": 0.1}),
        (nn.TripletMarginWithDistanceLoss, F.triplet_margin_with_distance_loss, (x, y, var),
         {"swap": True, "distance_function": lambda a, b: (a - b).abs().sum(-1)}),
    ]:  # fmt: skip
        assert module(**options)(*given).item() == function(*given, **options).item()
    assert nn.GaussianNLLLoss()(x, y, 2.0).item() == pytest.approx(
        nn.GaussianNLLLoss()(x, y, ng.full((4, 3), 2.0)).item()
    )
    with pytest.raises(ValueError, match="margin must be greater than 0, got -1"):
        nn.TripletMarginWithDistanceLoss(margin=-1)(x, x, x)


def test_gumbel_softmax_samples_and_differentiates():
    ng.manual_seed(0)
    logits = ng.tensor([[0.0, 1.0, 2.0]], requires_grad=True)
    many = nn.functional.gumbel_softmax(logits.detach().expand(20000, 3), hard=True)
    assert set(many.unique().tolist()) == {0.0, 1.0} and (many.sum(1) == 1).all()
    chances = many.mean(0).numpy()
    np.testing.assert_allclose(chances, logits.detach().softmax(1).numpy()[0], atol=0.02)
    soft = nn.functional.gumbel_softmax(logits, tau=0.5)
    np.testing.assert_allclose(soft.sum().item(), 1, rtol=1e-5)
    (nn.functional.gumbel_softmax(logits, hard=True) * ng.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert logits.grad.abs().sum().item() > 0
    assert abs(logits.grad.sum().item()) < 1e-5


def test_dropout3d_takes_whole_channels():
    ng.manual_seed(0)
    out = nn.Dropout3d(0.5)(ng.ones(8, 16, 2, 2, 2))
    per_channel = out.reshape(128, 8)
    assert (per_channel == per_channel[:, :1]).all() and set(out.unique().tolist()) == {0.0, 2.0}
    with pytest.raises(ValueError, match="dropout3d: Expected 4D or 5D input"):
        nn.Dropout3d()(ng.ones(2, 3))
    with pytest.raises(ValueError, match="divided by groups 4"):
        nn.ChannelShuffle(4)(ng.ones(2, 6, 3))
    with pytest.raises(RuntimeError, match="CircularPad1d: padding is a number, or left, r"):
        nn.CircularPad1d((1, 2, 3))


@pytest.mark.parametrize("training", [True, False])
def test_rrelu_in_place_has_the_gradient_of_the_other(training):
    layer = nn.RReLU(0.1, 0.4, inplace=True).train(training)
    x = ng.tensor([-2.0, -1.0, 3.0], requires_grad=True)
    y = x * 1
    assert layer(y) is y
    y.backward(ng.ones(3))
    np.testing.assert_allclose(x.grad, (y / x).detach())


@pytest.mark.parametrize("shape", [(0, 3), (0, 3, 2), (2, 3, 0), (0, 3, 20)])
def test_an_empty_batch_moves_no_statistics(shape):
    layer = nn.BatchNorm1d(3)
    x = ng.ones(*shape, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert y.shape == x.grad.shape == shape
    assert layer.running_mean.tolist() == [0, 0, 0] and layer.running_var.tolist() == [1, 1, 1]
    assert layer.weight.grad.tolist() == layer.bias.grad.tolist() == [0, 0, 0]


@pytest.mark.parametrize("side", [2, 3, 40])
def test_planes_are_scaled_alike_however_wide_they_are(side):
    x = ng.randn(3, 5, side, side)
    mean, weight, bias = (ng.randn(5) for _ in range(3))
    variance = ng.rand(5) + 0.1
    scale = (variance + 1e-5).rsqrt() * weight
    scale, shift = (v[:, None, None] for v in (scale, -mean * scale + bias))
    for given in (x, x.transpose(2, 3).contiguous().transpose(2, 3)):
        for _ in range(20):  # as a function that remembers, too
            y = nn.functional.batch_norm(given, mean, variance, weight, bias)
        assert y.tolist() == ng.addcmul(shift, x, scale).tolist()


def test_in_place_functions():
    x = ng.tensor([-1.0, 0.5, 4.0])
    assert nn.functional.threshold(x, 1.0, 9.0).tolist() == [9, 9, 4] and x[0] == -1
    assert nn.functional.rrelu_(x.clone(), 0.5, 0.5).tolist() == [-0.5, 0.5, 4]
    y = x * 1
    assert nn.functional.threshold_(y, 1.0, 9.0) is y and y.tolist() == [9, 9, 4]
    assert ng.relu_(x) is x and x.tolist() == [0, 0.5, 4]
    assert ng.sqrt_(x)[2] == 2 and ng.zero_(x).tolist() == [0, 0, 0]
    with pytest.raises(ValueError, match=r"rrelu: lower 0\.6 should be less"):
        nn.functional.rrelu_(y, 0.6, 0.5)
    assert y.tolist() == [9, 9, 4]
