"""Copies of the graphs that Dynamo hands to a backend, and records of calls of the compiled regions.

Note [Graphs of compiled regions]: Dynamo gives the backend a graph of torch functions with the user's source line on
each node, whatever the backend does with it later and whether the result comes from a cache. backprobe keeps a copy of
that graph (it holds Dynamo's call nodes, no tensor). While a session is active, a wrapper replaces the compiled
function in the globals of the compiled code and records the arguments of each call. The wrapper is not part of compiled
code, and no guard depends on it. backprobe does not import Dynamo for this: it attaches once ``torch.compile`` has been
called.

Note [As long as its graph]: a call of a region is worth keeping only while its autograd node is alive; a script that
evaluates with gradients enabled calls regions without end. So the node carries a marker object in its metadata that
dies with it. A kept call holds detached tensors, so it keeps nothing else alive.

Note [Regions that are not run again]: no call is kept of a region that takes or creates a tensor subclass with its own
dispatch (``DTensor``, a jagged nested tensor): such an op runs the class's code, which may communicate with other ranks
(Note [No own collectives]). The same holds for a region that communicates itself. These calls are counted.

Note [Compiled in an earlier session]: a session does not recompile anything. Graphs that an earlier session kept stay
alive as long as the backend's compiled function, for use by later sessions. A region that was compiled while no session
was active appears as one node without detail.
"""

from __future__ import annotations

import re
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from itertools import count
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from ..basics.torch_texts import IN_PLACE
from .dynamo_activity import replace_attribute
from .modes import disable_function_modes, has_dispatch, hide_from_dispatch_modes
from .thread_state import autocast_now
from .uncompiled import dynamo_passthrough, leave_alone

_MODULE, _CLASS = "torch._dynamo.output_graph", "OutputGraph"
#: Metadata key of the marker that a node carries.
_METADATA_KEY = "backprobe.region"
#: Metadata kept for each node of a copied graph.
_META = ("stack_trace", "nn_module_stack", "source_fn_stack")
_DRAWS = re.compile(r"drop|rand|bernoulli|multinomial|normal_|exponential|uniform|attention|rrelu|poisson|gumbel")


@dataclass
class CompiledGraph:
    """A graph as Dynamo created it.

    ``module`` resolves the attributes that its nodes name; ``draws``: it draws random numbers.
    """

    name: str
    module: torch.nn.Module
    graph: torch.fx.Graph
    draws: bool
    #: For each input, its source in the compiled function: ``L['self'].body.weight``; empty if unknown.
    sources: tuple[str, ...] = ()
    #: Whether it can be re-executed: Note [Regions that are not run again].
    can_run_again: bool = True
    #: The backend that compiled it, and the compiled function.
    compiler: Any = None
    made: Any = None

    @property
    def updates(self) -> bool:
        """Return whether it is or contains an optimizer's step."""
        return any(".param_groups[" in source for source in self.sources)


#: Backend's compiled function -> (name of the module that calls it, its graph). Note [Compiled in an earlier session].
_graphs_of_earlier_sessions: weakref.WeakKeyDictionary[object, tuple[str, CompiledGraph]] = weakref.WeakKeyDictionary()


class Alive:
    """The marker object that a call's node carries in its metadata."""

    __slots__ = ("__weakref__",)


@dataclass
class RegionCall:
    """A call of a compiled region.

    ``outputs``: for each output, the id of the node that created it, its output index at that node, and whether it is a
    view of that output. ``number``: identifies the call; no two calls of a process have the same, unlike their ids.
    """

    region: CompiledGraph
    args: tuple[Any, ...]
    versions: tuple[int | None, ...]
    autocast: tuple[tuple[str, object], ...]
    random: tuple[Any, ...] | None
    outputs: list[tuple[int, int, bool] | None] = field(default_factory=list)
    #: For each tensor argument that an op had created: (sequence number of its node, output index).
    made: tuple[tuple[int, int] | None, ...] = ()
    #: Dies with its graph: Note [As long as its graph].
    alive: weakref.ref[Alive] | None = None
    number: int = field(default_factory=count().__next__)

    @property
    def changed(self) -> bool:
        """Return whether an argument that requires grad has been written to since the call."""
        return any(
            version is not None and arg.requires_grad and arg._version != version
            for arg, version in zip(self.args, self.versions, strict=True)
        )


