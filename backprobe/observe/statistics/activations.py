"""What modules and functions put out, in the steps that are looked at: hooks on modules, and what the graph keeps.

Note [Read from the graph]: softmax, tanh, sigmoid and relu keep their result for backward, fused attention its queries
and keys, and ``topk`` what it chose, whether a module or a function of the script's calls them. So they are read from
the graph when an outermost module returns: no mode is on, and nothing is called that would not be called alone. The
counter of nodes at each module's beginning and end tells whose they are. What has no graph, lies behind a saved-tensor
hook or is recomputed by a checkpoint is not seen. A graph of more than ``MOST`` nodes is looked at no further.
"""

from __future__ import annotations

import math
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.autograd.function import BackwardCFunction

from ...torch_internals import private
from ...torch_internals.machine import uncollected
from ...torch_internals.module_hooks import ModuleHooks
from ...torch_internals.structure import tensors_in
from .kept import LOGITS, entropy, features, kept_by, product, shaped
from .numbers import SELDOM, Numbers, usable, wide
from .outputs import Held, Outputs
from .routers import CHOICES, Routers, load

#: Nodes of a graph that are looked at; outermost calls of a step whose graph is.
MOST, CALLS = 5_000, 4
#: Of tanh and sigmoid: how near to its bounds a value is saturated, as a share of their distance.
EDGE = 0.005
#: Nodes between a softmax and the product whose logits it takes.
_BETWEEN = 8
_THROUGH = ("View", "UnsafeView", "Reshape", "MaskedFill", "Where", "Add", "Mul", "Div", "ToCopy", "Expand")
#: Modules each of whose outputs is a sum over what one row of the weight takes in.
SUMS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_clock, _is_grad_enabled = time.perf_counter, torch.is_grad_enabled
_compiling, _graph_task, _next_seq = private.compiling, private.graph_task, private.next_sequence_nr
_KEEPS: dict[str, str] = {
    "ReluBackward0": "relu",
    "TanhBackward0": "tanh",
    "SigmoidBackward0": "sigmoid",
    "SoftmaxBackward0": "softmax",
    "SafeSoftmaxBackward0": "softmax",
}
#: The quantity that each is told as.
_TOLD = {"relu": "dead", "tanh": "saturated", "sigmoid": "saturated", "softmax": "attention_entropy"}
#: What is done with nodes of a name that are looked at; "attention" with those whose names begin so.
_KINDS = {**_KEEPS, **dict.fromkeys(CHOICES, "choice")}
_FUSED = "ScaledDotProduct"
#: Those that a model may well put out at their bounds.
_BOUNDED = ("tanh", "sigmoid")
#: By class of a node what is done with it, where the class has its name: asked for thousands of times a look.
_of_class: dict[type, str] = {}


