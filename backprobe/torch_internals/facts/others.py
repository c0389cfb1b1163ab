"""Facts about data-parallel training, collectives, and compiled regions."""

from __future__ import annotations

import datetime
import importlib.util
import re
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed

from ...basics import torch_texts
from .. import code_objects, gradient_clipping, schedulers, state_dicts
from .. import compilations as noted
from .. import compiled_graphs as graphs
from .. import compiled_writes as writes
from .. import dynamo_activity as activity
from ..compiled_regions import generated_from
from ..flight import Flight
from ..grad_scaler import STEPS_OPTIMIZER, UPDATE_SCALE, Scales, factor_of, has_step_pre_hooks, is_unscaled
from .registry import DYNAMO, ENGINE, OWN_PROCESS, NotHere, expect, fact, leaf, said_by


def _distributed() -> Any:
    """Return ``torch.distributed``.

    :raises NotHere: this torch was built without it.
    """
    if not torch.distributed.is_available():
        raise NotHere("this torch was built without torch.distributed")
    return torch.distributed


@fact(
    "errors of data-parallel training",
    "ddp-ready-twice is silent: such errors are reported as backward-error; what was waited for in vain is not named",
    "READY_TWICE READY_TWICE_NAME UNREDUCED UNREDUCED_INDICES",
    [ENGINE],
)
def ready_twice() -> None:
    """Check the errors of data-parallel training: a parameter that is ready twice, and parameters that got no gradient.
    Both are provoked with a reducer on a process group that does not communicate.
    """
    dist = _distributed()
    fake: Any = torch._C._distributed_c10d.FakeProcessGroup
    fake = getattr(fake, "_create_internal", fake)
    group = dist.ProcessGroup(dist.HashStore(), 0, 1)
    kind = dist.ProcessGroup.BackendType.CUSTOM
    group._register_backend(torch.device("cpu"), kind, fake(rank=0, world_size=1))
    group._set_default_backend(kind)
    used, unused = torch.nn.Parameter(leaf()), torch.nn.Parameter(leaf())
    names = {0: "used", 1: "unused"}
    reducer = dist.Reducer([used, unused], [[0, 1]], [1 << 20], group, param_to_name_mapping=names)
    first, second = (used * 2).sum(), (used * 3).sum()
    reducer.prepare_for_backward([])
    first.backward()
    text = said_by(second.backward)
    found = torch_texts.READY_TWICE_NAME.search(text)
    expect(torch_texts.READY_TWICE in text, f"torch says {text}")
    expect(found is not None and found[1] == "used", f"torch says {text}")
    text = said_by(reducer._rebuild_buckets)  # called by the next forward
    found = torch_texts.UNREDUCED_INDICES.search(text)
    expect(torch_texts.UNREDUCED in text and found is not None and found[1].split() == ["1"], f"torch says {text}")


@fact(
    "what data-parallel training keeps of itself",
    "rank-drift does not name communication hooks, and takes uneven inputs under join() for a drift; none-grad does "
    "not name the parameters that an unrecorded step left out",
    "_join_config _comm_hooks _get_ddp_logging_data",
)
def data_parallel() -> None:
    """Check the attributes in which data-parallel training keeps its hooks, its logging data and its uneven inputs."""
    _distributed()
    kind: Any = torch.nn.parallel.DistributedDataParallel
    expect("_comm_hooks" in kind.register_comm_hook.__code__.co_names, "hooks are not kept in _comm_hooks")
    expect("_get_ddp_logging_data" in vars(kind), "there is no _get_ddp_logging_data")
    expect("_join_config" in kind._pre_forward.__code__.co_names, "the forward does not ask for _join_config")


@fact(
    "collectives on the stack",
    "rank-desync does not name the operation that a rank waits in",
    "COLLECTIVES COLLECTIVE_WRAPPER COLLECTIVE_WAITS DDP_FILE",
)
def collectives() -> None:
    """Check the files and names of the functions that a collective call has on the stack."""
    dist = _distributed()
    for name in ("all_reduce", "broadcast", "barrier", "all_gather"):
        outer = getattr(dist, name)
        inner = getattr(outer, "__wrapped__", outer)
        code = inner.__code__
        expect(code.co_filename.startswith(code_objects.COLLECTIVES), f"{name} is in {code.co_filename}")
        wrapped = outer is inner or outer.__code__.co_name == code_objects.COLLECTIVE_WRAPPER
        expect(wrapped and code.co_name == name, f"{name} is called through {outer.__code__.co_name}")
    waits = [name for name in code_objects.COLLECTIVE_WAITS if hasattr(dist.Work, name)]
    expect(bool(waits), f"work that goes on has no method called {' or '.join(code_objects.COLLECTIVE_WAITS)}")
    forward: Any = torch.nn.parallel.DistributedDataParallel.forward
    expect(forward.__code__.co_filename == code_objects.DDP_FILE, f"data parallel is in {forward.__code__.co_filename}")


