"""Statistics of a step, by layer: one compact record for each step that was looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: What stands between a quantity and what it is of, in a name: ``update_ratio|blocks.0.up.weight``.
OF = "|"
#: Quantities of the loss, which is a name like that of a layer.
LOSSES = ("loss_median", "loss_max")


@dataclass(frozen=True, slots=True)
class Measured:
    """What was measured in step ``step``: ``values[i]`` is of ``names[i]``, a quantity and the parameter, module or
    optimizer that it is of. NaN: the value itself was not finite, or is not known."""

    step: int
    names: tuple[str, ...]
    values: Sequence[float]
