"""The optimiser: Adam as in the released code, and its step with a clipped gradient."""

from __future__ import annotations

import inspect
import math

import torch
from torch import Tensor

from nbl.models.base import System


class Adam(torch.optim.Adam):
    """As in the released code, fused.

    Its decorators for torch's compiler are taken off: they import it, which takes as long as to import torch.
    """

    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))

    def __init__(self, model: System, lr: float):
        super().__init__(model.parameters(), lr=lr, betas=model.betas, fused=True)


def halvings(perplexities: list[float | None], patience: int) -> int:
    """How often the learning rate is halved: after more than `patience` epochs without a better perplexity.

    >>> halvings([9.0, 8.0, 8.5, 8.5, 7.0, 7.0, 7.0], patience=1)
    2
    """
    best, waited, count = math.inf, 0, 0
    for perplexity in perplexities:
        if perplexity is None or perplexity < best:
            best, waited = best if perplexity is None else perplexity, 0
        elif (waited := waited + 1) > patience:
            waited, count = 0, count + 1
    return count


def clipped_step(optimiser: torch.optim.Optimizer, clip: float) -> Tensor:
    """One step with the gradient scaled down to a global norm of at most `clip`; gives its norm before.

    Does what `clip_grad_norm_` and a step do, but the fused optimiser scales as it reads the gradient.
    """
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    gradients = [parameter.grad.flatten() for parameter in parameters if parameter.grad is not None]
    norm = torch.stack([torch.dot(gradient, gradient) for gradient in gradients]).sum().sqrt()
    # The gradient is divided by it.
    optimiser.grad_scale = ((norm + 1e-6) / clip).clamp(min=1).float()  # type: ignore[attr-defined]
    optimiser.step()
    return norm