@fact(
    "errors of collectives",
    "a rank that fails because others did not come is reported as the culprit",
    "COLLECTIVE OF_CHILDREN INTERRUPTED",
    [OWN_PROCESS],
)
def failed_collective() -> None:
    """Check the errors of a collective that waits in vain, and the names of the errors of child processes."""
    group = _gloo(2)
    group._set_default_timeout(datetime.timedelta(milliseconds=20))
    text = said_by(lambda: group.allreduce([leaf().detach()]).wait())
    expect(any(words in text.lower() for words in torch_texts.COLLECTIVE), f"torch says {text}")
    missing = [name for name in torch_texts.OF_CHILDREN if not hasattr(torch.multiprocessing, name)]
    expect(not missing, f"torch.multiprocessing has no {', '.join(missing)}")
    elastic = importlib.util.find_spec("torch.distributed.elastic.multiprocessing.api")
    text = Path(elastic.origin).read_text() if elastic is not None and elastic.origin else ""
    expect(f"class {torch_texts.INTERRUPTED[1]}(" in text, f"a launcher has no {torch_texts.INTERRUPTED[1]}")


@fact(
    "the timeout of the store",
    "a hang in new_group is announced after 20 seconds, which may be later than torch gives up",
    "_get_default_store",
    [OWN_PROCESS],
)
def timeout_of_the_store() -> None:
    """Check that the timeout of a store can be read, and that the default store can be had."""
    dist = _distributed()
    store = dist.HashStore()
    store.set_timeout(datetime.timedelta(seconds=7))
    expect(store.timeout.total_seconds() == 7.0, "a store does not tell its timeout")
    expect(callable(getattr(dist.distributed_c10d, "_get_default_store", None)), "nothing gives the default store")


def _gloo(size: int) -> Any:
    """Return the first rank of a gloo process group of `size` ranks, all in this process.

    :raises NotHere: this torch was built without gloo.
    """
    dist = _distributed()
    if not dist.is_gloo_available():
        raise NotHere("this torch was built without gloo")
    Flight(lambda frames: None).request()  # before the first group is created
    store, groups = dist.HashStore(), {}

    def join(rank: int) -> None:
        """Create the process group of rank `rank`."""
        options = dist.ProcessGroupGloo._Options()
        options._devices = [dist.ProcessGroupGloo.create_device(hostname="127.0.0.1")]
        options._timeout = datetime.timedelta(seconds=10)
        groups[rank] = dist.ProcessGroupGloo(store, rank, size, options)

    others = [threading.Thread(target=join, args=(rank,)) for rank in range(1, size)]
    for other in others:
        other.start()
    join(0)
    for other in others:
        other.join()
    return groups[0]


@fact(
    "the flight recorder",
    "a rank that waits inside backward is not seen to wait, and which rank did not come is told from lines alone",
    "_distributed_c10d _dump_fr_trace",
    [OWN_PROCESS],
)
def flight_recorder() -> None:
    """Check that torch's flight recorder keeps a collective call, with its name, number and input."""
    _gloo(1).allreduce([leaf().detach()]).wait()
    last = Flight(lambda frames: None).latest()
    expect(bool(last), "nothing is kept of a collective that was called")
    expect(last[-1].op == "all_reduce" and last[-1].number > 0, f"it is kept as {last[-1]}")
    expect(last[-1].inputs.startswith("float"), f"its input is kept as {last[-1].inputs}")


def _sources(folder: str) -> str:
    """Return the text of torch's own source files in a folder.

    :raises NotHere: the files are missing.
    """
    files = sorted((Path(torch.__file__).parent / folder).glob("*.py"))
    if not files:
        raise NotHere(f"torch's source files in {folder} are not there")
    return "\n".join(path.read_text(encoding="utf-8") for path in files)