class CompiledGraphs:
    """Recorder of the graphs that Dynamo compiles, and of calls of the compiled regions.

    :param called: receives each finished call whose outputs require grad.
    :param gone: receives the ``number`` of each such call when its graph is freed.
    :param failed: receives exceptions of backprobe's own code.
    :param raised: receives the text of an exception that a call raised, the calling frame and the region's arguments.
    :param refused: receives each graph that is not compiled because it writes to a tensor that its backward needs, and
        its example inputs.
    :param updated: called after each call of a region that is an optimizer's step.
    """

    def __init__(
        self,
        called: Callable[[RegionCall], None],
        gone: Callable[[int], None],
        failed: Callable[[Exception], None],
        raised: Callable[[str, FrameType, tuple[object, ...]], None],
        refused: Callable[[CompiledGraph, Sequence[object]], None],
        updated: Callable[[], None],
    ) -> None:
        """Take the functions to call; ``attach`` begins the recording."""
        self._called, self._gone, self._failed, self._raised = called, gone, failed, raised
        self._refused, self._updated = refused, updated
        self._graphs: dict[str, CompiledGraph] = {}
        self._restore: list[Callable[[], None]] = []
        #: Globals of compiled code that backprobe replaced: (id of the globals, name) -> (globals, compiled function,
        #: wrapper).
        self._replaced_globals: dict[tuple[int, str], tuple[dict[str, object], object, object]] = {}
        self._thread = threading.get_ident()
        self.on = self._is_attached = False
        #: Calls that were not kept: Note [Regions that are not run again].
        self.not_kept = 0

    def attach(self) -> None:
        """Start to record in this thread: graphs as Dynamo compiles them, and calls of regions compiled now or earlier.
        If Dynamo is not loaded yet, recording of graphs begins after the first call of ``torch.compile``.
        """
        self._thread, self.on = threading.get_ident(), True
        if _MODULE in sys.modules:
            self._attach_to_dynamo()
        else:
            self._attach_after_first_compile()
        for (_, name), (scope, made, ours) in self._replaced_globals.items():
            if scope.get(name) is made:
                scope[name] = ours
        for made, (home, region) in list(_graphs_of_earlier_sessions.items()):
            scope = vars(sys.modules[home]) if home in sys.modules else {}
            if scope.get(region.name) is made:
                self._replace_compiled_function(scope, replace(region), made)

    def detach(self) -> None:
        """Stop to record: restore torch's functions, and the compiled functions in the globals that were replaced."""
        self.on = self._is_attached = False
        while self._restore:
            self._restore.pop()()
        for (_, name), (scope, made, ours) in self._replaced_globals.items():
            if scope.get(name) is ours:
                scope[name] = made

    def _attach_after_first_compile(self) -> None:
        """Wrap ``torch.compile`` to attach to Dynamo after its first call, which loads it."""
        compiles = torch.compile

        @wraps(compiles)
        def compile_and_meet(*args: object, **kwargs: object) -> object:
            """Call ``torch.compile``, then attach to Dynamo if it is loaded; return the compiled function."""
            made = compiles(*args, **kwargs)
            if self.on and _MODULE in sys.modules:
                self._attach_to_dynamo()
            return made

        self._restore.append(replace_attribute(torch, "compile", compile_and_meet))

    def _attach_to_dynamo(self) -> None:
        """Attach to Dynamo: intercept the graphs that it hands to backends and the globals that it installs."""
        if self._is_attached:
            return
        self._is_attached = True
        kind: Any = getattr(sys.modules[_MODULE], _CLASS)
        compiles, installs = kind.call_user_compiler, kind.install_global_unsafe

        @wraps(compiles)
        def call_user_compiler(graph: object, module: torch.nn.Module, *args: object, **kwargs: object) -> object:
            """Keep a copy of the graph that Dynamo hands to the backend, then call the backend; return its result."""
            try:
                self._keep_graph(module, getattr(graph, "compiler_fn", None))
            except Exception as error:
                self._failed(error)
            try:
                return compiles(graph, module, *args, **kwargs)
            except Exception as error:
                if IN_PLACE in str(error):
                    self._report_refused(graph, module)
                raise

        @wraps(installs)
        def install_global_unsafe(graph: Any, name: str, value: Any) -> object:
            """Let Dynamo install a global `name` of compiled code; if it is the function of a kept graph, wrap that
            function.
            """
            result = installs(graph, name, value)
            try:
                region = self._graphs.pop(name, None)
                if region is not None and self.on:
                    _keep_for_later_sessions(graph.global_scope, region, value)
                    self._replace_compiled_function(graph.global_scope, region, value)
            except Exception as error:
                self._failed(error)
            return result

        self._restore.append(replace_attribute(kind, "call_user_compiler", call_user_compiler))
        self._restore.append(replace_attribute(kind, "install_global_unsafe", install_global_unsafe))

    def _keep_graph(self, module: torch.nn.Module, compiler: object) -> None:
        """Copy a graph that Dynamo is about to compile, and keep it until its compiled function is installed."""
        name = module.meta.get("backend_id")
        if name is None or name in self._graphs:
            return
        sources = tuple(_source(node) for node in module.graph.nodes if node.op == "placeholder")
        graph = copy_of(module.graph)
        again = not (_has_subclasses(module.graph) or communicates(module, graph))
        self._graphs[name] = CompiledGraph(name, module, graph, draws(module, graph), sources, again, compiler)

    def _report_refused(self, graph: Any, module: torch.nn.Module) -> None:
        """Report a graph that could not be compiled, with its example inputs."""
        try:
            region = self._graphs.pop(module.meta.get("backend_id"), None)
            if region is None or not region.can_run_again:
                return
            if self.on and threading.get_ident() == self._thread:
                self._refused(region, graph.example_inputs())
        except Exception as error:
            self._failed(error)

    def _replace_compiled_function(self, scope: dict[str, object], region: CompiledGraph, made: Any) -> None:
        """Put a wrapper that records the calls of a region in place of its compiled function in `scope`."""
        updates = region.updates
        region.made = made

        @dynamo_passthrough
        def region_called(*args: object, **kwargs: object) -> object:
            """Call the compiled function, and record the call if it comes from the session's thread; return the
            result.
            """
            if not self.on or kwargs or threading.get_ident() != self._thread:
                return made(*args, **kwargs)
            try:
                call = self._call_begins(region, args)
            except Exception as error:
                self._failed(error)
                call = None
            try:
                out = made(*args, **kwargs)
            except RuntimeError as error:
                self._report_error(error, sys._getframe(1), args)
                raise
            try:
                if call is not None:
                    self._call_returned(call, out)
                if updates:
                    self._updated()
            except Exception as error:
                self._failed(error)
            return out

        # Dynamo deletes globals that it does not call any more.
        self._replaced_globals = {
            key: one for key, one in self._replaced_globals.items() if any(one[0].get(key[1]) is own for own in one[1:])
        }
        leave_alone(region_called.__code__)
        self._replaced_globals[id(scope), region.name] = scope, made, region_called
        scope[region.name] = region_called

    def _report_error(self, error: RuntimeError, frame: FrameType, args: tuple[object, ...]) -> None:
        """Pass the text of an exception that a region raised to ``raised``, with the calling frame and the
        arguments.
        """
        try:
            self._raised(str(error), frame, args)
        except Exception as mine:
            self._failed(mine)

    def _call_begins(self, region: CompiledGraph, args: tuple[Any, ...]) -> RegionCall | None:
        """Return the record of a call that is about to begin; ``None`` if the call is not kept."""
        if not torch.is_grad_enabled() or torch._C._functorch.maybe_current_level() is not None:
            return None
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if not region.can_run_again or any(map(has_dispatch, tensors)):
            self.not_kept += 1
            return None
        with disable_function_modes(), hide_from_dispatch_modes():
            kept = tuple(a.detach() if isinstance(a, torch.Tensor) and a.grad_fn is not None else a for a in args)
            versions = tuple(a._version if isinstance(a, torch.Tensor) and not a.is_inference() else None for a in kept)
            with_grad = tuple(
                k.requires_grad_() if isinstance(a, torch.Tensor) and k is not a and a.requires_grad else k
                for a, k in zip(args, kept, strict=True)
            )
            random = random_state(kept) if region.draws else None
            made = tuple(
                (a.grad_fn._sequence_nr(), a.output_nr) if k is not a else None for a, k in zip(args, kept, strict=True)
            )
        return RegionCall(region, with_grad, versions, autocast_now(), random, made=made)

    def _call_returned(self, call: RegionCall, out: object) -> None:
        """Complete the record of a call, and pass it on if its outputs require grad."""
        with disable_function_modes():
            made = [_region_node(one) for one in (out if isinstance(out, (tuple, list)) else (out,))]
        call.outputs = [(id(one[0]), *one[1:]) if one is not None else None for one in made]
        node = next((one[0] for one in made if one is not None), None)
        if node is not None:
            mark = node.metadata[_METADATA_KEY] = Alive()
            call.alive = weakref.ref(mark, partial(self._graph_gone, call.number))
            self._called(call)

    def _graph_gone(self, number: int, _: object) -> None:
        """Report that the graph of call `number` was freed; called by the weak reference to its marker."""
        self._gone(number)


