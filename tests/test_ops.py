"""Each fact of the operator table, checked against torch: its operator database, its schemas, hand-written inputs."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from op_samples import (
    INF,
    LARGEST,
    NAN,
    OVERFLOWS_EXP,
    SPECIAL,
    Dispatched,
    Sample,
    entries,
    floats,
    gradients,
    is_finite,
    label_of,
    leaf,
    refilled,
    samples_of,
    samples_of_entry,
    tensors,
)
from torch.utils._pytree import tree_map

from backprobe.ops import FINITE, NORMALISES, OVERFLOWS, OpInfo, canonical, info, overwrites, rows
from backprobe.ops import writes_in_place as writes
from backprobe.ops.info import EDGES, GAPS, ZERO

#: Whether a fact holds of an operator; ``None`` if no sample can tell.
Check = Callable[[OpInfo], "bool | None"]


def every(row: OpInfo, holds: Callable[[Sample], bool | None]) -> bool | None:
    """Whether `holds` of every sample that runs and can tell; ``None`` if there is none."""
    found = [one for sample in samples_of(row) if (one := _run(holds, sample)) is not None]
    return all(found) if found else None


def some(row: OpInfo, holds: Callable[[Sample], bool | None]) -> bool | None:
    """Whether `holds` of a sample."""
    found = [one for sample in samples_of(row) if (one := _run(holds, sample)) is not None]
    return any(found) if found else None


def _run(holds: Callable[[Sample], bool | None], sample: Sample) -> bool | None:
    try:
        return holds(sample)
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
        return None  # an operator may refuse inputs that its samples were refilled with


def _address(t: torch.Tensor) -> int:
    return t.untyped_storage()._cdata


def shares_memory(sample: Sample) -> bool | None:
    out, given = tensors(sample()), {_address(t) for t in tensors(sample.arguments)}
    return all(_address(t) in given for t in out) if out and given else None


def all_within(out: list[torch.Tensor], given: list[torch.Tensor], *more: float) -> bool | None:
    """Whether each element of `out` is one of `given`, or of `more`."""
    if not out or not given:
        return None
    known = torch.cat([*(t.detach().double().flatten() for t in given), torch.tensor(more, dtype=torch.float64)])
    return all(bool(torch.isin(t.detach().double(), known).all()) for t in out)


def moves_values(sample: Sample) -> bool | None:
    return all_within(floats(sample()), floats(sample.arguments))


def reshapes(sample: Sample) -> bool | None:
    """The result has the elements of the input, the gradient of the input those of the gradient."""
    out, given = floats(sample()), floats(sample.arguments)[:1]
    if len(out) != 1 or not given:
        return None
    same = torch.equal(out[0].flatten().sort().values, given[0].flatten().sort().values)
    if not out[0].requires_grad:
        return same
    cotangent = torch.randn(out[0].shape)
    (grad,) = torch.autograd.grad(out, [t for t in floats(sample.arguments) if t.requires_grad][:1], cotangent)
    return same and torch.equal(grad.flatten().sort().values, cotangent.flatten().sort().values)


def is_exact(sample: Sample) -> bool | None:
    """float32 and float64 give the same."""
    narrow = refilled(sample.arguments, tuple(torch.linspace(-3, 3, 50).tolist()))
    wide = torch.utils._pytree.tree_map(
        lambda t: t.detach().double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, narrow
    )
    one, two = floats(sample(narrow)), floats(sample(wide))
    return all(torch.equal(a.detach().double(), b.double()) for a, b in zip(one, two, strict=True)) if one else None


def finite_for(values: tuple[float, ...], seeds: int = 3) -> Callable[[Sample], bool | None]:
    """Whether the result is finite for inputs with these values."""

    def check(sample: Sample) -> bool | None:
        if not floats(sample.arguments):
            return None
        found = [floats(sample(refilled(sample.arguments, values, seed))) for seed in range(seeds)]
        return all(is_finite(one) for one in found) if found[0] else None

    return check


def nan_for(values: tuple[float, ...], seeds: int = 6) -> Callable[[Sample], bool | None]:
    """Whether the result has a NaN for some inputs with these values."""

    def check(sample: Sample) -> bool | None:
        if not floats(sample.arguments):
            return None
        found = [floats(sample(refilled(sample.arguments, values, seed))) for seed in range(seeds)]
        return any(bool(t.isnan().any()) for one in found for t in one) if found[0] else None

    return check


def slope_is_finite_for(values: tuple[float, ...], anywhere: bool = False) -> Callable[[Sample], bool | None]:
    """Whether the derivative is finite for inputs with these values, wherever the result is.

    :param anywhere: where the result is not finite too.
    """

    def check(sample: Sample) -> bool | None:
        found = []
        for seed in range(3):
            made = gradients(sample, refilled(sample.arguments, values, seed))
            if made is not None and (anywhere or is_finite(made[0])):
                found.append(is_finite(made[1]))
        return all(found) if found else None

    return check


def slope_is_zero(sample: Sample) -> bool | None:
    made = gradients(sample)
    return all(g is None or not bool(g.any()) for g in made[1]) if made is not None else None


#: Operators that are given a variance, which is not negative.
WITH_VARIANCE = frozenset(("batch_norm",))


def forward_of(row: OpInfo) -> bool | None:
    if row.forward == FINITE:
        if row.creates:
            return every(row, lambda sample: is_finite(floats(sample())))
        return every(row, finite_for(tuple(abs(v) for v in SPECIAL) if row.name in WITH_VARIANCE else SPECIAL))
    if row.forward == OVERFLOWS:
        small, large = every(row, finite_for((-2.0, -0.5, 0.0, 1.0, 2.0))), some(row, finite_for(OVERFLOWS_EXP))
        return None if small is None or large is None else small and not every(row, finite_for(OVERFLOWS_EXP))
    if row.forward == NORMALISES:
        fine = every(row, finite_for(SPECIAL))
        row_of = [slope_is_finite_for((-INF,), anywhere=True)(sample) for sample in samples_of(row)]
        return None if fine is None else fine and False in row_of
    found = [every(row, finite_for(values)) for values in (SPECIAL, (0.0,), (1.0,))]
    return True if False in found else remedied(row)


def keeps_nan(row: OpInfo) -> bool | None:
    """NaN comes of NaN only, and NaN gives NaN where it stands."""

    def check(sample: Sample) -> bool | None:
        given = floats(sample.arguments)
        if len(given) != 1 or not sample.label.startswith((row.name, "nn.functional", *row.aliases, "by hand")):
            return None
        out = floats(sample(refilled(sample.arguments, (NAN,))))
        return all(bool(t.isnan().all()) for t in out) if out else None

    made_none = every(row, lambda s: None if len(floats(s.arguments)) != 1 else not nan_for((*SPECIAL, INF, -INF))(s))
    kept = every(row, check)
    return None if made_none is None or kept is None else made_none and kept


def mixes_inf(sample: Sample) -> bool | None:
    found = [nan_for(values)(sample) for values in ((*SPECIAL, INF, -INF), (INF, -INF))]
    return None if None in found else any(found)


def amplifies(sample: Sample) -> bool | None:
    """The result is several times larger than the largest input, for inputs of one sign or of both."""
    out = [
        t
        for values in ((100.0, -100.0), (100.0,))
        for seed in range(6)
        for t in floats(sample(refilled(sample.arguments, values, seed)))
    ]
    return any(bool((t.abs() > 250.0).any()) for t in out) if out else None


def adds_terms(sample: Sample) -> bool | None:
    """Terms cancel: of whole numbers some results are zero, or smaller than each input with each multiple of them."""
    found = []
    for seed in range(12):
        once, twice = (floats(sample(refilled(sample.arguments, (c, -c, c), seed))) for c in (1.0, 2.0))
        for one, two in zip(once, twice, strict=True):
            scales = any(torch.allclose(two, one * 2.0**k, atol=1e-5) for k in (1, 2, 3))
            found.append(bool((one == 0).any()) or (scales and bool((one.abs() < 0.75).any())))
    return any(found) if found else None


def singular_of(row: OpInfo) -> bool | None:
    if row.singular_at == ZERO:
        slopes = [_run(slope_is_finite_for(v, anywhere=True), s) for s in samples_of(row) for v in ((0.0,), (0.0, 1.0))]
        return None if all(one is None for one in slopes) else False in slopes
    if row.name == "linalg_cholesky":  # the edge is a matrix that is not positive definite
        given = [torch.diag(torch.tensor(values)).requires_grad_() for values in ((1.0, 0.0), (1.0, 2.0))]
        slopes = [torch.autograd.grad(torch.linalg.cholesky_ex(x).L.sum(), x) for x in given]
        return not is_finite(slopes[0]) and is_finite(slopes[1])
    if row.singular_at == EDGES:
        at_zero = some(row, slope_is_finite_for((0.0, 0.25)))
        slopes = [_run(slope_is_finite_for((v,), anywhere=True), s) for s in samples_of(row) for v in (1.0, -1.0, -2.0)]
        return None if all(one is None for one in slopes) else at_zero is not False and False in slopes
    if row.singular_at == GAPS:
        function = {"linalg_eigh": torch.linalg.eigh, "linalg_svd": torch.linalg.svd, "linalg_eig": torch.linalg.eig}
        equal, apart = torch.eye(3, requires_grad=True), torch.diag(torch.arange(1.0, 4)).requires_grad_()
        slopes = []
        for given in (equal, apart):
            vectors = function[row.name](given)[0 if row.name == "linalg_svd" else 1]
            slopes.append(torch.autograd.grad((vectors.real * torch.arange(9.0).view(3, 3)).sum(), given))
        return not is_finite(slopes[0]) and is_finite(slopes[1])
    return None


def never_singular(row: OpInfo) -> bool | None:
    """A row without ``singular_at``: wherever the result is finite, the derivative is."""
    found = [every(row, slope_is_finite_for(values)) for values in (SPECIAL, (0.0,), (1.0,), (-1.0,))]
    known = [one for one in found if one is not None]
    return all(known) if known else None


def depends_on_arguments(row: OpInfo) -> bool | None:
    """At zero it is singular with some arguments, and not with others."""
    x = torch.zeros(3, requires_grad=True)
    given = {"div": (lambda: x / 2, lambda: 2 / x), "pow": (lambda: x**2, lambda: x**0.5)}[row.name]
    slopes = [torch.autograd.grad(function().sum(), x)[0] for function in given]
    return is_finite(slopes[:1]) and not is_finite(slopes[1:])


def zero_derivative(row: OpInfo) -> bool | None:
    return every(
        row, lambda s: None if (made := gradients(s)) is None else not any(g is not None and g.any() for g in made[1])
    )


def has_flat_parts(row: OpInfo) -> bool | None:
    """The derivative is zero for some ordinary inputs, and not for all."""

    def check(sample: Sample) -> bool | None:
        found = []
        for values in ((-200.0,), (200.0,), (-1.0,), (0.1, -0.2, 200.0, -200.0)):
            made = gradients(sample, refilled(sample.arguments, values))
            if made is not None:
                found += [bool((g == 0).any()) for g in made[1] if g is not None]
                found.append(_largest_is_flat(sample, refilled(sample.arguments, values)))
        return any(found) if found else None

    return some(row, check)


def clips(row: OpInfo) -> bool | None:
    """The derivative is exactly zero for large inputs of one sign, though not so large that rounding makes it so."""

    def check(sample: Sample) -> bool | None:
        flat = []
        for value in (-8.0, 8.0, -2.0, -0.5, 0.5, 2.0):
            made = gradients(sample, refilled(sample.arguments, (value,)))
            if made is None:
                return None
            flat.append(not any(g is not None and bool(g.any()) for g in made[1]))
        return any(flat[:2]) and not all(flat[2:])

    return some(row, check)


def _largest_is_flat(sample: Sample, given: Any) -> bool:
    """The largest result does not depend on any input: what has all of a probability."""
    leaves = [t for t in floats(given) if t.requires_grad]
    out = floats(sample(given))[0]
    grads = torch.autograd.grad(out.max(), leaves, allow_unused=True)
    return not any(g is not None and bool(g.any()) for g in grads)


def saves_no_input(row: OpInfo) -> bool | None:
    """No node of the result keeps a floating-point tensor that went in."""

    def check(sample: Sample) -> bool | None:
        given = {t.data_ptr() for t in floats(sample.arguments)}
        nodes = {t.grad_fn for t in floats(sample()) if t.grad_fn is not None}
        if not nodes or len(floats(sample.arguments)) < 2:
            return None
        return not any(t.data_ptr() in given for node in nodes for t in floats(_saved(node)))

    return every(row, check)


def _saved(node: Any) -> list[Any]:
    return [getattr(node, name) for name in dir(node) if name.startswith("_saved_")]


def is_random(row: OpInfo) -> bool | None:
    def check(sample: Sample) -> bool | None:
        with Dispatched() as mode:
            sample()
        return bool(mode.drew)

    return some(row, check)


MASK = torch.eye(4, dtype=torch.bool)
AT = torch.tensor([0, 2])
#: Ways to put -inf, or another constant, into some places of a 4 x 4 matrix.
FILLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "masked_fill": lambda x: x.masked_fill(MASK, -INF),
    "index_fill": lambda x: x.index_fill(0, AT, -INF),
    "fill": lambda x: x.clone().fill_(-INF),
    "full": lambda x: torch.full_like(x, -INF),
    "where": lambda x: torch.where(MASK, -INF, x),
    "triu": lambda x: x.triu(1),
    "tril": lambda x: x.tril(-1),
    "constant_pad_nd": lambda x: F.pad(x, (1, 2), value=-INF),
    "scatter": lambda x: x.scatter(1, AT.expand(4, 2), -INF),
    "index_put": lambda x: x.index_put((AT, AT), torch.tensor(-INF)),
    "setitem": lambda x: _assigned(x),
    "masked_scatter": lambda x: x.masked_scatter(MASK, torch.full((4,), -INF)),
    "copy_slices": lambda x: _assigned(x),
    "slice_scatter": lambda x: x.slice_scatter(torch.full((2, 4), -INF), 0, 0, 2),
    "select_scatter": lambda x: x.select_scatter(torch.full((4,), -INF), 0, 1),
    "diagonal_scatter": lambda x: x.diagonal_scatter(torch.full((4,), -INF)),
    "put": lambda x: x.put(AT, torch.full((2,), -INF)),
    "fill_diagonal": lambda x: x.clone().fill_diagonal_(-INF),
    "zero": lambda x: x.clone().zero_(),
    "zeros": lambda x: torch.zeros_like(x),
    "ones": lambda x: torch.ones_like(x),
}


def _assigned(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[0] = -INF
    return y


def is_fill(row: OpInfo) -> bool | None:
    """The result has the input's values and a constant, and a derivative of zero where the constant stands."""
    x = leaf(4, 4)
    out = FILLS[row.name](x)
    constant = out[~torch.isin(out, x)]
    if not constant.numel() or (constant != constant[0]).any():
        return False
    if not out.requires_grad:
        return bool(torch.isin(out, x).logical_not().all())
    (grad,) = torch.autograd.grad(out[torch.isin(out, x)].sum(), x)
    return int(grad.sum()) == int(torch.isin(out, x).sum())


