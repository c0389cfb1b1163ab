"""Undocumented facts about torch that backprobe relies on: all in one package, each with a check that can fail."""

from __future__ import annotations

import ast
import contextlib
import json
import pickle
import random
import re
import subprocess
import sys
import types
import warnings
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import backprobe
from backprobe.basics import torch_texts
from backprobe.commands import main
from backprobe.ops import OpInfo
from backprobe.torch_internals import code_objects, facts
from backprobe.torch_internals.facts import registry
from backprobe.torch_internals.private_allowlist import DIRECT

ROOT = Path(backprobe.__file__).parent
TORCH_INTERNALS = ROOT / "torch_internals"
FILES = [
    path for path in ROOT.rglob("*.py") if not (path.is_relative_to(ROOT / "examples") or path.name.startswith("test_"))
]
TREES = {path: ast.parse(path.read_text()) for path in FILES}
FACTS = {one.name: one for one in facts.all_facts()}
DELETED = object()
HELD_NODES: list = []


def outcome(fact):
    (found,) = registry.check([fact])
    return found


# Each fact holds here, and its check can fail


@pytest.mark.parametrize("name", FACTS)
def test_the_fact_holds(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = outcome(FACTS[name])
    assert (found.problem, found.skipped) == ("", "")


def other(value):
    """Something of the same kind that torch does not say or have."""
    if isinstance(value, str):
        return "nobody says this"
    if isinstance(value, re.Pattern):
        return re.compile(r"(?!)")
    if isinstance(value, tuple):
        return ("nobody says this",)
    if isinstance(value, dict):
        return dict.fromkeys(value, "nobody")
    if isinstance(value, frozenset):
        return frozenset({"nobody says this"})
    if value is None:  # a place that this torch does not have
        return other.__code__
    assert isinstance(value, types.CodeType)
    return None


WORDS = [
    (name, word, module)
    for name, one in FACTS.items()
    for word in one.uses
    for module in (torch_texts, code_objects)
    if hasattr(module, word)
]


@pytest.mark.parametrize(("name", "word", "module"), WORDS, ids=[f"{name}-{word}" for name, word, _ in WORDS])
def test_a_changed_text_or_code_location_is_detected(name: str, word: str, module, monkeypatch) -> None:
    monkeypatch.setattr(module, word, other(getattr(module, word)))
    assert outcome(FACTS[name]).problem


def no_dict(self, hooks, *, extra_dict=None) -> None:
    """Replace ``RemovableHandle.__init__`` with one whose handle has no reference to the other hooks."""
    self.id, self.hooks_dict_ref, self.extra_dict_ref = len(hooks), dict, ()


#: Fact -> (what, what in its place): a torch on which it does not hold.
BROKEN = {
    "what data-parallel training keeps of itself": [
        ("torch.nn.parallel.DistributedDataParallel.register_comm_hook", lambda self, state, hook: None)
    ],
    "lines of generated code": [("torch.fx.GraphModule.graph", property(lambda self: types.SimpleNamespace(nodes=[])))],
    "a mode that stays off": [("torch.overrides._push_mode", lambda mode: None)],
    "keyword arguments of a call": [("backprobe.torch_internals.called_with.CALLS", frozenset())],
    "hooks for all modules": [("torch.nn.modules.module._has_any_global_hook", lambda: False)],
    "what a GradScaler calls": [("backprobe.torch_internals.facts.others.UPDATE_SCALE", None)],
    "numbers of nodes": [("backprobe.torch_internals.autograd_engine.next_sequence_nr", lambda: 0)],
    "passing over numbers": [
        ("torch._C._FunctionBase", object),
        ("torch._C._functions.DelayedError", lambda *_: None),
    ],
    "shapes of gradients": [("torch.Tensor.exp", torch.Tensor.sum)],
    "names of nodes": [("backprobe.torch_internals.facts.graphs.info", lambda name: OpInfo(name))],
    "custom functions": [("backprobe.torch_internals.facts.graphs._Twice._backward_cls._forward_cls", None)],
    "hooks of nodes": [("torch.utils.hooks.RemovableHandle.__init__", no_dict)],
    "normalisations": [("backprobe.torch_internals.saved_by_nodes.uses_running_statistics", lambda node: True)],
    "hooks without handles": [("backprobe.torch_internals.node_hooks._home", None)],
    "notes on nodes": [("torch.Tensor.grad_fn", property(lambda self: types.SimpleNamespace(metadata={})))],
    "freeing of deep graphs": [
        ("backprobe.torch_internals.facts.graphs.protect", lambda nodes, borders: HELD_NODES.extend(nodes))
    ],
    "versions of tensors": [("torch.Tensor._version", property(lambda self: 0))],
    "views": [("torch.Tensor._base", property(lambda self: None))],
    "hooks of tensors": [("torch.Tensor._backward_hooks", property(lambda self: None))],
    "weak references to tensors": [("backprobe.torch_internals.references.tensor_ref", lambda tensor: lambda: None)],
    "tensors that are swapped": [("torch.utils.weakref", weakref)],
    "memory of tensors": [("torch._C._storage_Use_Count", lambda data: 1)],
    "parts of sparse tensors": [("torch.Tensor._indices", torch.Tensor._values)],
    "norms of many tensors at once": [("torch._foreach_norm", lambda tensors: [t.sum() for t in tensors])],
    "many tensors written to at once": [("torch._foreach_div_", lambda tensors, by: None)],
    "what an op writes": [("torch.ops.aten.add_.Tensor._schema", torch.ops.aten.add.Tensor._schema)],
    "activations that retain gradients": [("torch.Tensor.retain_grad", lambda self: None)],
    "what stands for many tensors at once": [("torch._C._functorch.is_legacy_batchedtensor", lambda tensor: False)],
    "trees of tensors": [("backprobe.torch_internals.facts.tensors.tree_leaves", lambda tree: [tree])],
    "saved tensors": [("torch.Tensor.exp", torch.Tensor.sin)],
    "tensors behind hooks": [("backprobe.torch_internals.saved_by_nodes._top_hooks", None)],
    "lookups in embeddings": [("backprobe.torch_internals.saved_by_nodes.embedding_lookup", lambda node: (-1, None))],
    "targets of ctc_loss": [("backprobe.torch_internals.saved_by_nodes.ctc_targets", lambda node: (None, (), -1))],
    "targets of classes": [("backprobe.torch_internals.saved_by_nodes.class_targets", lambda node: (None, -100))],
    "terms of a loss": [("backprobe.torch_internals.loss_terms.averaged_elements", lambda node: 1)],
    "slices": [("backprobe.torch_internals.saved_by_nodes.slice_of", lambda node: None)],
    "choices": [("backprobe.torch_internals.saved_by_nodes.chosen_from", lambda node: None)],
    "settings of attention": [
        ("backprobe.torch_internals.saved_by_nodes.attention_settings", lambda node: (None, False))
    ],
    "nodes of C++ extensions": [("backprobe.torch_internals.saved_by_nodes.lists_its_tensors", lambda node: True)],
    "regions of checkpoints": [("backprobe.torch_internals.checkpoints.StopRecomputation", ZeroDivisionError)],
    "inputs of checkpoints": [("backprobe.torch_internals.checkpoints.checkpoint_inputs", lambda frame: [])],
    "function modes": [("torch._C._get_function_stack_at", lambda i: None)],
    "dispatch modes": [("torch._C._DisableTorchDispatch", contextlib.nullcontext)],
    "frames that are not compiled": [
        ("backprobe.torch_internals.uncompiled.leave_alone", lambda code, deep=False: None)
    ],
    "state of threads": [("backprobe.torch_internals.thread_state.ThreadState._SWITCHES", ())],
    "the forward again": [("torch.logit", lambda x, eps: x)],
    "the forward from its inputs": [("torch.addmm", lambda *given, **how: given[0])],
    "functions without a second derivative": [("backprobe.torch_internals.code_objects.FUNCTION_FILE", "")],
    "gradient mode": [("backprobe.torch_internals.modes.set_grad_enabled", None)],
    "attributes that are read": [("torch.Tensor.is_leaf", property(lambda self: True))],
    "calls of backward": [("backprobe.torch_internals.backward_by_name.seen", print)],
    "functions that write when told to": [("torch.nn.functional.relu", lambda x, inplace: x.relu_())],
    "transforms": [("torch._C._functorch.maybe_current_level", lambda: None)],
    "tracing": [("backprobe.torch_internals.modes.jit_tracing", lambda: None)],
    "profilers": [("backprobe.torch_internals.modes.record_ops", lambda on: None)],
    "the backward that runs": [("torch._C._will_engine_execute_node", lambda node: True)],
    "the engine's own call": [("torch.autograd._make_grads", lambda *_, **__: (torch.zeros(()),))],
    "marks on a backward call": [("torch._C._is_key_in_tls", lambda key: False)],
    "order of nodes": [
        ("backprobe.torch_internals.facts.engine.engine_order", lambda plan, seqs: [*range(len(seqs))][::-1])
    ],
    "what modules hold": [("torch.nn.Module.named_parameters", lambda self: [])],
    "hooks of modules": [("torch.nn.Module.register_backward_hook", torch.nn.Module.register_full_backward_hook)],
    "compiled modules": [("torch.nn.Module._compiled_call_impl", DELETED)],
    "the timeout of the store": [("torch.distributed.distributed_c10d._get_default_store", DELETED)],
    "the flight recorder": [("torch._C._distributed_c10d._dump_fr_trace", lambda *_: pickle.dumps({}))],
    "parameters that FSDP swaps": [("backprobe.torch_internals.facts.others._sources", lambda folder: "")],
    "calls of state_dict": [("backprobe.torch_internals.state_dicts.DICT", "nobody_calls_this")],
    "calls of schedulers": [("backprobe.torch_internals.schedulers.COMPUTES", "nobody_calls_this")],
    "hooks before the step of an optimizer": [
        ("backprobe.torch_internals.facts.others.has_step_pre_hooks", lambda optimizer: False)
    ],
    "norms that clipping finds": [("backprobe.torch_internals.gradient_clipping.SCALES", "nobody_calls_this")],
    "when Dynamo is active": [("backprobe.torch_internals.dynamo_activity.SETS_CALLBACK", "nobody_calls_this")],
    "graphs that Dynamo makes": [("backprobe.torch_internals.compiled_graphs.copy_of", lambda graph: torch.fx.Graph())],
    "graphs that are not compiled": [
        ("backprobe.torch_internals.compiled_writes.refused_write", lambda region, args: None)
    ],
    "the part of a DTensor that is here": [("backprobe.torch_internals.facts.others._sources", lambda folder: "")],
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_torch_that_breaks_a_fact_is_detected(name: str, monkeypatch) -> None:
    for what, value in BROKEN[name]:
        if value is DELETED:
            monkeypatch.delattr(what)
        else:
            monkeypatch.setattr(what, value)
    assert outcome(FACTS[name]).problem


def test_every_check_has_a_test_in_which_it_fails() -> None:
    assert set(FACTS) == set(BROKEN) | {name for name, _, _ in WORDS}
    assert set(BROKEN) <= set(FACTS)


def test_a_torch_without_the_names_that_checks_are_about(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "backprobe.torch_internals.facts.saved", None)
    (fact,) = facts._facts_of("saved")
    assert outcome(fact).problem.startswith("ModuleNotFoundError: ")


# The checks leave no trace


def test_checks_leave_no_trace_and_hold_under_any_mode() -> None:
    trouble = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            trouble.append(func)
            return func(*args, **(kwargs or {}))

    def called(*args):
        trouble.append(args)

    modules = torch.nn.modules.module
    handles = [
        modules.register_module_forward_hook(called),
        modules.register_module_forward_pre_hook(called),
        modules.register_module_full_backward_hook(called),
        modules.register_module_parameter_registration_hook(called),
        modules.register_module_buffer_registration_hook(called),
        modules.register_module_module_registration_hook(called),
    ]
    old = torch.get_default_dtype()
    states = torch.get_rng_state(), random.getstate()
    torch.set_default_dtype(torch.float64)
    found = []
    try:
        with warnings.catch_warnings(), contextlib.ExitStack() as stack:
            warnings.simplefilter("error")
            torch.set_default_device("meta")
            stack.callback(torch.set_default_device, None)
            stack.enter_context(torch.autocast("cpu"))
            stack.enter_context(torch.autograd.graph.saved_tensors_hooks(called, called))
            torch.autograd.set_detect_anomaly(True)
            stack.callback(torch.autograd.set_detect_anomaly, False)
            stack.enter_context(Mode())
            for mode in (torch.no_grad(), torch.inference_mode()):
                with mode:
                    trouble.clear()
                    first = torch.autograd._get_sequence_nr()
                    found += [(one.fact.name, one.problem) for one in facts.check_all() if one.problem]
                    assert not torch.is_grad_enabled() and torch.is_anomaly_enabled()
                    assert torch.autograd._get_sequence_nr() == first
            assert trouble == []
    finally:
        torch.set_default_dtype(old)
        for handle in handles:
            handle.remove()
    assert found == []
    assert torch.equal(torch.get_rng_state(), states[0]) and random.getstate() == states[1]


# What a run says


@pytest.fixture
def strange(monkeypatch):
    """An unknown version of torch."""
    monkeypatch.setattr(torch, "__version__", f"99.{random.random()}+cpu")


def test_a_known_version_is_not_checked(monkeypatch) -> None:
    monkeypatch.setattr(facts, "check", None)
    for version in facts.VERIFIED_VERSIONS:
        monkeypatch.setattr(torch, "__version__", f"{version}+cu999")
        assert facts.missing() == []


def test_a_run_reports_what_it_cannot_observe(strange, monkeypatch) -> None:
    monkeypatch.setattr(torch_texts, "NO_GRAPH", "nobody says this")
    (unseen,) = facts.missing()
    assert (unseen.what, unseen.count) == (f"fact about torch {torch.__version__} that does not hold", 1)
    assert unseen.note == (
        "errors of losses without a graph: none-grad and grad-mode-disabled are silent where no backward could run"
    )
    monkeypatch.setattr(facts, "check", None)  # once for all
    assert facts.missing() == [unseen]


def test_no_check_starts_engine_threads_before_the_script_does(strange, monkeypatch) -> None:
    monkeypatch.setattr(facts, "_has_accelerators", lambda: True)
    monkeypatch.setattr(torch_texts, "WRONG_SHAPE", "nobody says this")
    ran = []
    monkeypatch.setattr(facts, "check", lambda some: ran.append(list(some)) or registry.check(ran[-1]))
    assert facts.missing() == []
    assert ran[0] and not any(registry.ENGINE in one.needs for one in ran[0])
    (unseen,) = facts.missing(backward_ran=True)
    assert unseen.note.startswith("errors of wrong gradients: ")
    assert not any(registry.OWN_PROCESS in one.needs for one in ran[1])


def test_checks_of_a_run_import_no_slow_module() -> None:
    code = (
        "import sys, torch\n"
        "from backprobe.torch_internals import facts\n"
        "torch.__version__ = '99.0'\n"
        "before = set(sys.modules)\n"
        "assert facts.missing(backward_ran=True) == []\n"
        "assert not {'torch._dynamo', 'sympy', 'torch.jit._script'} & (set(sys.modules) - before)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# backprobe doctor


def test_the_doctor_says_that_all_holds(capsys) -> None:
    assert main(["doctor", "-v"]) == 0
    said = capsys.readouterr().out
    assert f"torch {torch.__version__}" in said and "ok      in-place errors\n" in said
    assert said.endswith(f"\n\nAll {len(FACTS)} checks of torch {torch.__version__} passed.\n")
    assert main(["doctor"]) == 0
    short = capsys.readouterr().out
    assert short.splitlines() == [*said.splitlines()[:5], said.splitlines()[-1]]
    assert str(Path.home()) not in said and sys.prefix not in said


def test_the_doctor_reports_what_is_not_observed(capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch_texts, "INFERENCE", "nobody says this")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert main(["doctor"]) == 1
    said = capsys.readouterr().out
    assert "FAILED  errors of inference mode: torch says Inference tensors" in said
    said = " ".join(said.split())  # it breaks lines to fit
    assert "missed here: grad-mode-disabled is silent where a tensor of inference mode meets autograd " in said
    assert "OMP_NUM_THREADS=1" in said
    assert said.endswith(f"1 of {len(FACTS)} checks of torch {torch.__version__} failed.")
    assert main(["doctor", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["format"] == 1 and found["holds"] is False and found["torch"]["version"] == torch.__version__
    (bad,) = [one for one in found["facts"] if not one["holds"]]
    assert bad["name"] == "errors of inference mode" and bad["missed"] in said


def test_the_doctor_reports_unknown_facts(capsys, monkeypatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_available", lambda: False)
    assert main(["doctor"]) == 0
    said = capsys.readouterr().out
    assert "unknown errors of collectives: this torch was built without torch.distributed\n" in said
    assert f" of {len(FACTS)} checks of torch {torch.__version__} passed, the others could not be made.\n" in said


def test_the_doctor_works_without_torch() -> None:
    code = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "from backprobe.commands import main\n"
        "sys.exit(main(['doctor', *sys.argv[1:]]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr == ""
    assert "torch is not installed: kept runs can be shown, and nothing can be watched\n" in done.stdout
    done = subprocess.run([sys.executable, "-c", code, "--json"], capture_output=True, text=True)
    assert done.returncode == 1 and json.loads(done.stdout)["torch"] is None


#: Names without which nothing is watched: looked up when our modules are loaded, or imported by them.
ESSENTIAL = ("torch._C._set_grad_enabled", "torch.utils._python_dispatch._disable_current_modes")


@pytest.mark.parametrize("name", ESSENTIAL)
def test_a_torch_without_an_essential_name(name: str, tmp_path: Path) -> None:
    """Commands that watch fail with one line; everything else works."""
    (tmp_path / "train.py").write_text("print('ran')")
    code = (
        "import sys, torch.utils._python_dispatch\n"
        f"del {name}\n"
        "import backprobe\n"
        "from backprobe.commands import main\n"
        "assert backprobe.load_run\n"
        "try:\n"
        "    backprobe.trace\n"
        "except backprobe.BackprobeError as error:\n"
        "    print(error)\n"
        "sys.exit([main([name, 'train.py']) for name in ('run', 'debug', 'bench')] != [2, 2, 2])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [done.stdout.rstrip("\n"), *(line.removeprefix("backprobe: ") for line in done.stderr.splitlines())]
    assert len(lines) == 4 and len(set(lines)) == 1, lines
    assert lines[0].startswith(f"backprobe cannot watch torch {torch.__version__}: ")
    assert f"'{name.rpartition('.')[2]}'" in lines[0] and "doctor" in lines[0]


def test_watching_without_torch_fails_with_one_line(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print('ran')")
    code = "import sys\nsys.modules['torch'] = None\nfrom backprobe.commands import main\nmain(['run', 'train.py'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr == "backprobe: torch is not installed: kept runs can be shown, and nothing can be watched\n"
    assert done.stdout == ""


# One room

#: Private names of Python's own.
PYTHONS = {
    "_getframe",
    "_current_frames",
    "_exit",
    "_after_fork",
    "_target",
    "_args",
    "_fields",
    "_make",
}
#: And of CPython from 3.11 on: what it has made of a code object, looked for before it is read.
PYTHONS |= {"_co_code_adaptive", "_all_opname"}
#: And of IPython.
PYTHONS |= {"_filename_map"}
#: And of argparse: what a parser takes, which shtab reads too.
PYTHONS |= {"_actions", "_SubParsersAction", "_option_string_actions"}
#: And of what starts a script, and says when an import is over: tests/test_as_python.py and test_torch_import.py.
PYTHONS |= {"_run_module_as_main", "_register_code", "_initializing"}
#: And of trackers, to find a script's open run: tests/test_trackers.py runs them.
PYTHONS |= {"_record_writer", "_file_name", "_stop_flag", "_config_logged", "_is_finished"}
#: Where ``subprocess`` and ``multiprocessing`` start a process.
PYTHONS |= {"_fork_exec"}


def own_names() -> set[str]:
    """Names that begin with an underscore and are defined in the package."""
    found = set()
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and of_self(node):
                found.add(node.attr)
    return {name for name in found if is_private(name)}


def torchs_names() -> set[str]:
    """Private names that objects of torch have: where we use the same, only on ``self``."""
    x = torch.ones(2, requires_grad=True)
    things = (torch, torch._C, torch.autograd, x, x.exp().grad_fn, torch.nn.Module(), x.untyped_storage())
    return {name for thing in things for name in dir(thing) if is_private(name)}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def of_self(node: ast.Attribute) -> bool:
    return isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")


def private_names(tree: ast.AST) -> Iterator[tuple[str, int, bool]]:
    """(name, line, whether of ``self``) of each private name that is read from something: attributes, also by name in
    a string, what is imported from torch, and all that is in ``torch._C``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            in_c = isinstance(node.value, ast.Attribute) and node.value.attr == "_C"
            if in_c or (is_private(node.attr) and node.attr != "_C"):
                yield node.attr, node.lineno, of_self(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and len(node.args) > 1:
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else None
            if (
                node.func.id in ("getattr", "hasattr", "setattr", "delattr")
                and isinstance(name, str)
                and is_private(name)
            ):
                yield name, node.lineno, False
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for part in [*str(node.module).split("."), *(alias.name for alias in node.names)]:
                if is_private(part):
                    yield part, node.lineno, False
        elif isinstance(node, ast.Import):
            for alias in node.names:
                for part in alias.name.split(".") if alias.name.startswith("torch.") else ():
                    if is_private(part):
                        yield part, node.lineno, False


def torchs_private(path: Path) -> Iterator[tuple[str, int]]:
    for name, line, on_self in private_names(TREES[path]):
        ours = name in OWN and (on_self or name not in TORCHS)
        if not ours and name not in PYTHONS:
            yield name, line


OWN, TORCHS = own_names(), torchs_names()


def test_private_names_of_torch_are_used_only_in_torch_internals_or_the_allowlist() -> None:
    outside = [path for path in FILES if not path.is_relative_to(TORCH_INTERNALS)]
    used = [(name, f"{path.relative_to(ROOT)}:{line}") for path in outside for name, line in torchs_private(path)]
    assert [(name, at) for name, at in used if name not in DIRECT] == []
    assert sorted(set(DIRECT) - {name for name, _ in used}) == []
    assert all(DIRECT.values())


def test_every_private_name_has_a_fact() -> None:
    covered = {word for one in FACTS.values() for word in one.uses}
    inside = [path for path in FILES if not path.is_relative_to(TORCH_INTERNALS / "facts")]
    used = {name: f"{path.relative_to(ROOT)}:{line}" for path in inside for name, line in torchs_private(path)}
    assert {name: at for name, at in used.items() if name not in covered} == {}
    words = {
        name for module in (torch_texts, code_objects) for name in vars(module) if re.fullmatch("[A-Z][A-Z_]*", name)
    }
    assert sorted(words - covered - {"TYPE_CHECKING"}) == []
    assert sorted(covered - words - set(used)) == []


#: Texts that are ordinary words too: a message of ours may hold them.
ORDINARY = {"WRONG_NAME", "NO_GRAPH", "ONCE"}


def strings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """String constants but for docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docs = {id(node.body[0].value) for node in ast.walk(tree) if isinstance(node, documented) and is_text(node.body[0])}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield node.value, node.lineno


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_texts_of_torch_are_in_one_place() -> None:
    texts: list[tuple[str, bool]] = []  # and whether only a string that is the same counts
    for name, value in vars(torch_texts).items():
        if not name.isupper() or name == "ATTENTION" or isinstance(value, dict):
            continue  # a kind of plot is called attention too
        for one in value if isinstance(value, tuple) else (value,):
            whole = name in ORDINARY or isinstance(value, tuple)
            texts.append((one.pattern if isinstance(one, re.Pattern) else one, whole))
    found = [
        (text, f"{path.relative_to(ROOT)}:{line}")
        for path, tree in TREES.items()
        if path.name != "torch_texts.py"
        for literal, line in strings(tree)
        for text, whole in texts
        if (text == literal if whole else text in literal)
    ]
    assert found == []


def test_code_locations_in_torch_are_in_one_package() -> None:
    """Code objects and files of torch's, and what its variables are called, as far as that can be seen."""
    found = []
    for path, tree in TREES.items():
        if path.is_relative_to(TORCH_INTERNALS):
            continue
        local = frame_variables(tree)
        for node in ast.walk(tree):
            bad = False
            if isinstance(node, ast.Attribute):
                inside = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
                bad = node.attr in ("__code__", "__file__") and "torch" in inside
                bad = bad or node.attr in ("co_freevars", "co_cellvars")
            elif isinstance(node, ast.Subscript):
                bad = is_variables(node.value, local) and named(node.slice)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get":
                bad = is_variables(node.func.value, local) and bool(node.args) and named(node.args[0])
            elif isinstance(node, ast.Compare) and isinstance(node.left, ast.Attribute) and node.left.attr == "co_name":
                # A custom function's own methods, which torch documents; what Python calls the code of a module.
                words = {n.value for c in node.comparators for n in ast.walk(c) if isinstance(n, ast.Constant)}
                bad = bool(words - {"forward", "setup_context", "<module>"})
            if bad:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {ast.unparse(node)}")
    assert found == []


def frame_variables(tree: ast.AST) -> set[str]:
    """Names that a file gives to the local variables of a frame."""
    return {
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_variables(node.value, set())
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def is_variables(node: ast.expr, local: set[str]) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        if node.func.id == "dict" and node.args:
            return is_variables(node.args[0], local)
        return node.func.id == "variables"
    if isinstance(node, ast.Attribute):
        return node.attr == "f_locals"
    return isinstance(node, ast.Name) and node.id in local


def named(node: ast.expr) -> bool:
    """Whether a variable is asked for by a name of torch's: ``self`` is what people call theirs."""
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value != "self"


# The checks of this file find what they look for


def test_the_search_for_private_names_finds_every_form() -> None:
    source = (
        "import torch, torch._dynamo\n"
        "from torch.utils._thing import one\n"
        "x._anything_private, getattr(x, '_by_name', None), torch._C.public_there, self._own\n"
        "a = torch.optim.SGD.step.__code__\n"
    )
    names = [(name, line) for name, line, _ in private_names(ast.parse(source))]
    assert sorted(names) == [
        ("_anything_private", 3), ("_by_name", 3), ("_dynamo", 1), ("_own", 3), ("_thing", 2), ("public_there", 3)
    ]  # fmt: skip
