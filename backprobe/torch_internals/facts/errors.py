"""Facts about the texts of torch's errors when a forward or a backward fails. Each check provokes the error."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from ...basics import torch_texts
from .registry import ENGINE, OWN_PROCESS, expect, fact, leaf, said_by


@fact(
    "errors of losses without a graph",
    "none-grad and grad-mode-disabled are silent where no backward could run",
    "NO_GRAPH UNUSED",
)
def no_graph() -> None:
    """Check the errors of a loss without a graph, and of an input that the loss does not depend on."""
    text = said_by(leaf().detach().sum().backward)
    expect(torch_texts.NO_GRAPH in text, f"torch says {text}")
    text = said_by(lambda: torch.autograd.grad(leaf().sum(), leaf()))
    expect(torch_texts.UNUSED in text, f"torch says {text}")


@fact("errors of losses that are no scalars", "backward-error does not say what is missing", "NOT_SCALAR")
def not_scalar() -> None:
    """Check the error of a backward from a tensor of several elements."""
    text = said_by((leaf() * 1).backward)
    expect(torch_texts.NOT_SCALAR in text, f"torch says {text}")


@fact("errors of hooks that change a gradient", "backward-error does not name the hook", "CHANGED_BY_HOOK")
def changed_by_hook() -> None:
    """Check the error of a hook that returns a gradient of another shape."""
    x = leaf() * 1
    x.register_hook(lambda grad: grad.new_ones(7))
    text = said_by(x.sum().backward)
    expect(torch_texts.CHANGED_BY_HOOK.search(text) is not None, f"torch says {text}")


@fact(
    "errors of inference mode",
    "grad-mode-disabled is silent where a tensor of inference mode meets autograd",
    "INFERENCE",
)
def inference() -> None:
    """Check the error of an op that would save a tensor made in inference mode."""
    x = leaf()
    with torch.inference_mode():
        made = x * 1
    text = said_by(lambda: x * made)
    expect(torch_texts.INFERENCE in text, f"torch says {text}")


@fact(
    "errors of writes that autograd refuses in the forward",
    "forward-error is silent",
    "SPLIT_VIEW SPLIT_NAME LEAF_WRITTEN LEAF_VIEW NO_GRAD_VIEW CUSTOM_VIEW INFERENCE_WRITTEN OUT_REFUSED FLAG_REFUSED"
    " NOT_COPIED COPIES",
)
def refused_writes() -> None:
    """Check the errors of writes in place, ``out=``, and copies that autograd refuses."""
    x = leaf()
    base = x * 1
    with torch.no_grad():
        view = base[:1]
    with torch.inference_mode():
        made = x * 1

    class View(torch.autograd.Function):
        """A custom function whose result is a view."""

        @staticmethod
        def forward(ctx: object, given: torch.Tensor) -> torch.Tensor:
            """Return `given` as a vector that shares its memory."""
            return given.view(-1)

    refused = {
        torch_texts.SPLIT_VIEW: lambda: (x * 1).chunk(2)[0].add_(1),
        torch_texts.LEAF_WRITTEN: lambda: x.add_(1),
        torch_texts.LEAF_VIEW: lambda: x[:1].add_(1),
        torch_texts.NO_GRAD_VIEW: lambda: view.add_(1),
        torch_texts.CUSTOM_VIEW: lambda: View.apply(x * 1).add_(1),
        torch_texts.INFERENCE_WRITTEN: lambda: made.add_(1),
        torch_texts.OUT_REFUSED: lambda: torch.add(x, 1, out=torch.empty_like(x)),
        torch_texts.FLAG_REFUSED: lambda: (x * 1).requires_grad_(False),
        torch_texts.NOT_COPIED: lambda: getattr(torch.Tensor, torch_texts.COPIES)(x * 1, {}),
    }
    for part, call in refused.items():
        text = said_by(call)
        expect(part in text, f"torch says {text}")
    text = said_by(refused[torch_texts.SPLIT_VIEW])
    found = torch_texts.SPLIT_NAME.search(text)
    expect(found is not None and found[1] == "Split", f"torch says {text}")


@fact(
    "errors of optimizers, schedulers and gradient scalers",
    "optimizer-error does not say what to do about them",
    "SCHEDULE_OVER OTHER_GROUPS OTHER_GROUP SPARSE_GRADIENT NO_PARAMETERS NO_LEAF GIVEN_TWICE NO_FIRST_RATE"
    " ARGUMENT_MISSING UNSCALED_TWICE STEPPED_TWICE UNSCALED_LATE HALF_GRADIENTS NOTHING_UNSCALED",
    [OWN_PROCESS],
)
def refused_updates() -> None:
    """Check the errors of optimizers, schedulers and gradient scalers."""
    for part, call in _refused_updates().items():
        text = said_by(call, Exception)
        fits = part in text if isinstance(part, str) else part.search(text)
        expect(bool(fits), f"torch says {text}")


def _refused_updates() -> dict[Any, Callable[[], object]]:
    """Return calls of optimizers, schedulers and scalers that torch refuses, by what its error says."""
    x, half, sparse, other = leaf(), leaf().detach().half().requires_grad_(), leaf(), leaf(2)
    half.grad, sparse.grad, other.grad = half.detach(), x.detach().to_sparse(), other.detach()
    adam = torch.optim.Adam([other])
    adam.step()
    x.grad = x.detach()
    two = [{"params": [x]}, {"params": [other]}]
    over = torch.optim.lr_scheduler.OneCycleLR(torch.optim.SGD([x], momentum=0.9), 0.1, total_steps=1)
    unscaled, stepped, late = [(torch.amp.GradScaler("cpu"), torch.optim.SGD([leaf()])) for _ in range(3)]
    for scaler, optimizer in (unscaled, stepped, late):
        optimizer.param_groups[0]["params"][0].grad = x.detach()
        scaler.scale(x.sum())
    unscaled[0].unscale_(unscaled[1])
    stepped[0].step(stepped[1])
    late[0].step(late[1])
    fresh = torch.amp.GradScaler("cpu")
    fresh.scale(x.sum())

    def step_over() -> None:
        """Step a scheduler beyond its end, without warnings."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            over.step()
            over.step()

    return {
        torch_texts.SCHEDULE_OVER: step_over,
        torch_texts.OTHER_GROUPS: lambda: torch.optim.SGD(two).load_state_dict(adam.state_dict()),
        torch_texts.OTHER_GROUP: lambda: torch.optim.SGD([x, other]).load_state_dict(adam.state_dict()),
        torch_texts.SPARSE_GRADIENT: torch.optim.Adam([sparse]).step,
        torch_texts.NO_PARAMETERS: lambda: torch.optim.SGD([]),
        torch_texts.NO_LEAF: lambda: torch.optim.SGD([x * 1]),
        torch_texts.GIVEN_TWICE: lambda: torch.optim.SGD([*two, {"params": [x]}]),
        torch_texts.NO_FIRST_RATE: lambda: torch.optim.lr_scheduler.StepLR(adam, 1, last_epoch=3),
        torch_texts.ARGUMENT_MISSING: torch.optim.LBFGS([x]).step,
        torch_texts.UNSCALED_TWICE: lambda: unscaled[0].unscale_(unscaled[1]),
        torch_texts.STEPPED_TWICE: lambda: stepped[0].step(stepped[1]),
        torch_texts.UNSCALED_LATE: lambda: late[0].unscale_(late[1]),
        torch_texts.HALF_GRADIENTS: lambda: fresh.unscale_(torch.optim.SGD([half])),
        torch_texts.NOTHING_UNSCALED: lambda: fresh.step(torch.optim.SGD([leaf()])),
    }