#: Operators with a factor, a mask or indices that leave out all of ``x``.
DROPS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mul": lambda x: x * torch.zeros(4, 4),
    "where": lambda x: torch.where(torch.ones(4, 4).bool(), 1.0, x),
    "masked_fill": lambda x: x.masked_fill(torch.ones(4, 4).bool(), 1.0),
    "masked_select": lambda x: x.masked_select(torch.zeros(4, 4).bool()),
    "masked_scatter": lambda x: x.masked_scatter(torch.ones(4, 4).bool(), torch.ones(16)),
    "index": lambda x: x[torch.zeros(4, 4).bool()],
    "index_fill": lambda x: x.index_fill(0, torch.arange(4), 1.0),
    "index_put": lambda x: x.index_put((torch.arange(4),), torch.tensor(1.0)),
    "scatter": lambda x: x.scatter(1, torch.arange(4).expand(4, 4), 1.0),
}


def drops_inputs(row: OpInfo) -> bool | None:
    x = leaf(4, 4)
    return not bool(torch.autograd.grad(DROPS[row.name](x).sum(), x)[0].any())


def added_inputs(row: OpInfo) -> bool | None:
    """The gradient of an added input does not depend on any value, and that of another input does."""

    def check(sample: Sample) -> bool | None:
        found = []
        for seed in (0, 1):
            given = refilled(sample.arguments, (0.3, -1.2, 2.5, 0.7), seed)
            out = [t for t in floats(sample(given)) if t.requires_grad][:1]
            if not out or out[0].grad_fn is None or canonical(out[0].grad_fn.name()) != row.name:
                return None
            edges = [node for node, _ in out[0].grad_fn.next_functions]
            leaves = {node.variable: at for at, node in enumerate(edges) if hasattr(node, "variable")}
            wanted = [t for t, at in leaves.items() if row.added_inputs == (-1,) or at in (row.added_inputs or ())]
            if not wanted:
                return None
            found.append(torch.autograd.grad(out, wanted, torch.ones_like(out[0])))
        return all(torch.equal(a, b) and bool(a.any()) for a, b in zip(*found, strict=True))

    return every(row, check)


