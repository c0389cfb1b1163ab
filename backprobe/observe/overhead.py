"""Measurement of the overhead on a user's script: one run, in which each step uses a randomly chosen tool."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch.optim import optimizer as optim

from ..torch_internals.references import IdentityMap
from .session import Session

#: Steps at the start that are not timed: warm-up, and backprobe's thorough inspection of the first steps.
UNTIMED_STEPS = 12


class ToolAlternation:
    """Switches the tool at the end of each optimizer step, and times the steps.

    A step belongs to the optimizer that ends it: if several optimizers alternate, each has its own times.
    """

    def __init__(self, tools: list[str]) -> None:
        """Start with the plain script. `tools`: the names of the tools to alternate."""
        self.tools = tools
        #: The optimizers that stepped, numbered.
        self._numbers: IdentityMap[int] = IdentityMap()
        #: Tool -> number of an optimizer -> seconds.
        self.times: dict[str, dict[int, list[float]]] = {t: {} for t in tools}
        self.steps = self._count = 0
        self._sessions: Mapping[str, Session] = {}
        self._tool = "plain"
        self._state = 12345
        self._last = 0.0
        self._handle: Any = None

    def begin(self, sessions: Mapping[str, Session]) -> None:
        """Begin with the plain script.

        :param sessions: by tool, the session that is attached while its steps are timed.
        """
        self._sessions = sessions
        self._handle = optim.register_optimizer_step_post_hook(self._stepped)

    def backward(self, recorded: object) -> None: ...

    def step(self, step: object, session: object) -> None: ...

    def end(self) -> None:
        """Stop the timing, and all tools."""
        if self._handle is not None:
            self._handle.remove()
        for session in self._sessions.values():
            session.stop()
        torch.autograd.set_detect_anomaly(False)

    def _stepped(self, optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        """Time the step that an optimizer has just ended, and switch to a randomly chosen tool.

        A hook after every step.
        """
        now = time.perf_counter()
        if self.steps > UNTIMED_STEPS * len(self.tools):
            number = self._numbers.get(optimizer)
            if number is None:
                self._count += 1
                number = self._numbers[optimizer] = self._count
            self.times[self._tool].setdefault(number, []).append(now - self._last)
        self.steps += 1
        # A separate generator, so that the script's random numbers do not change.
        self._state = (1103515245 * self._state + 12345) % 2**31
        self._switch(self.tools[(self._state >> 16) % len(self.tools)])
        self._last = time.perf_counter()

    def _switch(self, tool: str) -> None:
        """Make `tool` the one whose overhead is timed in the next step: detach the others, and attach it."""
        if tool == self._tool:
            return
        for session in self._sessions.values():
            session.pause()
        torch.autograd.set_detect_anomaly(False)
        self._tool = tool
        if tool in self._sessions:
            self._sessions[tool].resume()
        elif tool == "detect_anomaly":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.autograd.set_detect_anomaly(True)
