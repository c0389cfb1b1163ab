"""Measures the outputs of modules and functions in measured steps, with module hooks and from saved tensors.

Note [Read from the graph]: softmax, tanh, sigmoid and relu save their results for backward, fused attention saves its
queries and keys, and ``topk`` saves the chosen indices, no matter whether a module or a function of the script calls
them. So these values are read from the graph when an outermost module returns: no mode is active, and no operation of
the script is replaced. The sequence numbers at the beginning and end of each module call tell which module made a node.
Values without a graph, values behind a saved-tensor hook, and values that a checkpoint recomputes are not measured. At
most ``MAX_VISITED_NODES`` nodes of a graph are visited.
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
from .kept import TARGET_LOGITS, entropy, max_product, node_before_reshapes, saved_tensor, unit_dimension
from .numbers import COSTLY_INTERVAL, Numbers, is_measurable, upcast
from .outputs import Outputs, WaitingOutputs
from .routers import CHOICE_TENSORS, Routers, load

#: Maximum number of nodes of a graph that are visited, and of outermost module calls per step whose graph is visited.
MAX_VISITED_NODES, MAX_VISITED_CALLS = 5_000, 4
#: Distance from a bound of tanh or sigmoid below which a value counts as saturated, as a fraction of the range.
SATURATION_MARGIN = 0.005
#: Maximum number of nodes between a softmax and the matrix product that gave its logits.
_MAX_NODES_TO_PRODUCT = 8
_PASS_THROUGH = ("View", "UnsafeView", "Reshape", "MaskedFill", "Where", "Add", "Mul", "Div", "ToCopy", "Expand")
#: Modules in which each output is a sum over one row of the weight.
LINEAR_MODULES = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_clock, _is_grad_enabled = time.perf_counter, torch.is_grad_enabled
_compiling, _graph_task, _next_seq = private.compiling, private.graph_task, private.next_sequence_nr
_ACTIVATIONS: dict[str, str] = {
    "ReluBackward0": "relu",
    "TanhBackward0": "tanh",
    "SigmoidBackward0": "sigmoid",
    "SoftmaxBackward0": "softmax",
    "SafeSoftmaxBackward0": "softmax",
}
#: The quantity that is measured for each kind of activation.
_QUANTITIES = {"relu": "dead", "tanh": "saturated", "sigmoid": "saturated", "softmax": "attention_entropy"}
#: What is measured at nodes of a name; ``attention`` for names that begin with ``_FUSED_ATTENTION``.
_KIND_OF_NODE = {**_ACTIVATIONS, **dict.fromkeys(CHOICE_TENSORS, "choice")}
_FUSED_ATTENTION = "ScaledDotProduct"
#: Activations that a model may saturate on purpose at its outputs.
_BOUNDED_KINDS = ("tanh", "sigmoid")
#: ``_quantity_at`` by node class, for classes with a unique name: it is needed thousands of times per measurement.
_quantity_by_class: dict[type, str] = {}


class Activations:
    """Measurements of the outputs of modules during one step.

    :param name_of: returns the name of a called module; ``None`` for a module without a name.
    :param fault: receives exceptions of backprobe's own code.
    :param clock: returns a timestamp when measuring begins; ``took`` receives it when measuring ends, with the seconds
        spent before the timestamp.
    """

    def __init__(
        self,
        name_of: Callable[[nn.Module], str | None],
        fault: Callable[[Exception], None],
        clock: Callable[[], object],
        took: Callable[..., None],
    ) -> None:
        """Prepare to measure on the current thread; ``attach`` registers the module hooks."""
        self._name_of, self._fault, self._clock, self._on_measured = name_of, fault, clock, took
        self.numbers = Numbers()
        self._outputs: dict[tuple[torch.device, torch.dtype], Outputs] = {}
        self._thread = get_ident()
        self._hooks = ModuleHooks(self._enter, self._leave)
        #: By id of a called module: the module and its name.
        self._names: dict[int, tuple[weakref.ref[nn.Module], str]] = {}
        #: Names of the modules whose calls are running, outermost first.
        self._stack: list[str | None] = []
        #: For the outermost call: the sequence number at each beginning and end of a module call, and the name of the
        #: module that makes the nodes from there on.
        self._seq_boundaries: list[int] = []
        self._module_names: list[str | None] = []
        self._measured_keys: set[str] = set()
        self._last_output: torch.Tensor | None = None
        self._outermost_calls = 0
        #: Number of finished measurements, and whether this one includes the largest absolute values.
        self._measurement_count, self._with_max = 0, True
        self._waiting_outputs = WaitingOutputs()
        #: Results of relus whose dead units are counted, each with the dimensions to reduce over.
        self._relu_results: list[tuple[str, torch.Tensor, list[int]]] = []
        #: Seconds spent in sections that are too short to be clocked separately.
        self._uncounted_s = 0.0

    def attach(self) -> None:
        """Reset the measurements, and register the module hooks that measure activations in this step."""
        self.numbers, self._thread = Numbers(), get_ident()
        self._with_max = self._measurement_count % COSTLY_INTERVAL == 0
        if self._with_max:
            self._names.clear()
        self._outputs.clear()
        self._measured_keys.clear()
        self._waiting_outputs.clear()
        self._outermost_calls, self._uncounted_s = 0, 0.0
        self._hooks.on()

    def detach(self) -> None:
        """Remove the module hooks, and forget outputs that wait to be measured."""
        self._hooks.off()
        self._stack.clear()
        self._waiting_outputs.clear()
        self._last_output = None

    def finish_step(self) -> Numbers:
        """Add the measured outputs to the numbers of the step, and return these. Call it after the last module call."""
        self._measurement_count += 1
        for (_, dtype), outputs in self._outputs.items():
            outputs.add_quantities(dtype, self.numbers)
        self._outputs.clear()
        return self.numbers

    def _enter(self, module: nn.Module, args: object) -> None:
        """Note that a module call begins: its name, and the sequence number from which on it makes nodes.

        A module hook.
        """
        if _compiling() or get_ident() != self._thread:
            return
        if not self._stack:
            self._seq_boundaries.clear()
            self._module_names.clear()
        known = self._names.get(id(module))
        if known is not None and known[0]() is module:
            name: str | None = known[1]
        else:
            name = self._find_name(module)
        self._stack.append(name)
        self._seq_boundaries.append(_next_seq())
        self._module_names.append(name)

    def _find_name(self, module: nn.Module) -> str | None:
        """Return the name of a module, and remember it; ``None`` if it has none."""
        try:
            name = self._name_of(module)
            if name is not None:
                self._names[id(module)] = weakref.ref(module), name
        except Exception as error:
            name = None
            self._fault(error)
        return name

    def _leave(self, module: nn.Module, args: object, output: object) -> None:
        """Measure the output of a module call that is over, and the graph if it was the outermost call. A module hook.

        Small outputs are collected and measured together. Outputs without gradient mode are not measured.
        """
        if _compiling() or get_ident() != self._thread or not self._stack:
            return
        begin = _clock()
        name = self._stack.pop()
        inside = bool(self._stack)
        self._seq_boundaries.append(_next_seq())
        self._module_names.append(self._stack[-1] if inside else None)
        if inside and (name is None or name in self._measured_keys):
            return
        if output is None or not _is_grad_enabled() or _graph_task() != -1:
            if not inside:
                self._waiting_outputs.clear()
            return
        try:
            with private.disable_function_modes():
                if isinstance(module, LINEAR_MODULES):
                    self._note_fan_in(module)
                now = self._output_to_measure_now(name, output) if name is not None else None
            if now is not None or not inside or self._waiting_outputs.is_full:
                self._uncounted_s, brief = 0.0, self._uncounted_s + _clock() - begin
                mark = self._clock()
                with private.measuring():
                    if name is not None and now is not None:
                        self._outputs_like(now).add([name], [now.detach()], self._with_max)
                    if not inside or self._waiting_outputs.is_full:
                        for names, outputs in self._waiting_outputs.release():
                            self._outputs_like(outputs[0]).add(names, outputs, self._with_max)
                    if not inside:
                        with uncollected():
                            self._measure_graph(output)
                self._on_measured(mark, brief)
            else:
                self._uncounted_s += _clock() - begin
        except Exception as error:
            self._fault(error)

    def _output_to_measure_now(self, name: str, output: object) -> torch.Tensor | None:
        """Return the output tensor of a module if it is to be measured at once, else ``None``: it may wait in a
        batch.
        """
        if isinstance(output, (tuple, list)) and output:
            output = output[0]
        if not isinstance(output, torch.Tensor) or output is self._last_output or name in self._measured_keys:
            return None  # a container returns the output of its last child
        self._last_output = output
        if (
            not output.requires_grad
            or not private.is_plain(output)
            or private.is_unsafe_to_read(output)
            or not is_measurable(output)
        ):
            return None
        self._measured_keys.add(name)
        return None if self._waiting_outputs.add(name, output) else output

    def _outputs_like(self, tensor: torch.Tensor) -> Outputs:
        """Return the collection for outputs of the tensor's device and dtype, which may be new."""
        key = tensor.device, tensor.dtype
        found = self._outputs.get(key)
        if found is None:
            found = self._outputs[key] = Outputs()
        return found

    def _note_fan_in(self, module: nn.Module) -> None:
        """Note how many elements each output of a linear or convolution layer sums over."""
        weight = module._parameters.get("weight")  # absent from `_parameters` if it is parametrized
        if weight is not None and private.is_plain(weight) and weight.dim() > 1:
            self.numbers.sums[weight] = math.prod(weight.shape[1:])

    def _measure_graph(self, output: object) -> None:
        """Measure the saved results of activations, attentions and routers in the graph of an outermost module's
        output.
        """
        self._last_output = None
        self._outermost_calls += 1
        tensors = [t for t in tensors_in(output, most=32) if t.grad_fn is not None]
        roots = [t.grad_fn for t in tensors]
        if self._outermost_calls > MAX_VISITED_CALLS or not roots or private.is_unsafe_to_read(tensors[0]):
            return
        seen = set(roots)
        waiting = list(seen)
        outputs = set(map(node_before_reshapes, roots))
        choices = []
        self._relu_results.clear()
        for node in waiting:  # the list grows during the loop
            what = _quantity_by_class.get(type(node))
            if what is None:
                what = _quantity_at(node)
            if what:
                if what == "choice":
                    choices.append(node)
                elif what == "attention":
                    self._measure_attention(node)
                elif not (what in _BOUNDED_KINDS and node in outputs):
                    self._measure_activation(node, what)
            for child, _ in node.next_functions:
                if child is not None and child not in seen and len(seen) < MAX_VISITED_NODES:
                    seen.add(child)
                    waiting.append(child)
        if choices:
            self._measure_routers(choices, waiting)
        for name, result, dims in self._relu_results:
            self._outputs_like(result).add_relu_maxima(name, result.amax(dims))
        self._relu_results.clear()

    def _module_of_node(self, node: torch.autograd.graph.Node) -> str | None:
        """Return the name of the innermost module whose call made `node`."""
        at = bisect_right(self._seq_boundaries, node._sequence_nr()) - 1
        return self._module_names[at] if at >= 0 else None

    def _saved_tensor(self, node: object, what: str) -> torch.Tensor | None:
        """Return the saved tensor `what` of `node`, detached.

        :returns: ``None`` if it is not a readable float tensor, or was packed by a saved-tensor hook.
        """
        value = saved_tensor(node, what)
        return value.detach() if value is not None and is_measurable(value) else None

    def _measure_routers(self, choices: list[object], nodes: list[torch.autograd.graph.Node]) -> None:
        """Measure how evenly routers distribute rows among experts.

        :param choices: nodes that choose experts, as of ``topk``; `nodes`: all visited nodes.
        """
        routers = Routers(nodes, saved_tensor)
        for node in choices:
            name, found = self._module_of_node(node), routers.choice(node)
            if name is not None and found is not None and self._mark_measured("router_max", name):
                most, idle = load(found[0].detach(), found[1])
                self.numbers.add("router_max", [name], [most])
                self.numbers.add("router_idle", [name], [idle])

    def _module_of_units(self, node: torch.autograd.graph.Node) -> str | None:
        """Return the module whose units an activation has: that of its input, or else the module that calls it."""
        before = node.next_functions[0][0]
        module = self._module_of_node(before) if before is not None else None
        return module if module is not None else self._module_of_node(node)

    def _measure_activation(self, node: object, kind: str) -> None:
        """Measure the saved result of an activation of `kind`, if its module's was not measured in this step."""
        name = self._module_of_node(node) if kind == "softmax" else self._module_of_units(node)
        if name is None or f"{_QUANTITIES[kind]}|{name}" in self._measured_keys:
            return
        result = self._saved_tensor(node, "result")
        if result is None or (result.dim() < 2 and kind != "softmax"):
            return
        if kind == "softmax":
            if result.dim() >= 3 and result.shape[-2] > 1 and self._mark_measured("attention_entropy", name):
                self.numbers.add("attention_entropy", [name], [entropy(result)])
                logits = self._max_logit(node)
                if logits is not None:
                    self.numbers.add("attention_logit", [name], [logits])
        elif kind == "relu":
            if self._mark_measured("dead", name):
                units = unit_dimension(node, result)
                rest = [d for d in range(result.dim()) if d != units]
                self._relu_results.append((name, result, rest))
        elif self._mark_measured("saturated", name):
            off = result.abs() if kind == "tanh" else (result - 0.5).abs() * 2
            self.numbers.add("saturated", [name], [(off > 1 - 2 * SATURATION_MARGIN).float().mean()])

    def _mark_measured(self, quantity: str, name: str) -> bool:
        """Mark `quantity` of the module `name` as measured in this step, and return whether it was not before.

        Nodes are visited from the roots, so the last such node of the module's first call is measured.
        """
        key = f"{quantity}|{name}"
        if key in self._measured_keys:
            return False
        self._measured_keys.add(key)
        return True

    def _max_logit(self, node: torch.autograd.graph.Node) -> torch.Tensor | None:
        """Return the largest logit of a softmax before any mask, computed from the matrix product before it.

        :returns: ``None`` if there is no such product.
        """
        factor = 1.0
        for _ in range(_MAX_NODES_TO_PRODUCT):
            following = [child for child, _ in node.next_functions if child is not None]
            if not following:
                return None
            node = following[0]
            kind = node.name()
            if kind == "BmmBackward0":
                q, k = self._saved_tensor(node, "self"), self._saved_tensor(node, "mat2")
                return None if q is None or k is None else max_product(q, k, factor)
            if not kind.startswith(_PASS_THROUGH):
                return None
            if kind.startswith(("Mul", "Div")):
                other = self._saved_tensor(node, "other")
                if other is None or other.numel() != 1:
                    return None
                factor = factor * other.float() if kind.startswith("Mul") else factor / other.float()
        return None

    def _measure_attention(self, node: object) -> None:
        """Compute the entropy and the largest logit of some rows of a fused attention from its query and key."""
        name = self._module_of_node(node)
        q, k = self._saved_tensor(node, "query"), self._saved_tensor(node, "key")
        if name is None or q is None or k is None or q.dim() != 4 or not self._mark_measured("attention_entropy", name):
            return
        if k.shape[1] != q.shape[1]:
            k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        scale, causal = private.attention_settings(node)
        scale = scale if scale is not None else 1 / math.sqrt(q.shape[-1])
        mask = self._saved_tensor(node, "attn_mask")
        each = q.shape[1] * k.shape[2]
        rows = max(1, min(q.shape[2], TARGET_LOGITS // max(each, 1)))
        some = torch.arange(rows, device=q.device) * q.shape[2] // rows
        batch = max(1, min(q.shape[0], TARGET_LOGITS // max(each * rows, 1)))
        logits = upcast(q[:batch, :, some]) @ upcast(k[:batch]).transpose(-1, -2) * scale
        self.numbers.add("attention_logit", [name], [logits.amax()])
        if causal:
            later = torch.arange(k.shape[2], device=q.device) > some[:, None]
            logits = logits.masked_fill(later, -math.inf)
        if mask is not None:
            mask = mask.expand(*q.shape[:2], q.shape[2], k.shape[2])[:batch, :, some]
            logits = logits.masked_fill(~mask, -math.inf) if mask.dtype is torch.bool else logits + mask
        self.numbers.add("attention_entropy", [name], [entropy(logits.softmax(-1))])


def _quantity_at(node: Any) -> str:
    """Return the kind of value that is measured at `node`, such as ``relu`` or ``attention``; empty for nothing."""
    name = node.name()
    what = "attention" if name.startswith(_FUSED_ATTENTION) else _KIND_OF_NODE.get(name, "")
    kind = type(node)
    if kind.__name__ == name and not issubclass(kind, BackwardCFunction):  # unique, and not the script's
        _quantity_by_class[kind] = what
    return what
