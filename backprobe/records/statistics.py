"""Records of statistics by layer: one compact record for each measured step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Separates a quantity from its layer in a name: ``update_ratio|blocks.0.up.weight``.
OF = "|"
#: Quantities of the loss, which takes the place of a layer's name.
LOSSES = ("loss_median", "loss_max")


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of step ``step``.

    ``values[i]`` belongs to ``names[i]``, a quantity and its parameter, module or optimizer. NaN: the value was not
    finite, or is unknown.
    """

    step: int
    names: tuple[str, ...]
    values: Sequence[float]
