"""``--ask divergence``: two outermost modules of one structure in the same script, module by module."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ...records import Divergence
from ...source.defined import defined_at
from ...source.roots import RootModule, Where
from ...torchside.structure import tensors_in
from ..events import Tracker
from ..forward.leaves import owners_of
from ..scene import Scene
from ..schedule.detail import Settings

#: Relative difference that rounding does not explain.
BOUND = {torch.float64: 1e-9, torch.float32: 1e-4}
_LIMIT = 64 << 20


class Diverging(Tracker):
    """Keeps what each module of each outermost module returned on its first call."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return "divergence" in settings.ask

    def __init__(self, scene: Scene) -> None:
        self._bytes = 0
        #: Root module -> (path, class, output, plain attributes, owners, state), as modules returned.
        self._seen: dict[int, tuple[RootModule, list[tuple[str, str, list[Any], dict[str, Any], Any, Any]]]] = {}

    def module_left(self, module: nn.Module, where: Where, output: Any) -> None:
        if where.call != 1 or where.path is None:
            return
        root, rows = self._seen.setdefault(id(where.root), (where.root, []))
        if any(row[0] == where.path for row in rows) or self._bytes > _LIMIT:
            return
        with torch.no_grad():
            tensors = [t.detach().clone() for t in tensors_in(output, most=16) if t.is_floating_point()]
        self._bytes += sum(t.numel() * t.element_size() for t in tensors)
        model = root.ref()
        plain = {k: v for k, v in vars(module).items() if isinstance(v, (bool, int, float, str)) and k[0] != "_"}
        owners = owners_of(model, where.path) if model is not None else []
        rows.append((where.path, where.class_name, tensors, plain, owners, _state(module)))

    def records(self) -> tuple[Divergence, ...]:
        """The first difference between outermost modules of one structure, each against the first of its kind."""
        found = []
        kinds: dict[Any, list[Any]] = {}
        for root, rows in self._seen.values():
            key = (root.class_name, tuple((path, name) for path, name, *_ in rows))
            if key in kinds:
                first = _first(kinds[key], rows)
                if first is not None:
                    found.append(first)
            else:
                kinds[key] = rows
        return tuple(found)


def _first(a: list[Any], b: list[Any]) -> Divergence | None:
    matching: list[str] = []
    pairs = {one[0]: (one, two) for one, two in zip(a, b, strict=True)}
    for (path, name, xs, plain, owners, state), (_, _, ys, other, _, its) in zip(a, b, strict=True):
        worst = 0.0
        for x, y in zip(xs, ys, strict=False):
            if x.shape != y.shape:
                return None
            # Of few digits each is wrong by itself; of many the worst tells most.
            few = x.dtype not in BOUND
            difference, size = ((float(_size(t, few)) if t.numel() else 0.0) for t in (x - y, x))
            bound = BOUND.get(x.dtype) or _rounding(x)
            if difference > bound * max(size, 1e-30):
                worst = max(worst, difference / max(size, 1e-30))
        if worst:
            inside = ""
            above = path.rpartition(".")[0]
            if path and state and state == its and plain == other and above in pairs:
                # The same module in both: it was given something else, by the module around it.
                inside = path
                (path, name, _, plain, owners, _), (_, _, _, other, _, _) = pairs[above]
            changed = [k for k in plain if k in other and plain[k] != other[k] and k != "training"]
            site = defined_at(owners[:-1], path.rpartition(".")[2]) if len(owners) > 1 else None
            values = tuple(f"{k}: {plain[k]} and {other[k]}" for k in changed)
            return Divergence(path, name, worst, values, tuple(matching), site, inside)
        matching.append(path)
    return None


def _size(t: torch.Tensor, whole: bool) -> torch.Tensor:
    return t.double().norm() if whole else t.abs().max()


def _rounding(x: torch.Tensor) -> float:
    """What sums in another order, over as many terms as a row of `x` has, change in a type of few digits: each term is
    rounded, now up, now down."""
    terms = x.shape[-1] if x.dim() else 1
    return float(max(1e-2, torch.finfo(x.dtype).eps / 2 * terms**0.5))


def _state(module: nn.Module) -> tuple[tuple[float, float], ...]:
    """Two numbers for each parameter and buffer of a module that has no others inside; empty where it has none. A
    transposed one, or one in another order, has others."""
    if any(True for _ in module.children()) or not module._parameters:
        return ()
    held = [t for t in (*module.parameters(), *module.buffers()) if t.is_floating_point()]
    if any(t.is_meta or (type(t) is not torch.Tensor and type(t) is not nn.Parameter) for t in held):
        return ()
    with torch.no_grad():
        return tuple(map(_sums, held))


def _sums(t: torch.Tensor) -> tuple[float, float]:
    flat = t.flatten().double()
    places = torch.linspace(1.0, 2.0, flat.numel(), dtype=torch.float64, device=flat.device)
    return float(flat @ places), float(flat.abs().sum())
