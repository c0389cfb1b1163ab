"""A custom function whose backward requests more memory than the device has."""

from __future__ import annotations

from typing import Any

import torch

#: Bytes that the backward asks for.
WANTED = 1 << 46


class Allocates(torch.autograd.Function):
    """Copies its input; its backward runs out of memory."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad + torch.empty(WANTED // 4, device=grad.device)[: grad.numel()].view_as(grad)
