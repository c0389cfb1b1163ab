"""Parameters over a whole run, and why a gradient does not reach one."""

from __future__ import annotations

from dataclasses import dataclass

from .places import Site
from .registry import record


@record
@dataclass(frozen=True, slots=True)
class Parameter:
    """What became of one parameter over a whole run.

    ``reached``: backward calls that gave it a gradient; ``alive``: any of them was not exactly zero.
    ``trained``: an optimizer holds it; ``None`` where no optimizer stepped.
    ``calls``: how often its module was called with gradient mode on, ``quiet_calls``: with it off.
    """

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    reached: int
    alive: bool
    trained: bool | None
    calls: int
    quiet_calls: int
    root: str
    defined: Site | None = None
    #: Whether it took the place of another parameter of that name.
    replaced: bool = False
    #: Where gradient mode was turned off for its module's calls without it.
    turned_off: Site | None = None
    #: It became part of its model after the optimizer had been made.
    added: bool = False
    #: Where the code would use it, or the outermost module around it that was never called; and did not.
    used: Site | None = None
    #: Where it was thawed, after an optimizer had been made.
    thawed: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class FreeParameter:
    """A ``Parameter`` that sits on no module, or another leaf that an optimizer holds; the fields mean the same."""

    name: str
    shape: tuple[int, ...]
    requires_grad: bool
    reached: int
    alive: bool
    trained: bool | None


#: Collectives whose result has no graph.
COLLECTIVES = ("all_gather", "all_gather_into_tensor", "all_gather_object")


@record
@dataclass(frozen=True, slots=True)
class Cut:
    """A forward operation that took tensors with a graph and gave one without: the gradient stops there. One of
    ``COLLECTIVES`` was read in the code only: what it took is not known."""

    op: str
    site: Site | None
    module: str | None
    parameters: tuple[str, ...]
    count: int = 1
    #: The step in which it was first seen, and that in which what it gave entered a graph again last.
    step: int = 0
    arrived: int | None = None
    #: It is in a compiled region, which was run again to see it. ``off``: gradient mode was off there.
    compiled: bool = False
    off: bool = False
    #: What it gave went through NumPy.
    numpy: bool = False


@record
@dataclass(frozen=True, slots=True)
class StoppedLearning:
    """Parameters that backward calls of the line ``failed`` reached until step ``step``, and not after it.

    ``reason``: ``cut`` (their module runs as before), ``quiet`` (it runs with gradient mode off, turned off at
    ``site``), ``evaluated`` (it was put in evaluation mode since, perhaps at ``site``), ``frozen`` (``requires_grad``
    was turned off at ``site``, by a library, while something was evaluated or saved, or together with parameters that
    were thawed again), ``replaced`` (``parameters`` are those of a model like it, which are reached instead and which
    no optimizer holds; the optimizer of the ones before was made at ``site``), ``removed`` (a tensor that does not
    learn stands in their place in the model; the optimizer that holds them was made at ``site``), ``uncalled`` (nobody
    calls their module any more).
    """

    parameters: tuple[str, ...]
    step: int
    reason: str
    site: Site | None
    failed: Site | None


@record
@dataclass(frozen=True, slots=True)
class GradientUse:
    """What ``optimizer`` does not do with the gradients that backward calls at ``backward`` give it.

    ``how``: ``again`` (those that it used are used again by its next steps, at ``stepped``, from ``step`` on: nobody
    clears them), ``cleared`` (it finds none, from ``step`` on: they are cleared before it steps, or it steps before
    there are any), ``unused`` (it never stepped). ``cleared``: the only line of the script that calls ``zero_grad``,
    or that can have done so between backward and step. ``made``: where the optimizer was made.
    """

    optimizer: str
    how: str
    step: int
    stepped: Site | None
    backward: Site | None
    cleared: Site | None = None
    made: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class Unreduced:
    """Parameters that data-parallel training waited for in vain: the backward of ``failed`` in step ``step`` gave them
    no gradient. ``frozen`` is where ``requires_grad`` was turned off; else ``sites`` are the lines that decide whether
    they are used, and use them, as far as they can be told. ``before``: an earlier backward gave them one."""

    parameters: tuple[str, ...]
    step: int
    frozen: Site | None
    sites: tuple[Site, ...]
    failed: Site | None
    before: bool


@record
@dataclass(frozen=True, slots=True)
class Stray:
    """Trainable tensors that ``parameters()`` of the outermost module does not list, and no optimizer holds.

    ``owner`` is the module whose ``attribute`` holds them, ``how`` says in what; ``site`` is where it was assigned, and
    ``filled`` where something is put into it later. ``optimized`` tells whether any optimizer stepped.
    """

    parameters: tuple[str, ...]
    owner: str
    attribute: str
    how: str
    site: Site | None
    optimized: bool
    filled: Site | None = None


@record
@dataclass(frozen=True, slots=True)
class NoGradient:
    """A place where a gradient could not be had: ``kind`` is ``grad-mode`` (a backward call met a root without a graph
    that was built while gradient mode was off, turned off at ``site``), ``inference`` (an op met a tensor that was
    made in inference mode) or ``nonleaf`` (``.grad`` was read from a tensor
    that is not a leaf)."""

    kind: str
    site: Site | None
    failed: Site | None
    module: str | None
    tensor: str
    count: int = 1
    #: Where the tensor that is not a leaf was made.
    made: Site | None = None
