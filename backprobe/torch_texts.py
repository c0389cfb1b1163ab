"""Texts of torch's errors and names of its objects, as plain strings, so that a recorded run is explained without
torch.

``torch_internals/facts`` provokes each of these errors on the installed torch and compares.
"""

from __future__ import annotations

import re

#: A saved tensor was written in place.
IN_PLACE = "modified by an inplace operation"
#: Which one it was: shape, versions, and the node that made it, if one did.
IN_PLACE_DETAIL = re.compile(
    r"\[\S+ \[(?P<shape>[\d, ]*)\]\](?:, which is output (?P<output>\d+) of (?P<op>\S+?),)?"
    r" is at version (?P<found>\d+); expected version (?P<saved>\d+)"
)
#: What a node had saved was freed by an earlier backward: two words for it, which torch says together or apart.
FREED, FREED_TENSORS = "backward through the graph a second time", "already been freed"
#: A root of a backward has no graph.
NO_GRAPH = "does not require grad"
#: A root of a backward is no scalar, and no gradient of it was given.
NOT_SCALAR = "grad can be implicitly created only for scalar outputs"
#: ``autograd.grad`` was asked for the gradient of what the output does not depend on.
UNUSED = "appears to not have been used in the graph"
#: A hook gave a gradient of another size, type or dtype; and which.
CHANGED_BY_HOOK = re.compile(r"hook '([^']+)' has changed")
#: A tensor of inference mode met autograd.
INFERENCE = "Inference tensors cannot be saved for backward"
#: An op wrote in place into the view that a full backward hook makes of a module's output.
HOOKED_VIEW, WRITTEN_VIEW = "BackwardHookFunction", "modified inplace"
#: A node gave gradients that do not fit; what stands before its name.
WRONG_SHAPE, WRONG_NUMBER = "returned an invalid gradient at index", "returned an incorrect number of gradients"
WRONG_NAME = "unction "
#: Data-parallel training got a gradient twice; and of which parameter.
READY_TWICE = "mark a variable ready only once"
#: The node of a reentrant checkpoint, which calls backward for its region.
REENTRANT_NODE = "CheckpointFunctionBackward"
READY_TWICE_NAME = re.compile(r"Parameter at index \d+ with name (\S+) has been marked")
#: Data-parallel training waits for gradients that the backward before did not give.
UNREDUCED = "Expected to have finished reduction in the prior iteration"
#: A reentrant checkpoint was asked for a gradient in another way than by ``backward()``.
REENTRANT = "use_reentrant=True"
#: The backward of a compiled region was to keep its graph, and the region had been compiled to use up what it kept.
DONATED = "donated buffer"
#: A compiled region was asked for a second derivative.
NO_SECOND = "does not currently support double backward"
#: Dynamo compiled a function anew too often, and lets it run in Python.
RECOMPILE_LIMIT = "recompile limit exceeded"
#: What Dynamo checks of the modes that are on.
MODE_STACK = "___check_torch_function_mode_stack"
#: The backward of an op has no derivative; and is one of fused attention.
NO_DERIVATIVE = re.compile(r"derivative for (?:aten::)?(\S+) is not implemented")
ATTENTION = "attention"
#: The backward of a custom function has no derivative.
ONCE = "once_differentiable"
#: An allocation failed, on an accelerator or on the CPU; and its size, in bytes or in a unit of two letters or more.
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
WANTED = re.compile(r"ried to allocate (?P<count>[\d.]+) (?P<unit>bytes|[KMGT]?i?B)")
#: A collective operation failed because other ranks did not come, in lower case.
COLLECTIVE = (
    *("gloo", "nccl", "timed out waiting", "connection closed by peer", "connection reset by peer", "broken pipe"),
)
#: How the error begins that ``torch.multiprocessing`` raises in the process which started the others.
OF_CHILDREN = ("ProcessRaisedException", "ProcessExitedException")
#: How errors begin of processes that were interrupted or ended from outside; the second is a launcher's.
INTERRUPTED = ("KeyboardInterrupt", "SignalException")
#: A warning: Dynamo does not look into hooks that are there for all modules. A pattern.
GLOBAL_HOOKS = r"Using `torch.compile\(module\)` when there are global hooks"
#: A warning: where a module had raised, a hook that is there for all modules found no room on the stack. A pattern.
NO_ROOM = (
    r"global module forward hook with ``always_call=True`` raised an exception .*: maximum recursion depth exceeded"
)

#: Names of nodes: of a write into a view, of what torch makes anew for such a view, of a compiled region.
COPY_SLICES, AS_STRIDED, COMPILED = "torch::autograd::CopySlices", "AsStridedBackward0", "CompiledFunction"
#: What ``torch.compile`` makes of a module; modules around a module, each with its attribute for it.
OPTIMIZED = "OptimizedModule"
#: Files that code is in which FX has written.
GENERATED = "<eval_with_key>"
#: Functions that give what other ranks had a part in: of distributed tensors, and collectives with a gradient.
COLLECTIVE_OPS = ("Redistribute", "_ToTorchTensor", "_AllReduce", "_AllGather", "_Reduce_Scatter")
WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
    OPTIMIZED: "_orig_mod",
}
