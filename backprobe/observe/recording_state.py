"""The state of recording: shared by the parts that attach to torch and the parts that depend on it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class RecordingState:
    """The state of recording.

    :ivar attached: the recorder and the module hooks are attached.
    :ivar calls_to_engine: the interceptor of the engine handles backward calls although everything is attached.
    :ivar recorded_from: nodes with a lower sequence number may have been made while nothing was recorded.
    :ivar running_calls: the indices of the recorded backward calls that are running, innermost last.
    :ivar in_unrecorded_call: a backward call that is not recorded is running.
    """

    attached: bool = False
    calls_to_engine: bool = False
    recorded_from: int = 0
    running_calls: list[int] = field(default_factory=list)
    in_unrecorded_call: bool = False

    @property
    def in_call(self) -> bool:
        """Return whether a backward call is running."""
        return bool(self.running_calls) or self.in_unrecorded_call

    @property
    def forward_recorded(self) -> bool:
        """Return whether the ops and backward calls of the running step are recorded."""
        return self.attached and not self.calls_to_engine
