"""Modules, classes and helpers that public PyTorch code imports, beside PyTorch's where it is."""

from __future__ import annotations

import importlib
from collections import OrderedDict, defaultdict, deque, namedtuple

import pytest

import numbagrad as ng

nn = ng.nn

STATEMENTS = """
    from {}.version import __version__, cuda, hip; assert hip is None
    from {}.nn.modules.utils import _single, _pair, _triple, _quadruple, _ntuple
    from {}.nn.modules.utils import _reverse_repeat_tuple, consume_prefix_in_state_dict_if_present
    from {}.utils.data.distributed import DistributedSampler
    import {}.nn.attention; from {}.nn.attention import SDPBackend, sdpa_kernel
    from {}.utils._pytree import tree_flatten, tree_unflatten, tree_map, tree_map_only, tree_leaves
    from {}.utils._pytree import tree_any, tree_all, TreeSpec, LeafSpec, tree_structure
    import {}.utils._pytree as pytree; pytree.tree_map_
    from {}.optim.optimizer import Optimizer, required
    from {}.nn.modules.loss import _Loss, _WeightedLoss
    from {}.nn.modules.batchnorm import _BatchNorm, _NormBase
    from {}.nn.modules.dropout import _DropoutNd
    from {}.nn.modules.pooling import _MaxPoolNd, _AvgPoolNd, _AdaptiveAvgPoolNd, _LPPoolNd
    from {}.nn.modules.conv import _ConvNd, _ConvTransposeNd
    from {}.nn.modules.instancenorm import _InstanceNorm, InstanceNorm2d
    from {}.nn.init import _calculate_correct_fan, _no_grad_trunc_normal_, _no_grad_fill_
    from {}.nn.init import _no_grad_normal_, _no_grad_uniform_, _no_grad_zero_
    from {}.autograd.grad_mode import no_grad, set_grad_enabled, inference_mode
    from {}.optim.adamw import AdamW; from {}.optim.adam import Adam; from {}.optim.sgd import SGD
    from {}.optim.adamax import Adamax; from {}.optim.nadam import NAdam
    from {}.optim.radam import RAdam; from {}.optim.rmsprop import RMSprop
    from {}.types import Number, Device, _size, _int, _float, _bool, _TensorOrTensors
    import {}.multiprocessing as mp; mp.get_context("fork"); mp.Process; mp.spawn; mp.Queue
    from {} import accelerator; accelerator.is_available(), accelerator.current_accelerator()
""".strip().split("\n")


@pytest.mark.parametrize("statement", [line.strip() for line in STATEMENTS])
def test_a_statement_runs(statement):
    exec(statement.replace("{}", "numbagrad"))
    pytest.importorskip("torch")
    if "required" not in statement:  # PyTorch has its own reasons to be slow
        exec(statement.replace("{}", "torch"))


def test_version():
    assert ng.version.__version__ == ng.__version__
    assert ng.version.cuda is None or float(ng.version.cuda) >= 12


@pytest.mark.skipif(ng.cuda.is_available(), reason="there is a GPU")
def test_no_accelerator():
    assert ng.accelerator.current_accelerator() is None and not ng.accelerator.device_count()
    ng.accelerator.set_device_index(-1)
    for call in (
        ng.accelerator.current_device_index,
        ng.accelerator.synchronize,
        lambda: ng.accelerator.set_device_index(0),
    ):
        with pytest.raises(RuntimeError, match="Cannot access accelerator device"):
            call()


def test_kernels_of_attention_are_one():
    attention = nn.attention
    q = ng.randn(1, 2, 3, 4)
    plain = nn.functional.scaled_dot_product_attention(q, q, q)
    ways = [attention.SDPBackend.FLASH_ATTENTION, attention.SDPBackend.MATH]
    for asked in (ways, ways[0], []):
        with attention.sdpa_kernel(asked, set_priority=True):
            assert nn.functional.scaled_dot_product_attention(q, q, q).equal(plain)
    for wrong in (None, "MATH", ["MATH"], 3):
        with pytest.raises(TypeError, match="must be an instance of SDPBackend"):
            with attention.sdpa_kernel(wrong):
                pass


