"""Selects the modules to capture, and names the tensors in their outputs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

from ...basics.errors import BackprobeError
from ...basics.select import Choice, Selection
from ...source.roots import clean_path
from ...torch_internals.structure import leaves

#: Types of returned values that contain no tensors.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)


def chosen_modules(model: nn.Module, select: Selection, depth: int | None) -> dict[str, nn.Module]:
    """Modules of `model` by name, in the order of ``named_modules``.

    A module that has several names goes by the first one that is chosen. ``depth`` counts levels: an outermost chosen
    module is level 1, its children level 2; the model itself is level 0.

    Raises:
        BackprobeError: if `model` is no module, `depth` is not at least 0, or nothing is chosen.
    """
    if not isinstance(model, nn.Module):
        raise BackprobeError(f"capture() needs a torch.nn.Module, not {type(model).__name__}")
    if depth is not None and (isinstance(depth, bool) or not isinstance(depth, int) or depth < 0):
        raise BackprobeError(f"depth must be a number of levels, 0 or more, not {depth!r}")
    wanted = Choice(select)
    paths = {clean_path(model, path): m for path, m in model.named_modules(remove_duplicate=False)}
    picked: dict[str, nn.Module] = {}
    levels: dict[str, int] = {}
    met: set[int] = set()
    for path, module in paths.items():
        if not wanted(path, module) or id(module) in met:
            continue
        level = 1 + max((levels[above] for above in _above(path) if above in levels), default=0) if path else 0
        levels[path] = level
        if depth is None or level <= depth:
            met.add(id(module))
            picked[path] = module
    wanted.check(paths, "module")
    if not picked:
        raise _too_shallow(levels, depth)
    # A container such as ModuleList cannot be called, so there is nothing to capture.
    return {path: m for path, m in picked.items() if _has_forward(m)} or picked


def _has_forward(module: nn.Module) -> bool:
    """Return whether the module defines a ``forward``, so that it can be called."""
    return getattr(module.forward, "__func__", None) is not nn.Module.forward


def _above(path: str) -> Iterator[str]:
    """Yield the names of the modules around the one called `path`."""
    while path:
        path = path.rpartition(".")[0]
        yield path


def _too_shallow(levels: dict[str, int], depth: int | None) -> BackprobeError:
    """Return the error for a `depth` that leaves no module.
    :param levels: the level of each chosen module by name.
    """
    name, level = min(levels.items(), key=lambda item: item[1])
    return BackprobeError(f"depth={depth} leaves nothing: {name!r}, an outermost chosen module, is at level {level}")


def named_tensors(value: object) -> tuple[list[tuple[str, torch.Tensor]], list[str]]:
    """Return the tensors in a nested value, as (suffix, tensor), and descriptions of other objects.

    A suffix is a path such as ``/1/hidden``.
    """
    found: list[tuple[str, torch.Tensor]] = []
    odd: list[str] = []
    for suffix, one in leaves(value, spelled=lambda part: f"/{part.field or part.key}"):
        if isinstance(one, torch.Tensor):
            found.append((suffix, one))
        elif not isinstance(one, _PLAIN):
            odd.append(f"{suffix or 'the output'} is a {type(one).__name__}")
    return found, odd