@fact(
    "errors of writes into hooked outputs",
    "hook-inplace-conflict is silent",
    "HOOKED_VIEW WRITTEN_VIEW",
)
def hooked_view() -> None:
    """Check the error of a write to an output of a module that has backward hooks."""
    made = BackwardHook(torch.nn.Module(), [print], []).setup_output_hook(leaf() * 1)
    text = said_by(lambda: made.add_(1))
    expect(torch_texts.HOOKED_VIEW in text and torch_texts.WRITTEN_VIEW in text, f"torch says {text}")


class _Wrong(torch.autograd.Function):
    """A function whose backward returns a gradient of another shape, or one too few."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, shape: bool) -> torch.Tensor:
        """Return twice `x`. `shape` chooses what its backward does wrong."""
        ctx.shape = shape
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> object:
        """Return a gradient of another shape, or one gradient too few."""
        return (grad.new_ones(7), None) if ctx.shape else grad


@fact(
    "errors of wrong gradients",
    "wrong-backward-shape is silent: such errors are reported as backward-error",
    "WRONG_SHAPE WRONG_NUMBER WRONG_NAME",
    [ENGINE],
)
def wrong_gradients() -> None:
    """Check the errors of a custom function that returns wrong gradients."""
    for shape, words in ((True, torch_texts.WRONG_SHAPE), (False, torch_texts.WRONG_NUMBER)):
        made = _Wrong.apply(leaf(), shape)
        text = said_by(lambda made=made: made.sum().backward())  # type: ignore[misc]
        name = text.split(torch_texts.WRONG_NAME, 1)[-1].split(" ", 1)[0]
        expect(words in text and name == made.grad_fn.name(), f"torch says {text}")


class _Once(torch.autograd.Function):
    """A custom function without a second derivative."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        """Return twice `x`."""
        return x * 2

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: torch.autograd.function.FunctionCtx, grad: torch.Tensor) -> torch.Tensor:
        """Return twice `grad`."""
        return grad * 2


@fact(
    "errors of second derivatives",
    "where a JVP cannot be had, the op and what to do about it are not named",
    "NO_DERIVATIVE ATTENTION ONCE",
    [ENGINE],
)
def second_derivatives() -> None:
    """Check the errors of ops and functions that have no second derivative."""
    x, size = leaf(), leaf(1)
    (first,) = torch.autograd.grad((_Once.apply(x) * size).sum(), x, create_graph=True)
    text = said_by(first.sum().backward)
    expect(torch_texts.ONCE in text, f"torch says {text}")
    q = leaf(4).view(1, 1, 2, 2)
    made, _ = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, q, q)
    (first,) = torch.autograd.grad(made.sum(), q, create_graph=True)
    text = said_by(lambda: torch.autograd.grad(first.sum(), q))
    expect(torch_texts.NO_DERIVATIVE.search(text) is not None and torch_texts.ATTENTION in text, f"torch says {text}")


@fact(
    "errors of allocations",
    "out-of-memory is silent: such errors are reported as backward-error",
    "OUT_OF_MEMORY WANTED",
)
def allocations() -> None:
    """Check the error of an allocation that is too large, and that the requested size can be read from it."""
    text = said_by(lambda: torch.empty(1 << 50, dtype=torch.uint8))
    wanted = torch_texts.WANTED.search(text)
    found = torch_texts.OUT_OF_MEMORY.search(text) and wanted and (wanted["count"], wanted["unit"])
    expect(found == (str(1 << 50), "bytes"), f"torch says {text}")
