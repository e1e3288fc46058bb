"""Optimisers and learning rate schedulers."""

from typing import TYPE_CHECKING

from ..later import asked_for
from . import lr_scheduler
from .adam import Adam, AdamW
from .optimizer import Optimizer
from .sgd import SGD

if TYPE_CHECKING:
    from . import swa_utils
    from .adadelta import Adadelta
    from .adafactor import Adafactor
    from .adagrad import Adagrad
    from .asgd import ASGD
    from .betas import Adamax, Lion, NAdam, RAdam
    from .from_formula import elementwise
    from .lbfgs import LBFGS
    from .muon import Muon
    from .rmsprop import RMSprop
    from .rprop import Rprop

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "Lion",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "elementwise",
    "lr_scheduler",
    "swa_utils",
]

__getattr__ = asked_for(
    __name__,
    {
        "ASGD": "asgd",
        "Adadelta": "adadelta",
        "Adafactor": "adafactor",
        "Adagrad": "adagrad",
        "Adamax": "betas",
        "LBFGS": "lbfgs",
        "Lion": "betas",
        "Muon": "muon",
        "NAdam": "betas",
        "RAdam": "betas",
        "RMSprop": "rmsprop",
        "Rprop": "rprop",
        "elementwise": "from_formula",
        "swa_utils": "swa_utils",
    },
)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
