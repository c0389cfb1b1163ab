"""Hand-written records of a backward call that fails, and of what is known about the failure. No torch."""

from __future__ import annotations

from handmade import at, call, leaf, raised, run

from backprobe.records import BackwardCall, Mutation, Reuse

NODES = (
    run("SumBackward0", 1, op="sum", line=13),
    run("LogBackward0", 2, op="log", line=12, module="head"),
    run("MulBackward0", 3, op="mul", line=11),
    leaf("weight"),
)
MUTATED = Mutation("hidden", (8,), 0, 1, "add_", at(20, "hidden += 1"), "", None)
REUSED = Reuse(0, at(91), 0, 1, 2)
TWICE = "Expected to mark a variable ready only once. Parameter at index 0 with name module.weight has been marked"


def failed(text: str = "no backward here", index: int = 0, node: int = 2, **more) -> BackwardCall:
    """Node `node` of ``NODES`` raises `text`."""
    return call(*NODES, index=index, raised=raised(text, node, at(30)), **more)
