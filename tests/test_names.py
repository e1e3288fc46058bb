"""What PyTorch's users type: names, keywords and forms, compared with PyTorch where it is there."""

from __future__ import annotations

import pytest

import numbagrad as ng

LINES = """
    L.sum(input=x, axis=1)
    L.add(input=x, other=x)
    x.mul(other=2)
    x.mean(axis=-1, keepdims=True)
    x.max(axis=1)[1]
    x.argmax(axis=0)
    x.std(axis=0)
    x.any(axis=1)
    L.cat(tensors=(x, x), axis=1)
    L.stack([x, x], axis=0)
    L.mm(x, mat2=x.T)
    L.dot(v, tensor=v)
    L.outer(v, vec2=v)
    L.where(condition=x > 2, input=x, other=0.0)
    L.lerp(input=v, end=v * 2, weight=0.5)
    L.addcmul(input=v, tensor1=v, tensor2=v, value=0.5)
    L.split(tensor=v, split_size_or_sections=2)
    L.linalg.solve(A=L.eye(3), B=v)
    L.tensordot(a=x, b=x, dims=2)
    x.reshape(shape=(3, 2))
    x.view(size=(3, 2))
    x.permute(dims=(1, 0))
    x.flip(dims=(0,))
    L.zeros(size=(2,))
    L.rand(size=(2,)).shape[0]
    F.relu(x - 3, inplace=True)
    F.relu(x - 3, True)
    F.leaky_relu(x - 3, 0.1, inplace=True)
    F.hardtanh(x, max_val=2.5)
    F.elu(input=x - 3, alpha=0.5)
    F.relu_(x - 3)
    L.relu_(x - 3)
    L.detach_(x).requires_grad
    L.addmv_(v[:2], x, v)
    F.rrelu_(x - 3)
    F.threshold(x, 2.5, 9.0, True)
    F.threshold_(x, threshold=2.5, value=9.0)
    x.hardshrink(1.5)
    x[0, 0].is_nonzero()
    x.unsqueeze_(1).squeeze_().transpose_(0, 1).t_().swapaxes_(0, 1).swapdims_(1, 0)
    [x.t_().stride(), x.is_contiguous(), x.mul_(2).tolist()]
    F.softmax(input=x, dim=1)
    F.one_hot(input=L.tensor([0, 2]), num_classes=3)
    L.broadcast_tensors(v, x)
    L.LongTensor([1, 2])
    x.type(L.DoubleTensor)
    isinstance(x, L.FloatTensor)
    [L.pi, L.inf, L.e, L.newaxis]
    x[:, L.newaxis].shape[1]
    L.finfo(L.float32).eps
    L.finfo(x.dtype).min
    L.result_type(x, 1.5) is L.float32
    L.can_cast(L.float32, L.int64)
    L.can_cast(L.int8, L.uint8)
    L.is_floating_point(x)
    L.isin(x, 2.0)
    L.slogdet(x[:, :2]).logabsdet
    L.matrix_power(input=x[:, :2], n=-1)
    L.linalg.matrix_power(input=x[:, :2], n=2)
    L.det(input=x[:, :2])
    L.copysign(input=x, other=-1)
    x.clone().fill_diagonal_(fill_value=7)
    L.cholesky_solve(input=v.reshape(3, 1), input2=L.eye(3) * 2, upper=True)
    L.linalg.lu_solve(*L.linalg.lu_factor(A=L.eye(3) * 2), B=L.eye(3), adjoint=True)
    L.linalg.solve_ex(A=L.eye(3) * 2, B=v).result
    [L.gcd(input=L.tensor(4), other=L.tensor(6)), 2 << L.tensor([1]), L.tensor([9]) >> 1]
    [L.polygamma(n=1, input=v), v.polygamma(2), v.mvlgamma(p=1), L.rsub(v, other=v, alpha=2)]
    L.logcumsumexp(input=x, dim=1)
    [L.mode(input=x, dim=1, keepdim=True)[0], x.nanmedian(dim=0)[1], L.nanmedian(input=x)]
    x.put(index=L.tensor([0]), source=L.tensor([9.0]), accumulate=True)
    L.nonzero_static(input=x, size=2, fill_value=-2)
    L.gradient(x, spacing=[2.0], dim=(1,), edge_order=2)
    L.histogram(x, bins=3, range=(0.0, 6.0), weight=x, density=True).hist
    L.kaiser_window(window_length=5, periodic=False, beta=3.0, dtype=L.float64)
    [x.is_cpu, x.get_device(), L.get_device(x), x.is_signed(), L.is_signed(x > 1)]
    [L.is_same_size(x, v), x.is_same_size(other=x), L.typename(3), L.typename(x).split(".")[1]]
    [x.new([1, 2]), x.new(v), list(x.new(2, 4).shape), list(x.new().shape)]
    [x.is_sparse, x.is_quantized, x.is_meta, x.is_complex(), L.is_complex(x)]
    [L.arange(end=3), L.arange(start=1, end=3), L.detach(input=x)]
    [x.type("torch.DoubleTensor"), L.set_default_tensor_type("torch.FloatTensor")]
    L.set_default_tensor_type(L.FloatTensor)
    L.nn.init._calculate_fan_in_and_fan_out(x)
    isinstance(L.nn.Conv2d(1, 1, 1), L.nn.modules.conv._ConvNd)
    isinstance(L.nn.BatchNorm1d(2), L.nn.modules.batchnorm._BatchNorm)
    L.nn.modules.rnn.LSTM is L.nn.LSTM
    callable(L.optim.lr_scheduler._LRScheduler)
    L.utils.data.sampler.RandomSampler is L.utils.data.RandomSampler
    L.utils.data.dataset.Dataset is L.utils.data.Dataset
    L.utils.data.dataloader.default_collate([1, 2])
    [L.backends.mps.is_available(), L.backends.mps.is_built(), L.backends.cuda.matmul.allow_tf32]
    L.frombuffer(bytearray(range(8)), dtype=L.int16, count=2, offset=2)
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in LINES])
def test_a_line_gives_what_pytorch_gives(line):
    torch = pytest.importorskip("torch")
    found = []
    for lib in (ng, torch):
        x = lib.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]])
        names = {"L": lib, "F": lib.nn.functional, "x": x, "v": lib.tensor([3.0, 1.0, 2.0])}
        found.append(plain(eval(line, names)))
    assert found[0] == found[1]


def plain(value):
    """Tensors as their values and dtypes, in tuples."""
    if isinstance(value, (tuple, list)):
        return [plain(v) for v in value]
    if hasattr(value, "tolist"):
        values = [round(v, 5) for v in value.double().reshape(-1).tolist()]
        return str(value.dtype).rpartition(".")[2], list(value.shape), values
    return value


@pytest.mark.parametrize(
    "line",
    [
        "from {}.backends import cudnn; import {}.backends.cudnn as cudnn; cudnn.benchmark = False",
        "import {} as L; L.backends.cudnn.deterministic = True; L.backends.cudnn.enabled = False",
        "import {} as L; L.backends.cuda.matmul.allow_tf32 = L.backends.cudnn.allow_tf32 = False",
        "from {}.cuda.amp import GradScaler, autocast, custom_bwd, custom_fwd",
        "import {} as L; L.cuda.amp.GradScaler(init_scale=2.0, enabled=False)",
        "import {} as L; L.cuda.amp.autocast(enabled=False).__enter__().__exit__(None, None, None)",
        "from {}.distributions.normal import Normal",
        "from {}.nn.modules.batchnorm import _BatchNorm",
        "from {}.utils.data.sampler import SubsetRandomSampler",
        "from {}.utils.data.dataset import Dataset, random_split",
        "from {}.utils.data.dataloader import DataLoader, default_collate",
        "from {}.optim.lr_scheduler import _LRScheduler",
        "from {}.optim.optimizer import Optimizer",
    ],
)
def test_a_statement_runs(line):
    exec(line.replace("{}", "numbagrad"))
    pytest.importorskip("torch")
    exec(line.replace("{}", "torch"))


def test_tf32_by_its_other_name():
    matmul = ng.backends.cuda.matmul
    assert ng.backends.cuda.is_built() and not ng.backends.cudnn.is_available()
    assert not matmul.allow_tf32 and ng.backends.cudnn.version() is None
    try:
        matmul.allow_tf32 = True
        assert ng.get_float32_matmul_precision() == "high" and matmul.allow_tf32
    finally:
        matmul.allow_tf32 = False
    assert ng.get_float32_matmul_precision() == "highest"


def test_inplace_writes_into_the_input():
    x = ng.tensor([-1.0, 2.0])
    assert ng.nn.functional.relu(x, inplace=True) is x and x.tolist() == [0.0, 2.0]


def test_unknown_keywords_are_refused():
    x = ng.ones(2, 3)
    for call in (
        lambda: x.sum(axes=1),
        lambda: x.view(shape=(6,)),
        lambda: x.reshape(6, shape=(6,)),
        lambda: ng.zeros(2, size=(2,)),
        lambda: ng.add(x, z=x),
    ):
        with pytest.raises(TypeError, match="keyword argument"):
            call()


@pytest.mark.parametrize("kind", ["torch.RealTensor", "dtypes", ng.float32, None])
def test_an_unknown_tensor_type_is_named(kind):
    with pytest.raises(TypeError, match=r"set_default_tensor_type: expected ng\.FloatTensor"):
        ng.set_default_tensor_type(kind)
    assert ng.get_default_dtype() is ng.float32
