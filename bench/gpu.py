"""Checks and measurements on an accelerator, each part in a process of its own: called by bench/gpu.sh.

    python bench/gpu.py OUT [--part bits]

The parts and their limits in seconds stand in PARTS; each writes OUT/PART.json, or OUT/PART.txt with what it printed if
it failed. OUT/summary.txt is for a person. Exit code: 0 if every part ran and every check holds, 1 otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
#: Part -> its limit in seconds, and that of all together: 8 minutes with what comes before the first.
PARTS = {"bits": 50, "synchronization": 50, "tools": 40, "cost": 160, "tests": 150}
TOTAL = 470
#: Multiplies all time limits, for slow machines whose timings do not matter.
TIME_LIMIT_FACTOR = float(os.environ.get("BACKPROBE_GPU_TIME_FACTOR", "1"))
#: Packages that backprobe and its tests need, in addition to torch.
PACKAGES = ("pytest", "rich", "safetensors", "hypothesis", "numpy")
STAND_IN = os.environ.get("BACKPROBE_GPU") == "cpu"
DEVICE = "cpu" if STAND_IN else "cuda"
#: Share of the time that a run may cost: the default of the command line.
BUDGET = 0.05


# The parts


def bits() -> dict[str, Any]:
    """Weights and gradients after 20 steps, plain and watched, under deterministic algorithms: equal or not."""
    import torch

    import backprobe

    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    settings: dict[str, dict[str, Any]] = {
        "default budget": {"budget": BUDGET},
        "every step": {},
        "closest level": {"level": "full"},
        "layer statistics": {"layer_stats": 5},
    }
    result = {}
    for name, make in models().items():
        plain = _trained(make)
        for setting, options in settings.items():
            with backprobe.trace(**options) as trace:
                watched = _trained(make)
            errors = [u.detail for u in trace.facts.unseen if u.what == "internal error"]
            equal = len(plain) == len(watched) and all(map(torch.equal, plain, watched))
            result[f"{name}, {setting}"] = {"equal": equal, "steps": len(trace.steps), "internal errors": errors}
    return {"holds": all(r["equal"] and not r["internal errors"] for r in result.values()), "runs": result}


def _trained(make: Callable[[], Step]) -> list[Any]:
    import torch

    torch.manual_seed(0)
    step, model = make()
    for _ in range(20):
        step()
    return [t.detach().clone() for p in model.parameters() for t in (p, p.grad) if t is not None]


def synchronization() -> dict[str, Any]:
    """Waits for the device a step, plain and watched: torch's own warning of each, and copies to the host. Fetches, the
    one place that may wait, are counted apart: there are two at most of a backward call that is recorded."""
    result = {}
    for name, make in models().items():
        for setting, budget in (("plain", 0.0), ("default budget", BUDGET), ("every step", None)):
            result[f"{name}, {setting}"] = _waits(make, setting == "plain", budget)
    plain = {name: result[f"{name}, plain"] for name in models()}
    watched = [
        (name, result[f"{name}, {setting}"]) for name in models() for setting in ("default budget", "every step")
    ]
    worst = max(one["waits a step"] - plain[name]["waits a step"] for name, one in watched)
    fetches = max(result[f"{name}, every step"]["fetches a step"] for name in models())
    copies = 0.0
    if DEVICE == "cuda":
        copies = max(
            one["copies to the host a step"] - plain[name]["copies to the host a step"] for name, one in watched
        )
    return {
        "holds": worst < 0.05 and fetches <= 2.2 and copies <= 2.5,
        "most waits a step beyond the plain step, but for fetches": worst,
        "most fetches a step, every step recorded": fetches,
        "most copies to the host a step beyond the plain step": copies,
        "runs": result,
    }


def _waits(make: Callable[[], Step], plain: bool, budget: float | None) -> dict[str, Any]:
    import torch

    from backprobe.observe.session import Session, Settings
    from backprobe.observe.sinks.memory import Collector
    from backprobe.torch_internals import async_scalars

    torch.manual_seed(0)
    step, _ = make()
    steps = 20 if STAND_IN else 100
    session = None if plain else Session(Collector(), Settings(budget=budget))
    fetches, read = [0], async_scalars.Copy.read

    def counted(copy: Any) -> Any:
        fetches[0] += 1
        return read(copy)

    copies: Any = None
    if session is not None:
        session.start()
    try:
        for _ in range(8):  # the first steps are inspected closely, and wait
            step()
        async_scalars.Copy.read = counted  # type: ignore[method-assign]
        with _counted_waits() as waits:
            for _ in range(steps):
                step()
        fetched = fetches[0]
        if DEVICE == "cuda":
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                for _ in range(10):
                    step()
                torch.cuda.synchronize()
            copies = sum("DtoH" in event.name for event in profile.events()) / 10
    finally:
        async_scalars.Copy.read = read  # type: ignore[method-assign]
        if session is not None:
            session.stop()
    places: dict[str, int] = {}
    for place in waits:
        places[place] = places.get(place, 0) + 1
    return {
        "waits a step": len(waits) / steps,
        "fetches a step": fetched / steps,
        "copies to the host a step": copies,
        "places": dict(sorted(places.items(), key=lambda pair: -pair[1])[:10]),
        "internal error": None if session is None or session.error is None else repr(session.error),
    }


@contextlib.contextmanager
def _counted_waits() -> Iterator[list[str]]:
    """The lines of every call inside that waits for the device. Where the CPU stands in, those of backprobe's own."""
    import torch

    waits: list[str] = []
    if DEVICE == "cuda":
        torch.cuda.synchronize()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            try:
                yield waits
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits += [f"{Path(w.filename).name}:{w.lineno}" for w in caught if "synchroniz" in str(w.message)]
        return
    sys.path.insert(0, str(ROOT / "tests"))
    from accelerator import stand_in

    with stand_in(raises=False) as read:
        yield waits
    waits += read.calls