def nan_if_empty(row: OpInfo) -> bool | None:
    return bool(getattr(torch, row.name)(torch.empty(0)).isnan())


def creates(row: OpInfo) -> bool | None:
    """The result does not depend on the values that go in, and has no graph."""

    def check(sample: Sample) -> bool | None:
        if row.is_random or row.is_uninitialised:
            return not any(t.requires_grad for t in floats(sample()))
        one, two = (tensors(sample(refilled(sample.arguments, (value,)))) for value in (1.0, 2.0))
        same = all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
        return same and not any(t.requires_grad for t in (*one, *two))

    if row.name in ("linspace", "logspace", "full"):  # the database has forms that take tensors
        return bool(torch.equal(getattr(torch, row.name)(*_numbers(row)), getattr(torch, row.name)(*_numbers(row))))
    return every(row, check)


def _numbers(row: OpInfo) -> tuple[Any, ...]:
    return ((3,), 1.0) if row.name == "full" else (0.0, 1.0, 5)


def reads_values(row: OpInfo) -> bool | None:
    names = (row.name, *row.aliases)
    found = [getattr(torch.Tensor, name)(torch.ones((), dtype=torch.int64)) for name in names]
    return not any(isinstance(one, torch.Tensor) for one in found)


#: Ways to put a number of Python's into a tensor.
OF_PYTHON: dict[str, Callable[[float], torch.Tensor]] = {
    "tensor": torch.tensor,
    "full": lambda number: torch.full((2,), number),
    "setitem": lambda number: _set(number),
}


