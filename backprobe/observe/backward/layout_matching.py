"""Infers which lines made the nodes of an unrecorded step, from a similar recorded step and from new lines."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import SequenceMatcher

from ...ops import info
from ...records import Site
from ...source.frames import CodeLocation, Frames
from ...source.line_ops import lines_with_operations, operations_in_order, operations_on
from ...source.roots import ModuleCallRef
from ...source.sites import site_at
from ..forward.oplog import Entry

#: The most names that are compared one by one, apart from a common beginning and end.
MAX_COMPARED_NAMES = 2000


def matching_positions(one: list[str], other: list[str]) -> list[tuple[int, int]]:
    """Return the pairs of positions at which two lists agree, in order, and as many as possible.

    Lists that differ in a long part are compared at their common beginning and end only.
    """
    most, head = min(len(one), len(other)), 0
    while head < most and one[head] == other[head]:
        head += 1
    tail = 0
    while tail < most - head and one[-1 - tail] == other[-1 - tail]:
        tail += 1
    pairs = [(at, at) for at in range(head)]
    middle = one[head : len(one) - tail], other[head : len(other) - tail]
    if middle[0] and middle[1] and max(map(len, middle)) <= MAX_COMPARED_NAMES:
        for a, b, size in SequenceMatcher(None, *middle, autojunk=False).get_matching_blocks():
            pairs += [(head + a + at, head + b + at) for at in range(size)]
    return pairs + [(len(one) - at, len(other) - at) for at in range(tail, 0, -1)]


def partly_matched(entries: Sequence[Entry], matched: Set[int], frames: Frames) -> set[int]:
    """Return the positions of `entries` in a run of one line in one module of which only a part is in `matched`."""
    found: set[int] = set()
    begin, lines = 0, [(entry[0], _line(frames, entry), entry[3]) for entry in entries]
    for end in range(1, len(entries) + 1):
        if end < len(entries) and lines[end] == lines[begin]:
            continue
        run = range(begin, end)
        if not all(at in matched for at in run):
            found.update(run)
        begin = end
    return found


_STEM = re.compile(r"(?:torch::autograd::)?(\w+?)(?:Backward\d*)?$")


def from_new_lines(
    names: Mapping[int, str],
    new_lines: list[CodeLocation],
    frames: Frames,
    known: Iterable[Entry],
    all_names: Iterable[str],
) -> dict[int, Entry]:
    """Infer the lines that made the nodes `names` from lines that ran for the first time.

    For each node, this is a new line that calls an operation of the node's name; else the only line of the user's files
    that does; else the only new line that calls any operation, unless each of its calls has made a node of its name.

    :param all_names: the names of all nodes of the graph.
    :param known: entries of other nodes of the graph: a line belongs to the same module as others of its function.
    """
    lines: list[tuple[CodeLocation, list[str]]] = []
    for code, at in new_lines:
        site = frames.site((code, at))
        found = operations_on(site.file, site.line) if site is not None else []
        if found:
            lines.append(((code, at), found))
    stems = set(map(_stem_of, all_names))
    other = lines[0][0] if len(lines) == 1 and not _is_explained(lines[0][1], stems) else None
    where = _modules_of(known)
    places: dict[str, tuple[CodeLocation | None, str]] = {}
    made: dict[int, Entry] = {}
    for i, name in names.items():
        stem = _stem_of(name)
        if stem not in places:
            spot, op = _place_of(stem, lines, frames)
            places[stem] = spot or other, op
        spot, op = places[stem]
        if spot is not None:
            if op.endswith(".apply") or name.endswith("Backward"):  # names of torch's own nodes end with a number
                op = "Function.apply"
            made[i] = (*spot, op, where.get(id(spot[0])), None)
    return made


def _is_explained(ops: list[str], stems: Set[str]) -> bool:
    """Return whether each operation that a line calls has made a node of its name, so that it made no others.

    The call of a custom function is listed with the name of its class, and as ``apply``.
    """
    return all(op == "apply" or any(_may_make(op, stem) for stem in stems) for op in ops)


def _place_of(stem: str, new: list[tuple[CodeLocation, list[str]]], frames: Frames) -> tuple[CodeLocation | None, str]:
    """Return the likeliest line that calls the operation `stem`, and the name under which it is called there.

    :param new: new lines, with the operations on each.
    """
    for spot, ops in new:
        for op in ops:
            if _may_make(op, stem):
                return spot, op
    everywhere = set(_lines_with(stem, frames))
    return frames.spot_at(*everywhere.pop()) if len(everywhere) == 1 else None, stem


def _lines_with(stem: str, frames: Frames) -> Iterator[tuple[str, int]]:
    """Yield the lines of the user's files that call an operation `stem`: file and line."""
    for file in frames.users_files():
        for op, lines in lines_with_operations(file).items():
            if _may_make(op, stem):
                yield from ((file, line) for line in lines)


def from_lines_that_ran(
    part: Sequence[int], names: Sequence[str], made: Mapping[int, Entry], new_lines: list[CodeLocation], frames: Frames
) -> dict[int, Entry]:
    """Find the lines that ran for the first time and made nodes of `part`.

    Such a line made a run of nodes if they are its operations, in their order, and `made` has nothing of one of them.

    :param part: nodes in the order in which they were made.
    :param names: the names of all nodes.
    """
    found: dict[int, Entry] = {}
    if len(part) > MAX_COMPARED_NAMES or all(node in made for node in part):
        return found
    stems, where = [_stem_of(names[node]) for node in part], _modules_of(made.values())
    runs: list[tuple[CodeLocation, list[int]]] = []
    for spot in dict.fromkeys(new_lines):
        site = frames.site(spot)
        called = operations_in_order(site.file, site.line) if site is not None else []
        ops = [op for op in called if any(_may_make(op, stem) for stem in set(stems))]
        best: list[int] = []
        for start in range(len(part)):
            window = _matching_run(ops, stems, [names[node] for node in part], start)
            new = sum(part[at] not in made for at in window)
            if window and new and new > sum(part[at] not in made for at in best):
                best = window
        runs.append((spot, best))
    for spot, run in sorted(runs, key=lambda pair: len(pair[1])):  # if two lines match a node, the longer run counts
        for at in run:
            found[part[at]] = (*spot, stems[at], where.get(id(spot[0])), None)
    return found


