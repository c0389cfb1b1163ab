"""``--record-ops`` and ``--check divergence``: record every op of the first steps.

The former writes a record that can be compared with another run. The latter compares when the script has ended: the run
with itself in float64, and models of the same structure with each other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...comparing.files import TapeWriter
from ...records import Applied, Divergence, Print, Step, Tape, TapeOp, Unseen
from ...source.roots import ModuleCallRef, RootModule
from ...torch_internals import private
from ...torch_internals.references import IdentityMap
from ..op_record.applied import CustomFunctionCalls
from ..op_record.judged import against_each_other, against_float64
from ..op_record.mode import OpRecordingMode
from ..op_record.models import Model, Models
from ..op_record.space import TensorCopies
from ..op_record.surroundings import about, generators, modules, optimizer
from ..schedule.settings import Settings
from ..tracker import Tracker
from ..tracker_context import TrackerContext

if TYPE_CHECKING:
    from ..backward.active_backward import ActiveBackward

#: Default number of recorded steps.
DEFAULT_RECORDED_STEPS = 3
#: The check that compares the recorded ops after the script has ended.
CHECK_NAME = "divergence"


@dataclass(frozen=True)
class _Weight:
    """A weight or buffer, with its outermost module and its path in it; without a module, ``path`` is its name."""

    ref: Any
    root: RootModule | None
    path: str


class OpRecordingTracker(Tracker):
    """Tracker that activates the dispatch mode in recorded steps, and writes or holds each step when it is over."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return settings.record_ops or CHECK_NAME in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        self._context = context
        self._asked = CHECK_NAME in context.settings.checks
        #: The number of each weight as text, which replaces its name until ops are written; and the weights by number.
        self._names: IdentityMap[str] = IdentityMap(private.tensor_ref)
        self._named: list[_Weight] = []
        self._space = TensorCopies(context.settings.max_record_mb << 20, self._asked)
        self._mode: OpRecordingMode | None = None
        self._on = False
        self._writer: TapeWriter | None = None
        self._step = 0
        self._info: dict[str, Any] = {}
        self._faults: list[BaseException] = []
        #: Settings of the modules, and values of the weights by number, when the first outermost module was called.
        self._settings: list[tuple[RootModule, str, dict[str, Any]]] = []
        self._start: dict[str, int] = {}
        self._calls: CustomFunctionCalls | None = None
        self._models: Models | None = None
        #: Steps that are recorded for an outermost module that was first called late; and the models that were recorded
        #: before.
        self._again, self._before = range(0), list[Model]()
        #: The records that are held for the comparison when the script has ended.
        self._held: list[tuple[TapeOp, ModuleCallRef | None]] = []
        self._prints: list[Print] = []
        self._found: list[Divergence] = []

    def _wanted(self, step: int) -> bool:
        settings = self._context.settings
        last = settings.last if settings.last is not None else settings.first + DEFAULT_RECORDED_STEPS * settings.every
        asked = settings.first <= step < last and (step - settings.first) % settings.every == 0
        return asked or step in self._again

    # Activation in recorded steps

    def step_begins(self, step: int, inspecting: bool) -> None:
        self._step = step
        if not self._wanted(step):
            self._off()
            return
        if self._mode is None:
            context = self._context

            def here() -> Any:
                stack = context.modules.stack
                return stack[-1] if stack else None

            mode = self._mode = OpRecordingMode(context.frames, here, self._names, self._space, self._faults.append)
            if self._asked:
                self._calls = mode.calls = CustomFunctionCalls(
                    mode.taken, lambda gradient: mode.value_of(gradient, True)
                )
                self._models = self._new_models(mode)
        if self._again[:1] == range(step, step + 1) and self._models is not None:
            self._before += self._models.all
            self._models = self._new_models(self._mode)
        with private.unseen(), private.unnoticed():
            self._mode.new_step(step)
            self._info = {"step": step, "generators": generators() if step else {}, "optimizers": []}
            self._settings, self._start = [], {}
            self._name()
        self._put_on()

    @staticmethod
    def _new_models(mode: OpRecordingMode) -> Models:
        models = Models(lambda weight: mode.value_of(weight, True))
        models.begins(mode.count)  # a call may be about to begin
        return models

    def attached(self) -> None:
        if self._info and not self._on:
            self._put_on()

    def detached(self) -> None:
        self._off(True)

    def _put_on(self) -> None:
        if self._mode is not None and not self._on:
            if not self._mode.quiet:
                private.put_dispatch_mode(self._mode)
            self._mode.quiet, self._on = False, True

    def _off(self, over: bool = False) -> None:
        """Deactivate the mode.

        Note [Not taken off where code is compiled]: a compiler's frame restores the dispatch keys that it found when it
        was entered. If a mode was removed in between, torch behaves as if one were still active. So if Dynamo is
        loaded, the mode stays on the stack and does nothing until recording is `over`.
        """
        if self._mode is None or not (self._on or self._mode.quiet):
            return
        self._on, self._mode.quiet = False, "torch._dynamo" in sys.modules and not over
        if not self._mode.quiet:
            private.drop_dispatch_mode(self._mode)

    # Recording

    def root_found(self) -> None:
        self._record_start()
        if self._models is not None and not self._on and not self._again:
            new = self._context.modules.roots[-1].class_name
            if any(one.root.class_name == new for one in self._models.all):
                self._again = range(self._step + 1, self._step + 1 + DEFAULT_RECORDED_STEPS)

    def forward_begins(self) -> None:
        if not self._settings:
            self._record_start()
        if self._models is not None and self._mode is not None:
            self._models.begins(self._mode.count)

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        if self._models is None or self._mode is None or not self._on or self._context.modules.stack:
            return
        with private.unseen(), private.unnoticed(), torch.no_grad():
            self._name()
            self._models.over(where, self._mode.count)

    def node_ran(self, running: ActiveBackward, node: int, grad_inputs: object, grad_outputs: object) -> None:
        if self._calls is not None and self._mode is not None and self._on:
            with private.unseen(), private.unnoticed(), torch.no_grad():
                self._calls.node_ran(running.graph.nodes[node], grad_outputs, grad_inputs, self._mode.count)

    def _record_start(self) -> None:
        """Record the weights and settings when the first outermost module is called."""
        if not self._on or self._mode is None:
            return
        with private.unseen(), private.unnoticed(), torch.no_grad():
            self._name()
            found = self._modules()
            each = modules((str(k), module) for k, (_, _, module) in enumerate(found))
            self._settings = [(root, path, one) for (root, path, _), one in zip(found, each.values(), strict=True)]
            weights = [(self._number(one, root, path), one) for root, path, one, _ in self._weights()]
            self._start = {number: value for number, one in weights if (value := self._mode.value_of(one)) is not None}
            if self._step == 0:  # a script sets seeds after its start
                self._info["generators"] = generators()

    def optimizer_begins(self, optimizer_: Any) -> None:
        mode = self._mode
        if mode is None or not self._on:
            return
        with private.unseen(), private.unnoticed(), torch.no_grad():
            self._info["optimizers"].append(optimizer(optimizer_))
            self._name()
            for group in optimizer_.param_groups:
                for parameter in group["params"]:
                    if isinstance(parameter, torch.Tensor):
                        mode.sink("gradient", self._weight(parameter), parameter.grad)
        mode.optimizing = True

    def optimizer_ended(self, optimizer_: object) -> None:
        if self._mode is not None:
            self._mode.optimizing = False

    def step_ended(self, step: Step) -> None:
        self._write(step.index)

    def ended(self) -> None:
        if self._mode is not None and self._mode.ops:
            self._write(self._step)
        if self._held and self._models is not None and self._calls is not None:
            with private.unseen(), private.unnoticed(), torch.no_grad():
                self._judge([self._before, self._models.all], self._calls.ran)
            self._held, self._prints, self._space.all = [], [], {}

    def _judge(self, met: list[list[Model]], applied: list[Applied]) -> None:
        ops = tuple(self._with_names(op, where) for op, where in self._held)
        tape = Tape(about(), ({"step": ops[0].step},), {}, ops, tuple(self._prints))

        def ops_of(model: Model, begin: int, end: int) -> list[TapeOp]:
            mine = [(op, where) for op, where in self._held if begin <= op.index < end and op.phase == "forward"]
            return [self._with_names(op, where, model.root) for op, where in mine]

        self._found = [one for models in met for one in against_each_other(tape, self._space.all, models, ops_of)]
        self._found += against_float64(tape, self._space.all, applied)

    def _modules(self) -> list[tuple[RootModule, str, Any]]:
        """Return all known modules, each with its outermost module and its path in it."""
        found = []
        for root, model in self._context.modules.models():
            found += [(root, root.path_of(module) or path, module) for path, module in model.named_modules()]
        return found

    def _weights(self) -> Iterator[tuple[RootModule, str, torch.Tensor, bool]]:
        """Yield the weights and buffers of all known modules.

        Each comes with its outermost module, its path in it, and whether it is a parameter.
        """
        for root, path, module in self._modules():
            for held in (module._parameters, module._buffers):
                for key, tensor in held.items():
                    if tensor is not None:
                        yield root, f"{path}.{key}".strip("."), tensor, held is module._parameters

    def _name(self) -> None:
        """Give numbers to the weights and buffers that are known by now."""
        for root, path, tensor, _ in self._weights():
            self._number(tensor, root, path)

    def _number(self, tensor: torch.Tensor, root: RootModule | None, path: str) -> str:
        number = self._names.get(tensor)
        if number is None:
            number = self._names[tensor] = str(len(self._named))
            self._named.append(_Weight(private.tensor_ref(tensor), root, path))
        elif root is not None:
            self._named[int(number)] = replace(self._named[int(number)], root=root, path=path)
        return number

    def _weight(self, parameter: torch.Tensor) -> str:
        """Return the number of an optimizer's parameter, which may belong to no module."""
        number = self._names.get(parameter)
        if number is not None:
            return number
        leaf = self._context.names.leaves.known(parameter)
        return self._number(parameter, None, self._context.names.leaves.name(leaf) if leaf is not None else "")

    def _name_of(self, number: str, root: RootModule | None = None) -> str:
        """Return the name of a weight.

        :param root: for weights of this outermost module, return the path in it.
        """
        if not number:
            return ""
        one = self._named[int(number)]
        if one.root is None or one.root is root:
            return one.path
        return self._context.modules.full_name(one.root, one.path)

    def _with_names(self, op: TapeOp, where: ModuleCallRef | None, root: RootModule | None = None) -> TapeOp:
        """Return `op` with display names instead of numbers of weights, and with the innermost registered module.

        :param root: use paths inside this outermost module.
        """
        watch = self._context.modules
        module = (watch.place_of(where) or "") if where is not None else ""
        inner = watch.registered(where)
        if root is not None and inner is not None and inner.root is root:
            module = inner.path or ""
        inputs = op.inputs
        if any(one.name for one in inputs):
            inputs = tuple(replace(one, name=self._name_of(one.name, root)) if one.name else one for one in inputs)
        # Names of C++ nodes may contain a space.
        node, _, weight = op.node.rpartition(" ") if op.node.rpartition(" ")[2].isdecimal() else (op.node, "", "")
        return replace(
            op,
            module=self._name_of(op.module) if op.phase == "sink" else module,
            inputs=inputs,
            node=f"{node} {self._name_of(weight, root)}".strip(),
        )

    def _write(self, step: int) -> None:
        mode = self._mode
        if mode is None or not self._info or mode.step != step or not mode.ops:
            return
        folder = self._context.record_to if self._context.settings.record_ops else None
        with private.unseen(), private.unnoticed(), torch.no_grad():
            for root, path, tensor, trained in self._weights():
                number = self._number(tensor, root, path)
                if trained and not self._info["optimizers"]:
                    mode.sink("gradient", number, tensor.grad)
                mode.sink("weight", number, tensor)
            metrics = sys.modules.get("torch._inductor.metrics")
            self._info["kernels"] = getattr(metrics, "generated_kernel_count", 0)
            self._keep(Path(folder) if folder is not None else None, step)
        mode.ops, mode.fresh = [], []
        self._info = {}

    def _keep(self, folder: Path | None, step: int) -> None:
        """Write the step to `folder`, and hold it if it is to be compared in this process."""
        mode = self._mode
        assert mode is not None
        if folder is not None:
            if self._writer is None:
                self._writer = TapeWriter(folder, self._context.settings.source != "none")
                self._writer.about(about())
            name = self._context.modules.full_name
            settings = {name(root, path): one for root, path, one in self._settings}
            start = {self._name_of(number): value for number, value in self._start.items()}
            info = {**self._info, "modules": settings, **({"start": start} if start else {})}
            self._writer.step(step, info, [self._with_names(op, where) for op, where in mode.ops], mode.fresh)
        if self._asked:
            self._held += mode.ops
            self._prints += mode.fresh
        self._space.write(self._writer.folder if folder is not None and self._writer is not None else None, step)

    # Results

    def records(self) -> tuple[Divergence, ...]:
        return tuple(self._found)

    def unseen(self) -> list[Unseen]:
        found = []
        if self._faults:
            first = self._faults[0]
            what = f"ops that are not in the record to compare: {type(first).__name__}: {first}"[:300]
            found.append(Unseen("ops to compare", len(self._faults), what, hides=False))
        if self._space.lost:
            found.append(
                Unseen(
                    "tensors", self._space.lost, "not kept to be compared: give more with --max-record-mb", hides=False
                )
            )
        return found