def _set(number: float) -> torch.Tensor:
    x = torch.zeros(2)
    x[:] = number
    return x


def hidden_writes(row: OpInfo) -> bool | None:
    """The schema does not say that running statistics are written to, and they are."""
    mean, var = torch.zeros(2), torch.ones(2)
    torch.ops.aten.native_batch_norm(leaf(4, 2), None, None, mean, var, True, 0.1, 1e-5)
    schema = torch.ops.aten.native_batch_norm.default._schema
    declared = {a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write}
    return bool(mean.any()) and bool((var != 1).all()) and not declared & set(row.hidden_writes)


def conditional_write(row: OpInfo) -> bool | None:
    """Check that a function of ``torch.nn`` writes in place only if its argument asks for it."""
    how = row.conditional_write
    assert how is not None
    changed = []
    for told in (True, False):
        x = torch.randn(3, 4, 5) * 3
        if how.argument == "max_norm":
            x, weight = torch.tensor([[0, 1]]), torch.ones(3, 4)
            given: list[Any] = [x, weight]
            more = {"max_norm": 1.0 if told else None}
        elif row.name == "threshold":
            given, more = [x, 0.1, 0.0], {"inplace": told}
        elif how.argument == "inplace":
            given, more = [x], {"inplace": told}
        else:
            given, more = [x, torch.zeros(4), torch.ones(4)], {how.argument: told}
        before = [t.clone() if isinstance(t, torch.Tensor) else t for t in given]
        names = [row.name, *row.aliases]
        function = next(getattr(F, name) for name in names if hasattr(F, name))
        if "dropout" in row.name:
            more["training"] = True
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*given, **more)
        changed.append(
            {i for i, t in enumerate(given) if isinstance(t, torch.Tensor) and not torch.equal(t, before[i])}
        )
    return changed == [set(how.positions), set()]


def is_uninitialised(row: OpInfo) -> bool | None:
    """Torch's deterministic mode fills what nothing was put in."""
    names = [name for name in (row.name, *row.aliases) if hasattr(torch, name) and not name.startswith("new_")]
    given = {"empty_like": (torch.ones(2),), "empty_strided": ((2,), (1,)), "empty_permuted": ((2,), (0,))}
    torch.use_deterministic_algorithms(True)
    try:
        made = [getattr(torch, name)(*given.get(name, (2,))) for name in names]
        return len(made) >= 4 and all(bool(t.isnan().all()) for t in made) and is_finite([torch.zeros(2)])
    finally:
        torch.use_deterministic_algorithms(False)


#: What operators that only write are given.
ONLY_WRITES: dict[str, tuple[Any, ...]] = {
    "copy": (torch.ones(3),),
    "fill": (2.0,),
    "geometric": (0.5,),
    "bernoulli": (0.5,),
}