def _named(words: tuple[str, ...], text: str) -> list[str]:
    """Return the `words` that do not occur as names in `text`."""
    return [word for word in words if re.search(rf"{re.escape(word)}\b", text) is None]


@fact(
    "compiled regions",
    "compiled regions show as custom functions, without their inside, and what they cannot do is not explained",
    "_lazy_backward_info COMPILED DONATED NO_SECOND",
    [DYNAMO],
)
def compiled_regions() -> None:
    """Check that torch's source still has the names and messages of compiled regions that backprobe reads."""
    text = _sources("_functorch/_aot_autograd")
    names = ("_lazy_backward_info", "bw_module", "compiled_bw", "fwd_nn_module_stack", torch_texts.COMPILED)
    lost = _named(names, text)
    expect(not lost, f"torch's source does not name {', '.join(lost)}")
    for word in (torch_texts.DONATED, torch_texts.NO_SECOND):
        expect(word in text, f"torch does not speak of: {word}")


@fact(
    "what Dynamo compiled",
    "what torch.compile compiled, where its graphs broke and why it compiled again is not told",
    "_compilation_metrics _disable RECOMPILE_LIMIT MODE_STACK",
    [DYNAMO],
)
def compilations() -> None:
    """Check that torch's source still has the names and messages of compilations that backprobe reads."""
    text = _sources("_dynamo")
    lost = _named((*noted.known(), "compiled_autograd_enabled", "def _disable"), text)
    expect(not lost, f"torch's source does not name {', '.join(lost)}")
    for word in (torch_texts.RECOMPILE_LIMIT, torch_texts.MODE_STACK):
        expect(word in text, f"torch does not say {word}")


@fact(
    "graphs that Dynamo makes",
    "where a compiled region made NaN, Inf or zeros, and where it cuts the graph, is told less well or not at all",
    "_ops _compiler_name",
    [DYNAMO],
)
def compiled_graphs() -> None:
    """Check that Dynamo's source still has the names that backprobe reads, and that a graph can be copied with its
    lines.
    """
    text = _sources("_dynamo") + _sources("_dynamo/repro")
    lost = _named((*graphs.known(), "_compiler_name"), text)
    expect(not lost, f"torch's source does not name {', '.join(lost)}")
    graph = torch.fx.Graph()
    given = graph.placeholder("x")
    given.meta["stack_trace"] = "here"
    graph.output(graph.call_method("exp", (given,)))
    copy = graphs.copy_of(graph)
    names = [node.name for node in copy.nodes]
    expect(names == ["x", "exp", "output"], f"a copy of a graph has the nodes {', '.join(names)}")
    expect(next(iter(copy.nodes)).meta == given.meta, "a copy of a graph says no lines")
    kinds: Any = vars(torch._ops).get("HigherOrderOperator")
    expect(isinstance(kinds, type), "torch._ops has no class HigherOrderOperator")


@fact(
    "graphs that are not compiled",
    "where a graph writes to what its backward needs, so that torch does not compile it, is not told",
    "_subclasses",
    [DYNAMO, ENGINE],
)
def refused_graphs() -> None:
    """Check that the write is found in a graph that writes to what its backward needs."""
    graph = torch.fx.Graph()
    made = graph.call_method("exp", (graph.placeholder("x"),))
    written = graph.call_method("add_", (made, 1))
    graph.output(written)
    region = graphs.CompiledGraph("", torch.nn.Module(), graph, False)
    found = writes.refused_write(region, [leaf()])
    told = (found.write, found.saver) if found is not None else None
    expect(told == (written, made), f"of exp and the write to what it has saved {told} is told")


@fact(
    "when Dynamo is active",
    "torch.compile compiles what it would not compile alone: it sees a function mode and hooks on all modules",
    "_dynamo",
    [DYNAMO],
)
def dynamo_activity() -> None:
    """Check the names of Dynamo that tell whether it is active, and that its callback can be read."""
    text = _sources("_dynamo") + Path(torch._guards.__file__).read_text(encoding="utf-8")
    sets = rf"^ +{activity.SETS_CALLBACK}\(_callback_from_stance"
    expect(re.search(sets, text, re.MULTILINE) is not None, f"Dynamo does not call {activity.SETS_CALLBACK}")
    lost = _named(("get_eval_frame_callback", "class CompileContext", "def try_get"), text)
    expect(not lost, f"torch's source does not name {', '.join(lost)}")
    asks = getattr(torch._C._dynamo.eval_frame, "get_eval_frame_callback", None)
    expect(asks is not None and asks() is None, "the callback of Dynamo cannot be asked for")
    if "def _dynamo_graph_capture_for_export" in text:  # only in some versions of torch
        expect(f"with {activity.CAPTURES}()" in text, f"an export does not call {activity.CAPTURES}")


