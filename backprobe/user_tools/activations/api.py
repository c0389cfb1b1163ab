"""``bp.capture`` and ``bp.list_modules``: the two calls that people write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...basics.select import Selection
from ...basics.text import html_table, shape, text_table
from .chosen import chosen_modules
from .inputs import call, prepared
from .mapping import Activations
from .mode import Lines
from .options import Options, Treatment
from .recorder import Recorder

_NOTHING: object = object()


def capture(
    model: nn.Module,
    inputs: object = _NOTHING,
    *,
    select: Selection = None,
    depth: int | None = None,
    grads: bool | None = None,
    with_inputs: bool = False,
    lines: bool | str | list[str] | tuple[str, ...] = False,
    detach: bool = False,
    device: object = None,
    dtype: torch.dtype | None = None,
    index: object = None,
    reduce: Callable[[object], object] | None = None,
    to: str | os.PathLike[str] | None = None,
    preprocess: Callable[..., object] | None = None,
) -> Activations:
    """Keep the tensors that modules return.

    With `inputs` the model is called once, in the gradient mode and training mode that it is in. Without, what is
    returned is a context manager over ordinary code::

        acts = bp.capture(model, x)
        with bp.capture(model, select="encoder.*") as acts:
            model(x).sum().backward()

    Args:
        model: Any module. It is as it was when the call, or the block, is over.
        inputs: A tensor, a tuple of arguments, or a mapping of keyword arguments; with `preprocess`, raw input.
        select: Modules by name: a glob, a compiled regular expression, a predicate of name and module, or a list.
        depth: Levels to keep: an outermost chosen module is level 1, its children level 2, the model itself level 0.
        grads: Keep gradients when a backward comes by: ``acts["x"].grad`` and ``acts.grads["x"]``. By default where
            values stay attached to the graph.
        with_inputs: Keep what modules are called with too, as ``name<in>/0`` and ``name<in>/keyword``.
        lines: Keep results of ops by source line, for ``acts.at("model.py:41")``: True for all, or places.
        detach: Keep values without their graph. They are not copied.
        device: Move values there.
        dtype: Cast floating-point values to this.
        index: Keep ``tensor[index]``, copied.
        reduce: Keep what this function makes of each tensor. The order is index, reduce, dtype, device; gradients are
            treated the same way.
        to: A new file (``acts.safetensors``) or folder that values go to, detached, instead of memory. They are read
            back when asked for.
        preprocess: Makes the model's inputs of raw input: a tokenizer, a processor, a function.

    Returns:
        A read-only mapping from names to tensors, in execution order.

    Raises:
        BackprobeError: if nothing is chosen, or an argument makes no sense. What the model raises goes through.
    """
    chosen = chosen_modules(model, select, depth)
    detached = detach or to is not None
    places: bool | tuple[str, ...] = (
        (lines,) if isinstance(lines, str) else lines if lines is True else tuple(lines or ())
    )
    if isinstance(places, tuple):
        Lines(places)  # says what is wrong with them
    if preprocess is not None and inputs is _NOTHING:
        raise BackprobeError("preprocess= needs inputs to make tensors of: capture(model, text, preprocess=tokenizer)")
    options = Options(
        Treatment(detached, device, dtype, index, reduce),
        not detached if grads is None else grads,
        with_inputs,
        places,
        Path(to) if to is not None else None,
    )
    if inputs is _NOTHING:
        return Activations(Recorder(model, chosen, options))
    ready = prepared(model, inputs, preprocess)
    with Activations(Recorder(model, chosen, options)) as acts:
        acts.output = call(model, ready)
    return acts


class ModuleList:
    """Modules that a selection means, before anything runs."""

    def __init__(self, chosen: dict[str, nn.Module]) -> None:
        """Make a row of each chosen module: name, class, parameter count, own parameters."""
        self.rows = [
            (
                name or "(model)",
                type(module).__name__,
                f"{sum(p.numel() for p in module.parameters()):,}",
                ", ".join(f"{key} {shape(p.shape)}" for key, p in module.named_parameters(recurse=False)),
            )
            for name, module in chosen.items()
        ]
        self.names = list(chosen)

    def __len__(self) -> int:
        """Return the number of modules."""
        return len(self.rows)

    def __repr__(self) -> str:
        """Return the rows as a text table."""
        return text_table(_MODULE_HEAD, self.rows, {2})

    def _repr_html_(self) -> str:
        """Return the rows as an HTML table for a notebook."""
        return html_table(_MODULE_HEAD, self.rows, {2})


_MODULE_HEAD = ("name", "class", "parameters", "own parameters and shapes")


def list_modules(model: nn.Module, select: Selection = None, depth: int | None = None) -> ModuleList:
    """List the modules that ``capture`` would choose, with class, parameter count and shapes. Nothing runs.

    Raises:
        BackprobeError: if nothing is chosen.
    """
    return ModuleList(chosen_modules(model, select, depth))
