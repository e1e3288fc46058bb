"""The shortest tour of everything; runs first and takes a few seconds."""

from __future__ import annotations

import numbagrad as ng
from numbagrad import nn


def test_tensor():
    x = ng.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.shape == (2, 2) and x.dtype is ng.float32
    assert repr(x[0]) == "tensor([1., 2.])"


def test_op():
    x = ng.tensor([1.0, 2.0])
    assert ((x + 1.0) * x.exp2().log2()).tolist() == [2.0, 6.0]
    assert (x.view(2, 1) @ x.view(1, 2)).sum().item() == 9.0


def test_backward():
    x = ng.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward()
    assert x.grad.tolist() == [2.0, 4.0]


class MulConstant(ng.autograd.Function):
    @staticmethod
    def forward(ctx, x, constant):
        ctx.constant = constant
        return x * constant

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.constant, None


def test_function():
    x = ng.tensor([1.0, 2.0], dtype=ng.double, requires_grad=True)
    y = MulConstant.apply(x, 3.0)
    assert y.tolist() == [3.0, 6.0]
    assert y.grad_fn.name() == "MulConstantBackward"
    assert ng.autograd.gradcheck(MulConstant.apply, (x, 3.0))


def test_elementwise_formula():
    @ng.elementwise
    def cube(x):
        return x * x * x

    x = ng.tensor([2.0], requires_grad=True)
    (gx,) = ng.autograd.grad(cube(x), x, create_graph=True)
    (ggx,) = ng.autograd.grad(gx, x)
    assert (gx.item(), ggx.item()) == (12.0, 12.0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(2, 8)
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.hidden(x).relu())


def test_module():
    net = Net()
    assert sum(p.numel() for p in net.parameters()) == 2 * 8 + 8 + 8 * 2 + 2
    assert net(ng.ones(3, 2)).shape == (3, 2)


def test_training_step(tmp_path):
    ng.manual_seed(0)
    net, loss_of = Net(), nn.CrossEntropyLoss()
    optimizer = ng.optim.SGD(net.parameters(), lr=0.1)
    x, target = ng.tensor([[0.0, 1.0], [1.0, 0.0]]), ng.tensor([0, 1])
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[1] < losses[0]
    ng.save(net.state_dict(), tmp_path / "net.safetensors")
    twin = Net()
    twin.load_state_dict(ng.load(tmp_path / "net.safetensors"))
    assert twin(x).tolist() == net(x).tolist()