def reads_nothing(row: OpInfo) -> bool | None:
    """The form in place gives the same whatever was there before."""
    made = []
    for before in (torch.full((3,), NAN), torch.tensor([1.0, 5.0, -2.0])):
        torch.manual_seed(0)
        made.append(getattr(before, f"{row.name}_")(*ONLY_WRITES.get(row.name, ())))
    return torch.equal(*made) and overwrites(f"{row.name}_.default") and not overwrites(row.name)


def makes(row: OpInfo) -> bool | None:
    """Each of the nodes is in the graph of a sample, and the row has a sample without a node of its own name."""

    def with_gradients(value: Any) -> Any:
        floating = isinstance(value, torch.Tensor) and value.is_floating_point()
        return value.detach().clone().requires_grad_() if floating else value

    graphs = []
    for sample in samples_of(row):
        found: set[Any] = set()
        waiting = [t.grad_fn for t in tensors(sample(tree_map(with_gradients, sample.arguments)))]
        while waiting:
            node = waiting.pop()
            if node is not None and node not in found:
                found.add(node)
                waiting += [after for after, _ in node.next_functions]
        graphs.append({canonical(node.name()) for node in found})
    seen = set().union(*graphs)
    return set(map(canonical, row.makes)) <= seen and any(row.name not in graph for graph in graphs)


def _ctc_loss(**options: bool) -> torch.Tensor:
    """The loss of a sequence of two frames with three labels."""
    log_probs = torch.randn(2, 1, 4).log_softmax(2)
    return F.ctc_loss(log_probs, torch.tensor([[1, 2, 3]]), torch.tensor([2]), torch.tensor([3]), **options)


def changes_shape(sample: Sample) -> bool | None:
    out, given = floats(sample()), floats(sample.arguments)[:1]
    return torch.equal(out[0].flatten(), given[0].flatten()) if out and given else None


def moves_dimensions(sample: Sample) -> bool | None:
    """The result has the dimensions of the input, with their strides, in any order."""
    out, given = floats(sample()), floats(sample.arguments)[:1]
    if not out or not given:
        return None
    one, two = (sorted(zip(t.shape, t.stride(), strict=True)) for t in (out[0], given[0]))
    return one == two and _address(out[0]) == _address(given[0])


def joins_inputs(sample: Sample) -> bool | None:
    """The result has all elements of all inputs; a tuple of results has all elements of the input."""
    out, given = floats(sample()), floats(sample.arguments)
    if not out or not given:
        return None
    one, two = (torch.cat([t.detach().flatten() for t in values]).sort().values for values in (out, given))
    return torch.equal(one, two)


def gives_parts(sample: Sample) -> bool | None:
    return isinstance(sample(), (tuple, list)) and joins_inputs(sample)


#: Operators that choose elements of ``x`` by two indices.
CHOICES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "getitem": lambda x, at: x[at],
    "index": lambda x, at: x[at],
    "index_select": lambda x, at: x.index_select(0, at),
    "masked_select": lambda x, at: x.masked_select(torch.zeros(4, dtype=torch.bool).index_fill(0, at, True)),
    "gather": lambda x, at: x.gather(0, at),
    "take": lambda x, at: x.take(at),
}


def chooses_by_index(row: OpInfo) -> bool | None:
    x = leaf(4)
    return all(torch.equal(CHOICES[row.name](x, torch.tensor(at)), torch.stack([x[i] for i in at])) for at in PAIRS)


PAIRS = ((0, 2), (1, 3))


def is_extreme(sample: Sample) -> bool | None:
    out, given = floats(sample()), floats(sample.arguments)
    if not moves_values(sample):
        return False
    every_input = torch.cat([t.detach().flatten() for t in given])
    return bool(out[0].max() == every_input.max() or out[0].min() == every_input.min())


def gives_indices(row: OpInfo) -> bool | None:
    more = {"topk": (2,), "kthvalue": (2,), "sort": (), "mode": ()}.get(row.name, (0,))
    x = leaf(5)
    values, indices = getattr(torch, row.name)(x, *more)
    return torch.equal(values, x[indices])


def is_elementwise(sample: Sample) -> bool | None:
    """If one element of each input changes, one element of the result does."""
    out = floats(sample())
    if len(out) != 1 or not out[0].numel():
        return None
    shape, last = out[0].shape, out[0].numel() - 1
    expanded = tree_map(lambda t: t.expand(shape).clone() if isinstance(t, torch.Tensor) else t, sample.arguments)
    changed = tree_map(lambda t: t.detach().clone() if isinstance(t, torch.Tensor) else t, expanded)
    for t in floats(changed):
        t.view(-1)[last] = 0.7
    before, after = (floats(sample(given))[0].flatten() for given in (expanded, changed))
    pairs = (before, out[0].flatten()), (before[:last], after[:last])
    return all(torch.allclose(one, two, rtol=1e-6, atol=0, equal_nan=True) for one, two in pairs)


def is_elementwise_loss(row: OpInfo) -> bool | None:
    function, given = getattr(F, row.name), (leaf(2, 3), leaf(2, 3, low=0.3).detach())
    single = is_elementwise(_sample_of(lambda tree: function(*tree, reduction="none"), given))
    return (
        single and function(*given, reduction="none").shape == (2, 3) and function(*given, reduction="sum").shape == ()
    )