def test_switches_of_cudnn_come_back():
    cudnn = ng.backends.cudnn
    names = "enabled benchmark benchmark_limit deterministic allow_tf32".split()
    before = [getattr(cudnn, name) for name in names]
    with pytest.raises(KeyError), cudnn.flags(enabled=True, benchmark=True, deterministic=True):
        assert cudnn.enabled and cudnn.benchmark and cudnn.deterministic and cudnn.allow_tf32
        raise KeyError
    assert [getattr(cudnn, name) for name in names] == before


Point = namedtuple("Point", "x y")

TREES = [
    5,
    None,
    [],
    (1, [2, {"b": 3, "a": (None,)}], OrderedDict(z=1, y=[2])),
    Point(1, [Point(2, 3)]),
    deque([1, 2], 3),
    defaultdict(list, k=[1, 2]),
    {"a": {}, "b": 2},
]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees_as_pytorchs(tree):
    ours = ng.utils._pytree
    leaves, spec = ours.tree_flatten(tree)
    back = ours.tree_unflatten(leaves, spec)
    assert back == tree and type(back) is type(tree) and spec.num_leaves == len(leaves)
    assert spec == ours.tree_structure(tree) and spec.unflatten(leaves) == tree
    shown = ours.tree_map(lambda a, b: [a, b], tree, tree, is_leaf=lambda x: x is None)
    pytest.importorskip("torch")
    theirs = importlib.import_module("torch.utils._pytree")
    assert leaves == theirs.tree_leaves(tree)
    assert shown == theirs.tree_map(lambda a, b: [a, b], tree, tree)
    for found, expected in (
        (ours.tree_map_only(int, str, tree), theirs.tree_map_only(int, str, tree)),
        (ours.tree_any(bool, tree), theirs.tree_any(bool, tree)),
        (ours.tree_all(bool, tree), theirs.tree_all(bool, tree)),
        (ours.tree_any_only(int, bool, tree), theirs.tree_any_only(int, bool, tree)),
        (ours.tree_all_only(int, bool, tree), theirs.tree_all_only(int, bool, tree)),
    ):
        assert found == expected


def test_trees_of_other_forms():
    trees = ng.utils._pytree
    assert trees.tree_map(lambda a, b: (a, b), {"a": 1, "b": 2}, {"b": 3, "a": 4}) == {
        "a": (1, 4),
        "b": (2, 3),
    }
    assert trees.tree_map(lambda a, b: (a, b), [1], [[2, 3]]) == [(1, [2, 3])]
    for other in ([1, 2, 3], (1, 2), {"a": 1}, 5):
        with pytest.raises(ValueError, match="tree_map: expected"):
            trees.tree_map(lambda a, b: a, [1, 2], other)
    with pytest.raises(ValueError, match="expected keys"):
        trees.tree_map(lambda a, b: a, {"a": 1}, {"b": 1})
    with pytest.raises(ValueError, match="has length 1 but the spec"):
        trees.tree_unflatten([1], trees.tree_structure([1, 2]))
    with pytest.raises(TypeError, match="expected a TreeSpec"):
        trees.tree_unflatten([1], [1])
    seen = []
    assert trees.tree_map_(seen.append, [1, (2,)]) == [1, (2,)] and seen == [1, 2]


def test_trees_of_classes_of_ones_own():
    class Pair:
        def __init__(self, a, b):
            self.a, self.b = a, b

    trees = ng.utils._pytree
    assert len(trees.tree_leaves(Pair(1, 2))) == 1
    try:
        trees.register_pytree_node(Pair, lambda p: ([p.a, p.b], None), lambda v, _: Pair(*v))
        assert trees.tree_leaves([Pair(1, (2, 3))]) == [1, 2, 3]
        assert trees.tree_map(lambda x: -x, Pair(1, 2)).b == -2
        with pytest.raises(ValueError, match="already registered"):
            trees.register_pytree_node(Pair, None, None)
    finally:
        trees.KINDS.pop(Pair)


