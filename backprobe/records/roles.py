"""Roles of source lines in a finding, and the meaning of each."""

from __future__ import annotations

from types import MappingProxyType

#: Role -> what a line with it is: shown on the page, in JSON, and in the table of ``findings/README.md``.
ROLE_MEANINGS = MappingProxyType(
    {
        "cause": "where the mistake or the bad value comes from",
        "entered": "where a bad value from outside, or from an earlier step, entered the graph",
        "held": "the line that keeps graphs, or a gradient with its graph, alive",
        "cut": "where the path of the gradient ends, or the graph was lost",
        "enabled": "where gradients were switched on again, too late",
        "loss": "where the loss was computed from what has no graph",
        "term": "where a term is added to the loss",
        "multiplied": "where a term is multiplied by a factor",
        "compared": "where a result is compared with its target",
        "mutated": "where a tensor was changed in place",
        "bypass": "where the forward was called around the module's hooks",
        "made": "where a tensor was made that an operation could not use",
        "saved": "where an operation saved a tensor, or most bytes, for its backward",
        "derived": "where the operation is whose backward it is, or whose backward follows from it",
        "reused": "where a tensor of a freed graph was used",
        "freed": "the backward call that freed the graph",
        "carried": "where a result was kept, with its graph, for a later step",
        "applied": "where a custom function was applied",
        "backward": "the line in a custom backward, or in a hook, that returned or raised",
        "optimizer": "where an optimizer was made",
        "given": "where the parameters were chosen that the optimizer got",
        "schedule": "where a schedule was made",
        "stepped": "where an optimizer or a schedule steps",
        "returned": "where a schedule was given to a framework",
        "cleared": "where gradients are cleared",
        "zeroed": "where gradients are set to zero",
        "foreign": "the backward call for the step of another optimizer",
        "used": "the step that uses these gradients",
        "second": "the next backward call of the step",
        "replaced": "where a parameter or its module was replaced by another",
        "shared": "the operation that gives one gradient to two others",
        "wrapped": "where a model was wrapped for data-parallel training",
        "checkpointed": "where parts of the model were checkpointed",
        "hook": "where a hook was registered",
        "region": "where a checkpoint, or a compiled region, was called",
        "changed": "what changed between the forward and its recomputation, or where ranks began to differ",
        "stored": "where values are stored for later",
        "evaluated": "where the model was put in evaluation mode",
        "masked": "where an operation uses a mask",
        "shifted": "where targets were shifted",
        "stops": "where the script stops to draw tokens",
        "op": "the same operation on the other side",
        "raised": "where a rank raised the error that ended it",
        "last": "where a killed rank was last observed",
        "late": "where the rank was that the others waited for",
        "waiting": "where a rank waits",
        "skipping": "where the rank is that others wait for",
        "common": "the last operation that all ranks took part in",
        "branch": "a line that may have led a rank around the operation that others wait in",
        "condition": "the condition of such a line, or a test of a value for NaN or Inf",
        "loop": "a loop that gives the parameters to lines that use their gradients",
        "buffer": "where a buffer of a replicated model was changed",
        "drawn": "where random numbers were drawn that differ between ranks",
        "seeded": "where a rank set its random seed",
        "touched": "a line that may have changed weights on some ranks only",
        "called": "the line that calls the module whose buffer it is",
        "written": "a line that writes to the weights of a copy",
        "loaded": "where a state dict was loaded",
        "frozen": "where `requires_grad` was turned off",
        "thawed": "where `requires_grad` was turned on again",
        "stale": "the line of a hook that reads a gradient too early",
        "defined": "where a parameter or its module was assigned",
        "allocated": "the forward line of the node whose memory request failed",
        "failed": "the backward call in which it showed",
        "first": "the backward call before that one, which reached the same parameters",
    }
)
#: Kind and role -> a meaning that is closer than that of the role alone.
_MEANINGS_IN_KINDS = MappingProxyType(
    {
        ("silent-broadcast", "called"): "the call that gives an input to the function in which they broadcast",
        ("inplace", "reused"): "where the new graph takes a result from the graph of an earlier step",
        ("saved-memory", "cause"): "the line that keeps these bytes for backward",
        ("out-of-memory", "saved"): "the line whose saved tensors take the memory",
        ("graph-retained", "made"): "where one of the tensors was made that are kept with their graphs",
        ("first-divergence", "cause"): "where the module that differs was assigned",
        ("vanishing-gradient", "cause"): "where the gradient gets smaller",
        ("exploding-gradient", "cause"): "where the gradient gets greater",
        ("backward-never-called", "called"): "a line that calls the module",
        ("next-states-equal", "made"): "where a batch of states, or of next states, is made",
        ("next-states-equal", "called"): "the line that calls a module with a batch",
        ("next-states-equal", "stored"): "a line that stores a transition",
        ("next-states-equal", "returned"): "a method that returns an array and writes into it: a possible reason",
        ("detached-in-time", "cut"): "where the hidden state is detached",
        ("detached-in-time", "called"): "the line that calls the recurrent module",
        ("accumulation-not-averaged", "made"): "the line that computes the loss",
        ("accumulation-not-averaged", "given"): "the line that sets the number of accumulated batches",
        ("accumulation-not-averaged", "term"): "the line that divides another term of the loss",
    }
)


def meaning_of(role: str, kind: str) -> str:
    """Return what a line with this role has to do with a finding of this kind; empty for a role of a plugin."""
    return _MEANINGS_IN_KINDS.get((kind, role)) or ROLE_MEANINGS.get(role, "")
