"""The layers, which hold parameters and buffers; their stateless twins: ``nn.functional``."""

from . import (
    activation,
    adaptive,
    attention,
    batchnorm,
    cell,
    container,
    conv,
    distance,
    dropout,
    fold,
    fractional,
    image,
    instancenorm,
    lazy,
    linear,
    linear_loss,
    loss,
    normalization,
    padding,
    parallel,
    pooling,
    rnn,
    sparse,
    transformer,
)
from . import utils as utils
from .activation import *  # noqa: F403
from .adaptive import *  # noqa: F403
from .attention import *  # noqa: F403
from .batchnorm import *  # noqa: F403
from .cell import *  # noqa: F403
from .container import *  # noqa: F403
from .conv import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .fold import *  # noqa: F403
from .fractional import *  # noqa: F403
from .image import *  # noqa: F403
from .instancenorm import *  # noqa: F403
from .lazy import *  # noqa: F403
from .linear import *  # noqa: F403
from .linear_loss import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module
from .normalization import *  # noqa: F403
from .padding import *  # noqa: F403
from .parallel import *  # noqa: F403
from .pooling import *  # noqa: F403
from .rnn import *  # noqa: F403
from .sparse import *  # noqa: F403
from .transformer import *  # noqa: F403

__all__ = [
    "Module",
    *activation.__all__,
    *adaptive.__all__,
    *attention.__all__,
    *batchnorm.__all__,
    *cell.__all__,
    *container.__all__,
    *conv.__all__,
    *distance.__all__,
    *dropout.__all__,
    *fold.__all__,
    *fractional.__all__,
    *image.__all__,
    *instancenorm.__all__,
    *lazy.__all__,
    *linear.__all__,
    *linear_loss.__all__,
    *loss.__all__,
    *normalization.__all__,
    *padding.__all__,
    *parallel.__all__,
    *pooling.__all__,
    *rnn.__all__,
    *sparse.__all__,
    *transformer.__all__,
]
