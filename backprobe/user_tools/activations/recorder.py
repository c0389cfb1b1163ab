"""Hooks on the chosen modules during a capture, and a list of modules without a captured value."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import nn

from ...basics.errors import add_note
from ...records import Site
from ...records.places import at_line, lasting
from ...source.frames import Frames
from ...source.roots import clean_path
from ...torch_internals import autograd_engine, compiled_regions, modes
from ...torch_internals.uncompiled import disable_dynamo
from .captured import ByMemory, Captured, Entry
from .chosen import named_tensors
from .files import TensorFiles
from .grads import has_node
from .mode import CaptureMode, Lines
from .options import Options

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

_compiling = modes.compiling


class Recorder:
    """Captures values while it is active. It can be used once."""

    def __init__(self, model: nn.Module, chosen: dict[str, nn.Module], options: Options) -> None:
        """Prepare the capture of the chosen modules; ``start`` registers the hooks.
        :param chosen: the modules by name.
        """
        self._model, self._chosen, self._options = model, chosen, options
        self.wants_grads, self.keeps_lines = options.grads, bool(options.lines)
        #: Name -> captured value, in execution order: of modules, and of ops by line.
        self.entries: dict[str, Entry] = {}
        self.lines: dict[str, Entry] = {}
        #: Handles of the hooks on graph nodes; they outlive the block.
        self.handles: list[torch.utils.hooks.RemovableHandle] = []
        #: Remarks on captured values, by name.
        self.notes: dict[str, str] = {}
        self.writer = TensorFiles(options.to) if options.to is not None else None
        self._hooks: list[RemovableHandle] = []
        self._calls: dict[str, int] = {}
        self._running: dict[str, list[int]] = {}
        self._empty: dict[str, str] = {}
        self._line_calls: dict[str, int] = {}
        self._shared = ByMemory(self.handles)
        wanted = options.lines
        self._mode = CaptureMode(self._shared)
        if wanted:
            lines = Lines(wanted) if isinstance(wanted, tuple) else None
            self._mode.look_at(Frames(_source_folders(model)), lines, self._op)

    def start(self) -> None:
        """Register the hooks and activate the function mode; undo all if that fails."""
        disable_dynamo()
        try:
            for name, module in self._chosen.items():
                self._hook(name, module)
            self._mode.__enter__()
        except BaseException:
            self._unhook()
            raise

    def _hook(self, name: str, module: nn.Module) -> None:
        """Register the hooks of one module. A TorchScript module takes none and is left out."""
        try:
            if self._options.inputs:
                self._hooks.append(module.register_forward_pre_hook(self._before(name), with_kwargs=True))
            self._hooks.append(module.register_forward_hook(self._after(name), always_call=True))
        except RuntimeError:
            if not isinstance(module, torch.jit.ScriptModule):  # those take none
                raise

    def _unhook(self) -> None:
        """Remove the hooks of all modules."""
        while self._hooks:
            self._hooks.pop().remove()

    def stop(self) -> None:
        """Remove the hooks. What is known of modules that were not seen is worked out now, and the model let go."""
        self._mode.__exit__(None, None, None)
        self._unhook()
        lost = {id(kept) for kept in self._shared.end()}
        for name, entry in (*self.entries.items(), *self.lines.items()):
            if id(entry.kept) in lost:
                self.notes[name] = "overwritten in place by code that Python does not see: this is a later value"
        self._unseen = self._find_unseen()
        self._mode.look_away()
        self._model, self._chosen = nn.Module(), {}
        if self.writer is not None:
            self.writer.close()

    @property
    def unseen(self) -> dict[str, str]:
        """Chosen modules of which there is nothing, and why."""
        return self._find_unseen() if self._chosen else self._unseen

    def _before(self, name: str) -> Callable[..., None]:
        """Return the forward pre-hook of the module `name`, which captures its inputs."""

        def hook(module: nn.Module, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
            """Count the call, and capture its arguments, also those by keyword."""
            if _compiling() or modes.tracing() or autograd_engine.in_backward():
                return
            with modes.disable_function_modes():
                self._calls[name] = number = self._calls.get(name, 0) + 1
                self._running.setdefault(name, []).append(number)
                # One dict, so that positions and keywords are named alike.
                given = {str(i): a for i, a in enumerate(args)} | kwargs
                self._keep_all(f"{_numbered(name, number)}<in>", module, given, is_input=True)

        return hook

    def _after(self, name: str) -> Callable[..., None]:
        """Return the forward hook of the module `name`, which captures its output."""

        def hook(module: nn.Module, args: object, output: object) -> None:
            """Capture the output of the call, or note why it is not captured."""
            if _compiling():
                return
            if modes.tracing():
                self._empty[name] = "called while PyTorch traced, or under FakeTensorMode: its tensors have no values"
                return
            with modes.disable_function_modes():
                if autograd_engine.in_backward():
                    self.notes.setdefault(name, "called again in the backward (recomputation): not captured again")
                    return
                running = self._running.get(name)
                if running:
                    number = running.pop()
                else:
                    self._calls[name] = number = self._calls.get(name, 0) + 1
                full = _numbered(name, number)
                if output is None:
                    self._nothing(full, sys._getframe(1))
                else:
                    self._keep_all(full, module, output)

        return hook

    def _nothing(self, full: str, caller: object) -> None:
        """Record that a module has no output: it returned None, or it raised and its hook has ``always_call``."""
        error = sys.exc_info()[1]
        if error is not None and error.__traceback__ is not None and error.__traceback__.tb_frame is caller:
            self._empty[full] = f"raised {type(error).__name__}"
        else:
            self._empty[full] = "returned None"

    def _keep_all(self, name: str, module: nn.Module, value: object, is_input: bool = False) -> None:
        """Capture the tensors in an output or in inputs, under `name` and their paths, and note which values are left
        out.
        """
        found, odd = named_tensors(value)
        try:
            for suffix, tensor in found:
                if modes.is_wrapped(tensor):
                    self._empty[name + suffix] = "inside a torch.func transform, whose tensors end with it"
                    continue
                if modes.is_symbolic(tensor):
                    self._empty[name + suffix] = "a fake or functional tensor: it has no values"
                    continue
                self.entries[name + suffix] = Entry(self._keep(name + suffix, tensor), type(module).__name__)
        except Exception as error:
            add_note(error, f"backprobe: while keeping what {name or 'the model'!r} ({type(module).__name__}) gave")
            raise
        if found and not is_input and self._options.grads:
            self._no_gradient(name, module, [t for _, t in found if t.is_floating_point()])
        if not found and not is_input:
            self._empty[name] = f"returned no tensor ({type(value).__name__})"
        elif odd:
            self.notes[name] = f"not looked into: {', '.join(odd)}"

    def _no_gradient(self, name: str, module: nn.Module, tensors: list[torch.Tensor]) -> None:
        """Note for `name` why no gradient will come, if none of its floating-point tensors has a graph."""
        if not tensors or any(has_node(t) for t in tensors):
            return
        if not torch.is_grad_enabled():
            self.notes[name] = "called under no_grad: no gradient will come"
        elif any(p.requires_grad for p in module.parameters()):
            self.notes[name] = "has trainable parameters, but its output has no graph: no gradient will come"

    def _keep(self, name: str, tensor: torch.Tensor) -> Captured:
        """Store a tensor after its treatment, and record its gradient if requested; the same value is stored once."""
        keep = self._options.keep
        known = self._shared.known(tensor) if self.writer is None else None
        if known is not None:
            return known
        kept = Captured(tensor)
        value = keep(tensor.detach() if keep.detach else tensor)
        if self.writer is not None:
            kept.stored = self.writer.write(name, value)
        else:
            kept.tensor = value
        if self._options.grads and has_node(tensor):
            kept.watch(tensor, keep, self.handles)
        self._shared.add(kept, tensor)
        return kept

    def _op(self, site: Site, function: str, suffix: str, tensor: torch.Tensor) -> None:
        """Capture the result of an op at a line of the user.
        :param suffix: its path in a nested result.
        """
        base = f"{at_line(os.path.basename(lasting(site.file)), site.line)} {function}"
        if suffix == "" or suffix.endswith("/0"):
            self._line_calls[base] = self._line_calls.get(base, 0) + 1
        name = _numbered(base, self._line_calls.get(base, 1)) + suffix
        self.lines[name] = Entry(self._keep(name, tensor), function, site)

    def _find_unseen(self) -> dict[str, str]:
        """Return the chosen modules without a captured value, with the likely reason for each."""
        unseen = dict(self._empty)
        compiled = [
            clean_path(self._model, path)
            for path, m in self._model.named_modules()
            if compiled_regions.is_compiled_module(m)
        ]
        maybe = ", or in a compiled region, where hooks do not run" if compiled_regions.in_use() else ""
        missing = {n: m for n, m in self._chosen.items() if n not in self._calls and n not in unseen}
        owners = _owners(self._model) if missing else {}
        for name, module in missing.items():
            own = [*module.parameters(recurse=False)]
            other = next((n for p in own for n, m in owners[id(p)] if m is not module), None)
            if any(name == path or not path or name.startswith(path + ".") for path in compiled):
                unseen[name] = "in a compiled region, where hooks do not run"
            elif isinstance(module, torch.jit.ScriptModule):
                unseen[name] = "in TorchScript, where hooks do not run"
            elif other is not None:
                unseen[name] = f"not called; {other}, which has the same parameters, may have been"
            elif any(p in self._mode.used for p in own):
                unseen[name] = "not called, but its parameters were used: by .forward(), or directly" + maybe
            elif any(inner.startswith(name + ".") or not name for inner in self._calls):
                unseen[name] = "not called, but modules in it were: by .forward(), or another method"
            else:
                unseen[name] = "not called" + maybe
        return unseen


def _numbered(name: str, number: int) -> str:
    """Return `name`, with ``:2`` for a second call."""
    return name if number == 1 else f"{name}:{number}"


def _owners(model: nn.Module) -> dict[int, list[tuple[str, nn.Module]]]:
    """Return for each parameter, by id, the modules that contain it."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        for p in module.parameters(recurse=False):
            owners.setdefault(id(p), []).append((name, module))
    return owners


def _source_folders(model: nn.Module) -> tuple[str, ...]:
    """Return the folders that define the model's classes: their lines count as the user's, even if installed."""
    folders = set()
    for module in model.modules():
        source = sys.modules.get(type(module).__module__)
        file = getattr(source, "__file__", None)
        if file and not type(module).__module__.startswith("torch."):
            folders.add(os.path.dirname(os.path.abspath(file)))
    return tuple(sorted(folders))
