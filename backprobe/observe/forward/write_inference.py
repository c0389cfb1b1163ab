"""Infers the line of an in-place write that was not observed, because ops were not recorded in its step.

Note [Unobserved writes]: optimizer steps are always known, though perhaps not the line that called them. If they
account for every write since the save (``WriteLog.explained_by_steps``), the first of them made the write. If not, a
line of the script wrote as well, or instead. Candidates are lines that ran for the first time and write in place, lines
that wrote to the same weight or buffer in a recorded step, and the optimizer steps; if there are none, lines whose
source appears to write to the tensor. The finding names the likeliest candidate, lists all, and is never certain.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...records import Site
from ...source.frames import CodeLocation, Frames
from ...source.line_ops import (
    LineWrite,
    calls_on,
    step_calls_like,
    writes_in,
    writes_on,
)
from .writes import ObservedMutation, OptimizerStep, Write, WriteLog

#: Scores of candidates, by reason; lines that only may write score ``LineWrite.likelihood``, 0 to 3.
SCORE_NAMED, SCORE_WROTE_BEFORE, SCORE_STEPPED = 4.0, 3.75, 3.5
#: The bonus of a line that ran for the first time; ``LineWrite.likelihood`` of a torch method that certainly writes.
NEW_LINE_BONUS, CERTAIN_WRITE = 0.125, 3.0
#: Recorded writes that are searched for writes to gradients, and the most candidates reported.
MAX_SEARCHED_WRITES, MAX_CANDIDATES = 2000, 5


@dataclass(frozen=True)
class WrittenTensor:
    """The names and the kind of the tensor that was written to.

    :ivar names: its names in the user's code: variables, or the path of a parameter or buffer.
    :ivar kind: ``"weight"`` for a parameter or buffer, ``"gradient"``, or ``""`` for any other.
    """

    names: tuple[str, ...] = ()
    kind: str = ""


@dataclass(frozen=True)
class _Candidate:
    """A line that may have made the write, its op and a score."""

    score: float
    op: str
    spot: CodeLocation


def inferred_write(
    seen: ObservedMutation,
    tensor: WrittenTensor,
    seq: int,
    failed: Site | None,
    new_lines: list[CodeLocation],
    log: WriteLog,
    frames: Frames,
) -> Write | None:
    """Return the likeliest unobserved write to `seen`, with all candidates; ``None`` if there are none.

    :param seq: the number of the node that had saved the tensor.
    :param failed: the line of the backward call. Among equally likely lines, those before it in its function come
        first.
    :param new_lines: lines that recently ran for the first time.
    """
    steps = log.steps_after(seen.storage, seq) if seen.storage is not None else []
    found = _by_optimizers(steps, new_lines, frames)
    if seen.storage is None or not log.explained_by_steps(seen.storage, seq, seen.saved_version, seen.found_version):
        before = [c for spot in new_lines for c in _on_new_line(spot, tensor, frames)]
        if seen.storage is not None and tensor.kind == "weight":
            before += _wrote_before(log.lines_that_wrote(seen.storage), bool(steps))
        if tensor.kind == "gradient":
            before += _wrote_gradients(log, frames)
        found = [one for one in before if one.score > 0.0] + found
    if not found:
        found = _from_source(tensor, log, frames)
    if not found:
        return None
    sites = {one.spot: frames.site(one.spot) for one in found}
    found.sort(key=lambda one: (-one.score, not _is_before(sites[one.spot], failed)))  # stable: equals keep their order
    best = found[0]
    by_line: dict[tuple[str, int], CodeLocation] = {}
    for one in found:
        site = sites[one.spot]
        if site is not None:
            by_line.setdefault((site.file, site.line), one.spot)
    candidates = tuple(by_line.values())[:MAX_CANDIDATES]
    return Write(seen.storage or 0, seen.found_version, 0, best.op, best.spot, None, True, candidates)


def _is_before(site: Site | None, other: Site | None) -> bool:
    """Return whether `site` is before `other` in the same function."""
    if site is None or other is None:
        return False
    return (site.file, site.function) == (other.file, other.function) and site.line < other.line


def _on_new_line(spot: CodeLocation, tensor: WrittenTensor, frames: Frames) -> list[_Candidate]:
    """Return candidates for the writes that the source has on a line which recently ran for the first time."""
    site = frames.site(spot)
    writes = writes_on(site.file, site.line) if site is not None else []
    return [_Candidate(_score(one, tensor), one.op, spot) for one in writes] if site is not None else []


def _score(write: LineWrite, tensor: WrittenTensor) -> float:
    """Return how likely `write`, found in the source, is one to `tensor`; 0 if it writes to another kind of tensor."""
    if (write.of == "gradients") != (tensor.kind == "gradient") or (write.of == "weights" and tensor.kind != "weight"):
        return 0.0
    if tensor.kind == "gradient":
        return SCORE_NAMED
    if tensor.kind == "weight":
        path = "".join(tensor.names)
        if write.target.endswith(path) or path.rpartition(".")[2] in write.names - {"weight", "bias"}:
            return SCORE_NAMED
    elif write.variable in tensor.names:
        return SCORE_NAMED
    return float(write.likelihood)


def _wrote_before(lines: list[tuple[int, str, CodeLocation]], stepped: bool) -> list[_Candidate]:
    """Return the lines that wrote to the same tensor in recorded steps.

    The first to write after a forward comes first: before it, the node counter advanced most.

    :param stepped: whether an optimizer that holds the tensor has stepped since the save; if not, its line is no
        candidate.
    """
    gaps: dict[CodeLocation, tuple[int, str]] = {}
    before = 0
    for at, op, spot in lines:
        gaps[spot] = max(gaps.get(spot, (0, op)), (at - before, op))
        before = at
    ordered = sorted(gaps.items(), key=lambda item: -item[1][0])
    return [_Candidate(SCORE_WROTE_BEFORE, op, spot) for spot, (_, op) in ordered if stepped or op != "step"]


def _wrote_gradients(log: WriteLog, frames: Frames) -> list[_Candidate]:
    """Return the lines that wrote to gradients in recorded steps, by their source."""
    found: dict[CodeLocation, str] = {}
    for (op, spot), _ in zip(log.lines(), range(MAX_SEARCHED_WRITES), strict=False):
        site = frames.site(spot) if spot not in found else None
        if site is not None and any(one.of == "gradients" for one in writes_on(site.file, site.line)):
            found[spot] = op
    return [_Candidate(SCORE_WROTE_BEFORE, op, spot) for spot, op in found.items()]


def _by_optimizers(steps: list[OptimizerStep], new_lines: Iterable[CodeLocation], frames: Frames) -> list[_Candidate]:
    """Return the lines of `steps`.

    For an unobserved step: new lines that call ``step``, lines from which the optimizer has stepped before, and lines
    with a similar call.
    """
    found = []
    for step in steps:
        if step.spot is not None:
            found.append(_Candidate(SCORE_STEPPED, step.op, step.spot))
            continue
        lines = [*reversed(step.lines), *(like for line in step.lines for like in _similar_step_lines(line, frames))]
        found += [
            _Candidate(SCORE_STEPPED + NEW_LINE_BONUS, step.op, spot) for spot in new_lines if _steps_on(spot, frames)
        ]
        found += [_Candidate(SCORE_STEPPED, step.op, spot) for spot in lines]
    return found


def _steps_on(spot: CodeLocation, frames: Frames) -> bool:
    """Return whether the source calls ``step`` on a line."""
    site = frames.site(spot)
    return site is not None and "step" in calls_on(site.file, site.line)


def _similar_step_lines(spot: CodeLocation, frames: Frames) -> list[CodeLocation]:
    """Return other lines whose source steps the same optimizer."""
    site = frames.site(spot)
    lines = step_calls_like(site.file, site.line) if site is not None else []
    return [like for line in lines if site is not None and (like := frames.spot_at(site.file, line)) is not None]


def _from_source(tensor: WrittenTensor, log: WriteLog, frames: Frames) -> list[_Candidate]:
    """Return the lines of the user's files whose source appears to write to the tensor: by name, or else to any weight.

    Lines that wrote before training began are less likely.
    """
    set_up = {(site.file, site.line) for spot in log.lines_before_training() if (site := frames.site(spot)) is not None}
    found = []
    for file in frames.users_files():
        for write in writes_in(file):
            score = _score(write, tensor)
            if score == SCORE_NAMED or (score >= CERTAIN_WRITE and tensor.kind == "weight"):
                spot = frames.spot_at(file, write.line)
                if spot is not None:
                    found.append(_Candidate(score - ((file, write.line) in set_up) / 2, write.op, spot))
    return found