def _keep_for_later_sessions(scope: dict[str, object], region: CompiledGraph, made: object) -> None:
    """Keep a graph for later sessions, if they can find the module that calls the compiled function."""
    home = scope.get("__name__")
    if isinstance(home, str) and getattr(sys.modules.get(home), "__dict__", None) is scope:
        _graphs_of_earlier_sessions[made] = home, replace(region, made=None)


def module_in(region: CompiledGraph, args: Sequence[object], node: Any, name_of: Callable[[object], str]) -> str | None:
    """Return the path of the module that a node of the region's graph belongs to.

    Within the region, the path uses the compiled function's names; parameters among the inputs map them to names in the
    model.
    """
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = str(stack[-1][0]) if stack else "L['self']"
    known = False
    for source, arg in zip(region.sources, args, strict=True):
        root, end = source.partition("]")[:2]
        known = known or path.startswith(f"{root}{end}.") or path == f"{root}{end}"
        name = name_of(arg) if isinstance(arg, torch.nn.Parameter) else ""
        inner = source.removeprefix(root + end).removeprefix(".")
        if name and path.partition("]")[0] == root and (name == inner or name.endswith(f".{inner}")):
            prefix = name.removesuffix(inner).rstrip(".")
            below = path.partition("]")[2].removeprefix(".")
            return ".".join(part for part in (prefix, below) if part)
    return path.partition("]")[2].removeprefix(".") if stack else "" if known else None


