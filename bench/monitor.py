"""Benchmark of alarms on small runs: their lead over a divergence, and false alarms in healthy runs.

python bench/monitor.py [--set own|fresh|second] [--only NAME,...] [--steps 2000] [--threads 1]

A row for each run: the step of the first alarm and the layer it names, the step at which the rule of OLMo-core fires
(mean + 6 standard deviations over 128 steps, on the loss or the norm of all gradients; a loss that is not finite fires
too), and whether the alarm came 100 steps before (at it, where nothing can precede) and named the planted layer. Of a
run that trains badly and does not diverge: whether the first alarm is of that kind, at the layer. Last, how the rule
does with so many standard deviations that it fires on one healthy run at most. The bounds of the alarms were chosen on
the set "own"; the author of "fresh" and, later, "second" did not know them.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from fnmatch import fnmatch
from statistics import fmean, pstdev

import torch
from monitor_fresh import RUNS as FRESH
from monitor_runs import DIVERGING, HEALTHY, Run, batch
from monitor_second import RUNS as SECOND
from torch import nn
from torch.nn import functional as F

from backprobe.findings.levels.alarms import alarms
from backprobe.observe.session import Session, Settings
from backprobe.observe.sinks.memory import Collector

WINDOW, SIGMA, MIN_LEAD_STEPS = 128, 6.0, 100
SETS = {"own": [*DIVERGING, *HEALTHY], "fresh": FRESH, "second": SECOND}


def train(run: Run, steps: int) -> tuple[list[float], list[float], Collector, Session]:
    """Losses, gradient norms, and what was measured. Ends where the loss is not finite."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(1)
    collector = Collector()
    session = Session(collector, Settings("minimal", layer_stats=10))
    session.start()
    model = run.model()
    optimizer = run.optimizer(model)
    scaler = torch.amp.GradScaler("cpu", enabled=run.scaler)  # type: ignore[attr-defined]
    losses, norms = [], []
    for step in range(steps):
        x, y = batch(run, generator)
        if run.change is not None:
            x, y = run.change(step, model, optimizer, x, y)
        with torch.autocast("cpu", run.dtype or torch.bfloat16, enabled=run.dtype is not None):
            out = model(x)
        if run.loss is not None:
            loss = run.loss(out, y)
        else:
            loss = F.cross_entropy(out.float().flatten(0, -2), y.flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), run.clip or math.inf)))
        losses.append(loss.item())
        scaler.step(optimizer)
        scaler.update()
        if not math.isfinite(losses[-1]):
            break
    session.stop()
    if session.error is not None:
        raise session.error
    return losses, norms, collector, session


@dataclass
class Outcome:
    """The outcome of a run: its losses, its gradient norms, and the step of its first alarm."""

    run: Run
    curves: tuple[list[float], list[float]]
    alarm: int | None
    good: bool


def sigma_rule(*curves: list[float], begin: int = 0, sigma: float = SIGMA) -> int | None:
    """The first step from `begin` on at which one of `curves` is beyond mean + `sigma` standard deviations of the 128
    steps before, or not finite."""
    for step in range(begin, len(curves[0])):
        if any(beyond(curve, step) > sigma for curve in curves):
            return step
    return None


def beyond(curve: list[float], step: int) -> float:
    """How many standard deviations of the 128 steps before it is above their mean."""
    if not math.isfinite(curve[step]):
        return math.inf
    window = curve[step - WINDOW : step] if step >= WINDOW else []
    return (curve[step] - fmean(window)) / max(pstdev(window), 1e-30) if window else 0.0


def judged(run: Run, steps: int) -> Outcome:
    """Tell of one run: whether an alarm came, and whether it came in time and named the layer."""
    begin = time.process_time()
    losses, norms, collector, session = train(run, steps)
    seconds = time.process_time() - begin
    fired = sigma_rule(losses, norms, begin=run.onset or 0)
    found = alarms(collector.trace(session).statistics)
    first = found[0] if found else None
    named = first is not None and fnmatch(first.name if first.name != "loss" else "", run.layer)
    if run.kind:
        good = first is not None and named and first.kind == run.kind
    else:
        target = fired if fired is not None else len(losses)
        ahead = MIN_LEAD_STEPS if run.onset is None else -10  # at it: in the next look
        good = first is not None and named and (run.onset or 0) <= first.step <= target - ahead
    said = f"{first.step}: {first.kind}, {first.quantity} of {first.name}" if first else "-"
    verdict = ("yes" if good else "no") if run.layer else ("false alarm" if first else "quiet")
    rule = fired if fired is not None else "-"
    row = (run.name, len(losses), f"{losses[-1]:.3g}", said, rule, verdict, f"{seconds:.0f} s")
    print("|", " | ".join(map(str, row)), "|", flush=True)
    return Outcome(run, (losses, norms), first.step if first else None, good)


def as_rare(diverging: list[Outcome], healthy: list[Outcome]) -> str:
    """How the rule does with as many standard deviations as it takes to fire on one healthy run at most."""
    most = sorted((max(beyond(c, at) for c in told.curves for at in range(len(c))) for told in healthy), reverse=True)
    sigma = most[1] if len(most) > 1 else SIGMA
    fired = [sigma_rule(*told.curves, begin=told.run.onset or 0, sigma=sigma) for told in diverging]
    pairs = [(told.alarm, at if at is not None else math.inf) for told, at in zip(diverging, fired, strict=True)]
    before = sum(alarm is not None and alarm < at for alarm, at in pairs)
    return (
        f"With {sigma:.1f} standard deviations the rule fires on one healthy run at most, and on "
        f"{sum(at is not None for at in fired)} of {len(fired)} that diverge; an alarm came before it in {before}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", choices=tuple(SETS), default="own")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    words = options.only.split(",")  # the empty one is in every name
    runs = [run for run in SETS[options.set] if any(word in run.name for word in words)]
    print("| run | steps | last loss | first alarm | 6 sigma | verdict | CPU |\n" + "| --- " * 7 + "|")
    told = [judged(run, options.steps) for run in runs]
    sick = [one for one in told if one.run.kind]
    diverging = [one for one in told if one.run.layer and not one.run.kind]
    healthy = [one for one in told if not one.run.layer]
    print(f"diverging: {sum(one.good for one in diverging)} of {len(diverging)} in time and at the layer")
    if sick:
        print(f"that train badly: {sum(one.good for one in sick)} of {len(sick)} of that kind first, at the layer")
    print(f"healthy: {sum(one.alarm is not None for one in healthy)} of {len(healthy)} with a false alarm")
    fires = sum(sigma_rule(*one.curves) is not None for one in healthy)
    print(f"The rule fires on {fires} of {len(healthy)} healthy ones. {as_rare(diverging, healthy)}", flush=True)


if __name__ == "__main__":
    main()