def _modules_of(known: Iterable[Entry]) -> dict[int, ModuleCallRef | None]:
    """Return the module in which the lines of each code object run, by the id of the code object.

    If there are several, it is the outermost: operations of modules that are called from there are inside it.
    """
    where: dict[int, ModuleCallRef | None] = {}
    for entry in known:
        before, here = where.get(id(entry[0]), entry[3]), entry[3]
        shorter = before is None or here is None or len(here.path or "") < len(before.path or "")
        where[id(entry[0])] = here if shorter else before
    return where


def _matching_run(ops: list[str], stems: list[str], names: list[str], start: int) -> list[int]:
    """Return the positions from `start` on of nodes that match `ops` in order, with only views in between.

    Up to half of the operations may make no nodes: they compute with numbers.
    """
    if not ops or not _may_make(ops[0], stems[start]):
        return []
    at, found = start, []
    for op in ops:
        next_at = at
        while next_at < len(stems) and not _may_make(op, stems[next_at]) and info(names[next_at]).reshapes:
            next_at += 1
        if next_at < len(stems) and _may_make(op, stems[next_at]):
            found.append(next_at)
            at = next_at + 1
    return found if 2 * len(found) >= len(ops) else []


def candidate_lines(name: str, entries: Iterable[Entry], frames: Frames, most: int = 8) -> tuple[Site, ...]:
    """Return the lines that may have made a node called `name`.

    First those of `entries`, then all lines of the user's files that call an operation of this name.
    """
    found: dict[tuple[str, int], Site] = {}
    for entry in entries:
        site = frames.site((entry[0], entry[1])) if entry[0] is not None else None
        if site is not None:
            found.setdefault((site.file, site.line), site)
    stem = _stem_of(name)
    for file, line in _lines_with(stem, frames):
        if len(found) >= most:
            break
        if (file, line) not in found:
            found[file, line] = frames.site(frames.spot_at(file, line)) or site_at(file, line, "<module>")
    return tuple(found.values())[:most]


def from_names(names: Mapping[int, str], known: Iterable[tuple[str, Entry]]) -> dict[int, Entry]:
    """Infer the lines of nodes of custom functions from their `names`.

    This requires that only one line was seen to make a node of that name.

    :param known: names of nodes, and their entries.
    """
    lines: dict[str, dict[CodeLocation, Entry]] = {}
    for name, entry in known:
        if entry[0] is not None and name.endswith("Backward"):  # names of torch's nodes end with a number
            lines.setdefault(name, {})[(entry[0], entry[1])] = entry
    return {i: next(iter(lines[name].values())) for i, name in names.items() if len(lines.get(name, ())) == 1}


def from_neighbours(
    part: Sequence[int], names: Sequence[str], made: Mapping[int, Entry], frames: Frames
) -> dict[int, Entry]:
    """Infer the missing lines of the nodes `part`, which are in the order in which they were made.

    A node between two nodes of one line was made by that line; if the operation after it made several nodes, by that
    operation, else by the one of its own name.

    :param names: the names of all nodes.
    """
    found: dict[int, Entry] = {}
    before: Entry | None = None
    waiting: list[int] = []
    for at, node in enumerate(part):
        entry = made.get(node)
        if entry is None:
            waiting.append(node)
            continue
        if waiting and before is not None and entry[0] is before[0] and _line(frames, entry) == _line(frames, before):
            several = at + 1 < len(part) and made.get(part[at + 1]) is entry
            where = entry[3] if entry[3] == before[3] else None
            for each in waiting:
                found[each] = entry if several else (*entry[:2], _stem_of(names[each]), where, entry[4])
        before, waiting = entry, []
    return found


def _line(frames: Frames, entry: Entry) -> int | None:
    """Return the number of the line that made a node with this entry; ``None`` if it is not known."""
    site = frames.site((entry[0], entry[1])) if entry[0] is not None else None
    return None if site is None else site.line


#: Node names that differ from the operations that users write.
_PYTHON_NAMES = {"rsub": "sub", "tocopy": "to", "linalgvectornorm": "norm"}


def _stem_of(name: str) -> str:
    """Return the operation that a node called `name` stands for, in the form of ``_normalized`` source names."""
    match = _STEM.match(name)
    stem = _normalized(match[1] if match else name)
    return _PYTHON_NAMES.get(stem, stem)


def _may_make(op: str, stem: str) -> bool:
    """Return whether a call that the source names `op` may make a node with this stem."""
    if _is_class(op):
        return False
    own = _normalized(op.removesuffix(".apply"))
    return own == stem or stem in map(_normalized, info(op).makes)


def _is_class(op: str) -> bool:
    """Return whether a call makes an object of a class, for example of a module, and so no node."""
    return op[:1].isupper() and not op.endswith(".apply")


def _normalized(name: str) -> str:
    """Return the name of an operation in lower case without underscores."""
    return name.replace("_", "").lower()