@fact(
    "norms that clipping finds",
    "the gradient norms of steps that are not recorded are missing in a run that clips",
    "",
)
def clipping() -> None:
    """Check that calls of ``clip_grad_norm_`` and ``clip_grad_value_`` are reported, with norm, parameters and
    gradients.
    """
    weight = leaf()
    weight.grad = torch.full_like(weight, 2.0)
    found: list[torch.Tensor] = []
    gradient_clipping.listen(found.append)
    try:
        total = torch.nn.utils.clip_grad_norm_([weight], 1e6)
    finally:
        gradient_clipping.unlisten(found.append)
    expect(len(found) == 1 and found[0] is total, f"one call of clip_grad_norm_ reported {len(found)} norms")
    calls: list[gradient_clipping.ClipCall] = []
    gradient_clipping.listen_to_calls(calls.append)
    try:
        torch.nn.utils.clip_grad_norm_(iter([weight]), 1e6)
        torch.nn.utils.clip_grad_value_([weight], 1e6)
    finally:
        gradient_clipping.unlisten_to_calls(calls.append)
    expect(len(calls) == 2, f"two calls that clip were reported as {len(calls)}")
    expect(all(call.parameters == [weight] for call in calls), "the parameters of calls that clip are not reported")
    expect(calls[1].grads == [weight.grad], "the gradients that clip_grad_value_ clips are not reported")


@fact(
    "calls of state_dict",
    "state-not-copied and checkpoint-not-loaded are silent",
    "_metadata _load_state_dict_pre_hooks _load_from_state_dict",
)
def state_dict_calls() -> None:
    """Check that calls of ``state_dict`` and ``load_state_dict`` are reported with their objects, and hooks before a
    load.
    """
    module = torch.nn.Identity()
    found: list[tuple[object, ...]] = []

    class Listener:
        """Records the calls that are reported to it."""

        def taken(self, *args: object) -> None:
            """Record that ``state_dict`` was called."""
            found.append(("taken", *args[:2]))

        def described(self, *args: object) -> None:
            """Record that ``state_dict`` reported the metadata of its result."""
            found.append(("described", *args))

        def loads(self, *args: object) -> None:
            """Record that ``load_state_dict`` was called."""
            found.append(("loads", *args[:4]))

    listener = Listener()
    state_dicts.listen(listener)
    try:
        state = module.state_dict()
        module.load_state_dict(state)
    finally:
        state_dicts.unlisten(listener)
    told = ("taken", "described", "loads")
    expect(tuple(one[0] for one in found) == told, f"state_dict and load_state_dict reported {[o[0] for o in found]}")
    same = found[0][1] is module and found[0][2] is state and found[1][2] is state._metadata  # type: ignore[attr-defined]
    expect(same and found[2][1] is module and found[2][2] is state, "other objects were reported than were used")
    expect(found[2][3:] == (False, True), f"assign and strict of load_state_dict were reported as {found[2][3:]}")
    plain = state_dicts.takes_names_as_they_are(module)
    module.register_load_state_dict_pre_hook(lambda *args: None)
    expect(plain and not state_dicts.takes_names_as_they_are(module), "hooks before a load are not seen")


