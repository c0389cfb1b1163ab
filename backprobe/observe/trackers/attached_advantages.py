"""Finds policy-gradient losses that multiply log-probabilities by an advantage with a graph.

Note [Attached advantages]: the advantage weights the log-probabilities. If it is a difference of returns and the values
of a critic and has a graph, the loss of the policy trains the critic, too. A line is reported if all of this holds:

- It multiplies log-probabilities of chosen actions, or their exponentials, by a difference. The log-probabilities come
  from ``log_prob`` of a distribution, or are picked from a log-softmax.
- The difference is one of values with a graph and something without one, or of the two values of a temporal
  difference. Its graph does not begin at probabilities: ``1 - p`` weights a focal loss.
- Another term fits the same values to something: the square of that difference, or a loss of them. Both terms are
  parts of the root of one backward call. Or they are parts of the roots of two calls of a step: then the gradients of
  the first call must not have been cleared before the second, and the values may be computed twice, by the same
  parameters; nor may an optimizer have used the gradients of the regression before the other call.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from types import FrameType
from typing import NamedTuple

import torch
from torch import distributions

from ...ops import canonical, canonical_names, names_of
from ...records import AttachedAdvantage
from ...source.frames import CodeLocation
from ...torch_internals import private
from ...torch_internals.optimizers import parameters_of
from ..backward.active_backward import ActiveBackward
from ..forward.followed_tensors import (
    ADDITIONS,
    DIFFERENCES,
    JOINS,
    LOSS_SUMS,
    RESHAPES,
    SCALINGS,
    SQUARES,
    FollowedTensors,
)
from ..forward.oplog import op_name
from ..forward.torch_call_recorder import Op
from ..schedule.losses import is_zero
from ..tracker import Tracker
from ..tracker_context import TrackerContext

_Tensor = torch.Tensor
_DISTRIBUTIONS = os.path.dirname(distributions.__file__) + os.sep
#: Functions of distributions that return log-probabilities.
_LOG_PROB_CODE = frozenset({"log_prob", "_sum_rightmost", "sum_rightmost"})
_SOFTMAX, _LOG_SOFTMAX, _LOG, _ADD = map(canonical, ("softmax", "log_softmax", "log", "add"))
_PICKS = canonical_names("gather getitem index_select take_along_dim")
_PRODUCTS = canonical_names("mul dot")
_LOSSES = names_of(lambda row: row.is_distance)
_CLASS_LOSSES = canonical_names("cross_entropy nll_loss")
_MOVES = RESHAPES | JOINS
#: What log-probabilities and advantages go through and stay what they are.
_OF_LOG_PROBABILITIES = _MOVES | SCALINGS | ADDITIONS | canonical_names("sum exp clamp")
_OF_ADVANTAGES = _MOVES | SCALINGS | ADDITIONS | {"clamp"}
_OF_TERMS = LOSS_SUMS | (names_of(lambda row: row.is_extreme) - {"amax", "amin"}) | {"clamp", "where"}
#: Maximum number of lines, of backward calls of a step that are remembered, and of gradients that are read.
MAX_LINES, MAX_CALLS, MAX_READ_GRADIENTS = 50, 8, 4

_Tokens = frozenset[int]


class _Probability(NamedTuple):
    """The kind of a tensor of probabilities: of their logarithms or not, of picked actions or of all."""

    is_log: bool
    is_picked: bool


class _Advantage(NamedTuple):
    """A difference of values with a graph: the tokens of the values, and the line that subtracts."""

    values: _Tokens
    spot: CodeLocation | None


class _Product(NamedTuple):
    """A product of log-probabilities and an advantage: its order, the values' tokens, its line, and the advantage's
    line.
    """

    order: int
    values: _Tokens
    spot: CodeLocation | None
    made: CodeLocation | None


class _Regression(NamedTuple):
    """A term that fits values to something: its order, the values' tokens, and its line."""

    order: int
    values: _Tokens
    spot: CodeLocation | None


@dataclass
class _EarlierCall:
    """A backward call of the running step: the terms of its roots, and the ids of the leaves that it reached.

    :ivar is_used: an optimizer has used gradients of it.
    """

    terms: list[_Product | _Regression]
    leaves: frozenset[int]
    is_used: bool = False


@dataclass
class _Found:
    """The lines that multiply by one advantage, and the regression and backward call that showed what it is."""

    products: list[CodeLocation | None]
    regression: CodeLocation | None
    failed: CodeLocation | None
    step: int