def cost() -> dict[str, Any]:
    """Time of a step as ratios to the plain step: median and quartiles over rounds that are interleaved."""
    import torch

    from backprobe.observe.session import Session, Settings
    from backprobe.observe.sinks.memory import Collector

    warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
    aims = {"transformer": 1.05, "convnet": 1.05, "rnn": 1.10}
    deadline = time.monotonic() + PARTS["cost"] * 0.85
    result: dict[str, Any] = {}
    for done, (name, make) in enumerate(models(large=True).items()):
        until = time.monotonic() + (deadline - time.monotonic()) / (len(aims) - done)
        torch.manual_seed(0)
        step, model = make()
        sessions = {
            "default budget": Session(Collector(), Settings(budget=BUDGET)),
            "every step": Session(Collector(), Settings()),
        }
        contestants: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
            "plain": contextlib.nullcontext,
            **{key: _resumed(session) for key, session in sessions.items()},
            "detect_anomaly": torch.autograd.detect_anomaly,
        }
        for session in sessions.values():
            session.start()
            for _ in range(4):
                step()
            session.pause()
        for _ in range(3):
            step()
        seconds, memory = _interleaved(step, contestants, until)
        launches = (
            {key: _launches(step, contestants[key]) for key in ("plain", "every step")} if DEVICE == "cuda" else {}
        )
        for session in sessions.values():
            session.stop()
        parameters = sum(p.numel() for p in model.parameters())
        result[name] = {
            "parameters": parameters,
            "plain step, ms": 1e3 * statistics.median(seconds["plain"]),
            "rounds": len(seconds["plain"]),
            "ratios": {key: _quartiles(seconds[key], seconds["plain"]) for key in contestants if key != "plain"},
            "peak memory, MiB": memory,
            "kernel launches a step": launches,
            "recorded of steps": [
                sessions["default budget"].budget.recorded_steps,
                sessions["default budget"].budget.steps,
            ],
            "internal errors": [repr(s.error) for s in sessions.values() if s.error is not None],
        }
    missed = {
        name: result[name]["ratios"]["default budget"][1]
        for name, aim in aims.items()
        if result[name]["ratios"]["default budget"][1] > aim
    }
    return {"holds": STAND_IN or not missed, "aims missed": missed, "models": result}


def _resumed(session: Any) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    @contextlib.contextmanager
    def resumed() -> Iterator[None]:
        session.resume()
        try:
            yield
        finally:
            session.pause()

    return resumed