@fact(
    "calls of schedulers",
    "schedulers of learning rates are not seen: no finding about schedules",
    "_is_better",
    needs=[DYNAMO],
)
def scheduler_calls() -> None:
    """Check that the steps of learning-rate schedulers are reported, with the metric and the calling code."""

    class Optimizer(torch.optim.Optimizer):
        """An optimizer whose step does nothing."""

        def step(self, closure: object = None) -> None:  # type: ignore[override]
            """Do nothing."""
            pass

    found: list[tuple[object, ...]] = []

    class Listener:
        """Records the calls that are reported to it."""

        def scheduler_called(
            self, scheduler: torch.optim.lr_scheduler.LRScheduler, metric: object, frame: FrameType
        ) -> None:
            """Record a scheduler's step: the scheduler, its metric, and the name of the calling function."""
            found.append((scheduler, metric, frame.f_code.co_name))

    listener, optimizer = Listener(), Optimizer([leaf()], {"lr": 1.0})
    schedulers.listen(listener)
    try:
        constant = torch.optim.lr_scheduler.ConstantLR(optimizer)
        optimizer.step()
        constant.step()
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        plateau.step(2.0)  # type: ignore[arg-type]
    finally:
        schedulers.unlisten(listener)
    calls = [(constant, None)] * 2 + [(plateau, None), (plateau, 2.0)]
    expect([one[:2] for one in found] == calls, f"schedulers reported {[(type(o[0]), *o[1:]) for o in found]}")
    expect(found[3][2] == "step", f"a plateau scheduler compares metrics in {found[3][2]}")
    expect(not any(map(schedulers.has_own_step, (constant, plateau))), "a step of torch's looks like one of the script")
    expect(schedulers.reports_steps(optimizer), "hooks for all optimizers leave no mark on a class")


@fact(
    "hooks before the step of an optimizer",
    "scaled-gradient-used is reported though a hook divides the gradients by the scaler's factor",
    "_optimizer_step_pre_hooks",
    needs=[DYNAMO],
)
def step_pre_hooks() -> None:
    """Check that the hooks before an optimizer's step are found where backprobe reads them."""
    optimizer = torch.optim.SGD([leaf()], lr=1.0)
    expect(not has_step_pre_hooks(optimizer), "an optimizer has hooks at first")
    optimizer.register_step_pre_hook(lambda *given: None)
    expect(has_step_pre_hooks(optimizer), "a hook of an optimizer is not where it was")


@fact(
    "lines of generated code",
    "of a region that is compiled and run op by op only the line of its def is named",
    "_lineno_map _prologue_start GENERATED",
    [DYNAMO],
)
def generated_lines() -> None:
    """Check that lines of code that FX generates lead to the nodes of its graph."""
    made = torch.fx.symbolic_trace(lambda x: x.sin().cos())
    code, begin = type(made).forward.__code__, made._prologue_start
    named = {node.name: node for node in made.graph.nodes}
    named["cos"].meta["stack_trace"] = "its line"
    lines = {line for _, _, line in code.co_lines() if line}
    told = [generated_from(made, line) for line in sorted(lines)]
    expect(code.co_filename.startswith(torch_texts.GENERATED), f"code of FX is in {code.co_filename}")
    expect("its line" in told and begin >= 0, "lines of the code of FX do not lead to its nodes")


#: The message of Python's ``RecursionError``.
NO_ROOM_LEFT = "maximum recursion depth exceeded"


@fact(
    "modules around modules",
    "paths of modules have a level more than the user's own",
    "OPTIMIZED WRAPPERS GLOBAL_HOOKS NO_ROOM",
    [DYNAMO],
)
def wrappers() -> None:
    """Check the classes that wrap a module, the attributes that hold it, and torch's warnings about hooks of all
    modules.
    """
    text = _sources("_dynamo")
    lost = _named((torch_texts.OPTIMIZED, torch_texts.WRAPPERS.get(torch_texts.OPTIMIZED, "?")), text)
    expect(not lost, f"torch's source does not name {', '.join(lost)}")
    expect(re.search(torch_texts.GLOBAL_HOOKS, text) is not None, "torch does not warn about hooks of all modules")
    begins = "global module forward hook with ``always_call=True`` raised an exception "
    warns = begins in _sources("nn/modules") and re.match(torch_texts.NO_ROOM, f"{begins}: {NO_ROOM_LEFT}") is not None
    expect(warns, "torch does not warn about hooks that raise where a module has raised")
    source = _sources("nn/parallel") + _sources("distributed/fsdp")
    source += _sources("distributed/algorithms/_checkpoint")
    for name, attribute in torch_texts.WRAPPERS.items():
        if name != torch_texts.OPTIMIZED:
            named = re.search(rf"^class {name}\b", source, re.MULTILINE) is not None
            expect(named and not _named((attribute,), source), f"{name} does not hold its module as {attribute}")