def _sample_of(function: Callable[[Any], Any], arguments: Any) -> Sample:
    return Sample("by hand", function, arguments)


def is_distance(row: OpInfo) -> bool | None:
    function, x, y = getattr(F, row.name), leaf(2, 3), leaf(2, 3, low=0.3)
    return bool(function(x, x) == 0 and function(x, y) > 0 and function(x, y) == function(y, x))


def scales_input(row: OpInfo) -> bool | None:
    x, more = leaf(6), () if row.name == "neg" else (4.0,)
    factors = getattr(torch, row.name)(x, *more) / x
    return torch.allclose(factors, factors[:1].expand(6))


def is_total(row: OpInfo) -> bool | None:
    x = leaf(6)
    return any(torch.allclose(getattr(torch, row.name)(x), total) for total in (x.sum(), x.sum() / 6))


def is_comparison(row: OpInfo) -> bool | None:
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([3.0, 2.0, 1.0])
    return torch.equal(getattr(torch, row.name)(x, y), eval(f"x {row.sign} y", {"x": x, "y": y}))


#: What a remedy says: the result for such inputs, and after the change that it asks for.
REMEDIES: dict[str, tuple[Callable[[], torch.Tensor], Callable[[], torch.Tensor]]] = {
    "ctc_loss": (_ctc_loss, lambda: _ctc_loss(zero_infinity=True)),
    "div": (lambda: torch.zeros(1) / torch.zeros(1), lambda: torch.zeros(1) / torch.zeros(1).clamp(min=1)),
    "nll_loss": (
        lambda: F.nll_loss(torch.randn(2, 3), torch.tensor([-100, -100])),
        lambda: F.nll_loss(torch.randn(2, 3), torch.tensor([-100, -100]), reduction="sum") / 1,
    ),
    "std": (lambda: torch.ones(1).std(), lambda: torch.ones(1).std(correction=0)),
    "var": (lambda: torch.ones(1).var(), lambda: torch.ones(1).var(correction=0)),
    "std_mean": (lambda: torch.std_mean(torch.ones(1))[0], lambda: torch.std_mean(torch.ones(1), correction=0)[0]),
    "var_mean": (lambda: torch.var_mean(torch.ones(1))[0], lambda: torch.var_mean(torch.ones(1), correction=0)[0]),
}


def remedied(row: OpInfo) -> bool | None:
    """The result is not finite in the case that the remedy names, and finite after what it asks for."""
    if row.name not in REMEDIES:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = (make() for make in REMEDIES[row.name])
    return not is_finite([before]) and is_finite([after])


FACTS: dict[str, Check] = {
    "is_view": lambda row: every(row, shares_memory),
    "may_be_view": lambda row: some(row, shares_memory),
    "reshapes": lambda row: every(row, reshapes),
    "moves_values": lambda row: every(row, moves_values),
    "changes_shape": lambda row: every(row, changes_shape),
    "moves_dimensions": lambda row: every(row, moves_dimensions),
    "joins_inputs": lambda row: every(row, joins_inputs),
    "gives_parts": lambda row: every(row, gives_parts),
    "chooses_by_index": chooses_by_index,
    "is_extreme": lambda row: every(row, is_extreme),
    "gives_indices": gives_indices,
    "is_elementwise": lambda row: every(row, is_elementwise),
    "is_elementwise_loss": is_elementwise_loss,
    "is_distance": is_distance,
    "scales_input": scales_input,
    "is_total": is_total,
    "sign": is_comparison,
    "is_fill": is_fill,
    "casts": lambda row: all(
        torch.equal(leaf(9).to(dtype).double(), leaf(9).double().to(dtype).double())
        for dtype in (torch.float16, torch.bfloat16, torch.float64)
    ),
    "is_exact": lambda row: every(row, is_exact),
    "forward": forward_of,
    "is_bounded": lambda row: every(row, finite_for(LARGEST)),
    "saturates": lambda row: every(row, finite_for((INF, -INF))),
    "keeps_nan": keeps_nan,
    "mixes_inf": lambda row: some(row, mixes_inf),
    "amplifies": lambda row: some(row, amplifies),
    "adds_terms": lambda row: some(row, adds_terms),
    "nan_if_empty": nan_if_empty,
    "remedy": remedied,
    "singular_at": singular_of,
    "singular_for_some_arguments": depends_on_arguments,
    "zero_derivative": zero_derivative,
    "has_flat_parts": has_flat_parts,
    "clips": clips,
    "drops_inputs": drops_inputs,
    "added_inputs": added_inputs,
    "forgets_inputs": saves_no_input,
    "creates": creates,
    "is_uninitialised": is_uninitialised,
    "reads_values": reads_values,
    "takes_python_values": lambda row: bool((OF_PYTHON[row.name](2.5) == 2.5).all()),
    "is_random": is_random,
    "overwrites": reads_nothing,
    "hidden_writes": hidden_writes,
    "conditional_write": conditional_write,
    "makes": makes,
    "source_name": lambda row: torch.equal(getattr(torch, row.source_name)(leaf(2), 1), -torch.rsub(leaf(2), 1)),
}

#: Facts that nothing here can test, by the fact and the row: why.
UNTESTED = {("added_inputs", "linear"): "a CPU gives no node of this name: Linear is Addmm there, or Mm and Add"}


def claims(row: OpInfo, fact: str) -> bool:
    return row.added_inputs is not None if fact == "added_inputs" else bool(getattr(row, fact))