def _interleaved(
    step: Callable[[], None], contestants: dict[str, Any], until: float
) -> tuple[dict[str, list[float]], dict[str, float]]:
    """Seconds of a step by contestant, one figure a round, until the time is over; peak memory of each in MiB."""
    import torch

    seconds: dict[str, list[float]] = {key: [] for key in contestants}
    memory: dict[str, float] = {}
    begin = time.perf_counter()
    step()
    _settle()
    block = max(2, round((0.05 if STAND_IN else 0.5) / (time.perf_counter() - begin)))
    while time.monotonic() < until or len(seconds["plain"]) < 2:
        for key, entered in contestants.items():
            if DEVICE == "cuda":
                torch.cuda.reset_peak_memory_stats()
            with entered():
                step()
                _settle()
                begin = time.perf_counter()
                for _ in range(block):
                    step()
                _settle()
                seconds[key].append((time.perf_counter() - begin) / block)
            if DEVICE == "cuda":
                memory[key] = torch.cuda.max_memory_allocated() / 2**20
        if STAND_IN and len(seconds["plain"]) >= 3:
            break
    return seconds, memory


def _settle() -> None:
    import torch

    if DEVICE == "cuda":
        torch.cuda.synchronize()


def _quartiles(seconds: list[float], plain: list[float]) -> list[float]:
    ratios = [a / b for a, b in zip(seconds, plain, strict=True)]
    return [round(q, 4) for q in statistics.quantiles(ratios, n=4)]


def _launches(step: Callable[[], None], entered: Any) -> int:
    import torch

    activity = torch.profiler.ProfilerActivity
    with entered():
        step()  # what is attached finds its place
        with torch.profiler.profile(activities=[activity.CPU, activity.CUDA]) as profile:
            step()
            torch.cuda.synchronize()
    return sum("LaunchKernel" in event.name for event in profile.events())


def tools() -> dict[str, Any]:
    """Debugger, capture, Jacobian norms and replay on the device, against a CPU in the same precision."""
    import torch
    from torch import nn

    import backprobe

    def made(device: str) -> tuple[nn.Sequential, Any]:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 6), nn.Softplus())
        x = torch.randn(5, 12)
        return model.double().to(device), x.double().to(device)

    def numbers(device: str) -> dict[str, Any]:
        model, x = made(device)
        acts = backprobe.capture(model, x)
        norm = backprobe.jacobian_norm(acts["3"], acts["0"])
        model.zero_grad()
        debugger = backprobe.debug(model(x).square().mean())
        stops = []
        while not debugger.done:
            stops.append(str(debugger.stop.node))
            debugger.step()
        loss = model(x).square().mean()
        replay = backprobe.replay(loss, model=model)
        replayed = replay.finish()
        identical = replay.compare().identical
        grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
        same = all(torch.equal(replayed[p], p.grad) for p in model.parameters())
        return {
            "capture": [acts[name].detach().cpu() for name in ("0", "1", "2", "3")],
            "jacobian norm": torch.tensor([float(norm)], dtype=torch.float64),
            "gradients": [g.cpu() for g in grads],
            "stops": stops,
            "replay is bitwise the engine": bool(identical and same),
        }

    here, there = numbers(DEVICE), numbers("cpu")
    tolerance = 1e-10
    result: dict[str, Any] = {"tolerance (relative, float64)": tolerance}
    for key in ("capture", "gradients", "jacobian norm"):
        mine, reference = (v if isinstance(v, list) else [v] for v in (here[key], there[key]))
        result[key] = max(float((a - b).abs().max() / b.abs().max()) for a, b in zip(mine, reference, strict=True))
    result["same stops"] = here["stops"] == there["stops"]
    result["replay is bitwise the engine"] = here["replay is bitwise the engine"]
    within = all(result[key] <= tolerance for key in ("capture", "gradients", "jacobian norm"))
    return {"holds": within and result["same stops"] and result["replay is bitwise the engine"], **result}