class Activations:
    """Attached while one step is looked at.

    :param name_of: gives the name of a module that is called, ``None`` for one that has none.
    :param fault: told of what fails here.
    :param clock: gives a mark at the beginning of this work, and ``took`` is told it at the end, with seconds before.
    """

    def __init__(
        self,
        name_of: Callable[[nn.Module], str | None],
        fault: Callable[[Exception], None],
        clock: Callable[[], Any],
        took: Callable[..., None],
    ) -> None:
        self._name_of, self._fault, self._clock, self._took = name_of, fault, clock, took
        self.numbers = Numbers()
        self._outputs: dict[tuple[Any, Any], Outputs] = {}
        self._thread = get_ident()
        self._hooks = ModuleHooks(self._enter, self._leave)
        #: By id of a module that was called, the module and its name.
        self._names: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        #: Names of the modules that run.
        self._stack: list[str | None] = []
        #: Of the outermost call: the counter of nodes wherever a module began or ended, and whose nodes come then.
        self._moments: list[int] = []
        self._whose: list[str | None] = []
        self._done: set[str] = set()
        self._last: Any = None
        self._calls = 0
        #: Looks that are over; whether the greatest elements are asked for in this one.
        self._looks, self._closely = 0, True
        self._held = Held()
        #: Results of relus whose units are counted, and along which dimensions.
        self._relus: list[tuple[str, Any, list[int]]] = []
        #: Seconds in what is too short for a mark.
        self._brief = 0.0

    def attach(self) -> None:
        """A step is looked at from now on."""
        self.numbers, self._thread = Numbers(), get_ident()
        self._closely = self._looks % SELDOM == 0
        if self._closely:
            self._names.clear()
        self._outputs.clear()
        self._done.clear()
        self._held.clear()
        self._calls, self._brief = 0, 0.0
        self._hooks.on()

    def detach(self) -> None:
        self._hooks.off()
        self._stack.clear()
        self._held.clear()
        self._last = None

    def taken(self) -> Numbers:
        """The step's outputs are all there: their numbers."""
        self._looks += 1
        for (_, dtype), outputs in self._outputs.items():
            outputs.tell(dtype, self.numbers)
        self._outputs.clear()
        return self.numbers

    def _enter(self, module: nn.Module, args: Any) -> None:
        if _compiling() or get_ident() != self._thread:
            return
        if not self._stack:
            self._moments.clear()
            self._whose.clear()
        known = self._names.get(id(module))
        if known is not None and known[0]() is module:
            name: str | None = known[1]
        else:
            name = self._named(module)
        self._stack.append(name)
        self._moments.append(_next_seq())
        self._whose.append(name)

    def _named(self, module: nn.Module) -> str | None:
        try:
            name = self._name_of(module)
            if name is not None:
                self._names[id(module)] = weakref.ref(module), name
        except Exception as error:
            name = None
            self._fault(error)
        return name

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        if _compiling() or get_ident() != self._thread or not self._stack:
            return
        begin = _clock()
        name = self._stack.pop()
        inside = bool(self._stack)
        self._moments.append(_next_seq())
        self._whose.append(self._stack[-1] if inside else None)
        if inside and (name is None or name in self._done):
            return
        if output is None or not _is_grad_enabled() or _graph_task() != -1:
            if not inside:
                self._held.clear()
            return
        try:
            with private.unseen():
                if isinstance(module, SUMS):
                    self._sums(module)
                now = self._at_once(name, output) if name is not None else None
            if now is not None or not inside or self._held.full:
                self._brief, brief = 0.0, self._brief + _clock() - begin
                mark = self._clock()
                with private.measuring():
                    if name is not None and now is not None:
                        self._like(now).add([name], [now.detach()], self._closely)
                    if not inside or self._held.full:
                        for names, outputs in self._held.release():
                            self._like(outputs[0]).add(names, outputs, self._closely)
                    if not inside:
                        with uncollected():
                            self._graph(output)
                self._took(mark, brief)
            else:
                self._brief += _clock() - begin
        except Exception as error:
            self._fault(error)

    def _at_once(self, name: str, output: Any) -> Any:
        """The tensor that a module put out, where it is to be measured now: Note [Small outputs wait]."""
        if isinstance(output, (tuple, list)) and output:
            output = output[0]
        if not isinstance(output, torch.Tensor) or output is self._last or name in self._done:
            return None  # a container gives what its last part gave
        self._last = output
        if not output.requires_grad or not private.is_plain(output) or private.hands_off(output) or not usable(output):
            return None
        self._done.add(name)
        return None if self._held.take(name, output) else output

    def _like(self, tensor: Any) -> Outputs:
        key = tensor.device, tensor.dtype
        found = self._outputs.get(key)
        if found is None:
            found = self._outputs[key] = Outputs()
        return found

    def _sums(self, module: nn.Module) -> None:
        weight = module._parameters.get("weight")  # a property, where it is parametrized
        if weight is not None and private.is_plain(weight) and weight.dim() > 1:
            self.numbers.sums[id(weight)] = math.prod(weight.shape[1:])

    def _graph(self, output: Any) -> None:
        """An outermost module returned: what its graph keeps."""
        self._last = None
        self._calls += 1
        tensors = [t for t in tensors_in(output, most=32) if t.grad_fn is not None]
        roots = [t.grad_fn for t in tensors]
        if self._calls > CALLS or not roots or private.hands_off(tensors[0]):
            return
        seen = set(roots)
        waiting = list(seen)
        outputs = set(map(shaped, roots))
        choices = []
        self._relus.clear()
        for node in waiting:  # grows as we go
            what = _of_class.get(type(node))
            if what is None:
                what = _what(node)
            if what:
                if what == "choice":
                    choices.append(node)
                elif what == "attention":
                    self._attention(node)
                elif not (what in _BOUNDED and node in outputs):
                    self._kept(node, what)
            for child, _ in node.next_functions:
                if child is not None and child not in seen and len(seen) < MOST:
                    seen.add(child)
                    waiting.append(child)
        if choices:
            self._routers(choices, waiting)
        for name, result, dims in self._relus:
            self._like(result).behind_relu(name, result.amax(dims))
        self._relus.clear()

    def _name_at(self, node: Any) -> str | None:
        """The innermost module whose call made `node`."""
        at = bisect_right(self._moments, node._sequence_nr()) - 1
        return self._whose[at] if at >= 0 else None

    def _saved(self, node: Any, what: str) -> Any:
        """The floats that it keeps by that name, where no hook of anybody's packed them, as they were."""
        value = kept_by(node, what)
        return value.detach() if value is not None and usable(value) else None

    def _routers(self, choices: list[Any], nodes: list[Any]) -> None:
        """How loaded the experts are that routers chose."""
        routers = Routers(nodes, kept_by)
        for node in choices:
            name, found = self._name_at(node), routers.choice(node)
            if name is not None and found is not None and self._first("router_max", name):
                most, idle = load(found[0].detach(), found[1])
                self.numbers.add("router_max", [name], [most])
                self.numbers.add("router_idle", [name], [idle])

    def _whose_units(self, node: Any) -> str | None:
        """The module whose outputs go into an activation: those are its units. Else the one that calls it."""
        before = node.next_functions[0][0]
        module = self._name_at(before) if before is not None else None
        return module if module is not None else self._name_at(node)

    def _kept(self, node: Any, kind: str) -> None:
        name = self._name_at(node) if kind == "softmax" else self._whose_units(node)
        if name is None or f"{_TOLD[kind]}|{name}" in self._done:
            return
        result = self._saved(node, "result")
        if result is None or (result.dim() < 2 and kind != "softmax"):
            return
        if kind == "softmax":
            if result.dim() >= 3 and result.shape[-2] > 1 and self._first("attention_entropy", name):
                self.numbers.add("attention_entropy", [name], [entropy(result)])
                logits = self._logits(node)
                if logits is not None:
                    self.numbers.add("attention_logit", [name], [logits])
        elif kind == "relu":
            if self._first("dead", name):
                units = features(node, result)
                rest = [d for d in range(result.dim()) if d != units]
                self._relus.append((name, result, rest))
        elif self._first("saturated", name):
            off = result.abs() if kind == "tanh" else (result - 0.5).abs() * 2
            self.numbers.add("saturated", [name], [(off > 1 - 2 * EDGE).float().mean()])

    def _first(self, quantity: str, name: str) -> bool:
        """Whether it is the first of a step: the last such node of a module's first call."""
        key = f"{quantity}|{name}"
        if key in self._done:
            return False
        self._done.add(key)
        return True

    def _logits(self, node: Any) -> Any:
        """The greatest logit that a softmax was given, before any mask, from the product that gave it."""
        factor = 1.0
        for _ in range(_BETWEEN):
            following = [child for child, _ in node.next_functions if child is not None]
            if not following:
                return None
            node = following[0]
            kind = node.name()
            if kind == "BmmBackward0":
                q, k = self._saved(node, "self"), self._saved(node, "mat2")
                return None if q is None or k is None else product(q, k, factor)
            if not kind.startswith(_THROUGH):
                return None
            if kind.startswith(("Mul", "Div")):
                other = self._saved(node, "other")
                if other is None or other.numel() != 1:
                    return None
                factor = factor * other.float() if kind.startswith("Mul") else factor / other.float()
        return None

    def _attention(self, node: Any) -> None:
        name = self._name_at(node)
        q, k = self._saved(node, "query"), self._saved(node, "key")
        if name is None or q is None or k is None or q.dim() != 4 or not self._first("attention_entropy", name):
            return
        if k.shape[1] != q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scale, causal = private.attention_settings(node)
        scale = scale if scale is not None else 1 / math.sqrt(q.shape[-1])
        mask = self._saved(node, "attn_mask")
        each = q.shape[1] * k.shape[2]
        rows = max(1, min(q.shape[2], LOGITS // max(each, 1)))
        some = torch.arange(rows, device=q.device) * q.shape[2] // rows
        batch = max(1, min(q.shape[0], LOGITS // max(each * rows, 1)))
        logits = wide(q[:batch, :, some]) @ wide(k[:batch]).transpose(-1, -2) * scale
        self.numbers.add("attention_logit", [name], [logits.amax()])
        if causal:
            later = torch.arange(k.shape[2], device=q.device) > some[:, None]
            logits = logits.masked_fill(later, -math.inf)
        if mask is not None:
            mask = mask.expand(*q.shape[:2], q.shape[2], k.shape[2])[:batch, :, some]
            logits = logits.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else logits + mask
        self.numbers.add("attention_entropy", [name], [entropy(logits.softmax(-1))])


def _what(node: Any) -> str:
    """What is done with a node; empty for nothing."""
    name = node.name()
    what = "attention" if name.startswith(_FUSED) else _KINDS.get(name, "")
    kind = type(node)
    if kind.__name__ == name and not issubclass(kind, BackwardCFunction):  # else of many, or the script's, that may go
        _of_class[kind] = what
    return what
