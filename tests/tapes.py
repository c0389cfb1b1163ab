"""Recorded runs for comparisons, made by hand."""

from __future__ import annotations

from backprobe.records import Print, Site, Taken, Tape, TapeOp


def tape(*names: str, values: dict[int, str] | None = None, module: str = "m") -> Tape:
    """A chain of ops, each given what the one before gave. ``mul@3`` is called with 3."""
    ops, prints = [], [Print((2,), "float32", "start", 1.0, 0, (1.0, 0.0))]
    for i, text in enumerate(names):
        name, _, argument = text.partition("@")
        digest = (values or {}).get(i, f"{prints[-1].hash}>{text}")
        size = 1.0 + 0.01 * (sum(map(ord, digest)) % 97)
        prints.append(Print((2,), "float32", digest, size, 0, (size, 0.0)))
        taken = Taken(i, i - 1, 0) if i else Taken(0, 0, -1)
        arguments = ([{"t": 0}, *([float(argument)] if argument else [])], {})
        site = Site("train.py", 10 + i, "f", text)
        given = {"arguments": arguments, "inputs": (taken,), "outputs": (i + 1,)}
        ops.append(TapeOp(i, 0, "forward", name, module, site=site, **given))
    end = len(ops)
    taken = Taken(end, end - 1, 0)
    ops.append(TapeOp(end, 0, "sink", "gradient", "w", arguments=([{"t": 0}], {}), inputs=(taken,)))
    return Tape({}, ({"step": 0},), {}, tuple(ops), tuple(prints))