def copy_of(graph: torch.fx.Graph) -> torch.fx.Graph:
    """Return a copy of `graph` with each node's source line and module metadata, without example values."""
    copy = torch.fx.Graph()
    made: dict[torch.fx.Node, torch.fx.Node] = {}
    for node in graph.nodes:
        new = copy.node_copy(node, lambda one: made[one])
        new.meta = {key: node.meta[key] for key in _META if key in node.meta}
        made[node] = new
    return copy


def _source(node: torch.fx.Node) -> str:
    """Return the source of a graph input in the compiled function, such as ``L['self'].body.weight``; empty if
    unknown.
    """
    source = getattr(node.meta.get("grapharg"), "source", None)
    name = getattr(source, "name", "")
    return re.sub(r"\._(?:modules|parameters|buffers)\['([^']+)'\]", r".\1", name() if callable(name) else name)


def draws(module: torch.nn.Module, graph: torch.fx.Graph) -> bool:
    """Return whether the graph draws random numbers."""
    kinds = ("call_function", "call_method")
    return _any_node(module, graph, lambda node: node.op in kinds and bool(_DRAWS.search(_target_name(node.target))))


def communicates(module: torch.nn.Module, graph: torch.fx.Graph) -> bool:
    """Return whether the graph communicates with other ranks."""
    return _any_node(module, graph, lambda node: node.op == "call_function" and "c10d" in _namespace(node.target))


