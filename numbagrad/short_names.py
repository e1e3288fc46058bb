"""What PyTorch's package itself has of ``nn.functional``, such as ``ng.conv2d``, ``ng.embedding``.

Some are the functions themselves, others take their arguments in an order of their own, as the
tables say; those that differ further are written out in ``other_forms.py``. ``nn`` is imported when
one is first asked for. Start reading at ``__getattr__``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .tensor import Tensor

__all__: list[str] = []

THE_SAME = """
    adaptive_avg_pool1d avg_pool1d bilinear celu celu_ channel_shuffle conv1d conv2d conv3d
    conv_transpose1d conv_transpose2d conv_transpose3d cosine_similarity group_norm hardshrink
    max_pool1d max_pool1d_with_indices max_pool2d max_pool3d pairwise_distance pdist pixel_shuffle
    pixel_unshuffle prelu rrelu rrelu_ selu selu_ threshold threshold_
""".split()
"""Functions whose arguments are those of ``nn.functional``."""

OTHER_NAMES = {"adaptive_max_pool1d": "adaptive_max_pool1d_with_indices"}
"""Functions that give what ``nn.functional`` gives under another name."""

NORM = "input weight bias running_mean running_var"
PAIR = "input1 input2 target margin reduction"
ORDERS = {
    "alpha_dropout": "input p train",
    "batch_norm": f"{NORM} training momentum eps cudnn_enabled",
    "binary_cross_entropy_with_logits": "input target weight pos_weight reduction",
    "cosine_embedding_loss": PAIR,
    "ctc_loss": "log_probs targets input_lengths target_lengths blank reduction zero_infinity",
    "embedding": "weight indices padding_idx scale_grad_by_freq sparse",
    "feature_alpha_dropout": "input p train",
    "hinge_embedding_loss": "input target margin reduction",
    "instance_norm": f"{NORM} use_input_stats momentum eps cudnn_enabled",
    "kl_div": "input target reduction log_target",
    "margin_ranking_loss": PAIR,
    "poisson_nll_loss": "input target log_input full eps reduction",
    "triplet_margin_loss": "anchor positive negative margin p eps swap reduction",
}
"""Functions with an order of their own."""

CALLED = {"indices": "input", "train": "training"}
"""What ``nn.functional`` calls an argument."""

REDUCTIONS = ("none", "mean", "sum")


OWN = """
    affine_grid_generator alpha_dropout_ constant_pad_nd dropout_ embedding_bag
    feature_alpha_dropout_ feature_dropout feature_dropout_ grid_sampler
""".split()
"""Functions that are written out, in ``other_forms``."""

NAMES = frozenset((*THE_SAME, *OTHER_NAMES, *ORDERS, *OWN))


def in_order(function: Callable[..., Tensor], name: str, order: list[str]) -> Callable[..., Tensor]:
    """``function`` with arguments in ``order``; a reduction may be a number."""

    def ordered(*args: Any, **kwargs: Any) -> Tensor:
        if len(args) > len(order):
            raise TypeError(
                f"{name}() takes {len(order)} arguments ({', '.join(order)}), got more."
            )
        given = dict(zip(order, args, strict=False))
        for key, value in kwargs.items():
            if key in given:
                raise TypeError(f"{name}() got multiple values for argument '{key}'")
            if key not in order:
                raise TypeError(f"{name}() got an unexpected keyword argument '{key}'")
            given[key] = value
        given.pop("cudnn_enabled", None)
        if (given.get("padding_idx") or 0) < 0:  # none, where nn.functional counts from the end
            del given["padding_idx"]
        reduction = given.get("reduction")
        if isinstance(reduction, int) and 0 <= reduction < len(REDUCTIONS):
            given["reduction"] = REDUCTIONS[reduction]
        return function(**{CALLED.get(key, key): value for key, value in given.items()})

    ordered.__name__ = ordered.__qualname__ = name
    ordered.__doc__ = f"""``nn.functional.{name}`` with PyTorch's short order of arguments.

    {", ".join(order)}. A reduction is a word, or 0 for none, 1 for mean, 2 for sum.
    The mean is the default, as PyTorch's signatures say; PyTorch itself takes none there.
    """
    return ordered


def __getattr__(name: str) -> Callable[..., Any]:
    if name not in NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .nn import functional

    if name in OWN:
        from . import other_forms

        return getattr(other_forms, name)
    function = getattr(functional, OTHER_NAMES.get(name, name))
    return in_order(function, name, ORDERS[name].split()) if name in ORDERS else function