@pytest.mark.parametrize("fact", FACTS)
def test_torch_agrees_with_the_table(fact: str) -> None:
    """Each fact of each row holds; a fact that no sample can tell is listed above with the reason."""
    found = {row.name: FACTS[fact](row) for row in rows(lambda row: claims(row, fact))}
    assert found
    assert [name for name, holds in found.items() if holds is False] == []
    assert [name for name, holds in found.items() if holds is None and (fact, name) not in UNTESTED] == []
    assert [name for of, name in UNTESTED if of == fact and found.get(name, True) is not None] == []


def test_every_field_of_a_row_is_tested() -> None:
    assert set(FACTS) == set(OpInfo.__dataclass_fields__) - {"name", "aliases"}


#: Operators whose derivative is non-finite at finite results only for arguments that no script uses, and the reason.
ONLY_FOR_ODD_ARGUMENTS: dict[str, str] = {}


def test_the_derivative_is_finite_unless_the_table_says_otherwise() -> None:
    """A row without ``singular_at``: where the result is finite, the derivative is."""
    silent = rows(lambda row: row.forward in (FINITE, NORMALISES) and not row.singular_at)
    assert {row.name for row in silent if never_singular(row) is False} == set(ONLY_FOR_ODD_ARGUMENTS)


#: Entries of the database whose derivative is zero though the table does not say so: why.
ZERO_ONLY_THERE = {
    "cdist": "its first sample compares a point with itself",
    "div/floor_rounding": "division by itself has a derivative",
    "div/trunc_rounding": "division by itself has a derivative",
    "linalg.norm/subgradients_at_zero": "its samples are zeros",
    "max_pool2d_with_indices_backward": "the derivative of a derivative; its samples are zeros",
    "nn.functional.margin_ranking_loss": "its samples are on the flat side of the margin",
}
#: Entries that draw random numbers though their row does not say so: why.
DRAW_INSIDE = {
    "nn.functional.multi_head_attention_forward": "it calls dropout",
    "pca_lowrank": "an approximation that begins from random vectors",
    "svd_lowrank": "an approximation that begins from random vectors",
}


def _entries_that(holds: Callable[[Sample], bool | None]) -> dict[str, bool]:
    """By entry of the database, whether `holds` of all its samples."""
    found = {}
    for op, _ in entries():
        known = [one for sample in samples_of_entry(op) if (one := _run(holds, sample)) is not None]
        if known:
            found[label_of(op)] = all(known)
    return found


def _row_of(label: str) -> OpInfo:
    return info(label.partition("/")[0])


def _is_own(sample: Sample) -> bool | None:
    """Whether a result shares memory with an input and was not written to in place."""
    versions = [t._version for t in tensors(sample.arguments)]
    shares = shares_memory(sample)
    return shares and versions == [t._version for t in tensors(sample.arguments)]


@pytest.mark.slow
def test_no_other_operator_of_the_database_gives_a_view() -> None:
    found = {label for label, holds in _entries_that(_is_own).items() if holds}
    missing = {label for label in found if not (_row_of(label).is_view or _row_of(label).may_be_view)}
    assert missing == set()


@pytest.mark.slow
def test_no_other_operator_of_the_database_has_a_derivative_of_zero() -> None:
    found = {label for label, holds in _entries_that(slope_is_zero).items() if holds}
    assert {label for label in found if not _row_of(label).zero_derivative} == set(ZERO_ONLY_THERE)


@pytest.mark.slow
def test_no_other_operator_of_the_database_draws_random_numbers() -> None:
    def draws(sample: Sample) -> bool:
        with Dispatched() as mode:
            sample()
        return bool(mode.drew)

    found = {label for label, holds in _entries_that(draws).items() if holds}
    assert {label for label in found if not _row_of(label).is_random} == set(DRAW_INSIDE)


#: Operators that every sample calls beside its own.
BESIDE = frozenset(("aten::detach", "aten::lift_fresh", "aten::empty_like"))


@pytest.mark.slow
def test_all_names_that_torch_reports_lead_to_one_row() -> None:
    """Of a call that is one operator with one node: what Python, the dispatcher and the node call it."""
    compared, different = 0, []
    for op, row in entries():
        for sample in samples_of_entry(op)[:2]:
            try:
                with Dispatched() as mode:
                    out = [t for t in floats(sample()) if t.grad_fn is not None]
            except RuntimeError:
                continue
            names = {name for name in mode.names if name.partition(".")[0] not in BESIDE}
            if len(names) != 1 or not out:
                continue
            (name,), node = names, out[0].grad_fn
            one_node = all(child is None or hasattr(child, "variable") for child, _ in node.next_functions)
            if not one_node or not name.startswith("aten::"):
                continue
            found = [info(name), info(node.name())]
            if _reaches_the_dispatcher(op.name):
                found.append(row)
            compared += 1
            if any(one in rows() for one in found) and len({one.name for one in found}) > 1:
                different.append((op.name, name, node.name()))
    assert different == []
    assert compared > 500


def _reaches_the_dispatcher(name: str) -> bool:
    """Whether an operator of this name is no function that is made of others."""
    packet = getattr(torch.ops.aten, name.replace("nn.functional.", "").replace(".", "_"), None)
    composite = "CompositeImplicitAutograd"
    names = [getattr(packet, one).name() for one in packet.overloads()] if packet is not None else []
    known = [one for one in names if one in _in_dispatcher()]  # TorchScript alone has operators of numbers
    return bool(known) and not any(torch._C._dispatch_has_kernel_for_dispatch_key(one, composite) for one in known)


