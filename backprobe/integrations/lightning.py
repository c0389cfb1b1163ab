"""The callback for Lightning's Trainer: ``lightning``, or ``pytorch_lightning`` if the script imported that."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

from .watching import Options, Watching

if TYPE_CHECKING:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
    from typing_extensions import Unpack

    from ..trace_api import Trace
else:
    _names = ["lightning.pytorch", "pytorch_lightning"]
    _names.sort(key=lambda name: name not in sys.modules)
    try:
        Callback = importlib.import_module(_names[0]).Callback
    except ModuleNotFoundError:
        Callback = importlib.import_module(_names[1]).Callback


class BackprobeCallback(Callback):  # type: ignore[misc]
    """Observes ``trainer.fit``, reports what went wrong in its backward passes, and logs statistics by layer.

    The report comes at the end of the training. The run is stored. The statistics go to the trainer's loggers.

        trainer = Trainer(callbacks=[BackprobeCallback()])

    :param options: see ``backprobe.integrations.watching.Options``.
    :raises BackprobeError: an option is unknown or has a wrong value.
    """

    def __init__(self, **options: Unpack[Options]) -> None:
        self.watching = Watching(options)

    @property
    def trace(self) -> Trace | None:
        """The trace of the last completed training."""
        return self.watching.trace

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start recording; called by Lightning."""
        self.watching.begin(pl_module, type(pl_module).__name__)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: object, batch: object, batch_idx: int
    ) -> None:
        """Log new statistics, and stop the training after an alarm of ``stop_on``; called by Lightning."""
        if numbers := self.watching.take():
            for logger in trainer.loggers:
                logger.log_metrics(numbers, step=trainer.global_step)
        if self.watching.stop:
            trainer.should_stop = True

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """End the recording and report; called by Lightning."""
        self.watching.end()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """End the recording with the training's error; called by Lightning."""
        self.watching.end(exception)
