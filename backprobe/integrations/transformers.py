"""The callback for the Trainer of transformers."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from transformers import PrinterCallback, ProgressCallback, TrainerCallback

from .watching import Options, Watching

if TYPE_CHECKING:
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments
    from typing_extensions import Unpack

    from ..trace_api import Trace


#: Callbacks that print what is logged. A person does not read hundreds of numbers.
_PRINTING = (PrinterCallback, ProgressCallback)
#: The numbers that these get, in addition to alarms.
_PRINTED = ("backprobe/grad_norm/max", "backprobe/update_ratio/median", "backprobe/nonfinite")


class BackprobeCallback(TrainerCallback):  # type: ignore[misc]
    """Observes ``trainer.train()``, reports what went wrong in its backward passes, and logs statistics by layer.

    The report comes at the end of the training. The run is stored. The statistics go to ``trainer.log`` when the
    trainer logs.

        trainer.add_callback(BackprobeCallback(trainer))

    The Trainer does not notify its callbacks if the training fails. The findings are then reported at the end of the
    process, or of a ``with BackprobeCallback(trainer) as callback:`` block around ``trainer.train()``.

    :param trainer: its ``log`` receives the statistics; without it they are not logged.
    :param options: see ``backprobe.integrations.watching.Options``.
    :raises BackprobeError: an option is unknown or has a wrong value.
    """

    def __init__(self, trainer: Trainer | None = None, **options: Unpack[Options]) -> None:
        self._trainer = trainer
        self.watching = Watching(options)

    @property
    def trace(self) -> Trace | None:
        """The trace of the last completed training."""
        return self.watching.trace

    def __enter__(self) -> BackprobeCallback:
        if self._trainer is not None and self not in self._trainer.callback_handler.callbacks:
            self._trainer.add_callback(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.watching.end(error)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        model: object = None,
        **kwargs: object,
    ) -> None:
        """Start recording; called by the Trainer."""
        self.watching.begin(model, "trainer")

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """Log new statistics when the trainer logs, and stop the training after an alarm of ``stop_on``; called by the
        Trainer.
        """
        if self.watching.stop:
            control.should_training_stop = True
        if self._trainer is not None and control.should_log and (numbers := self.watching.take()):
            self._log(self._trainer, numbers)
            control.should_log = True  # the Trainer's own numbers are to be logged yet

    def _log(self, trainer: Trainer, numbers: dict[str, float]) -> None:
        """Log all numbers to the trackers, and only a few to the callbacks that print."""
        handler = trainer.callback_handler
        before = handler.callbacks
        printing = [one for one in before if isinstance(one, _PRINTING)]
        handler.callbacks = [one for one in before if one not in printing]
        try:
            trainer.log(numbers)
        finally:
            handler.callbacks = before
        few = {name: numbers[name] for name in _PRINTED if name in numbers}
        few |= {name: value for name, value in numbers.items() if name.startswith("backprobe/alarm/")}
        for one in printing if few else ():
            one.on_log(trainer.args, trainer.state, trainer.control, logs=dict(few))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: object
    ) -> None:
        """End the recording and report; called by the Trainer."""
        self.watching.end()