def test_a_required_option():
    required = importlib.import_module("numbagrad.optim.optimizer").required

    class Mine(ng.optim.Optimizer):
        def __init__(self, params, lr=required):
            super().__init__(params, {"lr": lr})

    x = ng.ones(1, requires_grad=True)
    assert repr(required) == "<required parameter>"
    assert (
        Mine([x], 0.5).param_groups[0]["lr"]
        == Mine([{"params": [x], "lr": 0.5}]).param_groups[0]["lr"]
    )
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        Mine([x])


def test_classes_of_data_may_be_subscripted():
    data = ng.utils.data

    class Squares(data.Dataset[int]):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            return index**2

    class Backwards(data.Sampler[int]):
        def __init__(self, source):
            super().__init__()
            self.source = source

        def __iter__(self):
            return iter(range(len(self.source) - 1, -1, -1))

    class Stream(data.IterableDataset[tuple[int, str]]):
        def __iter__(self):
            return iter([1])

    squares = Squares()
    loader: data.DataLoader[int] = data.DataLoader(squares, sampler=Backwards(squares))
    assert [x.item() for x in loader] == [4, 1, 0]
    assert isinstance(squares, data.Dataset) and isinstance(Stream(), data.IterableDataset)
    assert data.Subset[int](squares, [2])[0] == 4 and data.ConcatDataset[int]([squares])[1] == 1
    for name in "TensorDataset BatchSampler RandomSampler ChainDataset".split():
        assert getattr(data, name)[int].__origin__ is getattr(data, name)


BASES = """
    loss._Loss: MSELoss L1Loss CrossEntropyLoss CosineEmbeddingLoss TripletMarginLoss CTCLoss
    loss._WeightedLoss: NLLLoss BCELoss CrossEntropyLoss MultiMarginLoss MultiLabelSoftMarginLoss
    batchnorm._NormBase: BatchNorm1d BatchNorm3d InstanceNorm2d SyncBatchNorm
    batchnorm._BatchNorm: BatchNorm1d BatchNorm2d BatchNorm3d SyncBatchNorm
    dropout._DropoutNd: Dropout Dropout1d Dropout2d Dropout3d AlphaDropout FeatureAlphaDropout
    pooling._MaxPoolNd: MaxPool1d MaxPool2d MaxPool3d
    pooling._AvgPoolNd: AvgPool1d AvgPool2d AvgPool3d
    pooling._LPPoolNd: LPPool1d LPPool2d LPPool3d
    pooling._AdaptiveAvgPoolNd: AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
    pooling._AdaptiveMaxPoolNd: AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d
    conv._ConvNd: Conv1d Conv3d ConvTranspose2d
    conv._ConvTransposeNd: ConvTranspose1d ConvTranspose2d ConvTranspose3d
    instancenorm._InstanceNorm: InstanceNorm1d InstanceNorm2d InstanceNorm3d
""".strip().split("\n")


@pytest.mark.parametrize("line", [line.strip() for line in BASES])
def test_bases_of_layers_are_pytorchs(line):
    path, names = line.split(": ")
    module, base = path.split(".")
    found = getattr(getattr(nn.modules, module), base)
    assert all(issubclass(getattr(nn, name), found) for name in names.split())
    torch = pytest.importorskip("torch")
    theirs = getattr(getattr(torch.nn.modules, module), base)
    for name in dir(torch.nn):
        kind, mine = getattr(torch.nn, name), getattr(nn, name, None)
        if isinstance(kind, type) and mine is not None:
            assert issubclass(kind, theirs) == issubclass(mine, found), name


