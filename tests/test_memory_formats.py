"""``memory_format=``: taken where PyTorch takes it, checked, and without effect."""

import copy

import pytest

import numbagrad as ng


@pytest.mark.parametrize("name", "zeros_like ones_like empty_like rand_like randn_like".split())
def test_likes_take_a_memory_format(name):
    x = ng.ones(2, 3, 4, 5)
    assert getattr(ng, name)(x, memory_format=ng.preserve_format).shape == x.shape


def test_conversions_take_a_memory_format():
    x = ng.ones(2, 3, 4, 5)
    assert ng.full_like(x, 2.0, memory_format=ng.contiguous_format).sum().item() == 240.0
    assert ng.randint_like(x, 3, memory_format=ng.preserve_format).shape == x.shape
    assert x.contiguous(memory_format=ng.channels_last) is x
    assert x.to(memory_format=ng.channels_last) is x
    assert x.clone(memory_format=ng.channels_last).tolist() == x.tolist()
    model = ng.nn.Conv2d(1, 1, 1).to("cpu", memory_format=ng.channels_last, non_blocking=True)
    assert isinstance(model, ng.nn.Conv2d)


def test_is_contiguous_tells_the_truth():
    x = ng.ones(2, 3, 4, 5)
    by_channels = x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2)
    for tensor, flat, last in ((x, True, False), (by_channels, False, True)):
        assert tensor.is_contiguous() == flat
        assert tensor.is_contiguous(memory_format=ng.contiguous_format) == flat
        assert tensor.is_contiguous(memory_format=ng.channels_last) == last
    assert not ng.ones(3).is_contiguous(memory_format=ng.channels_last_3d)


def test_other_values_are_refused():
    x = ng.ones(2)
    for call in (x.clone, x.contiguous, x.to, x.is_contiguous, ng.nn.Linear(1, 1).to):
        with pytest.raises(TypeError, match=r"memory_format must be ng.contiguous_format.*'x'"):
            call(memory_format="x")
    for name in ("zeros_like", "randn_like"):
        with pytest.raises(TypeError, match=f"{name}: memory_format must be"):
            getattr(ng, name)(x, memory_format=1)


def test_a_name_stays_itself():
    assert copy.deepcopy(ng.channels_last) is ng.channels_last
    assert repr(ng.preserve_format) == "ng.preserve_format"
    assert isinstance(ng.channels_last, ng.memory_format)


def test_what_is_flipped_lies_as_it_lay():
    x = ng.rand(2, 3, 4, 5).permute(0, 2, 3, 1)
    assert x.flip(1, 2).stride() == (60, 5, 1, 20)
    assert x[:, :, ::2].flip(0).stride() == (36, 3, 1, 12)
    y = ng.rand(4, 6).t()
    assert (y.flip(0).stride(), y.rot90().stride()) == ((1, 6), (6, 1))
    assert y.flip(0, 1).tolist() == [row[::-1] for row in y.tolist()[::-1]]
