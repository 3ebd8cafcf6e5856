"""The optimiser: Adam as in the released code, and its step with a clipped gradient."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor


class Adam(torch.optim.Adam):
    """As in the released code, fused.

    Its decorators for torch's compiler are taken off: they import it, which takes as long as to import torch.
    """

    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))

    def __init__(self, model: torch.nn.Module, lr: float):
        super().__init__(model.parameters(), lr=lr, betas=(0.75, 0.999), fused=True)


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
