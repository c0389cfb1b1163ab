"""Finds activations on which ``retain_grad`` was called.

Note [Activations that retain gradients]: every engine pass through an activation that retains its gradient adds to its
``.grad``, even in ``autograd.grad``. Torch has no list of such tensors and no name for the hooks that do it, but a node
counts those of its outputs. `Layout` finds that counter in the node's memory by calling ``retain_grad`` on tensors of
its own. If no reachable node has any, there is nothing to protect. Otherwise they are searched for among the
activations found before and the young generations of the garbage collector; only if fewer are found than were counted,
among all objects. A tensor without a Python object needs no protection: no code can read its ``.grad``.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
from collections.abc import Callable, Iterable
from functools import cache

import torch

from . import references
from .deep_graph_free import protect_walked
from .modes import disable_function_modes, no_dispatch_modes

_Word = ctypes.c_size_t
_SIZE = ctypes.sizeof(_Word)
#: The same as a power of two: a word's index is its address divided by the size.
_SHIFT = _SIZE.bit_length() - 1
#: The number of words of a node that are searched; it has more.
_WORDS = 40
#: Possible sizes of an edge in C++: a pointer of one word or two, and a number padded to one.
_EDGES = (2 * _SIZE, 3 * _SIZE)


#: The activations found before, by the ``id`` of their reference.
_known: dict[int, Callable[[], torch.Tensor | None]] = {}


def activations_retaining_gradient() -> list[torch.Tensor]:
    """Return all activations that retain their gradient."""
    found = _select_retaining(references.tensors_alive())
    _known.clear()
    _remember(found)
    return found


def _remember(found: Iterable[torch.Tensor]) -> None:
    """Keep weak references to `found`, to search among these tensors first the next time."""
    for tensor in found:
        ref = references.tensor_ref(tensor)
        _known[id(ref)] = ref


def _select_retaining(tensors: Iterable[torch.Tensor]) -> list[torch.Tensor]:
    """Return those of `tensors` that are activations and retain their gradient."""
    found = []
    for tensor in tensors:
        with contextlib.suppress(RuntimeError):  # a wrapper of a transform that is over
            if not tensor.is_leaf and tensor.retains_grad:
                found.append(tensor)
    return found


def _find_retaining(nodes: Iterable[torch.autograd.graph.Node], count: int) -> list[torch.Tensor]:
    """Return the `count` activations that `nodes` made and that retain their gradient.

    If a search among known and young objects finds another number, all activations that retain it are returned.
    """
    made = set(nodes)
    for key, ref in list(_known.items()):
        if ref() is None:
            del _known[key]
    near = {id(tensor): tensor for ref in list(_known.values()) if (tensor := ref()) is not None}
    near.update((id(tensor), tensor) for young in (0, 1) for tensor in references.tensors_alive(young))
    found = [tensor for tensor in _select_retaining(near.values()) if tensor.grad_fn in made]
    if len(found) != count:
        return activations_retaining_gradient()
    _remember(found)
    return found


class RetainingActivations:
    """The activations that a pass from `roots` may add a gradient to. A search is made only when there are new ones."""

    def __init__(self, roots: Iterable[torch.Tensor]) -> None:
        """Take the tensors from which the passes start."""
        self._roots = {node: None for root in roots if (node := root.grad_fn) is not None}
        self._retaining_count = 0
        self._found: list[Callable[[], torch.Tensor | None]] = []

    def __call__(self) -> list[torch.Tensor]:
        """Return the activations that retain their gradient and are reachable from the roots now."""
        layout = _layout()
        count, nodes = (-1, []) if layout is None else layout.count(self._roots)
        if count != self._retaining_count or count < 0:
            self._retaining_count = count
            found = activations_retaining_gradient() if count < 0 else _find_retaining(nodes, count)
            self._found = [references.tensor_ref(tensor) for tensor in found]
        return [tensor for ref in self._found if (tensor := ref()) is not None]


def _words(address: int, count: int) -> list[int]:
    """Return `count` words of memory from `address` on."""
    return list((_Word * count).from_address(address))


class InspectedFunction(torch.autograd.Function):
    """A custom function whose node is inspected."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        """Return a copy of `x`."""
        return x.clone()

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        """Return `grad` unchanged."""
        return grad


class Layout:
    """The offset of the counter of outputs that retain their gradient in a node's memory.

    :raises LookupError: the offset cannot be determined.
    """

    def __init__(self) -> None:
        """Find the offsets by experiments with tensors and nodes made for that."""
        #: All memory as words: an index takes a quarter of the time of an object for each word.
        self._memory = (_Word * (sys.maxsize >> _SHIFT)).from_address(0)
        self._plain = object.__basicsize__  # the header of a C++ node's wrapper, before the pointer
        #: Size of such a wrapper: the header and a pointer of one word, or two.
        self._size = type(torch.ones(1, requires_grad=True, device="cpu").exp().grad_fn).__basicsize__
        #: The offset of the node in a wrapper, by class; only of torch's own classes, which are never freed.
        self._node_offset_by_class: dict[type, int] = {}
        self._counter_offset = self._single(self._counter_offsets())
        self._edge_list_offset = self._single(self._edge_list_offsets())
        self._custom_node_offset = self._single(self._wrapper_offsets())

    @staticmethod
    def _single(found: set[int]) -> int:
        """Return the only element of `found`.
        :raises LookupError: there are several or none.
        """
        if len(found) != 1:
            raise LookupError(f"{len(found)} places are possible")
        return found.pop()

    def _address(self, node: object) -> int:
        """Return the address of a C++ node from its Python wrapper."""
        return _Word.from_address(id(node) + self._plain).value

    def _counter_offsets(self) -> set[int]:
        """Return the offsets of words that count 0, 1, 2 while the outputs of a node begin to retain their gradient."""
        found = set(range(_WORDS))
        x = torch.ones(3, requires_grad=True, device="cpu")
        for outputs in (x.unbind(), (x * 2).split(1)):
            seen = [_words(self._address(outputs[0].grad_fn), _WORDS)]
            for output in outputs[:2]:
                output.retain_grad()
                seen.append(_words(self._address(outputs[0].grad_fn), _WORDS))
            found &= {i for i in range(_WORDS) if [words[i] for words in seen] == [0, 1, 2]}
        return {i * _SIZE for i in found}

    def _edge_list_offsets(self) -> set[int]:
        """Return the offsets at which the list of edges may begin: its length matches the number of edges."""
        found = {(i, edge) for i in range(_WORDS - 1) for edge in _EDGES}
        x = torch.ones(2, requires_grad=True, device="cpu")
        for size in (3, 5, 11):
            words = _words(self._address(torch.stack([x] * size).grad_fn), _WORDS)
            found = {(i, edge) for i, edge in found if words[i] and words[i + 1] - words[i] == size * edge}
        return {i * _SIZE for i, _ in found}

    def _wrapper_offsets(self) -> set[int]:
        """Return the offsets at which a custom function's wrapper may point to its node.

        The address of the node is known from the edge of the next node.
        """
        kind = type(InspectedFunction.apply(torch.ones(2, requires_grad=True, device="cpu")).grad_fn)
        found = set(range(self._plain, kind.__basicsize__ - _SIZE + 1, _SIZE))
        for _ in range(2):
            last = InspectedFunction.apply(torch.ones(2, requires_grad=True, device="cpu")) * 2
            begin = _Word.from_address(self._address(last.grad_fn) + self._edge_list_offset).value
            node, wrapper = _Word.from_address(begin).value, last.grad_fn.next_functions[0][0]
            found &= {at for at in found if _Word.from_address(id(wrapper) + at).value == node}
        return found

    def count(self, roots: Iterable[torch.autograd.graph.Node]) -> tuple[int, list[torch.autograd.graph.Node]]:
        """Return how many outputs of the nodes reachable from `roots` retain their gradient, and the nodes.

        The count is -1 if a node is of an unknown kind.
        """
        nodes = list(roots)
        seen, places = set(nodes), self._node_offset_by_class
        words, add, counts, total = self._memory, seen.add, self._counter_offset >> _SHIFT, 0
        for node in nodes:  # grows as we go
            at = places.get(type(node))
            if at is None:
                at = self._node_offset(type(node))
            if at < 0:
                total = -1
                break
            total += words[(words[(id(node) + at) >> _SHIFT] >> _SHIFT) + counts]
            for child, _ in node.next_functions:
                if child is not None and child not in seen:
                    add(child)
                    nodes.append(child)
        protect_walked(nodes)
        return total, nodes

    def _node_offset(self, kind: type) -> int:
        """Return the offset of the node in wrappers of this class; -1 if unknown."""
        if issubclass(kind, torch._C._FunctionBase):  # type: ignore[attr-defined]
            return self._custom_node_offset
        if kind.__basicsize__ != self._size:
            return -1
        self._node_offset_by_class[kind] = self._plain
        return self._plain


@cache
def _layout() -> Layout | None:
    """Return the layout of nodes in this process; ``None`` if it cannot be determined. The result is cached."""
    if sys.implementation.name != "cpython":
        return None
    with torch.inference_mode(False), torch.enable_grad(), no_dispatch_modes(), disable_function_modes():
        try:
            return Layout()
        except LookupError:
            return None