def tests() -> dict[str, Any]:
    """The tests marked ``gpu``."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        # Warnings of another torch are not what is tested here.
        options = ["-v", "-m", "gpu", "-o", "filterwarnings=default", "-p", "no:cacheprovider", f"--junitxml={report}"]
        marks = ("mark.gpu", "needs_device")
        texts = {str(p): p.read_text() for p in sorted((ROOT / "tests").glob("test_*.py"))}
        files = [file for file, text in texts.items() if any(mark in text for mark in marks)]
        command, limit_s = [sys.executable, "-m", "pytest", *options, *files], PARTS["tests"] * TIME_LIMIT_FACTOR - 10
        try:
            done = subprocess.run(command, cwd=ROOT, timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"holds": False, "ended": f"stopped after {limit_s:.0f} s; tests.txt has what was tested"}
        if not report.exists():
            return {"holds": False, "ended": f"pytest ended with {done.returncode}; tests.txt has what it said"}
        cases = ElementTree.parse(report).getroot().iter("testcase")
        outcomes: dict[str, list[str]] = {"passed": [], "failed": [], "skipped": []}
        for case in cases:
            kinds = {child.tag for child in case}
            outcome = "failed" if kinds & {"failure", "error"} else "skipped" if "skipped" in kinds else "passed"
            outcomes[outcome].append(f"{case.get('classname')}::{case.get('name')}")
    return {"holds": done.returncode == 0 and bool(outcomes["passed"]), **outcomes}


# The models


#: A step, and the model that it trains.
Step = tuple[Callable[[], None], Any]


def models(large: bool = False) -> dict[str, Callable[[], Step]]:
    """The three models; `large`: of the sizes that cost is stated for, if there is an accelerator."""
    large = large and not STAND_IN
    return {
        "transformer": lambda: _transformer(large),
        "convnet": lambda: _convnet(large),
        "rnn": lambda: _rnn(1000 if large else 20),
    }


def _trainer(model: Any, loss: Callable[[], Any]) -> Step:
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step, model


def _transformer(large: bool) -> Step:
    """GPT in bf16; 100 million parameters if `large`: 12 layers of width 768, 16 x 512 tokens."""
    import torch
    from models import GPT
    from torch.nn import functional as F

    layers, width, vocabulary, batch, context = (12, 768, 16_384, 16, 512) if large else (2, 48, 64, 2, 16)
    with torch.device(DEVICE):
        model = GPT(vocabulary, layers, width, context).to(torch.bfloat16)
        tokens = torch.randint(0, vocabulary, (batch, context + 1))

    def loss() -> Any:
        with torch.device(DEVICE):  # the model makes its positions where tensors are made
            logits = model(tokens[:, :-1])
        return F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten())

    return _trainer(model, loss)


def _convnet(large: bool) -> Step:
    """A bottleneck ResNet; of ResNet-50's shape if `large`: 3, 4, 6, 3 blocks, 32 images of 224 x 224."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    class Bottleneck(nn.Module):
        def __init__(self, inside: int, width: int, stride: int) -> None:
            super().__init__()
            outside = 4 * width
            self.body = nn.Sequential(
                *(nn.Conv2d(inside, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
                *(nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)),
                *(nn.Conv2d(width, outside, 1, bias=False), nn.BatchNorm2d(outside)),
            )
            self.skip: nn.Module = nn.Identity()
            if stride != 1 or inside != outside:
                self.skip = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(self.body(x) + self.skip(x))

    blocks, width, batch, size = ((3, 4, 6, 3), 64, 32, 224) if large else ((1, 1), 4, 2, 16)
    layers: list[nn.Module] = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
    inside = width
    for stage, count in enumerate(blocks):
        for at in range(count):
            layers.append(Bottleneck(inside, width << stage, 2 if at == 0 and stage else 1))
            inside = 4 * (width << stage)
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10)).to(DEVICE)
    x, y = torch.randn(batch, 3, size, size, device=DEVICE), torch.randint(0, 10, (batch,), device=DEVICE)
    return _trainer(model, lambda: F.cross_entropy(model(x), y))