def test_layers_of_ones_own_on_these_bases():
    class Focal(nn.modules.loss._WeightedLoss):
        def __init__(self, weight=None, size_average=None, reduce=None, reduction="mean", gamma=2):
            super().__init__(weight, size_average, reduce, reduction)
            self.gamma = gamma

        def forward(self, input, target):
            return getattr((input - target).abs() ** self.gamma * self.weight, self.reduction)()

    loss = Focal(ng.tensor([1.0, 2.0]), reduction="sum", gamma=1)
    assert loss(ng.ones(2), ng.zeros(2)).item() == 3 and "weight" in loss.state_dict()

    class AnyRank(nn.modules.batchnorm._BatchNorm):
        def _check_input_dim(self, input):
            pass

    assert AnyRank(3, affine=False)(ng.randn(2, 3, 1, 1, 1, 1)).shape[1] == 3
    assert nn.modules.batchnorm._NormBase(3, bias=False).bias is None

    class Standardised(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)

    layer, x = Standardised(1, 2, 3, padding=1, padding_mode="reflect"), ng.randn(1, 1, 5, 5)
    with ng.no_grad():
        other = nn.Conv2d(1, 2, 3, padding=1, padding_mode="reflect")
        other.load_state_dict(layer.state_dict())
        other.weight -= other.weight.mean()
        assert layer(x).allclose(other(x), atol=1e-6)

    class Named(nn.Linear):
        def _get_name(self):
            return "Scaled"

    assert repr(Named(1, 1)).startswith("Scaled(") and nn.ReLU()._get_name() == "ReLU"
    assert nn.Embedding(2, 2).sparse is nn.EmbeddingBag(2, 2, sparse=False).sparse is False


def test_fans_and_fills():
    init = nn.init
    weight = ng.empty(4, 3, 5)
    assert init._calculate_correct_fan(weight, "FAN_IN") == 15
    assert init._calculate_correct_fan(weight, "fan_out") == 20
    with pytest.raises(ValueError, match="Mode 'fan' not supported"):
        init._calculate_correct_fan(weight, "fan")
    weight.requires_grad_()
    for fill, args in (
        (init._no_grad_trunc_normal_, (0.0, 1.0, -0.5, 0.5)),
        (init._no_grad_normal_, (0.0, 1e-3)),
        (init._no_grad_uniform_, (-0.5, 0.5)),
        (init._no_grad_fill_, (0.25,)),
        (init._no_grad_zero_, ()),
    ):
        assert fill(weight, *args) is weight and weight.abs().max().item() <= 0.5
        assert weight.is_leaf


def test_modules_listed_as_often_as_they_stand():
    layer = nn.Linear(1, 1)
    both = nn.Sequential(layer, layer)
    assert len(list(both.modules())) == 2
    assert len(list(both.modules(remove_duplicate=False))) == 3


def test_the_tensor_of_a_leafs_node():
    x, y = ng.ones(2, requires_grad=True), nn.Parameter(ng.ones(2))
    (first, _), (second, _) = (x * y).grad_fn.next_functions
    assert first.variable is x and second.variable is y


def _add(index, folder, wrong):
    if index == wrong:
        raise ValueError(f"no file for {index}")
    (folder / str(index)).write_text(str(index))


def _leave(index):
    raise SystemExit(3)


def test_processes(tmp_path):
    mp = ng.multiprocessing
    assert mp.start_processes(_add, (tmp_path, None), nprocs=2, start_method="fork") is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]
    started = mp.start_processes(_add, (tmp_path, 1), nprocs=2, join=False, start_method="fork")
    assert len(started.pids()) == 2
    with pytest.raises(mp.ProcessRaisedException, match="no file for 1"):
        while not started.join():
            pass
    with pytest.raises(mp.ProcessExitedException, match="process 0 terminated with exit code 3"):
        mp.start_processes(_leave, start_method="fork")
    mp.set_sharing_strategy("file_system")
    with pytest.raises(ValueError, match="expected 'file_descriptor'"):
        mp.set_sharing_strategy("pigeon")


@pytest.mark.slow
def test_spawned_processes(tmp_path):
    ng.multiprocessing.spawn(_add, (tmp_path, None), nprocs=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0", "1"]


def test_the_prefix_of_a_model_within_another():
    whole = nn.Sequential(OrderedDict(module=nn.Linear(2, 2), module_2=nn.Linear(2, 1)))
    state = whole.state_dict()
    nn.modules.utils.consume_prefix_in_state_dict_if_present(state, "module.")
    assert sorted(state) == ["bias", "module_2.bias", "module_2.weight", "weight"]
    assert sorted(state._metadata) == ["", "module_2"]
    nn.Linear(2, 2).load_state_dict(state, strict=False)
    plain = {"a": 1}
    nn.modules.utils.consume_prefix_in_state_dict_if_present(plain, "module.")
    assert plain == {"a": 1}
