"""The facts that the operator table holds of one operator."""

from __future__ import annotations

from dataclasses import dataclass

#: Values of ``OpInfo.forward``. The result is finite if the inputs are, unless it is too large for its dtype.
FINITE = "finite"
#: The result is Inf for inputs of moderate size: it grows faster than any power.
OVERFLOWS = "overflows"
#: The result is NaN or Inf for some finite inputs, whatever their dtype: a logarithm of zero, a quotient by zero.
POLE = "pole"
#: The result is finite if the inputs are; if all that it normalises over is -Inf, nothing is left, and it is NaN or has
#: a derivative that is.
NORMALISES = "normalises"

#: Values of ``OpInfo.singular_at``. The derivative is not finite if an input, or the result, holds zeros.
ZERO = "zero"
#: It divides by the differences of the values that a decomposition found.
GAPS = "gaps"
#: It is not finite at another edge of the domain: 1 for an arc cosine.
EDGES = "edges"

#: Value of ``OpInfo.added_inputs``: all of them.
ALL_INPUTS: tuple[int, ...] = (-1,)


@dataclass(frozen=True, slots=True)
class ConditionalWrite:
    """The arguments that a function of ``torch.nn`` writes to if another argument, such as ``inplace``, says so.

    :ivar argument: the argument that decides.
    :ivar positions: the positions of the arguments that it writes to.
    """

    argument: str
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpInfo:
    """The properties of an operator: its result, its derivative, and its effects.

    A fact that a row claims holds. One that it does not claim may hold, too: nothing has needed it yet.

    :ivar name: its canonical name.
    :ivar aliases: other names of it; spellings that differ in case and underscores only are not listed.

    The result:

    :ivar is_view: it shares the memory of the first input, for all arguments.
    :ivar may_be_view: it does so for some arguments.
    :ivar reshapes: it has the elements of the input, each once, and its derivative those of the gradient.
    :ivar moves_values: each of its elements is an element of an input.
    :ivar changes_shape: it is the input in another shape, its elements in their order.
    :ivar moves_dimensions: its dimensions are those of the input in another order.
    :ivar joins_inputs: it has all elements of several inputs.
    :ivar gives_parts: it is a tuple of parts of the input, each element in one of them.
    :ivar chooses_by_index: it has the elements of the input that indices, or a mask, choose.
    :ivar is_extreme: each of its elements is a maximum or a minimum over elements of the inputs.
    :ivar gives_indices: it comes with the indices of its elements.
    :ivar is_fill: a constant, or given values, stand in some places of it.
    :ivar casts: it has the values of the input in another dtype, or on another device.
    :ivar is_exact: its values are computed without rounding; so are those that are moved or filled in.

    :ivar is_elementwise: each of its elements depends on one element of each input; shapes are broadcast.
    :ivar is_elementwise_loss: so does the loss of each element, before a sum or mean; it compares two inputs.
    :ivar is_distance: it is zero if the two inputs are equal, and greater otherwise.
    :ivar scales_input: it is a multiple of the input, if its other argument is a number.
    :ivar is_total: it is the sum, or the mean, of the elements of the input.
    :ivar sign: how Python writes it between its inputs, if it compares them.

    Values that are not finite:

    :ivar forward: ``FINITE``, ``OVERFLOWS``, ``POLE``, ``NORMALISES``; empty if it is not known.
    :ivar is_bounded: the result is finite for all finite inputs: it does not even overflow.
    :ivar saturates: the result is finite for an Inf.
    :ivar keeps_nan: a function of one element at a time whose result is NaN for NaN only.
    :ivar mixes_inf: the result is NaN for some inputs with Inf in them: Inf minus Inf, zero times Inf.
    :ivar amplifies: the result may be many times larger than each input.
    :ivar adds_terms: the result is a sum: terms may cancel.
    :ivar nan_if_empty: the result is NaN if the input has no elements.
    :ivar remedy: when its result is not finite for finite inputs, and what to do, if it has a reason of its own.

    The derivative:

    :ivar singular_at: ``ZERO``, ``GAPS``, ``EDGES``; empty if it is finite wherever the result is.
    :ivar singular_for_some_arguments: the exponent or the other factor decides whether it is singular.
    :ivar zero_derivative: it is zero wherever it exists.
    :ivar has_flat_parts: it is zero for some ordinary inputs.
    :ivar clips: it is exactly zero for all inputs beyond a bound.
    :ivar drops_inputs: a mask, indices or a factor of zero can make all of it zero.
    :ivar added_inputs: the inputs, by number, whose derivative is a sum of what comes in; ``None`` if there are none.
    :ivar forgets_inputs: its node saves none of the values that go in.

    Effects:

    :ivar creates: it makes a tensor from no other one's values.
    :ivar is_uninitialised: the memory that it gives holds nothing yet.
    :ivar reads_values: it gives values to Python or NumPy.
    :ivar takes_python_values: it puts numbers of Python in a tensor.
    :ivar is_random: it draws random numbers.
    :ivar overwrites: its form in place does not read what it writes over.
    :ivar hidden_writes: arguments that it writes to though its schema does not say so.
    :ivar conditional_write: when its function in ``torch.nn`` writes to what it is given.
    :ivar makes: nodes that some of its graphs consist of instead of one with its own name.
    :ivar source_name: the operator that the user writes for it, if that is another.
    """

    name: str
    aliases: tuple[str, ...] = ()
    is_view: bool = False
    may_be_view: bool = False
    reshapes: bool = False
    moves_values: bool = False
    changes_shape: bool = False
    moves_dimensions: bool = False
    joins_inputs: bool = False
    gives_parts: bool = False
    chooses_by_index: bool = False
    is_extreme: bool = False
    gives_indices: bool = False
    is_fill: bool = False
    casts: bool = False
    is_exact: bool = False
    is_elementwise: bool = False
    is_elementwise_loss: bool = False
    is_distance: bool = False
    scales_input: bool = False
    is_total: bool = False
    sign: str = ""
    forward: str = ""
    is_bounded: bool = False
    saturates: bool = False
    keeps_nan: bool = False
    mixes_inf: bool = False
    amplifies: bool = False
    adds_terms: bool = False
    nan_if_empty: bool = False
    remedy: str = ""
    singular_at: str = ""
    singular_for_some_arguments: bool = False
    zero_derivative: bool = False
    has_flat_parts: bool = False
    clips: bool = False
    drops_inputs: bool = False
    added_inputs: tuple[int, ...] | None = None
    forgets_inputs: bool = False
    creates: bool = False
    is_uninitialised: bool = False
    reads_values: bool = False
    takes_python_values: bool = False
    is_random: bool = False
    overwrites: bool = False
    hidden_writes: tuple[str, ...] = ()
    conditional_write: ConditionalWrite | None = None
    makes: tuple[str, ...] = ()
    source_name: str = ""

    @property
    def passes_on(self) -> bool:
        """Whether the result has values that it was given, in another dtype at most."""
        return self.moves_values or self.casts

    @property
    def makes_no_nan(self) -> bool:
        """Whether a NaN in the result was in the inputs, or came of an Inf in them."""
        return self.forward == FINITE and not self.is_fill

    @property
    def is_singular(self) -> bool:
        """Whether the result or its derivative is not finite for some finite inputs of moderate size."""
        return bool(self.singular_at) or self.forward == POLE

    @property
    def is_elementwise_sum(self) -> bool:
        """Whether the result is a sum of its inputs, element by element."""
        return self.added_inputs == ALL_INPUTS

    @property
    def is_unlooked_view(self) -> bool:
        """Whether the result is a view of values that were inspected when they were computed."""
        return self.moves_values and (self.is_view or self.may_be_view)