def _rnn(length: int) -> Step:
    """A recurrent loop of three small ops a time step: 1,000 steps make 3,000 tiny kernels."""
    import torch
    from torch import nn

    class Loop(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.again, self.out = nn.Linear(32, 32), nn.Linear(32, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            h = torch.zeros_like(x[0])
            for frame in x:
                h = torch.tanh(frame + self.again(h))
            return self.out(h)

    model = Loop().to(DEVICE)
    x = torch.randn(length, 16, 32, device=DEVICE)
    return _trainer(model, lambda: model(x).square().mean())


# The parent process


def find_packages() -> dict[str, str]:
    """Say of every package whether it is installed, or taken from a wheel; extends ``PYTHONPATH`` for the parts. A
    wheel is unpacked, with those beside it that fit: there may be no pip."""
    found = {}
    wheels = [Path(p) for p in (os.environ.get("BACKPROBE_WHEELS"), ROOT / "bench" / "wheels") if p]
    site = Path(tempfile.mkdtemp(prefix="backprobe-gpu-"))
    for name in PACKAGES:
        if importlib.util.find_spec(name) is not None:
            found[name] = "installed"
            continue
        some = [w for folder in wheels if folder.is_dir() for w in sorted(folder.glob("*.whl")) if _fits(w)]
        wheel = next((w for w in some if w.name.startswith(f"{name}-")), None)
        if wheel is None:
            found[name] = f"MISSING: put its wheel into {wheels[-1]}, or name its folder with BACKPROBE_WHEELS"
            continue
        for one in (w for w in some if w.parent == wheel.parent):
            with zipfile.ZipFile(one) as archive:
                archive.extractall(site)
        found[name] = f"from {wheel.name}"
    path = [str(ROOT), str(site), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
    return found


def _fits(wheel: Path) -> bool:
    """Whether this Python can load what is in a wheel, as its name has it."""
    *_, pythons, abi, where = wheel.stem.split("-")
    mine = f"cp{sys.version_info.major}{sys.version_info.minor}"
    here = where == "any" or platform.machine().lower() in where.lower()
    return here and (abi == "abi3" or any(one in ("py3", mine) for one in pythons.split(".")))


def environment(packages: dict[str, str]) -> dict[str, Any]:
    script = (
        "import json, torch; c = torch.cuda; on = c.is_available(); "
        "print(json.dumps({'torch': torch.__version__, 'cuda': torch.version.cuda, "
        "'device': c.get_device_name() if on else None, 'count': c.device_count()}))"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, timeout=60 * TIME_LIMIT_FACTOR
        )
    except subprocess.TimeoutExpired as error:
        return {"python": platform.python_version(), "error": str(error), "packages": packages, "runs on": DEVICE}
    told = json.loads(done.stdout) if done.returncode == 0 else {"error": done.stderr[-500:]}
    return {"python": platform.python_version(), **told, "packages": packages, "runs on": DEVICE}


def run_part(part: str, out: Path, limit_s: float) -> dict[str, Any]:
    """Run a part in a process of its own; return what it wrote, or why it wrote nothing."""
    begin = time.monotonic()
    (out / f"{part}.json").unlink(missing_ok=True)
    with (out / f"{part}.txt").open("w") as output:
        command = [sys.executable, __file__, str(out), "--part", part]
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            code: int | str = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            code = f"stopped after {limit_s:.0f} s"
            os.killpg(process.pid, signal.SIGKILL)  # and what it has started
            process.wait()
    written = out / f"{part}.json"
    result: dict[str, Any] = json.loads(written.read_text()) if written.exists() else {"holds": False, "ended": code}
    return {**result, "seconds": round(time.monotonic() - begin, 1)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--part", choices=PARTS)
    options = parser.parse_args()
    if options.part:
        sys.path.insert(0, str(ROOT))
        result = globals()[options.part]()
        (options.out / f"{options.part}.json").write_text(json.dumps(result, indent=1, default=str))
        return 0
    end = time.monotonic() + TOTAL * TIME_LIMIT_FACTOR
    packages = find_packages()
    for name, state in packages.items():
        if state != "installed":
            print(f"{name}: {state}", file=sys.stderr)
    told = environment(packages)
    (options.out / "environment.json").write_text(json.dumps(told, indent=1))
    lines = [f"{key}: {value}" for key, value in told.items()]
    if DEVICE == "cuda" and not told.get("device"):
        print("no accelerator was found; BACKPROBE_GPU=cpu runs the script on the CPU", file=sys.stderr)
        return 1
    ok = True
    for part, limit_s in PARTS.items():
        result = run_part(part, options.out, max(min(limit_s * TIME_LIMIT_FACTOR, end - time.monotonic()), 1))
        ok = ok and bool(result["holds"])
        shown = {key: value for key, value in result.items() if key not in ("holds", "passed", "runs")}
        lines.append(f"{part}: {'holds' if result['holds'] else 'DOES NOT HOLD'}  {json.dumps(shown, default=str)}")
        print(lines[-1][:2000], flush=True)
        (options.out / "summary.txt").write_text("\n".join(lines) + "\n")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
