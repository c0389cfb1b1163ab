"""The integration with accelerate, which has no callbacks: it records a block."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from accelerate import Accelerator

from .watching import Options, Watching

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ..trace_api import Trace


class watch:
    """Observes a block, reports what went wrong in its backward passes, and logs statistics by layer.

    The report comes at the end of the block. The run is stored. The statistics go to ``accelerator.log``.

        with watch(accelerator, model):
            for batch in loader: ...

    :param model: the outermost module, so that paths begin there; without it the outermost one that is called.
    :param options: see ``backprobe.integrations.watching.Options``.
    :raises BackprobeError: an option is unknown or has a wrong value.
    """

    def __init__(self, accelerator: Accelerator, model: Any = None, **options: Unpack[Options]) -> None:
        self._accelerator, self._model = accelerator, model
        self.watching = Watching(options, self._log)

    def _log(self, numbers: dict[str, float], step: int) -> None:
        """Log numbers with accelerate's trackers."""
        self._accelerator.log(numbers, step=step)

    @property
    def stop(self) -> bool:
        """Whether an alarm of ``stop_on`` was raised: a loop that checks this ends by itself."""
        return self.watching.stop

    @property
    def trace(self) -> Trace | None:
        """The trace of the last completed block."""
        return self.watching.trace

    def __enter__(self) -> watch:
        self.watching.begin(self._model, "accelerate")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.watching.end(error)
