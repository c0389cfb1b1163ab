"""Texts of torch's errors and names of its objects, as plain strings.

With them a recorded run is explained without torch.

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
#: An earlier backward freed a node's saved tensors: two texts, which torch uses together or separately.
FREED, FREED_TENSORS = "backward through the graph a second time", "already been freed"
#: A root of a backward has no graph.
NO_GRAPH = "does not require grad"
#: A root of a backward is not a scalar, and has no given gradient.
NOT_SCALAR = "grad can be implicitly created only for scalar outputs"
#: ``autograd.grad`` got an input that the output does not depend on.
UNUSED = "appears to not have been used in the graph"
#: A hook returned a gradient of another size, type or dtype; its name.
CHANGED_BY_HOOK = re.compile(r"hook '([^']+)' has changed")
#: Autograd got a tensor of inference mode.
INFERENCE = "Inference tensors cannot be saved for backward"
#: Autograd refused an in-place write in the forward: to one of several views that a function returned (its name), to a
#: leaf or a view of one, to a view made without gradient mode, to a view that a custom function returned, or to a
#: tensor of inference mode.
SPLIT_VIEW, SPLIT_NAME = "output of a function that returns multiple views", re.compile(r"Output \d+ of (\w+)")
LEAF_WRITTEN, LEAF_VIEW = "leaf Variable that requires grad is being used in an in-place operation", "a view of a leaf"
NO_GRAD_VIEW, CUSTOM_VIEW = "view was created in no_grad mode", "created inside a custom Function"
INFERENCE_WRITTEN = "Inplace update to inference tensor"
#: Autograd refused the argument ``out`` of an op, and a change of ``requires_grad`` of a tensor that an op made.
OUT_REFUSED, FLAG_REFUSED = "functions with out=... arguments don't support", "change requires_grad flags of leaf"
#: Errors of optimizers: a scheduler was stepped too often; the groups of a loaded state differ; a gradient is sparse;
#: there are no parameters, or one of them is not a leaf or is listed twice; a scheduler resumes on a new optimizer.
SCHEDULE_OVER = re.compile(r"Tried to step (\d+) times\. The specified number of total steps is (\d+)")
OTHER_GROUPS, OTHER_GROUP = "a different number of parameter groups", "doesn't match the size of optimizer's group"
SPARSE_GRADIENT = "does not support sparse gradients"
NO_PARAMETERS, NO_LEAF, GIVEN_TWICE = (
    "optimizer got an empty parameter list",
    "can't optimize a non-leaf Tensor",
    "parameters appear in more than one parameter group",
)
NO_FIRST_RATE = "param 'initial_lr' is not specified"
#: A method of an optimizer or scheduler was called without an argument; which.
ARGUMENT_MISSING = re.compile(r"step\(\) missing 1 required positional argument: '(\w+)'")
#: A gradient scaler: a second ``unscale_`` or ``step`` before ``update``, gradients in half precision, no gradients.
UNSCALED_TWICE, STEPPED_TWICE = "unscale_() has already been called", "step() has already been called"
UNSCALED_LATE, HALF_GRADIENTS = "unscale_() is being called after step()", "unscale FP16 gradients"
NOTHING_UNSCALED = "No inf checks were recorded"
#: ``copy.deepcopy`` met a tensor with a graph; the method of the tensor that raises.
NOT_COPIED, COPIES = "support the deepcopy protocol", "__deepcopy__"
#: An op wrote in place to the view of a module's output that a full backward hook creates.
HOOKED_VIEW, WRITTEN_VIEW = "BackwardHookFunction", "modified inplace"
#: A node returned gradients of a wrong shape or number; the text before its name.
WRONG_SHAPE, WRONG_NUMBER = "returned an invalid gradient at index", "returned an incorrect number of gradients"
WRONG_NAME = "unction "
#: Data-parallel training got a gradient twice.
READY_TWICE = "mark a variable ready only once"
#: The name of the parameter in that error.
READY_TWICE_NAME = re.compile(r"Parameter at index \d+ with name (\S+) has been marked")
#: The node of a reentrant checkpoint, which calls backward for its region.
REENTRANT_NODE = "CheckpointFunctionBackward"
#: Data-parallel training waits for gradients that the previous backward did not produce.
UNREDUCED = "Expected to have finished reduction in the prior iteration"
#: The numbers of their parameters in that error.
UNREDUCED_INDICES = re.compile(r"Parameter indices which did not receive grad for rank \d+:((?: \d+)+)")
#: A reentrant checkpoint was differentiated in another way than by ``backward()``.
REENTRANT = "use_reentrant=True"
#: A backward with ``retain_graph`` ran a compiled region whose backward reuses the memory of its saved tensors.
DONATED = "donated buffer"
#: A second derivative of a compiled region was requested.
NO_SECOND = "does not currently support double backward"
#: Dynamo recompiled a function too often, and runs it eagerly.
RECOMPILE_LIMIT = "recompile limit exceeded"
#: Dynamo's guard on the active modes.
MODE_STACK = "___check_torch_function_mode_stack"
#: The backward of an op has no derivative; of fused attention.
NO_DERIVATIVE = re.compile(r"derivative for (?:aten::)?(\S+) is not implemented")
ATTENTION = "attention"
#: The backward of a custom function has no derivative.
ONCE = "once_differentiable"
#: An allocation failed, on an accelerator or on the CPU; and its size, in bytes or in a unit of two letters or more.
OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory", re.IGNORECASE)
WANTED = re.compile(r"ried to allocate (?P<count>[\d.]+) (?P<unit>bytes|[KMGT]?i?B)")
#: A collective operation failed because other ranks did not join, in lower case.
COLLECTIVE = (
    *("gloo", "nccl", "timed out waiting", "connection closed by peer", "connection reset by peer", "broken pipe"),
)
#: Starts of the error that ``torch.multiprocessing`` raises in the process which started the others.
OF_CHILDREN = ("ProcessRaisedException", "ProcessExitedException")
#: Starts of errors of processes that were interrupted or ended from outside; the second is a launcher's.
INTERRUPTED = ("KeyboardInterrupt", "SignalException")
#: A warning: Dynamo ignores global module hooks. A pattern.
GLOBAL_HOOKS = r"Using `torch.compile\(module\)` when there are global hooks"
#: A warning: after a module raised, a global hook exceeded the recursion limit. A pattern.
NO_ROOM = (
    r"global module forward hook with ``always_call=True`` raised an exception .*: maximum recursion depth exceeded"
)

#: Names of nodes: of a write into a view, of the regenerated view after it, of a compiled region.
COPY_SLICES, AS_STRIDED, COMPILED = "torch::autograd::CopySlices", "AsStridedBackward0", "CompiledFunction"
#: The class that ``torch.compile`` wraps a module in; modules around a module, each with its attribute for it.
OPTIMIZED = "OptimizedModule"
#: The file name of code that FX generated.
GENERATED = "<eval_with_key>"
#: Functions whose result depends on other ranks: of distributed tensors, and collectives with a gradient.
COLLECTIVE_OPS = ("Redistribute", "_ToTorchTensor", "_AllReduce", "_AllGather", "_Reduce_Scatter")
WRAPPERS = {
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "OffloadWrapper": "_checkpoint_wrapped_module",
    OPTIMIZED: "_orig_mod",
}
