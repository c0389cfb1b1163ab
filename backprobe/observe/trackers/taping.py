"""``--record compare``: keeps of the first steps what a comparison with another run needs."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from ...comparing.files import TapeWriter
from ...records import Step, Unseen
from ...torchside import private
from ..events import Tracker
from ..scene import Scene
from ..schedule.detail import Settings
from ..tape.mode import TapeMode
from ..tape.space import Space
from ..tape.surroundings import about, generators, modules, optimizer

#: Steps that are recorded where nobody says which.
STEPS = 3


class Taping(Tracker):
    """Puts the mode on in steps that are recorded, and writes each when it is over."""

    @classmethod
    def wanted(cls, settings: Settings) -> bool:
        return settings.record == "compare"

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._names: dict[int, str] = {}
        self._space = Space(scene.settings.record_mb << 20)
        self._mode: TapeMode | None = None
        self._on = False
        self._writer: TapeWriter | None = None
        self._step = 0
        self._info: dict[str, Any] = {}
        self._faults: list[BaseException] = []
        self._known = 0

    def _wanted(self, step: int) -> bool:
        settings = self._scene.settings
        last = settings.last if settings.last is not None else settings.first + STEPS * settings.every
        return settings.first <= step < last and (step - settings.first) % settings.every == 0

    # When

    def step_begins(self, step: int, careful: bool) -> None:
        self._step = step
        if not self._wanted(step):
            self._off()
            return
        if self._mode is None:
            scene = self._scene

            def here() -> Any:
                stack = scene.modules.stack
                return stack[-1] if stack else None

            self._mode = TapeMode(scene.frames, here, self._names, self._space, self._faults.append)
        with private.unseen(), private.unnoticed():
            self._mode.new_step(step)
            self._info = {"step": step, "generators": generators() if step else {}, "optimizers": [], "modules": {}}
            self._name()
        self._put_on()

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
        """Note [Not taken off where code is compiled]: a compiler's frame puts dispatch keys back as it has found them
        when it is left. Where a mode was taken off meanwhile, torch goes on as if one were on. So it stays, and does
        nothing, until all is `over`."""
        if self._mode is None or not (self._on or self._mode.quiet):
            return
        self._on, self._mode.quiet = False, "torch._dynamo" in sys.modules and not over
        if not self._mode.quiet:
            private.drop_dispatch_mode(self._mode)

    # What

    def root_found(self) -> None:
        self._look()

    def forward_begins(self) -> None:
        if not self._info.get("modules"):
            self._look()

    def _look(self) -> None:
        """Weights and settings as the first outermost module finds them."""
        if not self._on or self._mode is None:
            return
        with private.unseen(), private.unnoticed(), torch.no_grad():
            self._name()
            named = self._modules()
            self._info["modules"] = modules(named)
            self._info["start"] = self._weights()
            if self._step == 0:  # a script seeds them after its start
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
                        mode.sink("gradient", self._names.get(id(parameter), ""), parameter.grad)
        mode.optimizing = True

    def optimizer_over(self, optimizer_: Any) -> None:
        if self._mode is not None:
            self._mode.optimizing = False

    def step_over(self, step: Step) -> None:
        self._write(step.index)

    def ended(self) -> None:
        if self._mode is not None and self._mode.ops:
            self._write(self._step)

    def _modules(self) -> list[tuple[str, Any]]:
        found = []
        watch = self._scene.modules
        for root in watch.roots:
            model = root.ref()
            if model is not None:
                found += [(watch.full_name(root, path), module) for path, module in model.named_modules()]
        return found

    def _name(self) -> None:
        """The names of weights and buffers, as far as modules are known."""
        for path, module in self._modules():
            for key, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None:
                    self._names.setdefault(id(tensor), f"{path}.{key}".strip("."))

    def _weights(self) -> dict[str, int]:
        assert self._mode is not None
        found = {}
        for path, module in self._modules():
            for key, tensor in (*module._parameters.items(), *module._buffers.items()):
                if tensor is not None:
                    value = self._mode.value_of(tensor)
                    if value is not None:
                        found[f"{path}.{key}".strip(".")] = value
        return found

    def _write(self, step: int) -> None:
        mode = self._mode
        if mode is None or not self._info or mode.step != step or not mode.ops:
            return
        folder = self._scene.record_to
        with private.unseen(), private.unnoticed(), torch.no_grad():
            for path, module in self._modules():
                for key, parameter in module._parameters.items():
                    if parameter is not None and not self._info["optimizers"]:
                        mode.sink("gradient", f"{path}.{key}".strip("."), parameter.grad)
                for key, parameter in (*module._parameters.items(), *module._buffers.items()):
                    if parameter is not None:
                        mode.sink("weight", f"{path}.{key}".strip("."), parameter)
            metrics = sys.modules.get("torch._inductor.metrics")
            self._info["kernels"] = getattr(metrics, "generated_kernel_count", 0)
            if folder is not None:
                self._kept(Path(folder), step)
        mode.ops, mode.fresh = [], []
        self._info = {}

    def _kept(self, folder: Path, step: int) -> None:
        mode = self._mode
        assert mode is not None
        if self._writer is None:
            self._writer = TapeWriter(folder)
            self._writer.about(about())
        name_of = self._scene.modules.name_of
        ops = [op if where is None else replace(op, module=name_of(where) or "") for op, where in mode.ops]
        self._space.write(self._writer.folder, step)
        self._writer.step(step, self._info, ops, mode.fresh)

    # What is known

    def unseen(self) -> list[Unseen]:
        found = []
        if self._faults:
            first = self._faults[0]
            what = f"ops that are not in the record to compare: {type(first).__name__}: {first}"[:300]
            found.append(Unseen("ops to compare", len(self._faults), what, hides=False))
        if self._space.lost:
            found.append(
                Unseen("tensors", self._space.lost, "not kept to be compared: give more with --record-mb", hides=False)
            )
        return found
