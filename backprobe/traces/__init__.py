"""Traces: the recording of a run as data, in memory or read from disk. Never imports torch."""

from .ledger import Ledger as Ledger
from .part import Part as Part
from .phases import TypicalStep as TypicalStep
from .shown import Shown as Shown
from .statistics import Statistics as Statistics
from .steps import StepRow as StepRow
from .steps import Steps as Steps
from .steps import TracedStep as TracedStep
from .steps import numbers_of as numbers_of
from .trace import Explain as Explain
from .trace import Trace as Trace