def _any_node(module: torch.nn.Module, graph: torch.fx.Graph, fact: Callable[[torch.fx.Node], bool]) -> bool:
    """Return whether `fact` holds of a node of the graph, or of a graph inside it."""
    for node in graph.nodes:
        inner = getattr(module, node.target, None) if node.op == "get_attr" and "." not in node.target else None
        if fact(node) or (isinstance(inner, torch.fx.GraphModule) and _any_node(inner, inner.graph, fact)):
            return True
    return False


def _namespace(target: object) -> str:
    """Return an operator's namespace (``_c10d_functional``) or a function's module
    (``torch.distributed.distributed_c10d``).
    """
    return str(getattr(target, "namespace", None) or getattr(target, "__module__", None) or "")


def _has_subclasses(graph: torch.fx.Graph) -> bool:
    """Return whether a node of Dynamo's graph produces a tensor subclass with its own dispatch.

    Dynamo keeps a fake example value for each node; for such a subclass, the example has that class too.
    """
    from torch._subclasses.fake_tensor import FakeTensor

    examples = tree_leaves([node.meta.get("example_value") for node in graph.nodes])
    return any(isinstance(t, torch.Tensor) and has_dispatch(t) and not isinstance(t, FakeTensor) for t in examples)


def _target_name(target: object) -> str:
    """Return the name of a node's target: a method's name, or that of a function."""
    return target if isinstance(target, str) else getattr(target, "__name__", str(target))


def random_state(args: tuple[object, ...]) -> tuple[Any, ...]:
    """Return the states of torch's random generators: the CPU's, and those of the devices of `args`."""
    devices = sorted({a.get_device() for a in args if isinstance(a, torch.Tensor) and a.is_cuda})
    return torch.get_rng_state(), tuple((device, torch.cuda.get_rng_state(device)) for device in devices)


def restore_random_state(state: tuple[Any, ...]) -> None:
    """Restore the generators' states."""
    cpu, cuda = state
    torch.set_rng_state(cpu)
    for device, one in cuda:
        torch.cuda.set_rng_state(one, device)


def _region_node(out: Any) -> tuple[torch.autograd.graph.Node, int, bool] | None:
    """Return the region's node that made an output, the output's index there, and whether it is a view of that."""
    node = out.grad_fn if isinstance(out, torch.Tensor) and out.requires_grad else None
    if node is None:
        return None
    if hasattr(getattr(node, "_forward_cls", None), "compiled_bw"):
        return node, out.output_nr, False
    for below, number in node.next_functions[:1]:
        if below is not None and hasattr(getattr(below, "_forward_cls", None), "compiled_bw"):
            return below, number, True
    return None


def known() -> tuple[str, ...]:
    """Return the names of torch internals that this module reads."""
    return (
        _CLASS,
        "call_user_compiler",
        "install_global_unsafe",
        "global_scope",
        "backend_id",
        "grapharg",
        "example_inputs",
        "compiler_fn",
        "example_value",
        *_META,
    )
