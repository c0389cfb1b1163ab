"""Finds the sample whose graph makes the gradient of its own log-probability cancel.

``mean + deviation * noise``, as ``rsample()`` computes it, minus ``mean`` does not depend on ``mean``. So the gradients
of ``log_prob(rsample())`` with respect to the mean of the distribution add up to zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath

from ...ops import info
from ...records import BackwardCall, NodeRun, Site

#: The most nodes between a difference and the sample in it: reshapes, indexing, and inverses of transforms.
MAX_NODES_BETWEEN = 200
#: The folder of torch with the distributions, and their method that draws a sample with a graph.
_DISTRIBUTIONS, _DRAWS = ("torch", "distributions"), "rsample"


@dataclass(frozen=True)
class AttachedSample:
    """A sample with a graph that is compared with the mean which it was drawn around.

    :ivar site: the line that draws it, or that adds the noise to the mean.
    :ivar by_rsample: ``rsample()`` of a distribution drew it; otherwise the script's own sum.
    """

    site: Site
    by_rsample: bool


def attached_sample(run: NodeRun, call: BackwardCall) -> AttachedSample | None:
    """Return the sample that goes into the operation of node `run`, around which gradients cancel.

    A sum of the script counts if it adds something to what the operation then subtracts.
    """
    sides = [_moved(edge[0], call) for edge in run.node.edges if edge is not None]
    for side in sides:
        for index in side:
            made = call.nodes[index]
            if made.site is not None and _is_in_distributions(made, _DRAWS):
                return AttachedSample(made.site, by_rsample=True)
    for side, other in zip(sides, reversed(sides), strict=True):
        made = call.nodes[side[-1]]
        if len(sides) != 2 or made.site is None or not info(made.name).is_elementwise_sum or not other:
            continue
        terms = [index for edge in made.node.edges if edge is not None for index in _moved(edge[0], call)]
        if not set(terms).isdisjoint(other):
            return AttachedSample(made.site, by_rsample=False)
    return None


def _moved(index: int, call: BackwardCall) -> list[int]:
    """Return node `index` and the nodes before it in the forward from which it has its values, in another shape.

    Operations inside of distributions, such as inverses of transforms, are passed too, up to those of a sample.
    """
    found = [index]
    for one in found:  # grows as we go
        run = call.nodes[one]
        moves = info(run.name).reshapes or info(run.name).moves_values or info(run.name).casts
        inside = _is_in_distributions(run) and not _is_in_distributions(run, _DRAWS)
        if moves or inside:
            before = [edge[0] for edge in run.node.edges if edge is not None]
            found += [new for new in before if new not in found][: MAX_NODES_BETWEEN - len(found)]
    return found


def _is_in_distributions(run: NodeRun, function: str = "") -> bool:
    """Return whether the code of torch's distributions made a node, in a function of the name `function` if given."""
    return any(
        PurePath(line.file).parts[-3:-1] == _DISTRIBUTIONS and function in ("", line.function)
        for line in run.node.library
    )
