"""DataParallel and SyncBatchNorm, where there is one device."""

import numpy as np
import pytest

import numbagrad as ng
from numbagrad import nn
from numbagrad.errors import DeviceError


def test_data_parallel_calls_its_module():
    torch = pytest.importorskip("torch")
    net, his = nn.DataParallel(nn.Linear(2, 3)), torch.nn.DataParallel(torch.nn.Linear(2, 3))
    his.load_state_dict({k: torch.tensor(v.numpy()) for k, v in net.state_dict().items()})
    x = ng.randn(4, 2)
    assert net(x).equal(net.module(x)) and ng.compile(net)(input=x).allclose(net(x))
    np.testing.assert_allclose(
        net(x).detach().numpy(), his(torch.tensor(x.numpy())).detach().numpy(), rtol=1e-5
    )
    nn.DataParallel(net.module, device_ids=[0], output_device=ng.device("cpu"))
    with pytest.raises(DeviceError, match="uses one GPU"):
        nn.DataParallel(net.module, device_ids=[0, 1])


@pytest.mark.parametrize(("kind", "rank"), [("1d", 2), ("1d", 3), ("2d", 4), ("3d", 5)])
def test_sync_batch_norm_is_batch_norm(kind, rank):
    x = ng.randn(*(4, 3, 2, 2, 2)[:rank])
    net = nn.Sequential(nn.Sequential(getattr(nn, f"BatchNorm{kind}")(3, eps=0.1), nn.ReLU()))
    net[0][0].weight.data.uniform_(1, 2)
    expected, held, state = net(x), net[0][0].weight, net.state_dict()
    state = {name: value.clone() for name, value in state.items()}
    net[0][0].reset_running_stats()
    assert nn.SyncBatchNorm.convert_sync_batchnorm(net) is net
    assert type(net[0][0]) is nn.SyncBatchNorm and net[0][0].weight is held
    assert net(x).equal(expected)
    assert all(value.equal(state[name]) for name, value in net.state_dict().items())
    net.eval()
    assert type(nn.SyncBatchNorm.convert_sync_batchnorm(net)[0][0]) is nn.SyncBatchNorm
    assert not net[0][0].training


def test_a_norm_itself_comes_back_as_another():
    norm = nn.BatchNorm1d(3, affine=False, track_running_stats=False, momentum=None).eval()
    made = nn.SyncBatchNorm.convert_sync_batchnorm(norm)
    assert made is not norm and not made.training and made.weight is None
    assert repr(made) == repr(norm).replace("BatchNorm1d", "SyncBatchNorm")


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="no process groups"):
        nn.SyncBatchNorm(3, process_group="all")
    with pytest.raises(ValueError, match="at least 2D"):
        nn.SyncBatchNorm(3)(ng.ones(3))
