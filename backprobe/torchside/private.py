"""What ``observe`` and ``engine`` use of this room, under one name."""

from __future__ import annotations

from .autograd_engine import (
    current_node,
    gradient_edge,
    graph_task,
    last_graph_task,
    next_sequence_nr,
    post_accumulate_hooks,
    root_gradients,
    run_engine,
    skip_sequence_numbers,
)
from .backward_by_name import (
    seen as autograd_backward,
)
from .backward_by_name import (
    show as show_backward,
)
from .backward_by_name import (
    unshow as unshow_backward,
)
from .checkpoints import (
    StopRecomputation,
    checkpoint_inputs,
    checkpoint_mark,
)
from .compilations import (
    Broken,
    Compilation,
    Compilations,
)
from .compiled_again import (
    lost_paths,
    made_zeros,
    name_of,
    tensors_of,
    went_bad,
)
from .compiled_checked import Unchecked, wrong_region
from .compiled_graphs import (
    CompiledGraph,
    CompiledGraphs,
    RegionCall,
    module_in,
    random_state,
)
from .compiled_norms import (
    Inner,
    TooLarge,
    norms_inside,
)
from .compiled_regions import (
    backward_as_it_is,
    backward_module,
    compiles_backward,
    generated_from,
    is_compiled,
)
from .compiled_writes import (
    refused_write,
)
from .forward_again import (
    forward_again,
)
from .local import (
    is_distributed,
    is_freed,
    is_partial,
    local,
    placement_of,
)
from .modes import (
    below_autograd,
    can_stay_off,
    come_back,
    compiling,
    depth_of,
    dispatch_modes,
    drop_dispatch_mode,
    drop_mode,
    drop_our_dispatch_modes,
    function_modes,
    hands_off,
    has_dispatch,
    in_mode,
    in_transform,
    is_batched,
    is_plain,
    is_symbolic,
    is_wrapped,
    jit_tracing,
    measuring,
    mode_depth,
    no_dispatch_modes,
    pop_function_mode,
    profiled,
    push_function_mode,
    put_dispatch_mode,
    put_mode,
    record_ops,
    seen,
    set_grad_enabled,
    stay_off,
    top_mode,
    tracing,
    transform_level,
    undispatched,
    unnoticed,
    unprofiled,
    unseen,
)
from .node_hooks import (
    NodeHooks,
)
from .overheads import (
    Overheads,
    overheads,
)
from .overheads import (
    of_node as overhead_of_node,
)
from .references import (
    tensor_ref,
    tensors_alive,
)
from .saved_by_nodes import (
    attention_settings,
    chosen_from,
    read_saved,
    saved_attributes,
    saved_slot,
    saved_slots,
    saved_tensors,
    shape_before,
    slot_content,
    uses_running_statistics,
)
from .storage_ids import (
    storage_key,
    storage_of,
)
from .thread_state import (
    ThreadState,
)

__all__ = [
    "Broken",
    "Compilation",
    "Compilations",
    "CompiledGraph",
    "CompiledGraphs",
    "Inner",
    "NodeHooks",
    "Overheads",
    "RegionCall",
    "StopRecomputation",
    "ThreadState",
    "TooLarge",
    "Unchecked",
    "attention_settings",
    "autograd_backward",
    "backward_as_it_is",
    "backward_module",
    "below_autograd",
    "can_stay_off",
    "checkpoint_inputs",
    "checkpoint_mark",
    "chosen_from",
    "come_back",
    "compiles_backward",
    "compiling",
    "current_node",
    "depth_of",
    "dispatch_modes",
    "drop_dispatch_mode",
    "drop_mode",
    "drop_our_dispatch_modes",
    "forward_again",
    "function_modes",
    "generated_from",
    "gradient_edge",
    "graph_task",
    "hands_off",
    "has_dispatch",
    "in_mode",
    "in_transform",
    "is_batched",
    "is_compiled",
    "is_distributed",
    "is_freed",
    "is_partial",
    "is_plain",
    "is_symbolic",
    "is_wrapped",
    "jit_tracing",
    "last_graph_task",
    "local",
    "lost_paths",
    "made_zeros",
    "measuring",
    "mode_depth",
    "module_in",
    "name_of",
    "next_sequence_nr",
    "no_dispatch_modes",
    "norms_inside",
    "overhead_of_node",
    "overheads",
    "placement_of",
    "pop_function_mode",
    "post_accumulate_hooks",
    "profiled",
    "push_function_mode",
    "put_dispatch_mode",
    "put_mode",
    "random_state",
    "read_saved",
    "record_ops",
    "refused_write",
    "root_gradients",
    "run_engine",
    "saved_attributes",
    "saved_slot",
    "saved_slots",
    "saved_tensors",
    "seen",
    "set_grad_enabled",
    "shape_before",
    "show_backward",
    "skip_sequence_numbers",
    "slot_content",
    "stay_off",
    "storage_key",
    "storage_of",
    "tensor_ref",
    "tensors_alive",
    "tensors_of",
    "top_mode",
    "tracing",
    "transform_level",
    "undispatched",
    "unnoticed",
    "unprofiled",
    "unseen",
    "unshow_backward",
    "uses_running_statistics",
    "went_bad",
    "wrong_region",
]
