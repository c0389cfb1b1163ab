"""Lines of the forward that were not observed, because its step was not recorded."""

from __future__ import annotations

from ...records import Facts, InferredLine
from ..rules import candidates

#: Evidence for a line that was not observed.
LINE_INFERRED = "the forward of this step was not recorded: the line is inferred from recorded steps and new lines"


def inferred_line(facts: Facts, backward: int, node: int | None) -> dict[str, object]:
    """Return the evidence for the line of a node that was not observed: that, and the lines that it could be.

    :param backward: the index of the backward call; `node`: the node of its graph, if there is one.
    """
    found: dict[str, object] = {"inferred": LINE_INFERRED}
    for line in facts.of(InferredLine):
        if (line.backward, line.node) == (backward, node):
            found |= candidates(line.candidates)
    return found