@fact(
    "parameters that FSDP swaps",
    "with FSDP, parameters count as not reached, or as not in the optimizer",
    "_get_fsdp_state _fsdp_param_groups _fsdp_param_group _unsharded_param _params _shared_params",
)
def swapped_parameters() -> None:
    """Check that the source of FSDP still has the names that backprobe reads."""
    _distributed()
    text = _sources("distributed/fsdp/_fully_shard") + _sources("distributed/fsdp")
    names = ("_get_fsdp_state", "fsdp_params", "sharded_param", "_unsharded_param", "_handle", "flat_param")
    lost = _named((*names, "_params", "_shared_params"), text)
    groups = _named(("_fsdp_param_groups",), text) and _named(("_fsdp_param_group",), text)
    expect(not lost and not groups, f"torch's source does not name {', '.join([*lost, *groups])}")


@fact(
    "the part of a DTensor that is here",
    "values of distributed tensors are not looked at, or only together with all ranks",
    "_local_tensor COLLECTIVE_OPS",
)
def local_part() -> None:
    """Check that the source of distributed tensors still has the names that backprobe reads."""
    _distributed()
    source = _sources("distributed/tensor") + _sources("distributed/nn")
    unknown = _named((*torch_texts.COLLECTIVE_OPS,), source)
    expect(not unknown, f"torch's source does not name {', '.join(unknown)}")
    lost = _named(("_local_tensor", "device_mesh", "placements"), _sources("distributed/tensor"))
    expect(not lost, f"torch's source does not name {', '.join(lost)}")


@fact(
    "how a pipeline learns its shapes",
    "what a pipeline computes on memory with nothing in it is reported as NaN",
    "PIPELINE_FILE PIPELINE_REHEARSALS",
)
def pipeline_shapes() -> None:
    """Check the file and the functions in which a pipeline runs its modules on memory without content."""
    _distributed()
    expect(
        code_objects.PIPELINE_FILE.endswith("stage.py") and Path(code_objects.PIPELINE_FILE).exists(),
        "no stage.py is there",
    )
    lost = _named((*code_objects.PIPELINE_REHEARSALS,), _sources("distributed/pipelining"))
    expect(len(lost) < len(code_objects.PIPELINE_REHEARSALS), f"torch's source names none of {', '.join(lost)}")


@fact(
    "what a GradScaler calls",
    "losses and gradients are shown with its factor, and a step that it skips is one with the next",
    "_amp_update_scale_ _per_optimizer_states SCALER_STEP SCALER_MAY_STEP",
    [ENGINE],
)
def grad_scaler() -> None:
    """Check the calls and the state of a ``GradScaler``: its factor, unscaling, updates, and the optimizer's step."""
    seen: list[Any] = []
    callers: list[object] = []

    class Mode(torch.overrides.TorchFunctionMode):
        """A mode that records the scale of each update."""

        def __torch_function__(
            self,
            func: Callable[..., object],
            types: object,
            args: tuple[Any, ...] = (),
            kwargs: Mapping[str, object] | None = None,
        ) -> object:
            """Record the first argument of an update of the scale; run `func` and return its result."""
            if func is UPDATE_SCALE:
                seen.append(args[0])
            return func(*args, **(kwargs or {}))

    class Optimizer:  # torch's own optimizers import much
        """An optimizer of one parameter whose step records its callers."""

        def __init__(self, weight: torch.Tensor) -> None:
            """Take the parameter."""
            self.param_groups = [{"params": [weight]}]

        def step(self) -> None:
            """Record the code of the calling function and that of its caller."""
            frame = sys._getframe(1)
            callers.extend((frame.f_code, frame.f_back.f_code if frame.f_back is not None else None))

    weight = leaf()
    optimizer: Any = Optimizer(weight)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    loss = scaler.scale(weight.sum())
    factor = factor_of(loss)
    loss.backward()
    states = [is_unscaled(scaler, id(optimizer))]
    with Mode():
        scaler.unscale_(optimizer)
        states.append(is_unscaled(scaler, id(optimizer)))
        scaler.step(optimizer)
        scaler.update()
    expect(states == [False, True], f"before and after a scaler unscales, it is said to have done so: {states}")
    methods = [code_objects.SCALER_MAY_STEP, code_objects.SCALER_STEP]
    expect(callers == methods and set(callers) == STEPS_OPTIMIZER, "a scaler steps an optimizer in other methods")
    expect(len(seen) == 1, f"a scaler updated its scale {len(seen)} times")
    scales = Scales()
    scales.updated(seen[0])
    expect(factor is not None and scales.is_scale(factor), "what a loss is multiplied by is not the scale")
