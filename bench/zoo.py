"""Comparison of many architectures trained plain and watched: differences, findings, gaps and names.

python bench/zoo.py [--library timm] [--match vit] [--jobs 2] [--heads 1] [--most 0] [--out FOLDER] [--list]

`make zoo` makes an environment of its own for it (.venv-zoo) and runs all of it. Nothing is downloaded but packages:
models have random weights, and are small. Each is trained by SGD in a process of its own, forked from one that has
torch loaded:

* plain;
* plain once more: what two plain runs do not have in common says nothing about a watched one. This time a hook notes
  which module's call makes which nodes of the graph;
* watched, by ``backprobe.trace(model, budget=None)``: every node of every step.

Held against each other, bit for bit: losses, the gradients after each of two steps, weights and buffers after both, and
the states of the three random generators (torch, numpy, random). Names: each node's module has to be the innermost one
that was called and is part of the model, by the hooks of the plain run, and each parameter's name one of
`named_parameters`. Cost is process time watched to plain, the median of five more steps, of which every one is
recorded: nothing is smaller than these models. A real run's is in docs/runs.md.

A model that cannot be built or trained plain is not counted; the reason is in the JSON. torch stays what it is:
`make zoo` asks for it by number, so that pip takes the torchvision that belongs to it. Its native operators need a
build for the same kind of torch: without them they are declared and not defined, so detection models are left out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn

import backprobe
from backprobe.records import ACCUMULATE_SEQ

SECONDS = 300
#: Steps after those that are compared in full, to take the time of.
MORE = 5
#: A model to train, and what computes its loss.
Made = tuple[nn.Module, Callable[[], Tensor]]


@dataclass(frozen=True)
class Architecture:
    """``ways``: how to make it, the first that can be trained is taken. Models are made in the child."""

    library: str
    name: str
    ways: Callable[[], Iterator[Callable[[], Made]]]


def one(library: str, name: str, make: Callable[[], Made]) -> Architecture:
    return Architecture(library, name, lambda: iter([make]))


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in what a model returns: in tuples, lists, dicts and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for part in value.values():
            yield from tensors_of(part)
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from tensors_of(part)
    elif hasattr(value, "__dataclass_fields__"):
        for name in value.__dataclass_fields__:
            yield from tensors_of(getattr(value, name))


def loss_of(output: Any) -> Tensor:
    """The loss that the model has computed; where it has not, how far all that it returns is from a half, squared: a
    loss that is flat nowhere near zeros, which many models begin with."""
    own = getattr(output, "loss", None)
    if isinstance(own, Tensor) and own.requires_grad:
        return own.mean()
    real = (t.abs() if t.is_complex() else t for t in tensors_of(output) if t.requires_grad)
    squares = [(t.float() - 0.5).square().mean() for t in real]
    if not squares:
        raise ValueError("it returns no tensor that needs a gradient")
    return torch.stack(squares).sum()


# One model, trained.


@dataclass
class Training:
    """The results of two training steps.

    :ivar called: the module calls of each step: the sequence numbers of the first node and of the node after the last,
        and the module.
    :ivar roots: the sequence numbers of the losses' nodes.
    """

    model: nn.Module
    losses: list[Tensor]
    gradients: list[dict[str, Tensor | None]]
    state: dict[str, Tensor]
    generators: tuple[object, ...]
    called: list[list[tuple[int, int, nn.Module]]]
    roots: list[int]
    seconds: list[float]
    trace: Any = None


def seeded() -> None:
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)


@contextlib.contextmanager
def calls_noted(into: list[list[tuple[int, int, nn.Module]]]) -> Iterator[None]:
    number = torch.autograd._get_sequence_nr
    begun: list[int] = []

    def before(module: nn.Module, args: object) -> None:
        begun.append(number())

    def after(module: nn.Module, args: object, output: object) -> None:
        into[-1].append((begun.pop(), number(), module))

    of_all = nn.modules.module  # a forward may make modules, and put them in the place of others
    handles = [
        of_all.register_module_forward_pre_hook(before),
        of_all.register_module_forward_hook(after, always_call=True),
    ]
    yield
    for handle in handles:
        handle.remove()


def trained(make: Callable[[], Made], *, note: bool = False, watch: bool = False, more: int = 0) -> Training:
    seeded()
    model, loss = make()
    model.train()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    done = Training(model, [], [], {}, (), [], [], [])
    with contextlib.ExitStack() as stack:
        if note:
            stack.enter_context(calls_noted(done.called))
        if watch:
            done.trace = stack.enter_context(backprobe.trace(model, budget=None))
        for at in range(2 + more):
            begin = time.process_time()
            optimizer.zero_grad()
            done.called.append([])
            value = loss()
            done.roots.append(value.grad_fn._sequence_nr())
            value.backward()
            optimizer.step()
            done.seconds.append(time.process_time() - begin)
            done.losses.append(value.detach())
            if at < 2:
                gradients = {n: p.grad for n, p in model.named_parameters()}
                done.gradients.append({n: None if g is None else g.clone() for n, g in gradients.items()})
            if at == 1:
                state = {n: t for n, t in model.state_dict().items() if isinstance(t, Tensor)}
                done.state = {n: t.clone() for n, t in state.items()}
                done.generators = torch.get_rng_state().tolist(), numpy.random.get_state()[1:3], random.getstate()
    return done


def same(one: Tensor | None, other: Tensor | None) -> bool:
    """Bit for bit: NaNs too."""
    if one is None or other is None:
        return one is other
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    if one.layout != torch.strided:
        one, other = one.to_dense(), other.to_dense()
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def differences(one: Training, other: Training) -> list[str]:
    found = []
    losses = enumerate(zip(one.losses, other.losses, strict=False))
    found += [f"loss of step {step}" for step, (mine, others) in losses if not same(mine, others)]
    for step in range(2):
        mine, others = one.gradients[step], other.gradients[step]
        found += [f"gradient of {name} in step {step}" for name in mine if not same(mine[name], others[name])]
    found += [f"{name} after two steps" for name in one.state if not same(one.state[name], other.state[name])]
    if str(one.generators) != str(other.generators):
        found.append("random generators")
    return found


def wrong_names(plain: Training, watched: Training) -> tuple[int, list[str]]:
    """How many nodes have a module, and those whose name is not that of the innermost module called."""
    names: dict[int, set[str]] = {}
    for name, module in plain.model.named_modules(remove_duplicate=False):
        names.setdefault(id(module), set()).add(name)
    wrong, nodes = [], 0
    for step in watched.trace.steps[:2]:
        runs = [run for call in step.backwards for run in call.nodes if run.node.seq != ACCUMULATE_SEQ]
        # What is recorded counts within a step: the loss's node is there in both.
        shift = plain.roots[step.index] - max(run.node.seq for run in runs)
        calls = plain.called[step.index]
        for run in runs:
            seq = run.node.seq + shift
            inside = [
                (end - begin, at, m)
                for at, (begin, end, m) in enumerate(calls)
                if begin <= seq < end and id(m) in names
            ]
            # Of calls that made the same nodes the one that ended first is the innermost.
            expected = names[id(min(inside, key=lambda call: call[:2])[2])] if inside else {None, ""}
            nodes += 1
            if run.module not in expected:
                wrong.append(
                    f"{run.name} in {run.module!r}, not in {' or '.join(map(repr, sorted(map(str, expected))))}"
                )
    known = {name for name, _ in watched.model.named_parameters(remove_duplicate=False)}
    wrong += [f"parameter {p.name!r}" for p in watched.trace.parameters if p.name not in known]
    return nodes, wrong


def tried(architecture: Architecture) -> dict[str, Any]:
    """Train one architecture plain twice and watched once, and return what differs."""
    reasons: list[str] = []
    plain = None
    ways = architecture.ways()
    while plain is None:
        try:
            make = next(ways)
            plain = trained(make, more=MORE)
        except StopIteration:
            break
        except Exception as error:
            if os.environ.get("ZOO_DEBUG"):
                traceback.print_exc()
            reasons.append(f"{type(error).__name__}: {error}"[:200])
    if plain is None:
        return {"trained": False, "reason": reasons[0] if reasons else "no way to make it", "reasons": reasons}
    again = trained(make, note=True)
    watched = trained(make, watch=True, more=MORE)
    own = differences(plain, again)
    differing = [name for name in differences(plain, watched) if name not in own]
    nodes, wrong = wrong_names(again, watched)
    trace = watched.trace
    return {
        "trained": True,
        "way": len(reasons),
        "parameters": sum(p.numel() for p in plain.model.parameters()),
        "nodes": nodes,
        "unrepeatable": own,
        "different": differing,
        "findings": [f.as_dict() for f in trace.findings],
        "gaps": list(trace.coverage.gaps),
        "steps": len(trace.steps),
        "wrong_names": wrong,
        "plain_ms": 1e3 * statistics.median(plain.seconds[2:]),
        "watched_ms": 1e3 * statistics.median(watched.seconds[2:]),
    }


# All of them.


def warmed() -> None:
    """Run one watched step, so that forked children inherit what it loads and checks."""
    model = nn.Linear(2, 2)
    with backprobe.trace(model, budget=None) as trace:
        model(torch.randn(2, 2)).square().sum().backward()
    assert not trace.findings and not trace.coverage.gaps, trace.findings
    differences(*[trained(lambda: (model, lambda: model(torch.ones(2)).sum())) for _ in range(2)])


def in_child(architecture: Architecture, folder: Path, at: int) -> None:
    os.setsid()
    log = os.open(folder / f"{at}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(log, 1)
    os.dup2(log, 2)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    begin = time.time()
    try:
        result = tried(architecture)
    except BaseException:
        traceback.print_exc()
        result = {"trained": True, "crash": traceback.format_exc()[-3000:]}
    result["wall"] = time.time() - begin
    (folder / f"{at}.json").write_text(json.dumps(result, default=str))
    sys.stdout.flush()
    os._exit(0)


def run_all(architectures: list[Architecture], jobs: int) -> Iterator[tuple[Architecture, dict[str, Any]]]:
    """Each in its own child, `jobs` at a time."""
    with tempfile.TemporaryDirectory() as name:
        folder, running, left = Path(name), {}, list(enumerate(architectures))
        left.reverse()
        while left or running:
            while left and len(running) < jobs:
                at, architecture = left.pop()
                sys.stdout.flush()
                pid = os.fork()
                if pid == 0:
                    in_child(architecture, folder, at)
                running[pid] = at, architecture, time.time()
            for pid, (at, architecture, begin) in list(running.items()):
                if time.time() - begin > SECONDS:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(pid, signal.SIGKILL)
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended:
                    continue
                del running[pid]
                written = folder / f"{at}.json"
                if written.exists():
                    yield architecture, json.loads(written.read_text())
                else:
                    how = f"ended with {os.waitstatus_to_exitcode(status)} after {time.time() - begin:.0f} s"
                    log = (folder / f"{at}.log").read_text(errors="replace")[-1000:]
                    yield architecture, {"trained": False, "reason": how, "log": log}
            time.sleep(0.01)


def spoken(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [f for f in result.get("findings", ()) if f["severity"] in ("error", "warning")]


def table(results: list[dict[str, Any]]) -> str:
    """Format the results as a Markdown table; all counts but `tried` are of architectures that train without us."""
    lines = [
        "| library | tried | trained | bitwise equal | silent | names right | nodes | cost: median (quartiles) |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    libraries = list(dict.fromkeys(r["library"] for r in results))
    for library in [*libraries, *(["all"] if len(libraries) > 1 else [])]:
        mine = [r for r in results if library in (r["library"], "all")]
        good = [r for r in mine if r["trained"]]
        ratios = [r["watched_ms"] / r["plain_ms"] for r in good if r.get("plain_ms")]
        low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else [*ratios, 0.0, 0.0, 0.0][:1] * 3
        cells = [
            library,
            len(mine),
            len(good),
            sum(not r.get("crash") and not r["different"] for r in good),
            sum(not r.get("crash") and not spoken(r) and not r["gaps"] for r in good),
            sum(not r.get("crash") and not r["wrong_names"] for r in good),
            f"{sum(r.get('nodes', 0) for r in good):,}",
            f"{middle:.2f} ({low:.2f} to {high:.2f})",
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def noteworthy(result: dict[str, Any]) -> list[str]:
    """Return one line for each difference, finding, gap or wrong name in `result`."""
    if not result["trained"]:
        return []
    if result.get("crash"):
        return [f"crash: {result['crash'].strip().splitlines()[-1]}"]
    lines = [f"different: {len(result['different'])}: {result['different'][:2]}"] if result["different"] else []
    lines += [f"{f['severity']}: {f['kind']}: {f['title']}" for f in spoken(result)]
    lines += [f"not seen: {gap}" for gap in result["gaps"]]
    if result["wrong_names"]:
        lines.append(f"names: {len(result['wrong_names'])} of {result['nodes']}: {result['wrong_names'][0]}")
    return lines


def spread(some: list[Architecture], most: int) -> list[Architecture]:
    return [some[at * len(some) // most] for at in range(most)] if len(some) > most else some


def written(folder: Path, results: list[dict[str, Any]]) -> str:
    """The table; it and all results are in `folder` too, so far."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = table(results)
    (folder / "zoo.json").write_text(json.dumps(results, indent=1))
    (folder / "zoo.md").write_text(rows + "\n")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default="", help="only these, with commas between")
    parser.add_argument("--match", default="", help="only those whose name has this regular expression")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--heads", type=int, default=1, help="models of transformers a family besides its base")
    parser.add_argument("--most", type=int, default=0, help="at most so many of a library, evenly spread; 0: all")
    parser.add_argument("--out", type=Path, default=Path("build/zoo"), help="where zoo.json and zoo.md go")
    parser.add_argument("--list", action="store_true", help="name them and do nothing")
    options = parser.parse_args()
    from zoo_models import LIBRARIES, architectures

    libraries = [name for name in options.library.split(",") if name]
    chosen = [
        a
        for a in architectures(libraries, options.heads)
        if (not libraries or a.library in libraries) and re.search(options.match, a.name)
    ]
    if options.most:
        chosen = [a for name in LIBRARIES for a in spread([a for a in chosen if a.library == name], options.most)]
    if options.list:
        print("\n".join(f"{a.library} {a.name}" for a in chosen))
        print(dict(Counter(a.library for a in chosen)))
        return
    warmed()
    results, begin = [], time.time()
    for number, (architecture, result) in enumerate(run_all(chosen, options.jobs), 1):
        results.append({"library": architecture.library, "name": architecture.name, **result})
        told = noteworthy(result) if result["trained"] else [f"not trained: {result['reason'][:150]}"]
        if number % 50 == 0:
            written(options.out, results)
        for line in told:
            print(f"{number}/{len(chosen)} {architecture.library} {architecture.name}: {line}", flush=True)
    results.sort(key=lambda r: [(a.library, a.name) for a in chosen].index((r["library"], r["name"])))
    print(f"{time.time() - begin:.0f} s\n\n{written(options.out, results)}")


if __name__ == "__main__":
    main()
