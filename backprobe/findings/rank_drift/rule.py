"""The rule for replicas that should be equal on all ranks and are not.

Note [What must be equal]: parameters of a model in ``DistributedDataParallel``, and the replicated parts of distributed
tensors. For a plain model nothing states it; but if the ranks' gradients are bitwise equal, they were reduced, and then
these weights are meant to be equal too, as are other weights that were equal at the start (which excludes experts that
each rank has of its own). Weights are also likely meant to be equal if all ranks start with the same weights and reduce
as many elements in every step as the model has parameters. Weights that are equal again in the last inspected step were
synchronised on purpose, now and then.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ...basics.text import few
from ...basics.torch_texts import READY_TWICE, UNREDUCED
from ...records import Finding, FindingSite, RankSeen, Replica, Replicas, ReplicaState, Site
from ...traces.coverage import ranks_text
from ..rules import WRONG, Kind, Question, rule

if TYPE_CHECKING:
    from ...traces import Trace

_TENSOR_PARALLEL = (
    "Of a tensor that is replicated every rank of the mesh works out the gradient by itself: from other inputs it is "
    "another. Is each rank given other batches, or does augmentation or dropout draw from a generator that is seeded "
    "with the rank? Seed all ranks of one tensor-parallel group alike, and read the same data there."
)
_PHASES = ("before", "gradients", "after")


@dataclass(frozen=True)
class _Drift:
    """The first difference between replicas on several ranks.

    :ivar step: of the optimizer's step; ``last``: of the inspected one before, ``None`` if there is none.
    :ivar phase: the field of ``ReplicaState`` that differs; ``names``: the tensors.
    :ivar states: the state of each rank.
    """

    step: int
    last: int | None
    phase: str
    names: tuple[str, ...]
    states: tuple[ReplicaState, ...]


@rule(
    Kind(
        "rank-drift",
        "error",
        "weights that should be the same on all ranks are not",
        rank=WRONG + 55,
        questions=(Question.RANKS,),
        points_to="the first backward call after which they differ",
    ),
    invalidates_gradients=True,
)
def drift(trace: Trace) -> list[Finding]:
    """Report the first step in which replicas differ between ranks, with the reason if it is known.

    Nothing is reported if data-parallel training failed: replicas that it did not reduce are not equal.
    """
    seen = trace.facts.of(RankSeen)
    known = {one.rank: one for one in (*trace.facts.of(Replicas), *(r for one in seen for r in one.replicas))}
    ranks = [known[rank] for rank in sorted(known)]
    errors = [one.error for one in seen]
    if len(ranks) < 2 or any(text in error for error in errors for text in (UNREDUCED, READY_TWICE)):
        return []  # what data-parallel training did not finish is not equal
    reduced = any(_reduces(one, ranks[0]) for one in seen if one.rank == ranks[0].rank)
    return _order(ranks) or _drifted(ranks, reduced) or _changed_apart(ranks, seen)


def _order(ranks: Sequence[Replicas]) -> list[Finding]:
    """Return the finding for ranks that list the parameters of a model in different orders; empty if they do not.

    Data-parallel training pairs parameters by their position.
    """
    first = ranks[0]
    own = [t.name for t in first.tensors if t.how == "ddp"]
    for other in ranks[1:]:
        names = [t.name for t in other.tensors if t.how == "ddp"]
        elsewhere = {t.name for one in (first, other) for t in one.tensors if t.how != "ddp"}
        if names == own or elsewhere & {*own, *names}:  # names that another model had before
            continue
        at = next((i for i, (a, b) in enumerate(zip(own, names, strict=False)) if a != b), min(len(own), len(names)))
        here, there = (rest[at] if at < len(rest) else "no parameter" for rest in (own, names))
        title = f"parameter {at} of the model is {here} on rank {first.rank} and {there} on rank {other.rank}"
        moved = tuple(a for a, b in zip(own, names, strict=False) if a != b)
        advice = (
            "Data-parallel training adds up gradients by the place of a parameter, not by its name. Make modules in "
            "the same order on every rank: not from a set, nor from files as a folder lists them; sort first."
        )
        return [_finding(f"{title}: their gradients are mixed up", "order", moved or (here,), 0, None, advice)]
    return []


def _drifted(ranks: Sequence[Replicas], reduced: bool) -> list[Finding]:
    """Return the finding for the first difference between replicas, by its cause; empty if there is none.

    Causes are a buffer of each rank, different initial values, a write, gradients that were not reduced, and settings
    of the optimizer.

    :param reduced: whether the script itself reduces all gradients in each step.
    """
    found = _first(ranks, reduced)
    if found is None:
        return []
    phase = found.phase
    buffers = {t.name for t in ranks[0].tensors if t.how == "buffer"}
    who = ranks_text([one.rank for one in ranks])
    what = few(found.names)
    if found.names[0] in buffers:
        return [
            _finding(
                f"the buffer {what} is not the same on {who} from step {found.step} on",
                *("buffer", found.names, found.step, None),
                "Each rank updates it from its own batches, and its forward may read it. Reduce it where it is "
                "updated, or leave broadcast_buffers on.",
                _causes(site for _, _, site in _writes(ranks, found)),
                confidence="possible",
                severity="warning",
            )
        ]
    if phase == "before" and found.last is None:
        advice = (
            "Give all ranks the same seed before the model is made, or send the weights of one to the others "
            "(DistributedDataParallel does; broadcast each parameter and buffer where you average by hand)."
        )
        differ = "differ" if len(found.names) > 1 else "differs"
        title = f"{what} {differ} on {who} before the first update"
        drawn = [FindingSite("drawn", site) for site in _lines(ranks, "drawn", found.names)]
        return [_finding(title, "start", found.names, found.step, None, advice, drawn)]
    if phase == "before" and found.last == found.step - 1:
        return [_written(ranks, found, who)]
    if phase == "gradients":
        how, sites = _unreduced(ranks, found)
        advice = (
            "Not reduced: was no_sync left on for the last backward, did a backward go through ddp.module or come "
            "second, or do the lines that reduce leave these out? Every rank then takes a step of its own."
        )
        why = "not reduced"
        if not how and any(t.how == "dtensor" for t in ranks[0].tensors if t.name in found.names):
            why, advice = "inputs", _TENSOR_PARALLEL
            sites += [FindingSite("seeded", site) for site in dict.fromkeys(s for one in ranks for s in one.seeded)]
        title = f"the gradient of {what} is not the same on {who} when the optimizer steps{how}"
        sure = any(t.how for t in ranks[0].tensors if t.name in found.names) or not reduced
        confidence = "certain" if sure else "likely"
        return [_finding(title, why, found.names, found.step, None, advice, sites, confidence)]
    if phase == "after":
        advice = (
            "The weights and gradients were the same: settings or state of the optimizer are not. A scheduler that is "
            "given each rank's own loss, or a state that was loaded on one rank only, does that."
        )
        title = f"one optimizer step made {what} differ on {who}"
        how, rank, cause = _settings(ranks, found)
        return [_finding(title + how, "optimizer", found.names, found.step, rank, advice, cause)]
    if (alone := _written_alone(ranks, found)) is not None:
        return [alone]
    title = f"{what} began to differ on {who} between steps {found.last} and {found.step}"
    advice = "Look for lines that write to it on some ranks only, and for gradients that are not reduced."
    return [_finding(title, "", found.names, found.step, None, advice, confidence="likely")]


def _changed_apart(ranks: Sequence[Replicas], seen: Sequence[RankSeen]) -> list[Finding]:
    """Return the finding for weights whose gradients the script changed differently on each rank after the backward.

    They started equal and got equal gradients from the backward: they are copies on each rank, such as a norm beside
    sharded weights under tensor parallelism. Empty if there are none.
    """
    if not all(one.collectives and one.collectives[-1].number >= one.steps for one in seen if one.rank is not None):
        return []  # each trains for itself
    by = [{(s.step, s.optimizer): s for s in one.states} for one in ranks]
    for key in sorted(set.intersection(*(set(states) for states in by))):
        states = tuple(states[key] for states in by)

        def same(one: Replica, phase: str, states: tuple[ReplicaState, ...] = states) -> bool:
            """Return whether ranks that hold the same part of a tensor have equal, non-zero checksums of it
            in `phase`.
            """
            return any(len({*values, 0}) == 2 for values in _values(one, ranks, states, phase))

        names = tuple(
            t.name
            for t in ranks[0].tensors
            if not t.how and same(t, "before") and same(t, "given") and _differs(t, ranks, states, "gradients")
        )
        if names:
            who = ranks_text([one.rank for one in ranks])
            touched = list(dict.fromkeys(site for s in states for site in s.touched))[:MAX_LINES]
            sites = [FindingSite("cause" if len(touched) == 1 else "touched", site) for site in touched]
            sites += [FindingSite("backward", s.backward) for s in states[:1] if s.backward is not None]
            return [
                _finding(
                    f"backward gave {few(names)} the same gradient on {who}, and it is not the same when the optimizer "
                    "steps",
                    *("changed", names, key[0], None),
                    "What every rank holds a copy of must be changed alike: to clip by a norm, add up over the ranks "
                    "the squares of the parts, and count what is held by all once.",
                    sites,
                    "likely",
                )
            ]
        if key[0] > 0:  # once they have gone apart, what the backward gives has too
            break
    return []


#: The most lines of one role that a finding names.
MAX_LINES = 4


def _unreduced(ranks: Sequence[Replicas], found: _Drift) -> tuple[str, list[FindingSite]]:
    """Return why gradients differ, as the end of a title, and the lines of the backward and of the likely cause."""
    states = found.states
    backward = [FindingSite("backward", s.backward) for s in states[:1] if s.backward is not None]
    alone = list(dict.fromkeys(site for s in states for site in s.unsynced))
    if alone:
        return ": the last backward ran under no_sync()", backward + [FindingSite("cause", site) for site in alone]
    put = _lines(ranks, "put", found.names)
    if put:
        how = ": their dtype was changed after DistributedDataParallel had been made, whose hooks were lost with that"
        return how, [*(FindingSite("cause", site) for site in put), *backward]
    hooks = dict(hook for one in ranks for hook in one.hooks)
    if hooks and any(t.how == "ddp" for t in ranks[0].tensors if t.name in found.names):
        lines = [FindingSite("hook" if not n else "cause", s) for own in hooks.values() for n, s in enumerate(own)]
        draws = any(len(own) > 1 for own in hooks.values())
        how = f": a communication hook makes it ({', '.join(hooks)})" + (
            ", which draws random numbers" if draws else ""
        )
        return how, [*lines, *backward]
    touched = list(dict.fromkeys(site for s in states for site in s.touched))[:MAX_LINES]
    heads = dict(pair for one in ranks for pair in one.loops)
    loops = dict.fromkeys(heads[site] for site in touched if site in heads)
    named = [*(("touched", site) for site in touched), *(("loop", site) for site in loops)]
    return "", [*backward, *(FindingSite(role, site) for role, site in named)]


def _lines(ranks: Sequence[Replicas], what: str, names: Sequence[str]) -> list[Site]:
    """Return the lines that ranks recorded for parameters, at most ``MAX_LINES``.

    :param what: the field of ``Replicas`` that has them: "drawn" or "put".
    """
    found = (site for one in ranks for name, site in getattr(one, what) if name in names)
    return list(dict.fromkeys(found))[:MAX_LINES]


def _settings(ranks: Sequence[Replicas], found: _Drift) -> tuple[str, int | None, list[FindingSite]]:
    """Return a setting of the optimizer that differs between ranks, as the end of a title.

    Also the rank whose setting alone changed since the previous step, if there is one, and the lines that write it.
    """
    number = found.states[0].optimizer
    for at, groups in enumerate(zip(*(state.settings for state in found.states), strict=False)):
        for key in sorted(set.intersection(*(set(dict(group)) for group in groups))):
            now = [dict(group)[key] for group in groups]
            if len(set(now)) < 2:
                continue
            before = [_setting(one, number, found.step, at, key) for one in ranks]
            moved = [r.rank for r, was, own in zip(ranks, before, now, strict=True) if was is not None and was != own]
            values = ", ".join(f"{value:g} on rank {one.rank}" for one, value in zip(ranks[:4], now, strict=False))
            lines = dict.fromkeys(
                line for one in ranks if one.rank in moved or not moved for name, line in one.setters if name == key
            )
            rank = moved[0] if len(moved) == 1 else None
            return f": its {key} is {values}", rank, [FindingSite("cause", line) for line in lines]
    return "", None, []


def _setting(one: Replicas, optimizer: int, step: int, group: int, key: str) -> float | None:
    """Return a setting that a group had in the previous recorded step of an optimizer; ``None`` if there was none."""
    earlier = [s.settings for s in one.states if s.optimizer == optimizer and s.step < step and len(s.settings) > group]
    return dict(earlier[-1][group]).get(key) if earlier else None


def _written(ranks: Sequence[Replicas], found: _Drift, who: str) -> Finding:
    """Return the finding for a write between two consecutive steps, with its lines on the ranks whose values changed
    then.

    :param who: the ranks, as text.
    """
    name = found.names[0]
    writers = []
    for one in ranks:
        at = _place(one, name)
        states = [s for s in one.states if s.step in (found.step - 1, found.step)]
        if at is not None and len(states) > 1 and states[-2].after[at] != states[-1].before[at]:
            writers.append(one)
    sites: dict[Site, None] = {}
    for one in writers:
        for step, tensor, _, site in one.written:
            if tensor == name and found.step - 1 <= step <= found.step and site is not None:
                sites[site] = None
    sites = sites or dict.fromkeys(site for one in writers for site in _readings(one, name))
    rank = writers[0].rank if len(writers) == 1 else None
    was, differ = ("were", "differ") if len(found.names) > 1 else ("was", "differs")
    title = f"{few(found.names)} {was} written to between the updates of steps {found.step - 1} and {found.step}"
    title += f", on rank {rank} only" if rank is not None else f", and {differ} on {who} since"
    advice = "Do it on every rank in the same way, or on one and send the result to the others (broadcast)."
    cause = [FindingSite("cause", site) for site in sites]
    return _finding(title, "written", found.names, found.step, rank, advice, cause)


def _writes(ranks: Sequence[Replicas], found: _Drift) -> list[tuple[int, int, Site]]:
    """Return rank, step and line of each recorded write to the first differing tensor since the ranks last agreed."""
    since = found.step - 1 if found.last is None else found.last
    return [
        (one.rank, step, site)
        for one in ranks
        for step, tensor, _, site in one.written
        if tensor == found.names[0] and since <= step <= found.step and site is not None
    ]


def _written_alone(ranks: Sequence[Replicas], found: _Drift) -> Finding | None:
    """Return the finding for a line that wrote to the tensor on one rank only, some time since the ranks last agreed.

    ``None`` if several ranks wrote, or no write is known.
    """
    writes = _writes(ranks, found)
    who = {rank for rank, _, _ in writes}
    if not who:
        return _changed_alone(ranks, found)
    if len(who) != 1:
        return None
    (rank,), first = who, min(step for _, step, _ in writes)
    title = f"{few(found.names)} {'were' if len(found.names) > 1 else 'was'} written to between two updates, on rank "
    advice = "Do it on every rank in the same way, or on one and send the result to the others (broadcast)."
    cause = _causes(site for _, step, site in writes if step == first)
    return _finding(f"{title}{rank} only", "written", found.names, first, rank, advice, cause, "likely")


def _changed_alone(ranks: Sequence[Replicas], found: _Drift) -> Finding | None:
    """Return the finding for a write that only one rank's optimizer noticed, if no write was observed; ``None`` if
    none.
    """
    since, first = -1 if found.last is None else found.last, dict[int, int]()
    for one in ranks:
        steps = next((steps for name, steps, _ in one.changed if name == found.names[0]), ())
        within = [step for step in steps if since < step <= found.step]
        first.update((one.rank, step) for step in within[:1])
    if len(first) != 1:
        return None
    ((rank, step),) = first.items()
    title = f"{few(found.names)} {'were' if len(found.names) > 1 else 'was'} written to between the updates of steps "
    title += f"{step - 1} and {step}, on rank {rank} only"
    advice = "Do it on every rank in the same way, or on one and send the result to the others (broadcast)."
    cause = _causes(site for one in ranks if one.rank == rank for site in _readings(one, found.names[0]))
    return _finding(title, "written", found.names, step, rank, advice, cause, "likely")


def _readings(one: Replicas, name: str) -> tuple[Site, ...]:
    """Return the lines that, by their source, may write to the parameter `name`; empty if no optimizer found it
    changed.
    """
    return next((lines for known, _, lines in one.changed if known == name), ())


def _causes(sites: Iterable[Site]) -> list[FindingSite]:
    """Return the lines as sites of the role "cause", each once, at most ``MAX_LINES``."""
    return [FindingSite("cause", site) for site in dict.fromkeys(sites)][:MAX_LINES]


def _first(ranks: Sequence[Replicas], reduced: bool) -> _Drift | None:
    """Return the first difference among tensors that must be equal; ``None`` if there is none.

    :param reduced: whether also tensors count that were equal at first and differ at the end.
    """
    by = [{(s.step, s.optimizer): s for s in one.states} for one in ranks]
    common = sorted(set.intersection(*(set(states) for states in by)))
    last: dict[int, int] = {}
    last_of = {key[1]: key for key in common}
    for key in common:
        states = tuple(states[key] for states in by)
        for phase in _PHASES:
            names = tuple(
                t.name
                for t in ranks[0].tensors
                if (_meant(t, ranks, by, common) or (reduced and _went_apart(t, ranks, by, common)))
                and (t.how != "buffer" or phase == "after")
                and _differs(t, ranks, states, phase)
            )
            end = [states[last_of[key[1]]] for states in by]
            names = tuple(n for n in names if n in _parted(names, ranks, end, phase))
            if names:
                return _Drift(key[0], last.get(key[1]), phase, names, states)
        last[key[1]] = key[0]
    return None


def _parted(names: tuple[str, ...], ranks: Sequence[Replicas], end: Sequence[ReplicaState], phase: str) -> set[str]:
    """Return those of `names` whose values still differ at the end: see Note [What must be equal].

    :param end: the last state of each rank.
    """
    known = {t.name: t for t in ranks[0].tensors}
    return {n for n in names if any(_differs(known[n], ranks, tuple(end), p) for p in {"after", phase})}


def _place(one: Replicas, name: str) -> int | None:
    """Return the position of a tensor among the replicas of a rank; ``None`` if the rank does not have it."""
    return next((i for i, t in enumerate(one.tensors) if t.name == name), None)


def _values(tensor: Replica, ranks: Sequence[Replicas], states: Sequence[ReplicaState], phase: str) -> list[list[int]]:
    """Return the checksums of a tensor in `phase`, grouped by the ranks that hold the same part of it.

    Parts that a single rank holds are left out. A phase is a field of ``ReplicaState``, such as "before".
    """
    places: dict[tuple[int, ...], list[int]] = {}
    for one, state in zip(ranks, states, strict=True):
        at = _place(one, tensor.name)
        if at is None or one.tensors[at].shape != tensor.shape or one.tensors[at].how != tensor.how:
            continue
        value = getattr(state, phase)[at]
        if value is not None:
            places.setdefault(one.tensors[at].place, []).append(value)
    return [values for values in places.values() if len(values) > 1]


def _differs(tensor: Replica, ranks: Sequence[Replicas], states: Sequence[ReplicaState], phase: str) -> bool:
    """Return whether ranks that should hold the same part of a tensor have different checksums of it in `phase`."""
    return any(len(set(values)) > 1 for values in _values(tensor, ranks, states, phase))


def _meant(
    tensor: Replica,
    ranks: Sequence[Replicas],
    by: Sequence[dict[tuple[int, int], ReplicaState]],
    common: Sequence[tuple[int, int]],
) -> bool:
    """Return whether `tensor` is meant to be equal on all ranks: Note [What must be equal].

    :param by: for each rank, its states by step and optimizer; `common`: the keys that all ranks have.
    """
    if tensor.how:
        return True
    first = {optimizer: (step, optimizer) for step, optimizer in reversed(common)}  # each knows its own tensors

    def same(one: Replica, phase: str) -> bool:
        """Return whether the ranks' checksums of a tensor were equal and not zero in the first state of an
        optimizer.
        """
        known = ([states[key] for states in by] for key in first.values())
        return any(len({*values, 0}) == 2 for states in known for values in _values(one, ranks, states, phase))

    plain = [t for t in ranks[0].tensors if not t.how and t.shape]
    return same(tensor, "gradients") or (same(tensor, "before") and any(same(t, "gradients") for t in plain))


def _went_apart(
    tensor: Replica,
    ranks: Sequence[Replicas],
    by: Sequence[dict[tuple[int, int], ReplicaState]],
    common: Sequence[tuple[int, int]],
) -> bool:
    """Return whether `tensor` was equal before the first common update and differed before the last."""
    for optimizer in {optimizer for _, optimizer in common}:
        own = [key for key in common if key[1] == optimizer]
        first, last = ([states[key] for states in by] for key in (own[0], own[-1]))
        equal = any(len({*values, 0}) == 2 for values in _values(tensor, ranks, first, "before"))
        if equal and _differs(tensor, ranks, last, "before"):
            return True
    return False


_SIZES = re.compile(r"\w+\[([\d, ]*)\]")


def _reduces(seen: RankSeen, replicas: Replicas) -> bool:
    """Return whether a rank reduces, in every step, about as many elements as its plain parameters have.

    It must do so by a sequence of reductions that repeats.
    """
    elements = sum(math.prod(t.shape) for t in replicas.tensors if not t.how)
    calls = [one for one in seen.collectives if one.op.startswith(("all_reduce", "allreduce"))]
    if not elements or not calls or any("..." in one.inputs for one in calls):
        return False
    sizes = [sum(math.prod(map(int, re.findall(r"\d+", s))) for s in _SIZES.findall(one.inputs)) for one in calls]
    for period in range(1, len(sizes) // 3 + 1):
        if sizes[-period:] == sizes[-2 * period : -period] == sizes[-3 * period : -2 * period]:
            whole = elements <= sum(sizes[-period:]) <= 1.5 * elements
            return whole and calls[-1].number >= 0.9 * seen.steps * period
    return False


def _finding(
    title: str,
    cause: str,
    names: tuple[str, ...],
    step: int,
    rank: int | None,
    advice: str,
    sites: Sequence[FindingSite] = (),
    confidence: str = "certain",
    severity: str = "error",
) -> Finding:
    """Return a finding of the kind ``rank-drift``; `cause` is the reason as one word, `rank` the only rank
    concerned.
    """
    return Finding(
        kind="rank-drift",
        severity=severity,
        title=title,
        confidence=confidence,
        parameters=names,
        step=step,
        rank=rank,
        sites=tuple(sites),
        evidence={"cause": cause, "first": names[0]},
        advice=advice,
    )
