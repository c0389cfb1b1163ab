"""A trace: what was recorded of a run, in memory or read from disk. No torch."""

from .part import Part as Part
from .shown import Shown as Shown
from .steps import StepRow as StepRow
from .steps import TracedStep as TracedStep
from .steps import numbers_of as numbers_of
from .trace import Trace as Trace
