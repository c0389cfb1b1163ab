"""Detects loads with ``strict=False`` of state dicts none of whose names the model has: they restore nothing."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import replace
from types import FrameType

import torch
from torch import nn

from ...records import NothingLoaded
from ...source.frames import CodeLocation
from ...torch_internals import private, state_dicts
from ..tracker import Tracker
from ..tracker_context import TrackerContext

#: Most lines that load so, names of a state dict and of a model that are kept, and parts of a prefix: there are two in
#: ``module._orig_mod.``.
MAX_LOADS, MAX_NAMES, MAX_PREFIX_PARTS = 50, 3, 3


class CheckpointNameTracker(Tracker):
    """Tracker that compares the names of a state dict with those of the model that the script loads it into."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without loads; they are listened to while the session observes."""
        self._context, self._frames = context, context.frames
        #: By line and class of the model. The line is filled in at the end.
        self._found: dict[tuple[CodeLocation, str], NothingLoaded] = {}
        self._thread = threading.get_ident()
        context.restorers.append(self.observing_pauses)

    def observing_begins(self) -> None:
        """Start listening to loads of state dicts, and remember the thread: only its loads are compared."""
        self._thread = threading.get_ident()
        state_dicts.listen(self)

    def observing_pauses(self) -> None:
        """Stop listening to loads of state dicts."""
        state_dicts.unlisten(self)

    def taken(self, module: nn.Module, state: object, frame: FrameType) -> None:
        """Nothing to note."""

    def described(self, state: object, metadata: object) -> None:
        """Nothing to note."""

    def loads(self, module: nn.Module, state: object, assign: bool, strict: bool, frame: FrameType) -> None:
        """Compare the names of a state dict that is loaded with ``strict=False``. Errors do not reach the script."""
        if strict or not isinstance(state, dict) or threading.get_ident() != self._thread or private.tracing():
            return
        try:
            caller = state_dicts.caller_of(frame)
            spot = self._frames.spot(caller) if caller is not None and self._frames.is_user(caller.f_code) else None
            if spot is not None:
                with private.measuring():
                    self._compare(module, state, spot)
        except Exception as error:
            self._context.events.fault(self, error)

    def _compare(self, module: nn.Module, state: dict[str, object], spot: CodeLocation) -> None:
        """Note a load if none of the names of the state dict is one of the module's, with the prefix that may explain
        it.
        """
        given = [name for name, value in state.items() if isinstance(value, torch.Tensor)]
        tensors = (nn.Module.named_parameters, nn.Module.named_buffers)
        own = [name for named in tensors for name, _ in named(module, remove_duplicate=False)]
        if not given or not own or not set(own).isdisjoint(given) or not state_dicts.takes_names_as_they_are(module):
            return
        key = spot, type(module).__name__
        known = self._found.get(key)
        if known is not None:
            self._found[key] = replace(known, loads=known.loads + 1)
        elif len(self._found) < MAX_LOADS:
            prefix, in_state, matching = prefix_between(given, own)
            self._found[key] = NothingLoaded(
                model=key[1],
                step=max(self._context.steps.next_forward_step - 1, 0),
                loads=1,
                given=len(given),
                names=tuple(given[:MAX_NAMES]),
                own=tuple(own[:MAX_NAMES]),
                prefix=prefix,
                in_state=in_state,
                matching=matching,
                loaded=None,
            )

    def records(self) -> Iterable[NothingLoaded]:
        """Return a record for each line that loads nothing."""
        return [replace(one, loaded=self._frames.site(spot)) for (spot, _), one in self._found.items()]


def prefix_between(given: list[str], own: list[str]) -> tuple[str, bool, int]:
    """Return the prefix before all of `given`, or before all of `own`, without which most names are the same.

    :returns: the prefix, empty if there is none; whether it is before those of `given`; how many names are the same.
    """
    for in_state, names, others in ((True, given, own), (False, own, given)):
        for parts in range(1, MAX_PREFIX_PARTS + 1):
            prefix = "".join(f"{part}." for part in names[0].split(".")[:parts])
            if not all(name.startswith(prefix) for name in names):
                break
            same = len({name[len(prefix) :] for name in names} & set(others))
            if 2 * same > min(len(names), len(others)):
                return prefix, in_state, same
    return "", True, 0
