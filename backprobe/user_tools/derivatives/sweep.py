"""From one output to every tensor at once: each backward pass gives a sample for all of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping

import torch

from ...basics.errors import BackprobeError, UnknownName
from ...basics.select import near, quoted
from ...basics.text import without_controls
from ...torch_internals.autograd_engine import gradient_edge
from .dense import chunk_of, refuse_complex, units
from .flat import Flat, Frame, generator_of
from .guard import Guard
from .intervals import Moments
from .named import Named
from .norms import check_numbers
from .products import Products
from .progress import Progress
from .reasons import each_reason, unfit
from .results import JacobianNorm, table


class Sensitivity(Mapping[str, JacobianNorm]):
    """Name -> Frobenius norm of the Jacobian of one output with respect to that tensor, in the order that was given."""

    def __init__(self, output: str, norms: dict[str, JacobianNorm], unreached: dict[str, str], vjps: int) -> None:
        """Take the output's name, the norms and the reasons by name, and the number of backward passes."""
        self.output = output
        self._norms = norms
        #: Name -> why there is no derivative, for the tensors that the output does not depend on.
        self.unreached = unreached
        #: Backward passes, in all.
        self.vjps = vjps

    def __getitem__(self, name: str) -> JacobianNorm:
        """Return the norm for the tensor `name`; raise ``UnknownName``, with the reason, if there is none."""
        if name in self.unreached:
            raise UnknownName(f"{name}: {self.unreached[name]}")
        if name not in self._norms:
            raise UnknownName(f"no norm for {name!r}; names are like {quoted(near(name, self._norms))}")
        return self._norms[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that have a norm."""
        return iter(self._norms)

    def __len__(self) -> int:
        """Return the number of norms."""
        return len(self._norms)

    def __repr__(self) -> str:
        """Return a table of the norms and of the tensors that were not reached."""
        width = max((len(name) for name in [*self._norms, *self.unreached]), default=4)
        lines = [f"Sensitivity of {self.output}: |d {self.output} / d tensor|_F, {self.vjps} backward passes in all"]
        for name, norm in self._norms.items():
            within = "exact" if norm.exact else f"{100 * norm.confidence:g}% in [{norm.low:.5g}, {norm.high:.5g}]"
            lines.append(f"  {name:{width}}  {norm.value:<10.5g}  {within}{'; ' + norm.note if norm.note else ''}")
        lines += [f"  {name:{width}}  -           {reason}" for name, reason in self.unreached.items()]
        return without_controls("\n".join(lines), lines=True)


class SensitivityMatrix:
    """Norms between all pairs: row is the output, column the input; NaN where there is no path."""

    def __init__(self, rows: dict[str, Sensitivity], names: list[str]) -> None:
        """Take the rows by output, and build the matrices over all `names`."""
        self.rows, self.names = rows, names

        def table(what: str) -> torch.Tensor:
            """Return the attribute `what` of all norms as a matrix; NaN where there is no norm."""
            return torch.tensor(
                [[getattr(rows[a][b], what) if a in rows and b in rows[a] else math.nan for b in names] for a in names],
                dtype=torch.float64,
            )

        #: [names, names] each: the norm, and the ends of its interval.
        self.value, self.low, self.high = table("value"), table("low"), table("high")
        self.vjps = sum(row.vjps for row in rows.values())

    def __repr__(self) -> str:
        """Return the matrix of norms as a text table."""
        known = int((~self.value.isnan()).sum())
        size = len(self.names)
        head = f"SensitivityMatrix({size} x {size}, {known} pairs connected, {self.vjps} backward passes)"
        title = "  |d row / d column|_F"
        names = [name or "(model)" for name in self.names]
        lines = [head, title, *table(self.value, names, names)] if names else [head]
        return without_controls("\n".join(lines), lines=True)


def sensitivity(
    acts: Mapping[str, torch.Tensor],
    output: str | torch.Tensor | None = None,
    *,
    products: int = 16,
    confidence: float = 0.95,
    seed: int | torch.Generator = 0,
    between: bool = False,
    progress: bool | None = None,
) -> Sensitivity | SensitivityMatrix:
    """Estimate the Frobenius norm of the Jacobian of `output` with respect to every tensor of `acts`.

    It takes `products` backward passes in all, whatever the number of tensors.

    One backward pass with a random cotangent at the output gives a sample for each tensor on the way. An output with no
    more than `products` elements (a loss has one) gets exact norms.

    Args:
        acts: name -> tensor, attached to one graph, as ``bp.capture`` gives them.
        output: a name in `acts`, or a tensor.
        products: backward passes.
        confidence, seed, progress: as for :func:`backprobe.jacobian_norm`.
        between: take every tensor for the output in turn: all pairs, `products` passes for each.

    Returns:
        A :class:`Sensitivity` (a mapping name -> JacobianNorm, with ``unreached``: name -> reason), or with `between` a
        :class:`SensitivityMatrix`.

    Raises:
        BackprobeError: if the output is not a name in `acts`, is not attached, or its graph is freed.
    """
    check_numbers(products, confidence)
    generator = generator_of(seed)
    if not acts:
        raise BackprobeError("sensitivity: there is no tensor to ask about (acts is empty)")
    wrong = {name: type(t).__name__ for name, t in acts.items() if not isinstance(t, torch.Tensor)}
    if wrong:
        raise BackprobeError(f"sensitivity: acts is a mapping of name to tensor; these are not tensors: {wrong}")
    tensors = list(acts.values())
    name, y = ("", None) if between else _output(acts, output)
    with Guard(tensors if y is None else [y], tensors)():
        if y is None:
            names = [name for name in acts if not unfit(acts[name], "y")]
            with Progress(products * len(names), "sensitivity: all pairs", progress) as bar:
                rows = {name: _sweep(acts, name, acts[name], products, confidence, generator, bar) for name in names}
            return SensitivityMatrix(rows, list(acts))
        with Progress(products, "sensitivity", progress) as bar:
            return _sweep(acts, name, y, products, confidence, generator, bar)


def _output(acts: Mapping[str, torch.Tensor], output: str | torch.Tensor | None) -> tuple[str, torch.Tensor]:
    """Return name and tensor of the output that the user gave; raise ``BackprobeError`` if there is none of that
    name.
    """
    if isinstance(output, torch.Tensor):
        return "output", output
    if not isinstance(output, str):
        was = "" if output is None else f", not a {type(output).__name__}"
        raise BackprobeError(f"sensitivity: give output=, a tensor or one of {quoted(list(acts)[-3:])}{was}")
    if output not in acts:
        raise BackprobeError(f"sensitivity: no tensor {output!r}; names are like {quoted(near(output, acts))}")
    return output, acts[output]


def _sweep(
    acts: Mapping[str, torch.Tensor],
    name: str,
    y: torch.Tensor,
    count: int,
    confidence: float,
    generator: torch.Generator,
    progress: Progress,
) -> Sensitivity:
    """Compute the norms of one output `y` with respect to all tensors: exact if it has at most `count` elements.
    :param name: the name of the output.
    """
    begin = time.perf_counter()
    reasons = {key: unfit(t, "x") for key, t in acts.items()}
    fit = {key: t for key, t in acts.items() if not reasons[key]}
    named = Named(fit, "acts") if fit else Named(y, name)
    named.names = list(fit) or [name]
    products = Products(Named(y, name), named, unconnected=True)
    refuse_complex(products, "a Frobenius norm")
    exact = y.numel() <= count
    moments = {key: Moments(y.numel()) for key in fit}
    for cotangent in _cotangents(products, exact, count, generator):
        for key, g in zip(fit, products.vjp.batch([cotangent]), strict=False):
            moments[key].add(g.reshape(len(g), 1, -1))
        progress.advance(len(cotangent))
    missing = products.missing or []
    for i, reason in each_reason(products.y, named, missing):
        reasons[named.names[i]] = reason or f"no path leads from {name} to it"
    seconds = time.perf_counter() - begin
    notes = _notes(fit)
    norms = {}
    for key, t in fit.items():
        if reasons[key]:
            continue
        if t is y:
            value = low = high = math.sqrt(y.numel())  # the identity
        elif exact:
            square = sum(float(part.sum()) for part in moments[key].samples)
            value = low = high = math.sqrt(square)
        else:
            value, low, high = (math.sqrt(float(part)) for part in moments[key].estimate(confidence))
        method, shape = "exact" if exact or t is y else "hutchinson", (y.numel(), t.numel())
        norms[key] = JacobianNorm(
            value, low, high, confidence, method, shape, products.vjp.count, 0, seconds, notes.get(key, "")
        )
    unreached = {key: reason for key, reason in reasons.items() if reason}
    return Sensitivity(name, norms, unreached, products.vjp.count)


def _cotangents(products: Products, exact: bool, count: int, generator: torch.Generator) -> Iterator[torch.Tensor]:
    """Yield batches of cotangents for the single output: all unit vectors, or rows of a random frame."""
    (y,), chunk = products.y.tensors, chunk_of(products)
    if exact:
        for _, (unit,) in units([y], chunk):
            yield unit
        return
    frame = Frame(y.numel(), count, Flat(products), generator)
    for start in range(0, count, chunk):
        rows = frame.take(min(chunk, count - start))
        yield rows.reshape(len(rows), *y.shape).to(y)


def _notes(fit: dict[str, torch.Tensor]) -> dict[str, str]:
    """Describe tensors that were written in place or have two names."""
    same: dict[tuple[object, int], list[str]] = {}
    for key, t in fit.items():
        edge = gradient_edge(t)
        same.setdefault((edge.node, edge.output_nr), []).append(key)
    found = {}
    for keys in same.values():
        for key in keys:
            notes = []
            if len(keys) > 1:
                notes.append(f"the same value as {', '.join(k for k in keys if k != key)}")
            if fit[key]._version and not fit[key].is_leaf:
                notes.append("written in place: this is for its last value")
            if notes:
                found[key] = "; ".join(notes)
    return found
