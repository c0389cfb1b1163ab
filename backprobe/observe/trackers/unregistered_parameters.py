"""Detects trainable tensors that ``parameters()`` does not list.

Examples are modules in plain lists, and tensors that are no parameters. The search runs when a called module or a leaf
with a gradient belongs to no outermost module. This is rare, so the search may be slow.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
from torch import nn

from ...records import Site, Stray
from ...source.calls import calls_of_method
from ...source.definitions import assigned, filled_at, given, replaced_at
from ...source.frames import CodeLocation
from ...source.roots import ModuleCallRef, RootModule, clean_path
from ...torch_internals import private
from ...torch_internals.structure import attributes_of, is_a
from ..forward.detach_points import leaves_of
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Path of the owner, its class, attribute, kind of container, and index in the container.
_Place = tuple[str, type, str, str, str]


@dataclass
class UnregisteredPlace:
    """An attribute that holds unregistered parameters, or a line that makes new ones in each call."""

    root: RootModule | None
    owner: str
    attribute: str
    how: str
    site: Site | None
    filled: Site | None = None
    names: list[str] = field(default_factory=list)
    leaves: list[weakref.ref[torch.Tensor]] = field(default_factory=list)


class UnregisteredParameters(Tracker):
    """Tracker of unregistered parameters, by place."""

    def __init__(self, context: TrackerContext) -> None:
        self._context, self._modules, self._frames = context, context.modules, context.frames
        self._found: dict[tuple[object, ...], UnregisteredPlace] = {}

    def unregistered_module_called(self, module: nn.Module, parent: ModuleCallRef, spot: CodeLocation | None) -> None:
        """Record the parameters of a called module that does not belong to the outermost module around it.

        :param parent: the module call in which it was called.
        """
        trainable = [(n, p) for n, p in module.named_parameters() if p.requires_grad]
        if not trainable or len(self._found) > 100:
            return
        place = self._find_place(parent.root, module)
        if place is None:
            site = self._frames.site(spot)
            found_place = self._place_at(
                (site,), UnregisteredPlace(parent.root, parent.path or "", "", "a place that was not found", site)
            )
            if found_place.leaves and not any(r() is p for r in found_place.leaves for _, p in trainable):
                found_place.how = "made in the forward"  # another module than in the previous call
            prefix = type(module).__name__
        else:
            owner, cls, attribute, how, key = place
            path = clean_path_of(parent.root, owner)
            made = UnregisteredPlace(
                parent.root, path, attribute, how, given(cls, attribute), filled_at(cls, attribute)
            )
            found_place = self._place_at((id(parent.root), path, attribute), made)
            prefix = f"{attribute}{key}"
        for name, p in trainable:
            self._add(found_place, f"{prefix}.{name}", p)

    def unregistered_leaf_found(self, tensor: object) -> None:
        """Record a leaf with a gradient that belongs to no outermost module, if an attribute of a module holds it."""
        if len(self._found) > 100:
            return
        for root in self._modules.roots:
            place, made = self._find_place(root, tensor), False
            if place is None:
                place, made = self._find_place(root, tensor, made=True), True
            if place is None:
                continue
            owner, cls, attribute, how, key = place
            site = assigned(cls, attribute)
            if made:
                site = site or replaced_at(self._frames, attribute, cls) or self._registered(attribute)
                self._add_made(root, place, tensor, site)
                return
            if site is None or (not isinstance(tensor, nn.Parameter) and site.function != "__init__"):
                return  # an input that is kept for some time
            how = how if isinstance(tensor, nn.Parameter) or key else "a tensor that is not a parameter"
            path = clean_path_of(root, owner)
            made_at = given(cls, attribute)
            found_place = self._place_at(
                (id(root), path, attribute), UnregisteredPlace(root, path, attribute, how, made_at)
            )
            self._add(found_place, f"{attribute}{key}", tensor)
            return

    def _registered(self, attribute: str) -> Site | None:
        """Return the line that calls ``register_buffer("attribute", ...)``."""
        calls = calls_of_method(self._frames, "register_buffer")
        return next((site for site, *_ in calls if attribute in site.text), None)

    def _add_made(self, root: RootModule, place: _Place, tensor: object, site: Site | None) -> None:
        """Record an attribute computed from a leaf that nothing else holds, such as ``nn.Parameter(...).to(...)``."""
        owner, _, attribute, _, key = place
        if site is None or (site.function not in _SETUP_METHODS and not isinstance(tensor, nn.Parameter)):
            return
        path = clean_path_of(root, owner)
        how = "what was made from a parameter that nobody holds (a cast, a view, a product)"
        found_place = self._place_at((id(root), path, attribute), UnregisteredPlace(root, path, attribute, how, site))
        self._add(found_place, f"{attribute}{key}", tensor)

    def _place_at(self, key: tuple[object, ...], new: UnregisteredPlace) -> UnregisteredPlace:
        """Return the known place with this key, or `new`, which is known from now on."""
        return self._found.setdefault(key, new)

    def _add(self, found_place: UnregisteredPlace, name: str, tensor: torch.Tensor) -> None:
        """Add a tensor under `name` to a place, unless it is there already or the place has a hundred."""
        if len(found_place.names) < 100 and not any(r() is tensor for r in found_place.leaves):
            found_place.names.append(name)
            found_place.leaves.append(private.tensor_ref(tensor))

    def _find_place(self, root: RootModule, thing: object, made: bool = False) -> _Place | None:
        """Return the place that holds `thing`, or with `made`, a tensor computed from it; ``None`` if there is none."""
        module = root.ref()
        if module is None:
            return None
        for path, owner in module.named_modules():
            for attribute, value in [*vars(owner).items(), *(owner._buffers.items() if made else ())]:
                if attribute.startswith("_") and attribute in _MODULE_ATTRIBUTES:
                    continue
                for how, key, item in _items(value):
                    if made:
                        if is_a(item, torch.Tensor) and item.grad_fn is not None and _is_computed_from(item, thing):
                            return path, type(owner), attribute, how, key
                    elif item is thing:
                        return path, type(owner), attribute, how, key
                    elif is_a(item, nn.Module) and (inside := _path_in(item, thing)) is not None:
                        return path, type(owner), attribute, how, key + inside
        return None

    def records(self) -> tuple[Stray, ...]:
        """Return a record of each place whose tensors no optimizer holds, with their names."""
        held = self._context.steps.optimized_parameters
        trained = None if held is None else {id(ref) for ref in held.values()}
        found = []
        for found_place in self._found.values():
            owner = (
                self._modules.full_name(found_place.root, found_place.owner)
                if found_place.root is not None
                else found_place.owner
            )
            known = [None if trained is None else id(ref) in trained for ref in found_place.leaves]
            prefix = f"{owner}." if owner and found_place.attribute else ""
            names = tuple(f"{prefix}{n}" for n, t in zip(found_place.names, known, strict=True) if not t)
            if names:
                at = found_place.site, trained is not None, found_place.filled
                found.append(Stray(names, owner, found_place.attribute, found_place.how, *at))
        return tuple(found)


#: Names of methods that set up a module.
_SETUP_METHODS = frozenset({"__init__", "__post_init__", "setup", "build", "reset_parameters", "<module>"})
#: Attributes of every module, which hold registered objects and hooks.
_MODULE_ATTRIBUTES = frozenset(vars(nn.Module()))


def _is_computed_from(item: object, leaf: object) -> bool:
    """Return whether a few ops computed `item` from `leaf` alone. Values that a forward stored have a larger graph."""
    return leaves_of([item], limit=8).keys() == {id(leaf)}


def _path_in(module: nn.Module, thing: object) -> str | None:
    """Return the path of `thing` in `module`: a dot and the name of a parameter, or an empty string for a module.

    :returns: ``None`` if `module` does not contain `thing`.
    """
    if is_a(thing, nn.Module):
        return "" if any(m is thing for m in module.modules()) else None
    return next((f".{name}" for name, p in module.named_parameters() if p is thing), None)


def _items(value: Any, depth: int = 2) -> Iterator[tuple[str, str, Any]]:
    """Yield the objects that an attribute's value is or contains, as (kind of container, index, object)."""
    yield "an attribute that is not registered", "", value
    if depth and is_a(value, (list, tuple)):
        for i, item in enumerate(value[:1000]):
            for _, key, inner in _items(item, depth - 1):
                yield f"a plain {type(value).__name__}", f".{i}{key}", inner
    elif depth and is_a(value, dict):
        for k, item in list(value.items())[:1000]:
            for _, key, inner in _items(item, depth - 1):
                yield f"a plain {type(value).__name__}", f".{k}{key}", inner
    elif depth and is_a(value, (set, frozenset)):
        for item in list(value)[:1000]:
            yield f"a plain {type(value).__name__}", "", item
    elif depth and is_a(value, FunctionType):
        for cell in value.__closure__ or ():
            with contextlib.suppress(ValueError):  # an empty cell
                yield "a function's closure", "", cell.cell_contents
    elif depth and type(value).__module__.partition(".")[0] not in ("torch", "builtins", "numpy"):
        for name, item in list(attributes_of(value).items())[:1000]:
            if not is_a(value, nn.Module):
                yield "a plain object", f".{name}", item


def clean_path_of(root: RootModule, path: str) -> str:
    """Return `path` in an outermost module without the parts that wrappers add, if the module is alive."""
    module = root.ref()
    return clean_path(module, path) if module is not None else path
