"""Pictures of captured tensors, with matplotlib. Figures are made without pyplot, which would keep each one."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...basics.errors import BackprobeError
from ...torch_internals import modes

try:
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:  # pragma: no cover - tested in a subprocess
    raise BackprobeError("pictures need matplotlib: pip install 'backprobe[plot]'") from error

#: Kinds of pictures.
KINDS = ("maps", "attention", "heat", "histogram", "line")
#: Colour maps that read the same for the colour-blind: one way, and about zero.
_ONE_WAY, _ABOUT_ZERO = "viridis", "RdBu_r"
_BLUE, _ORANGE, _GREY = "#0072B2", "#D55E00", "#666666"
#: Maximum number of maps in one picture.
_MAX_MAPS = 64


class Picture(Figure):
    """A matplotlib ``Figure`` that notebooks show without any setup."""

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG for a notebook."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=100)
        return buffer.getvalue()


def plot(
    tensor: torch.Tensor,
    kind: str | None = None,
    *,
    title: str = "",
    sample: int = 0,
    grad: bool = False,
    labels: Sequence[str] | None = None,
    limit: int = 16,
) -> Picture:
    """Draw one tensor.

    Args:
        tensor: Any tensor of numbers.
        kind: ``maps`` (channels x height x width), ``attention`` (heads x queries x keys), ``heat`` (a matrix),
            ``histogram`` or ``line``; chosen by shape and values if None.
        title: What the picture is of.
        sample: Which one of the batch; a histogram takes all.
        grad: Whether it is a gradient: colours are then about zero.
        labels: Tokens along both axes of attention maps, or along the rows of a heat map.
        limit: How many maps or heads at most.

    Raises:
        BackprobeError: if the kind does not fit the shape, or there is nothing to draw.
    """
    with modes.disable_function_modes(), torch.no_grad():
        x = tensor.detach().to("cpu")
        x = x if x.layout is torch.strided else x.to_dense()
        x = (x.abs() if x.is_complex() else x).double()
        if x.numel() == 0:
            raise BackprobeError(f"{title or 'the tensor'} has no values to draw: its shape is {tuple(x.shape)}")
        kind = kind or _kind_of(x, grad)
        if kind not in KINDS:
            raise BackprobeError(f"kind={kind!r} is none of {', '.join(KINDS)}")
        what = f"gradient of {title}" if grad else title
        head = f"{what}  {'x'.join(map(str, x.shape))}".strip()
        if kind == "histogram":
            return _histogram(x, head)
        part = _sample(x, kind, sample)
        if x.dim() > part.dim() and x.shape[0] > 1:
            head += f", sample {sample}"
        if kind == "line":
            return _line(part, head)
        if kind == "heat":
            return _heat(part, head, labels)
        return _maps(part, head, kind, labels, max(1, min(limit, _MAX_MAPS)))


def _kind_of(x: torch.Tensor, grad: bool) -> str:
    """Choose the kind of picture by the shape of `x` and its values; rows that sum to 1 make attention maps."""
    if x.dim() >= 3 and x.shape[-1] == x.shape[-2] > 1 and not grad and (x >= 0).all():
        rows = x.sum(-1)
        if torch.allclose(rows, torch.ones_like(rows), atol=1e-3):
            return "attention"
    if x.dim() == 4:
        return "maps"
    if x.dim() in (2, 3) and x.shape[-1] > 1 and x.shape[-2] > 1:
        return "heat"
    return "histogram" if x.dim() != 1 else "line"


def _sample(x: torch.Tensor, kind: str, sample: int) -> torch.Tensor:
    """Return the part to draw: 3 dimensions for maps, 2 for a matrix, 1 for a line."""
    wanted = {"maps": 3, "attention": 3, "heat": 2, "line": 1}[kind]
    if x.dim() < wanted and not (kind == "attention" and x.dim() == 2):
        raise BackprobeError(f"kind={kind!r} needs {wanted} dimensions or more; the shape is {tuple(x.shape)}")
    if kind == "attention" and x.shape[-1] != x.shape[-2] and x.dim() == 2:
        raise BackprobeError(f"kind='attention' needs queries x keys; the shape is {tuple(x.shape)}")
    if x.dim() > wanted and not -x.shape[0] <= sample < x.shape[0]:
        raise BackprobeError(f"sample={sample}: there are {x.shape[0]} samples")
    first = True
    while x.dim() > wanted:
        x = x[sample if first else 0]
        first = False
    return x[None] if x.dim() < wanted else x


def _scale(x: torch.Tensor, kind: str) -> tuple[str, Any, str]:
    """Colour map, range, and which ends of it are cut. About zero where there are values on both sides.

    A few far values would leave all others one colour: the range is cut where the top half percent begins if the far
    ones are over three times that.
    """
    finite = x[torch.isfinite(x)].flatten()
    if not finite.numel():
        return _ONE_WAY, Normalize(0, 1), "neither"
    low, high = float(finite.min()), float(finite.max())
    if kind == "attention":
        return _ONE_WAY, Normalize(0, high or 1), "neither"
    most = max(-low, high)
    common = float(finite.abs().kthvalue(max(1, math.ceil(0.995 * finite.numel()))).values)
    cut = 0 < common < most / 3
    if low < 0 < high:
        most = common if cut else most
        ends = [("min", -low > most), ("max", high > most)]
        cut_at = [end for end, is_cut in ends if is_cut]
        return _ABOUT_ZERO, Normalize(-most, most), "both" if len(cut_at) == 2 else cut_at[0] if cut_at else "neither"
    if cut and high > 0:
        return _ONE_WAY, Normalize(low, common), "max"
    if cut:
        return _ONE_WAY, Normalize(-common, high), "min"
    return _ONE_WAY, Normalize(low, high if high > low else low + 1), "neither"


def _image(axes: Any, x: torch.Tensor, colours: str, scale: Any, aspect: str = "equal") -> Any:
    """Draw a matrix; what is not finite is hatched, not coloured as if it were a value."""
    axes.set_facecolor("white")
    bad = ~torch.isfinite(x)
    if bad.any():
        axes.patch.set(hatch="xxx", edgecolor=_ORANGE)
    shown = torch.where(bad, torch.nan, x).tolist()
    return axes.imshow(shown, cmap=colours, norm=scale, interpolation="nearest", aspect=aspect)


def _maps(x: torch.Tensor, head: str, kind: str, labels: Sequence[str] | None, limit: int) -> Picture:
    """Draw several matrices side by side, at most `limit`: channels, or the heads of attention with tokens as
    labels.
    """
    count = min(len(x), limit)
    across = math.ceil(math.sqrt(count)) if count != 3 else 3
    down = math.ceil(count / across)
    tall = x.shape[-2] / max(1, x.shape[-1])
    named = labels is not None and kind == "attention"
    size = 3.0 if named and count <= 4 else 2.4 if count <= 4 else 1.7
    figure = Picture(
        figsize=(max(4.5, across * size + 1.2), max(2.5, down * size * min(max(tall, 0.3), 3) + 0.9)),
        layout="constrained",
    )
    grid = figure.subplots(down, across, squeeze=False)
    colours, scale, cut = _scale(x[:count], kind)
    image: Any = None
    for i, axes in enumerate(grid.flat):
        if i >= count:
            axes.axis("off")
            continue
        image = _image(axes, x[i], colours, scale)
        axes.set_title(f"{'head' if kind == 'attention' else 'channel'} {i}", fontsize=8, color=_GREY)
        axes.set_xticks([])
        axes.set_yticks([])
        if kind == "attention":
            ticks = range(len(labels)) if labels is not None else ()
            if i % across == 0:
                axes.set_ylabel("query", fontsize=8)
                axes.set_yticks(ticks, labels or (), fontsize=7)
            if i + across >= count:
                axes.set_xlabel("key", fontsize=8)
                axes.set_xticks(ticks, labels or (), fontsize=7, rotation=90)
    figure.colorbar(image, ax=grid, shrink=0.8, extend=cut, label="weight" if kind == "attention" else "value")
    of = f" ({count} of {len(x)})" if count < len(x) else ""
    figure.suptitle(head + of, fontsize=11)
    return figure


def _heat(x: object, head: str, labels: Sequence[str] | None) -> Picture:
    """Draw a matrix as colours, with labels of its rows."""
    figure = Picture(figsize=(8, 4.2), layout="constrained")
    axes = figure.subplots()
    colours, scale, cut = _scale(x, "heat")
    image = _image(axes, x, colours, scale, aspect="auto")
    axes.set(xlabel="feature", ylabel="row")
    if labels is not None:
        axes.set_ylabel("")
        axes.set_yticks(range(len(labels)), labels, fontsize=8)
    figure.colorbar(image, ax=axes, extend=cut, label="value")
    axes.set_title(head, fontsize=11)
    return figure


def _line(x: torch.Tensor, head: str) -> Picture:
    """Draw a vector as a line."""
    figure = Picture(figsize=(8, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axhline(0, color=_GREY, linewidth=0.6)
    axes.plot(x.tolist(), color=_BLUE, linewidth=1, marker="." if len(x) <= 100 else "")
    axes.set(xlabel="index", ylabel="value")
    axes.set_title(head, fontsize=11)
    return figure


def _histogram(x: torch.Tensor, head: str) -> Picture:
    """Draw the distribution of the finite values, with the number of the others."""
    finite = x[torch.isfinite(x)]
    bad = x.numel() - finite.numel()
    figure = Picture(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    if finite.numel():
        low, high = float(finite.min()), float(finite.max())
        if low == high:
            low, high = low - 0.5, high + 0.5
        counts = torch.histc(finite, bins=60, min=low, max=high)
        edges = torch.linspace(low, high, 61, dtype=torch.float64)
        axes.stairs(counts.tolist(), edges.tolist(), fill=True, color=_BLUE)
        if counts.max() > 50 * counts[counts > 0].median():
            axes.set_yscale("log")
        mean, deviation = float(finite.double().mean()), float(finite.double().std(correction=0))
        axes.axvline(mean, color=_ORANGE, linewidth=1.5, label=f"mean {mean:.3g}, deviation {deviation:.3g}")
        axes.legend(frameon=False, fontsize=9)
    else:
        axes.text(0.5, 0.5, "no finite value", ha="center", transform=axes.transAxes)
    if bad:
        head += f", {bad} non-finite left out"
    axes.set(xlabel="value", ylabel="number of values")
    axes.set_title(head, fontsize=11)
    return figure


def plot_flow(grads: Mapping[str, torch.Tensor], *, title: str = "Gradient flow", limit: int = 60) -> Picture:
    """Plot the root mean square of each gradient, in execution order, on a logarithmic scale.

    A gradient that is zero everywhere, or not finite, has a mark of its own at the left edge: neither has a place on
    the scale. With more than `limit` gradients, evenly spaced ones are drawn.

    Raises:
        BackprobeError: if there is no gradient.
    """
    if not grads:
        raise BackprobeError("no gradient to draw")
    names = list(grads)
    left_out = 0
    if len(names) > limit:
        picked = sorted({round(i * (len(names) - 1) / (limit - 1)) for i in range(limit)})
        left_out = len(names) - len(picked)
        names = [names[i] for i in picked]
    with modes.disable_function_modes(), torch.no_grad():
        sizes = [float(grads[n].detach().abs().double().square().mean().sqrt()) for n in names]
    good = [s for s in sizes if math.isfinite(s) and s > 0]
    figure = Picture(figsize=(8, max(2.4, 0.22 * len(names) + 1.3)), layout="constrained")
    axes = figure.subplots()
    axes.set_xscale("log")
    low = min(good) / 3 if good else 1e-8
    axes.set_xlim(low / 2, max(good) * 3 if good else 1)
    for y, size in enumerate(sizes):
        if math.isfinite(size) and size > 0:
            axes.plot([low / 2, size], [y, y], color="#cccccc", linewidth=1, zorder=1)
            axes.plot(size, y, "o", color=_BLUE, markersize=5)
        else:
            axes.plot(low / 1.4, y, "s" if size == 0 else "X", color=_ORANGE, markersize=7)
            axes.annotate(
                "all zero" if size == 0 else "not finite",
                (low / 1.4, y),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
                color=_ORANGE,
            )
    axes.set_yticks(range(len(names)), [n or "(model)" for n in names], fontsize=8)
    axes.invert_yaxis()
    axes.grid(axis="x", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.set_xlabel("root mean square of the gradient at the output")
    axes.set_title(title + (f" ({left_out} of {len(grads)} left out)" if left_out else ""), fontsize=11)
    return figure