class AttachedAdvantagesTracker(Tracker):
    """Tracker of products of log-probabilities with advantages: Note [Attached advantages]."""

    def __init__(self, context: TrackerContext) -> None:
        """Start without advantages."""
        self._context, self._frames = context, context.frames
        #: By the line of the difference.
        self._found: dict[CodeLocation | None, _Found] = {}
        # Of the running step. A token stands for the result of a critic; its views have it, too.
        self._probabilities: FollowedTensors[_Probability] = FollowedTensors()
        self._tokens: FollowedTensors[_Tokens] = FollowedTensors()
        self._targets: FollowedTensors[bool] = FollowedTensors()
        self._advantages: FollowedTensors[_Advantage] = FollowedTensors()
        self._terms: FollowedTensors[frozenset[_Product | _Regression]] = FollowedTensors()
        self._earlier_calls: list[_EarlierCall] = []
        self._next_token, self._next_term = count(), count()

    def step_begins(self, step: int, inspecting: bool) -> None:
        """Forget the tensors of the last step."""
        self._forget()

    def observing_pauses(self) -> None:
        """Forget the tensors of the running step."""
        self._forget()

    def _forget(self) -> None:
        """Forget all followed tensors of the running step."""
        for followed in (self._probabilities, self._tokens, self._targets, self._advantages, self._terms):
            followed.clear()
        self._earlier_calls.clear()

    def op_inspected(self, op: Op) -> None:
        """Classify the result of an op with a graph: a term of the loss, a probability, values, or a difference of
        values.
        """
        out = op.out
        if type(out) is not _Tensor or not out.requires_grad or self._context.recorder.in_builtin_optimizer:
            return
        if private.in_transform() or not private.is_dense(out):
            return
        tensors = [t for t in op.tensors() if t.requires_grad]
        name = canonical(op_name(op.func))
        if self._note_product(op, name, out) or self._note_regression(op, name, tensors):
            return
        self._follow_terms(name, tensors, out)
        if self._note_probability(op, name, tensors, out):
            return
        self._follow_values(name, tensors, out)
        self._note_difference(op, name, tensors, out)

    # Log-probabilities

    def _note_probability(self, op: Op, name: str, tensors: list[torch.Tensor], out: torch.Tensor) -> bool:
        """Note whether the result is a probability or the logarithm of one; return whether it is computed from
        probabilities.
        """
        code = op.frame.f_code if op.frame is not None else None
        if code is not None and code.co_name in _LOG_PROB_CODE and code.co_filename.startswith(_DISTRIBUTIONS):
            self._probabilities.put(out, _Probability(True, True))
            return True
        if name in (_SOFTMAX, _LOG_SOFTMAX):
            self._probabilities.put(out, _Probability(name == _LOG_SOFTMAX, False))
            return True
        if name in _CLASS_LOSSES:
            if out.dim():
                self._probabilities.put(out, _Probability(True, True))
            return True
        known = self._probabilities.of(tensors)
        if not known:
            return False
        first = known[0]
        if name in _PICKS:
            self._probabilities.put(out, _Probability(first.is_log, True))
        elif name == _LOG:
            self._probabilities.put(out, _Probability(True, first.is_picked))
        elif name in _OF_LOG_PROBABILITIES:
            self._probabilities.put(out, first)
        return True

    # Values, and differences with them

    def _follow_values(self, name: str, tensors: list[torch.Tensor], out: object) -> None:
        """Give the result of a reshape or join the tokens of its inputs: it holds the same values."""
        if name in _MOVES and tensors:
            self._tokens.put(out, frozenset().union(*map(self._tokens_of, tensors)))
            if self._targets.of(tensors):
                self._targets.put(out, True)

    def _tokens_of(self, tensor: torch.Tensor) -> _Tokens:
        """Return the tokens of a tensor of values; a tensor without any gets a new one."""
        known = self._tokens.get(tensor)
        if known is None:
            known = frozenset((next(self._next_token),))
            self._tokens.put(tensor, known)
        return known

    def _note_difference(self, op: Op, name: str, tensors: list[torch.Tensor], out: torch.Tensor) -> None:
        """Note a difference of values with a graph as an advantage, sums as targets, and follow advantages through
        ops.
        """
        known = self._advantages.of(tensors)
        if known:
            if name in _OF_ADVANTAGES:
                values = frozenset().union(*(one.values for one in known))
                self._advantages.put(out, _Advantage(values, known[0].spot))
        elif (name == _ADD and len(tensors) == 1 and len(op.args) > 1) or (name == _ADD and self._targets.of(tensors)):
            self._targets.put(out, True)
        elif name in DIFFERENCES and len(op.args) > 1:
            sides = [t for t in op.args[:2] if isinstance(t, _Tensor) and t.requires_grad]
            is_temporal = len(sides) == 2 and any(self._targets.get(t) for t in sides)
            if (len(sides) == 1 and _is_varied(op.args, sides[0])) or is_temporal:
                values = frozenset().union(*map(self._tokens_of, sides))
                self._advantages.put(out, _Advantage(values, self._frames.spot_of_op(op.frame)))

    # Terms of the loss

    def _note_product(self, op: Op, name: str, out: torch.Tensor) -> bool:
        """Note a product of log-probabilities and an advantage, and return whether it is one."""
        if name not in _PRODUCTS or not self._advantages or len(op.args) < 2:
            return False
        for weights, logs in (op.args[:2], op.args[1::-1]):
            advantage, probability = self._advantages.get(weights), self._probabilities.get(logs)
            if advantage is not None and probability is not None and probability.is_log and probability.is_picked:
                product = _Product(
                    next(self._next_term), advantage.values, self._frames.spot_of_op(op.frame), advantage.spot
                )
                self._terms.put(out, frozenset((product,)))
                return True
        return False

    def _note_regression(self, op: Op, name: str, tensors: list[torch.Tensor]) -> bool:
        """Note a term that fits values to something, and return whether it is one."""
        if name in _LOSSES and tensors:
            fitted = [t for t in tensors if self._targets.get(t) is None] or tensors
            values = frozenset().union(*map(self._tokens_of, fitted))
        else:
            is_square = name in SQUARES or (name in _PRODUCTS and len(op.args) > 1 and op.args[0] is op.args[1])
            known = self._advantages.of(tensors) if is_square else []
            if not known:
                return False
            values = frozenset().union(*(one.values for one in known))
        term = _Regression(next(self._next_term), values, self._frames.spot_of_op(op.frame))
        self._terms.put(op.out, frozenset((term,)))
        return True

    def _follow_terms(self, name: str, tensors: list[torch.Tensor], out: object) -> None:
        """Note that the terms of the inputs are part of the result, if the op is a sum, mean or the like."""
        known = self._terms.of(tensors) if name in _OF_TERMS else []
        if known:
            self._terms.put(out, frozenset().union(*known))

    def graph_walked(self, running: ActiveBackward, frame: FrameType) -> None:
        """Find products and regressions of the same values among the terms of the roots of a call, and of earlier
        calls of the step.
        """
        if running.inside is not None or not self._terms:
            return
        terms = sorted(frozenset().union(*self._terms.of(running.roots)), key=lambda term: term.order)
        self._match(terms, terms, running)
        call = _EarlierCall(terms, frozenset(id(leaf) for _, leaf in running.graph.leaves))
        for earlier in self._earlier_calls:
            if call.leaves <= earlier.leaves:
                if _have_gradients(running):
                    self._match(earlier.terms, terms, running, are_same_values=True)
            elif earlier.leaves <= call.leaves and not earlier.is_used:
                self._match(terms, earlier.terms, running, are_same_values=True)
        if terms and len(self._earlier_calls) < MAX_CALLS:
            self._earlier_calls.append(call)

    def optimizer_ended(self, optimizer: torch.optim.Optimizer) -> None:
        """Note of which earlier calls an optimizer has used gradients."""
        if self._earlier_calls:
            held = {id(p) for p in parameters_of(optimizer)}
            for call in self._earlier_calls:
                call.is_used = call.is_used or not held.isdisjoint(call.leaves)

    def _match(
        self,
        products: list[_Product | _Regression],
        terms: list[_Product | _Regression],
        running: ActiveBackward,
        are_same_values: bool = False,
    ) -> None:
        """Note the products whose values a regression among `terms` fits to something.

        :param are_same_values: known from the parameters that the calls reach, for calls that reach them one after the
            other; otherwise the values must be the same tensors.
        """
        regressions = [term for term in terms if isinstance(term, _Regression)]
        for product in products:
            if isinstance(product, _Product):
                regression = next((one for one in regressions if are_same_values or one.values & product.values), None)
                if regression is not None:
                    self._note_found(product, regression, running)

    def _note_found(self, product: _Product, regression: _Regression, running: ActiveBackward) -> None:
        """Note that one loss has a product with an advantage and a regression of the same values."""
        found = self._found.get(product.made)
        if found is None:
            if len(self._found) >= MAX_LINES:
                return
            found = _Found([], regression.spot, running.spot, self._context.steps.index)
            self._found[product.made] = found
        if product.spot not in found.products and len(found.products) < MAX_LINES:
            found.products.append(product.spot)

    def records(self) -> Iterator[AttachedAdvantage]:
        """Yield a record of each difference that is used as an advantage with its graph."""
        site = self._frames.site
        for made, one in self._found.items():
            products = tuple(at for spot in one.products if (at := site(spot)) is not None)
            yield AttachedAdvantage(products, site(made), site(one.regression), site(one.failed), one.step)


def _have_gradients(running: ActiveBackward) -> bool:
    """Return whether a parameter that a call reaches has a gradient that is known not to be zero before it runs.

    Only the first ``MAX_READ_GRADIENTS`` parameters count.
    """
    with private.disable_function_modes():
        grads = [leaf.grad for _, leaf in running.graph.leaves[:MAX_READ_GRADIENTS]]
        return any(is_zero(grad) is False for grad in grads if grad is not None)


def _is_varied(args: tuple[object, ...], value: object) -> bool:
    """Return whether `value` and what it is subtracted from, or the reverse, may be a return and a value: no 0 or 1."""
    other = args[1] if args[0] is value else args[0]
    return isinstance(other, _Tensor) or (isinstance(other, (int, float)) and other not in (0, 1, -1))
