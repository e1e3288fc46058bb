"""Names and keywords of PyTorch that are deprecated there, or that ask for nothing here."""

from __future__ import annotations

import pytest

import numbagrad as ng

nn = ng.nn

OLDER_FILLS = """
    constant dirac eye kaiming_normal kaiming_uniform normal orthogonal sparse uniform xavier_normal
    xavier_uniform
""".split()


@pytest.mark.parametrize("name", OLDER_FILLS)
def test_fills_by_their_older_names(name):
    shape = (3, 3, 3) if name == "dirac" else (3, 3)
    args = {"constant": (2.0,), "sparse": (0.5,)}.get(name, ())
    found = []
    for function in (getattr(nn.init, name), getattr(nn.init, name + "_")):
        ng.manual_seed(0)
        x = ng.empty(*shape)
        if not name.endswith("_") and not found:
            with pytest.warns(FutureWarning, match=rf"nn.init.{name} is deprecated") as told:
                assert function(x, *args) is x
            assert told[0].filename == __file__
        else:
            function(x, *args)
        found.append(x.tolist())
    assert found[0] == found[1]


def test_hardtanh_by_its_older_keywords():
    with pytest.warns(FutureWarning, match="max_value is deprecated: it is called max_val"):
        layer = nn.Hardtanh(0.0, 2.0, False, None, 3.0)
    assert repr(layer) == "Hardtanh(min_val=0.0, max_val=3.0)"
    assert layer(ng.tensor([-1.0, 5.0])).tolist() == [0.0, 3.0]


def test_clip_grad_norm_by_its_older_name():
    x = ng.tensor([3.0, 4.0], requires_grad=True)
    x.grad = ng.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="call clip_grad_norm_"):
        assert nn.utils.clip_grad_norm(x, 1.0).item() == 5.0
    assert x.grad.norm().item() == pytest.approx(1.0)


def test_keywords_that_ask_for_nothing():
    assert nn.utils.get_total_norm([ng.ones(4)], 2.0, False, True).item() == 2.0
    loader = ng.data.DataLoader(range(3), pin_memory_device="cuda", in_order=False)
    assert [x.item() for x in loader] == [0, 1, 2] and not loader.in_order
    optimizer = ng.optim.AdamW([ng.ones(1, requires_grad=True)], maximize=True, foreach=False)
    assert optimizer.defaults["maximize"]


def test_memory_of_no_gpu():
    for function in (ng.cuda.memory_allocated, ng.cuda.max_memory_reserved):
        assert function() == function(device=None)
    with pytest.raises(ng.errors.DeviceError, match="expected a GPU"):
        ng.cuda.memory_allocated("cpu")


def test_grad_scaler_of_the_package():
    assert ng.GradScaler is ng.amp.GradScaler
