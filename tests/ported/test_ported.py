"""The programs give PyTorch's losses, gradients and weights, eagerly and with compiled steps."""

from __future__ import annotations

import warnings

import pytest

import numbagrad as ng

from . import (
    compression,
    densities,
    generative,
    habits,
    images,
    language,
    methods,
    own_optimisers,
    reinforcement,
    science,
    structures,
    translation,
)
from .run import Run, agree

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.peer

PROGRAMS = [
    *(language.nano_gpt, language.word2vec, translation.seq2seq, translation.translator),
    translation.stateful_language,
    *(images.vit, images.resnet, images.unet, images.style_transfer),
    *(generative.vae, generative.gan, generative.wgan_gp, generative.ddpm),
    *(densities.real_nvp, densities.mixture_density),
    *(reinforcement.dqn, reinforcement.sac, reinforcement.ppo),
    *(science.siren, science.pinn, science.neural_ode, science.gnn, science.matrix_factorisation),
    *(methods.maml, methods.simclr, methods.mixture_of_experts, methods.speech),
    *(compression.distillation, compression.quantised, habits.trainer, habits.averaged),
    *(structures.crf, structures.vq_vae, structures.radiance_field, structures.queue_contrast),
    *(own_optimisers.own_adam, own_optimisers.sharpness_aware, own_optimisers.energy_based),
    own_optimisers.domain_adversarial,
]
RECORDINGS = {
    "pinn": [2],  # coordinates that have a gradient add to it
    "matrix_factorisation": [2],  # a smaller last batch
    "trainer": [3, 1],  # without and with gradients to add to, and a smaller last batch
    "averaged": [2],  # a layer thaws
    "stateful_language": [2, 1],  # without and with a state
    "own_adam": [2],  # its state is loaded
}
"""How often the steps of a program are recorded, where that is not once each."""


@pytest.fixture(autouse=True)
def double_precision():
    for library in (torch, ng):
        library.set_default_dtype(library.float64)
    yield
    for library in (torch, ng):
        library.set_default_dtype(library.float32)


def numbers_of(program, library, compiled=False):
    run = Run(library, compiled)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program(library, library.nn, library.nn.functional, run)
    return run.finished(), run.steps


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_program_does_what_it_does_with_pytorch(program):
    expected, _ = numbers_of(program, torch)
    eager, _ = numbers_of(program, ng)
    agree(expected, eager, rtol=1e-6, atol=1e-8)
    compiled, steps = numbers_of(program, ng, compiled=True)
    agree(expected, compiled, rtol=1e-6, atol=1e-8)
    recordings = [step.cache_info().recordings for step in steps]
    assert recordings == RECORDINGS.get(program.__name__, [1] * len(steps))
