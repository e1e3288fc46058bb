"""Networks of things without order: nodes with edges, points of a surface."""

from __future__ import annotations

from typing import Any

from .network import Network, Task, integers, normal, task


def graph_convolutions(lib: Any) -> Task:
    """Two layers, 500 features to 16 to 7 classes, on 2000 nodes with 8000 edges.

    Kipf and Welling, 2017.
    """
    nn, F = lib.nn, lib.nn.functional
    nodes, edges = 2000, lib.from_numpy(integers(2000, 2, 8000, seed=5))
    source, target = edges[0], edges[1]
    degree = lib.ones(nodes).index_add(0, target, lib.ones(8000))
    weight = (degree[source] * degree[target]).rsqrt()[:, None]

    def spread(h: Any) -> Any:
        arrived = lib.zeros(nodes, h.shape[1]).index_add(0, target, h[source] * weight)
        return arrived + h / degree[:, None]

    class Convolutions(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(500, 16, bias=False)
            self.second = nn.Linear(16, 7, bias=False)
            self.dropout = nn.Dropout(0.5)

        def forward(self, x: Any) -> Any:
            h = F.relu(spread(self.first(self.dropout(x))))
            return F.log_softmax(spread(self.second(self.dropout(h))), 1)

    module = Convolutions()

    def loss(x: Any, y: Any) -> Any:
        return F.nll_loss(module(x)[:140], y)

    return task(lib, module, loss, (normal(nodes, 500), integers(7, 140)), weight_decay=5e-4)


def graph_attention(lib: Any) -> Task:
    """One layer of four heads of width 8, on 1000 nodes of 64 features with 6000 edges.

    Velickovic et al., 2018.
    """
    nn, F = lib.nn, lib.nn.functional
    nodes, heads, width = 1000, 4, 8
    edges = lib.from_numpy(integers(nodes, 2, 6000, seed=5))
    source, target = edges[0], edges[1]

    class Attention(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(64, heads * width, bias=False)
            self.scores = nn.Parameter(lib.zeros(2, heads, width))
            self.head = nn.Linear(heads * width, 7)

        def forward(self, x: Any) -> Any:
            h = self.first(x).view(nodes, heads, width)
            sent, heard = (h * self.scores[0]).sum(-1), (h * self.scores[1]).sum(-1)
            score = F.leaky_relu(sent[source] + heard[target], 0.2)
            score = lib.exp(score - score.max())
            index = target[:, None].expand(-1, heads)
            total = lib.zeros(nodes, heads).scatter_add(0, index, score)
            share = score / (total[target] + 1e-9)
            arrived = h[source] * share[:, :, None]
            out = lib.zeros(nodes, heads, width).index_add(0, target, arrived)
            return self.head(F.elu(out.view(nodes, heads * width)))

    module = Attention()

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(module(x), y)

    return task(lib, module, loss, (normal(nodes, 64), integers(7, nodes)))


def pointnet(lib: Any) -> Task:
    """The same perceptron for each of 512 points, their maxima, and a class; batch 16.

    Qi et al., 2017.
    """
    nn, F = lib.nn, lib.nn.functional

    class PointNet(lib.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.of_points = nn.Sequential(
                nn.Conv1d(3, 64, 1),
                nn.BatchNorm1d(64),
                nn.ReLU(),
                nn.Conv1d(64, 128, 1),
                nn.BatchNorm1d(128),
                nn.ReLU(),
                nn.Conv1d(128, 256, 1),
                nn.BatchNorm1d(256),
            )
            self.head = nn.Sequential(
                nn.Linear(256, 128),
                nn.BatchNorm1d(128),
                nn.ReLU(),
                nn.Dropout(0.3),
                nn.Linear(128, 10),
            )

        def forward(self, x: Any) -> Any:
            return self.head(self.of_points(x).max(2)[0])

    module = PointNet()

    def loss(x: Any, y: Any) -> Any:
        return F.cross_entropy(module(x), y)

    return task(lib, module, loss, (normal(16, 3, 512), integers(10, 16)))


NETWORKS = (
    Network("graph convolutions", graph_convolutions, random=True),
    Network("graph attention", graph_attention),
    Network("PointNet", pointnet, random=True),
)
