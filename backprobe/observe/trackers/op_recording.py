"""``--record-ops`` and ``--check divergence``: record every op of the first steps.

The former writes a record that can be compared with another run. The latter compares when the script has ended: the run
with itself in float64, and models of the same structure with each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
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
from ..op_record.comparisons import compare_models, compare_with_float64
from ..op_record.function_calls import CustomFunctionCalls
from ..op_record.mode import OpRecordingMode
from ..op_record.models import Model, Models
from ..op_record.surroundings import generator_hashes, module_settings, optimizer_settings, process_environment
from ..op_record.tensor_copies import TensorCopies
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

    ref: Callable[[], torch.Tensor | None]
    root: RootModule | None
    path: str


class OpRecordingTracker(Tracker):
    """Tracker that activates the dispatch mode in recorded steps, and writes or holds each step when it is over."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        """Return whether ops are recorded, by ``--record-ops`` or for ``--check divergence``."""
        return settings.record_ops or CHECK_NAME in settings.checks

    def __init__(self, context: TrackerContext) -> None:
        """Start without a mode; it is made in the first recorded step."""
        self._context = context
        self._compares_at_end = CHECK_NAME in context.settings.checks
        #: The number of each weight as text, which replaces its name until ops are written; and the weights by number.
        self._weight_numbers: IdentityMap[str] = IdentityMap(private.tensor_ref)
        self._weights_by_number: list[_Weight] = []
        self._copies = TensorCopies(context.settings.max_record_mb << 20, self._compares_at_end)
        self._mode: OpRecordingMode | None = None
        self._is_active = False
        self._writer: TapeWriter | None = None
        self._step = 0
        self._step_info: dict[str, Any] = {}
        self._errors: list[BaseException] = []
        #: Settings of the modules, and values of the weights by number, when the first outermost module was called.
        self._module_settings: list[tuple[RootModule, str, dict[str, Any]]] = []
        self._start_values: dict[str, int] = {}
        self._function_calls: CustomFunctionCalls | None = None
        self._models: Models | None = None
        #: Steps that are recorded for an outermost module that was first called late; and the models that were recorded
        #: before.
        self._late_model_steps, self._earlier_models = range(0), list[Model]()
        #: The records that are held for the comparison when the script has ended.
        self._held_ops: list[tuple[TapeOp, ModuleCallRef | None]] = []
        self._held_fingerprints: list[Print] = []
        self._found: list[Divergence] = []

    def _is_recorded_step(self, step: int) -> bool:
        """Return whether the ops of `step` are recorded: by the settings, or because a model was first called late."""
        settings = self._context.settings
        last = settings.last if settings.last is not None else settings.first + DEFAULT_RECORDED_STEPS * settings.every
        asked = settings.first <= step < last and (step - settings.first) % settings.every == 0
        return asked or step in self._late_model_steps

    # Activation in recorded steps

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Put the dispatch mode on for a recorded step, and take it off for any other."""
        self._step = step
        if not self._is_recorded_step(step):
            self._deactivate()
            return
        if self._mode is None:
            context = self._context

            def current_module() -> ModuleCallRef | None:
                """Return the innermost module call that is running; ``None`` outside modules."""
                stack = context.modules.stack
                return stack[-1] if stack else None

            mode = self._mode = OpRecordingMode(
                context.frames, current_module, self._weight_numbers, self._copies, self._errors.append
            )
            if self._compares_at_end:
                self._function_calls = mode.function_calls = CustomFunctionCalls(
                    mode.function_input, lambda gradient: mode.fingerprint_index(gradient, True)
                )
                self._models = self._new_models(mode)
        if self._late_model_steps[:1] == range(step, step + 1) and self._models is not None:
            self._earlier_models += self._models.all
            self._models = self._new_models(self._mode)
        with private.disable_function_modes(), private.hide_ops():
            self._mode.new_step(step)
            self._step_info = {"step": step, "generators": generator_hashes() if step else {}, "optimizers": []}
            self._module_settings, self._start_values = [], {}
            self._number_known_weights()
        self._activate()

    @staticmethod
    def _new_models(mode: OpRecordingMode) -> Models:
        """Return an empty list of models, which takes the weights' fingerprints from `mode`."""
        models = Models(lambda weight: mode.fingerprint_index(weight, True))
        models.call_begins(mode.op_count)  # a call may be about to begin
        return models

    def observing_begins(self) -> None:
        """Put the mode on again if the running step is being recorded."""
        if self._step_info and not self._is_active:
            self._activate()

    def observing_pauses(self) -> None:
        """Take the mode off the stack of dispatch modes."""
        self._deactivate(True)

    def _activate(self) -> None:
        """Put the dispatch mode on the stack, or let it record again if it stayed there."""
        if self._mode is not None and not self._is_active:
            if not self._mode.is_paused:
                private.put_dispatch_mode(self._mode)
            self._mode.is_paused, self._is_active = False, True

    def _deactivate(self, recording_ended: bool = False) -> None:
        """Deactivate the mode.

        Note [Not taken off where code is compiled]: a compiler's frame restores the dispatch keys that it found when it
        was entered. If a mode was removed in between, torch behaves as if one were still active. So if Dynamo is
        loaded, the mode stays on the stack and does nothing until recording has ended.
        """
        if self._mode is None or not (self._is_active or self._mode.is_paused):
            return
        self._is_active, self._mode.is_paused = False, "torch._dynamo" in sys.modules and not recording_ended
        if not self._mode.is_paused:
            private.drop_dispatch_mode(self._mode)

    # Recording

    def root_found(self) -> None:
        """Record the weights and settings of a new outermost module; if one of its class was recorded before, record
        more steps.
        """
        self._record_start()
        if self._models is not None and not self._is_active and not self._late_model_steps:
            new = self._context.modules.roots[-1].class_name
            if any(one.root.class_name == new for one in self._models.all):
                self._late_model_steps = range(self._step + 1, self._step + 1 + DEFAULT_RECORDED_STEPS)

    def forward_begins(self) -> None:
        """Note at which op an outermost module call begins, and record weights and settings before the first one."""
        if not self._module_settings:
            self._record_start()
        if self._models is not None and self._mode is not None:
            self._models.call_begins(self._mode.op_count)

    def module_returned(self, module: nn.Module, where: ModuleCallRef, output: object) -> None:
        """Note at which op the call of an outermost module ended, for the comparison of models."""
        if self._models is None or self._mode is None or not self._is_active or self._context.modules.stack:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._number_known_weights()
            self._models.call_returned(where, self._mode.op_count)

    def node_ran(self, running: ActiveBackward, node: int, grad_inputs: object, grad_outputs: object) -> None:
        """Record the gradients that a node of a custom function received and returned."""
        if self._function_calls is not None and self._mode is not None and self._is_active:
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                self._function_calls.record_backward(
                    running.graph.nodes[node], grad_outputs, grad_inputs, self._mode.op_count
                )

    def _record_start(self) -> None:
        """Record the weights and module settings of all models, when the first outermost module of a step is called."""
        if not self._is_active or self._mode is None:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._number_known_weights()
            found = self._known_modules()
            each = module_settings((str(k), module) for k, (_, _, module) in enumerate(found))
            self._module_settings = [
                (root, path, one) for (root, path, _), one in zip(found, each.values(), strict=True)
            ]
            weights = [(self._number_of_weight(one, root, path), one) for root, path, one, _ in self._known_weights()]
            self._start_values = {
                number: value for number, one in weights if (value := self._mode.fingerprint_index(one)) is not None
            }
            if self._step == 0:  # a script sets seeds after its start
                self._step_info["generators"] = generator_hashes()

    def optimizer_begins(self, optimizer: torch.optim.Optimizer) -> None:
        """Record the settings of an optimizer that is about to step, and the gradients of its parameters."""
        mode = self._mode
        if mode is None or not self._is_active:
            return
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            self._step_info["optimizers"].append(optimizer_settings(optimizer))
            self._number_known_weights()
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    if isinstance(parameter, torch.Tensor):
                        mode.sink("gradient", self._number_of_parameter(parameter), parameter.grad)
        mode.in_optimizer_step = True

    def optimizer_ended(self, optimizer: object) -> None:
        """Note that the optimizer's step is over: later ops are not its own."""
        if self._mode is not None:
            self._mode.in_optimizer_step = False

    def step_ended(self, step: Step) -> None:
        """Write or hold the ops of the step, if it was recorded."""
        self._finish_step(step.index)

    def ended(self) -> None:
        """Finish the running step, compare the ops that were held for the end, and free them."""
        if self._mode is not None and self._mode.ops:
            self._finish_step(self._step)
        if self._held_ops and self._models is not None and self._function_calls is not None:
            with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
                self._compare_held_ops([self._earlier_models, self._models.all], self._function_calls.backward_calls)
            self._held_ops, self._held_fingerprints, self._copies.by_hash = [], [], {}

    def _compare_held_ops(self, models_by_time: list[list[Model]], applied: list[Applied]) -> None:
        """Find where the held steps diverge from float64, and where models of equal structure diverge.

        :param models_by_time: models of the first recorded steps, and of the steps recorded for a late model.
        """
        ops = tuple(self._with_names(op, where) for op, where in self._held_ops)
        tape = Tape(process_environment(), ({"step": ops[0].step},), {}, ops, tuple(self._held_fingerprints))

        def ops_of(model: Model, begin: int, end: int) -> list[TapeOp]:
            """Return the forward ops of `model` from number `begin` to `end`, with names of weights relative to the
            model.
            """
            mine = [(op, where) for op, where in self._held_ops if begin <= op.index < end and op.phase == "forward"]
            return [self._with_names(op, where, model.root) for op, where in mine]

        self._found = [
            one for models in models_by_time for one in compare_models(tape, self._copies.by_hash, models, ops_of)
        ]
        self._found += compare_with_float64(tape, self._copies.by_hash, applied)

    def _known_modules(self) -> list[tuple[RootModule, str, nn.Module]]:
        """Return all known modules, each with its outermost module and its path in it."""
        found = []
        for root, model in self._context.modules.models():
            found += [(root, root.path_of(module) or path, module) for path, module in model.named_modules()]
        return found

    def _known_weights(self) -> Iterator[tuple[RootModule, str, torch.Tensor, bool]]:
        """Yield the weights and buffers of all known modules.

        Each comes with its outermost module, its path in it, and whether it is a parameter.
        """
        for root, path, module in self._known_modules():
            for held in (module._parameters, module._buffers):
                for key, tensor in held.items():
                    if tensor is not None:
                        yield root, f"{path}.{key}".strip("."), tensor, held is module._parameters

    def _number_known_weights(self) -> None:
        """Give a number to each weight and buffer that is known by now."""
        for root, path, tensor, _ in self._known_weights():
            self._number_of_weight(tensor, root, path)

    def _number_of_weight(self, tensor: torch.Tensor, root: RootModule | None, path: str) -> str:
        """Return the number of a weight or buffer as text, given now if it is new.

        :param root: its outermost module, with its `path` in it; ``None``: `path` is its name.
        """
        number = self._weight_numbers.get(tensor)
        if number is None:
            number = self._weight_numbers[tensor] = str(len(self._weights_by_number))
            self._weights_by_number.append(_Weight(private.tensor_ref(tensor), root, path))
        elif root is not None:
            self._weights_by_number[int(number)] = replace(self._weights_by_number[int(number)], root=root, path=path)
        return number

    def _number_of_parameter(self, parameter: torch.Tensor) -> str:
        """Return the number of an optimizer's parameter, which may belong to no module."""
        number = self._weight_numbers.get(parameter)
        if number is not None:
            return number
        leaf = self._context.names.leaves.known(parameter)
        return self._number_of_weight(
            parameter, None, self._context.names.leaves.name(leaf) if leaf is not None else ""
        )

    def _weight_name(self, number: str, root: RootModule | None = None) -> str:
        """Return the name of a weight.

        :param root: for weights of this outermost module, return the path in it.
        """
        if not number:
            return ""
        one = self._weights_by_number[int(number)]
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
            inputs = tuple(replace(one, name=self._weight_name(one.name, root)) if one.name else one for one in inputs)
        # Names of C++ nodes may contain a space.
        node, _, weight = op.node.rpartition(" ") if op.node.rpartition(" ")[2].isdecimal() else (op.node, "", "")
        return replace(
            op,
            module=self._weight_name(op.module) if op.phase == "sink" else module,
            inputs=inputs,
            node=f"{node} {self._weight_name(weight, root)}".strip(),
        )

    def _finish_step(self, step: int) -> None:
        """Record the final weights and gradients of the step, write the step, and forget it."""
        mode = self._mode
        if mode is None or not self._step_info or mode.step != step or not mode.ops:
            return
        folder = self._context.record_to if self._context.settings.record_ops else None
        with private.disable_function_modes(), private.hide_ops(), torch.no_grad():
            for root, path, tensor, trained in self._known_weights():
                number = self._number_of_weight(tensor, root, path)
                if trained and not self._step_info["optimizers"]:
                    mode.sink("gradient", number, tensor.grad)
                mode.sink("weight", number, tensor)
            metrics = sys.modules.get("torch._inductor.metrics")
            self._step_info["kernels"] = getattr(metrics, "generated_kernel_count", 0)
            self._store_step(Path(folder) if folder is not None else None, step)
        mode.ops, mode.unwritten_fingerprints = [], []
        self._step_info = {}

    def _store_step(self, folder: Path | None, step: int) -> None:
        """Write the step to `folder` if there is one, and hold it if it is to be compared in this process."""
        mode = self._mode
        assert mode is not None
        if folder is not None:
            if self._writer is None:
                self._writer = TapeWriter(folder, self._context.settings.source != "none")
                self._writer.about(process_environment())
            name = self._context.modules.full_name
            settings = {name(root, path): one for root, path, one in self._module_settings}
            start = {self._weight_name(number): value for number, value in self._start_values.items()}
            info = {**self._step_info, "modules": settings, **({"start": start} if start else {})}
            self._writer.step(
                step, info, [self._with_names(op, where) for op, where in mode.ops], mode.unwritten_fingerprints
            )
        if self._compares_at_end:
            self._held_ops += mode.ops
            self._held_fingerprints += mode.unwritten_fingerprints
        self._copies.write(self._writer.folder if folder is not None and self._writer is not None else None, step)

    # Results

    def records(self) -> tuple[Divergence, ...]:
        """Return the divergences that the comparison at the end found."""
        return tuple(self._found)

    def unseen(self) -> list[Unseen]:
        """Return how many ops could not be recorded, and how many tensors were not kept for lack of memory."""
        found = []
        if self._errors:
            first = self._errors[0]
            what = f"ops that are not in the record to compare: {type(first).__name__}: {first}"[:300]
            found.append(Unseen("ops to compare", len(self._errors), what, hides=False))
        if self._copies.not_recomputable:
            found.append(
                Unseen(
                    "tensors",
                    self._copies.not_recomputable,
                    "not kept to be compared: give more with --max-record-mb",
                    hides=False,
                )
            )
        return found