@functools.cache
def _in_dispatcher() -> frozenset[str]:
    return frozenset(torch._C._dispatch_get_all_op_names())


@pytest.mark.parametrize(
    ("names", "name"),
    [
        (
            "masked_fill masked_fill_ torch.Tensor.masked_fill_ aten::masked_fill_.Scalar MaskedFillBackward1",
            "masked_fill",
        ),
        ("__truediv__ __itruediv__ __rtruediv__ true_divide aten.div.Tensor div.Tensor DivBackward0", "div"),
        ("_to_copy.default ToCopyBackward0 to float", "to"),
        ("log1p Log1PBackward0 torch.special.log1p", "log1p"),
        ("torch::autograd::CopySlices", "copy_slices"),
        ("torch::autograd::CopyBackwards copy_", "copy"),
        ("torch.linalg.norm norm LinalgVectorNormBackward0", "norm"),
        ("__rsub__ RsubBackward1", "rsub"),
        ("__sub__ __isub__ SubBackward0 subtract", "sub"),
        ("__getitem__", "getitem"),
        ("__index__ item", "item"),
        ("torch.nn.functional.pad ConstantPadNdBackward0", "constant_pad_nd"),
        ("LogBackward", "LogBackward"),  # a function of the user's
        ("UnheardOfBackward0 unheard_of aten::unheard_of.out", "unheardof"),
    ],
)
def test_spellings(names: str, name: str) -> None:
    assert {canonical(one) for one in names.split()} == {name}


def _schemas() -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::"):
            found.setdefault(schema.name.removeprefix("aten::"), []).append(schema)
    return found


#: Views by their schemas that no training script makes of a dense tensor.
OTHER_VIEWS = frozenset(
    (
        *("ccol_indices", "coalesce", "col_indices", "crow_indices", "indices", "row_indices", "values"),  # sparse ones
        *("get", "keys", "pop", "setdefault"),  # of dictionaries
        *("local_value", "to_here"),  # remote references
        *("matrix_H", "pin_memory", "slice_inverse"),
    )
)


def test_the_views_are_those_of_the_schemas() -> None:
    """The result of a view is an alias by its schema; ``_unsafe_view``, ``unsafe_split`` hide that they are."""
    views = {
        name
        for name, all_of_it in _schemas().items()
        if all(any(r.alias_info and not r.alias_info.is_write for r in schema.returns) for schema in all_of_it)
    }
    public = {name for name in views if not name.startswith("_")}
    assert {name for name in public if not (info(name).is_view or info(name).may_be_view)} == OTHER_VIEWS


#: Operators that draw random numbers on other devices, or inside of others, under names that Python does not call.
OTHER_DRAWS = frozenset(("miopen_rnn",))


def test_the_random_operators_are_those_that_torch_tags() -> None:
    tag, aten = torch.Tag.nondeterministic_seeded, torch.ops.aten
    tagged = {
        name
        for name in _schemas()
        if (packet := getattr(aten, name, None)) is not None
        and any(tag in getattr(packet, overload).tags for overload in packet.overloads())
    }
    public = {name for name in tagged if not name.startswith("_")}
    assert {name for name in public if not info(name).is_random} == OTHER_DRAWS
    untagged = {row.name for row in rows(lambda row: row.is_random)} - {info(name).name for name in tagged}
    assert untagged == {"fractional_max_pool2d", "fractional_max_pool3d", "gumbel_softmax"}  # they call ``rand``


def test_names_that_write_are_those_of_the_schemas() -> None:
    """By its schema ``detach_`` writes; but it writes no data, and the version stays."""
    schemas = _schemas()
    written = {
        name
        for name, all_of_it in schemas.items()
        if any(s.arguments and s.arguments[0].alias_info and s.arguments[0].alias_info.is_write for s in all_of_it)
    }
    named = {name for name in schemas if name.endswith("_") and not name.endswith("__") and hasattr(torch.Tensor, name)}
    assert {name for name in named if writes(name) != (name in written)} == {"requires_grad_", "detach_"}
    x = torch.ones(2)
    x.requires_grad_().detach_().share_memory_()
    assert x._version == 0
    assert not any(writes(name) for name in ("requires_grad_", "detach_", "share_memory_"))


OPERATORS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift")


@pytest.mark.parametrize("name", [f"__{op}__" for op in OPERATORS])
def test_operators_that_assign_write(name: str) -> None:
    x = torch.ones(2, dtype=torch.int32 if name in ("__and__", "__or__", "__xor__", "__lshift__") else torch.float32)
    getattr(x, name)(x)
    assert x._version == 0 and not writes(name)
    getattr(x, f"__i{name[2:]}")(x)
    assert x._version == 1 and writes(f"__i{name[2:]}")
    x[0] = 1
    assert x._version == 2 and writes("__setitem__")
    assert not writes("__int__") and not writes("__invert__") and not writes("__index__")


@pytest.mark.slow
def test_functions_write_to_nothing_that_they_are_given() -> None:
    """All entries of the database; the table has those that write on request."""
    changed = set()
    for op, row in entries():
        for sample in samples_of_entry(op):
            before = [t._version for t in tensors(sample.arguments)]
            try:
                sample()
            except RuntimeError:
                continue
            if before != [t._version for t in tensors(sample.arguments)]:
                changed.add(row.name)
    assert {name for name in changed if not (info(name).conditional_write or info(name).overwrites)} == set()
