"""The ledger: the memory that a graph saves for backward, by origin, and its other holders. Plain data and its text."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...basics.errors import BackprobeError
from ...basics.text import html_table, mib, shape, text_table, without_controls
from ...records import SavedEntry, SavedModule, SavedMoment, SavedPlaced, SavedUnknown
from ...saved_memory.reading import Reading


@dataclass(frozen=True)
class Row:
    """A line of ``Ledger.by``."""

    key: str
    nbytes: int
    tensors: int


class Ledger:
    """The memory that a graph saves for its backward.

    ``bytes`` is what running the backward frees: each storage counts once, and memory that a parameter, a buffer, a
    variable of yours or another graph also holds is listed separately.
    """

    def __init__(self, reading: Reading | None = None, trials: Callable[..., Any] | None = None) -> None:
        """Take the content, if it is known already, and the implementation of ``try_...``, if there is a model."""
        self._reading = reading
        self._trials = trials

    def _read(self) -> Reading:
        """Return the content.
        :raises BackprobeError: the ledger was not read yet.
        """
        if self._reading is None:
            raise BackprobeError(
                "this ledger is empty so far: it is read when the block ends, or when a backward begins inside it "
                "(with backprobe.saved_tensors(model) as ledger: loss = ...)"
            )
        return self._reading

    @property
    def entries(self) -> list[SavedEntry]:
        """The saved memory by storage, most bytes first."""
        return list(self._read().entries)

    @property
    def bytes(self) -> int:
        """Bytes that only this graph holds: its backward frees them."""
        return sum(e.nbytes for e in self._read().entries if not e.holder)

    @property
    def total_bytes(self) -> int:
        """Bytes of all storages that the graph refers to, including those with other holders."""
        return sum(e.nbytes for e in self._read().entries)

    def held_bytes(self, holder: str) -> int:
        """Return the bytes that the graph keeps and ``holder`` holds too: "parameter", "buffer", "variable", "graph",
        "other".
        """
        return sum(e.nbytes for e in self._read().entries if e.holder == holder)

    @property
    def placed(self) -> list[SavedPlaced]:
        """Memory that policies have moved elsewhere."""
        return list(self._read().placed)

    @property
    def unknown(self) -> list[SavedUnknown]:
        """Saved memory that could not be measured, with the reason. If empty, ``bytes`` is complete."""
        return list(self._read().unknown)

    @property
    def curve(self) -> list[SavedMoment]:
        """The bytes still kept after each node of a backward that does not retain the graph, in the engine's order.

        Computed from the graph without running it: gradients, and memory for recomputing a checkpoint, are not
        included; ``measure`` and ``try_checkpoint`` run the step.
        """
        return list(self._read().curve)

    @property
    def modules(self) -> list[SavedModule]:
        """The estimated saving of checkpointing each module that was called in the block, largest first.

        Computed from the graph without running anything, as the bytes that are kept inside the module only, minus its
        inputs. ``try_checkpoint`` runs the step both ways, and measures time and the peak as well. Empty for a ledger
        that was made from a loss.
        """
        return list(self._read().modules)

    @property
    def nodes(self) -> int:
        """Number of nodes in the graph."""
        return self._read().nodes

    def by(self, what: str) -> list[Row]:
        """Return ``bytes`` by "module", "op", "line" or "dtype", most first. They add up to ``bytes``.

        :raises BackprobeError: ``what`` is something else.
        """
        keys: dict[str, Callable[[SavedEntry], str]] = {
            "module": lambda e: "(unknown)" if e.module is None else e.module or "(no module)",
            "op": lambda e: e.op,
            "line": lambda e: str(e.site) if e.site is not None else "(unknown)",
            "dtype": lambda e: e.dtype,
        }
        if what not in keys:
            raise BackprobeError(f"cannot add up by {what!r}; by is one of {', '.join(map(repr, keys))}")
        found: dict[str, list[int]] = {}
        for entry in self._read().entries:
            if not entry.holder:
                row = found.setdefault(keys[what](entry), [0, 0])
                row[0] += entry.nbytes
                row[1] += entry.tensors
        rows = [Row(key, nbytes, tensors) for key, (nbytes, tensors) in found.items()]
        return sorted(rows, key=lambda r: -r.nbytes)

    def __enter__(self) -> Ledger:
        """Raise ``BackprobeError``: only the ledger of a model is used as a block."""
        raise BackprobeError(
            "this ledger was made from a graph that is there already, and is read; a block is for a model: "
            "with backprobe.saved_tensors(model) as ledger: ..."
        )

    def __exit__(self, *error: object) -> None: ...

    # Trying

    def try_checkpoint(self, select: object, step: Callable[[], object], rounds: int = 5) -> Any:
        """Run ``step`` with and without the chosen modules checkpointed, and measure: see ``offload.measure``.

        Of nested modules, the outermost is checkpointed.

        :raises BackprobeError: the ledger was made from a loss and has no model, or nothing matches ``select``.
        """
        return self._with_model()("checkpoint", select, step, rounds)

    def try_policy(self, make: Callable[[], object], step: Callable[[], object], rounds: int = 5) -> Any:
        """Run ``step`` plain and under the policy that ``make`` makes, and measure: see ``offload.measure``."""
        return self._with_model()("policy", make, step, rounds)

    def _with_model(self) -> Callable[..., Any]:
        """Return the implementation of ``try_...``.
        :raises BackprobeError: the ledger has no model.
        """
        if self._trials is None:
            raise BackprobeError(
                "trying something needs the model: with backprobe.saved_tensors(model) as ledger: ..., or "
                "backprobe.offload.measure(make, model, step)"
            )
        return self._trials

    # Text

    def summary(self) -> list[str]:
        """Return the saved bytes, the bytes with other holders, and what is unknown, one line each."""
        reading = self._read()
        storages = [e for e in reading.entries if not e.holder]
        lines = [
            f"{mib(self.bytes)} MiB kept for backward in {len(storages)} storages, by a graph of {reading.nodes} nodes"
        ]
        if not reading.nodes:
            lines.append(
                "no graph was there when the block ended: keep its loss in a variable until then, or call backward "
                "inside the block"
            )
        if reading.freed:
            lines.append(
                f"a backward has freed what {reading.freed} nodes had saved: read the ledger before it, or call "
                "backward(retain_graph=True)"
            )
        for holder, words in _HOLDERS.items():
            size = self.held_bytes(holder)
            if size:
                lines.append(f"{mib(size)} MiB more are saved but {words}")
        for one in reading.placed:
            lines.append(f"{mib(one.nbytes)} MiB more in {one.tensors} tensors: {one.policy}")
        for lost in reading.unknown:
            lines.append(f"unknown: {lost.count} of {lost.what}: {lost.why}")
        if not reading.unknown:
            lines.append("nothing is unknown")
        return lines

    def top(self, count: int = 10) -> str:
        """Return the largest entries that only the graph holds, as text."""
        entries = [e for e in self._read().entries if not e.holder]
        return text_table(_HEAD, [_cells(e) for e in entries[:count]], {0}) or "  ".join(_HEAD)

    def __str__(self) -> str:
        """Return the sums and the largest entries as text."""
        if self._reading is None:
            return "Ledger: not read yet"
        entries = [e for e in self._reading.entries if not e.holder]
        more = len(entries) - 10
        rest = sum(e.nbytes for e in entries[10:])
        tail = [f"{mib(rest):>7}  in {more} more"] if more > 0 else []
        lines = [*self.summary(), "", self.top(), *tail] if entries else self.summary()
        return without_controls("\n".join(lines), lines=True)

    def __repr__(self) -> str:
        """Return the same as ``str``."""
        return str(self)

    def __rich__(self) -> object:
        """Return the sums and the largest entries for ``rich``."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        if self._reading is None:
            return Text(str(self))
        table = Table(box=None, pad_edge=False)
        for i, name in enumerate(_HEAD):
            table.add_column(name, justify="right" if not i else "left", overflow="fold")
        for entry in [e for e in self._reading.entries if not e.holder][:10]:
            table.add_row(*(Text(cell) for cell in _cells(entry)))
        return Group(*(Text(line) for line in self.summary()), Text(""), table)

    def _repr_html_(self) -> str:
        """Return the sums and the largest entries as HTML for a notebook."""
        if self._reading is None:
            return f"<p>{html.escape(str(self))}</p>"
        entries = [e for e in self._reading.entries if not e.holder][:10]
        said = "<br>".join(html.escape(line) for line in self.summary())
        return f"<p>{said}</p>{html_table(_HEAD, [_cells(entry) for entry in entries], {0})}"


_HOLDERS = {
    "parameter": "belong to parameters",
    "buffer": "belong to buffers",
    "variable": "are held by your variables too",
    "graph": "are held by another graph too",
    "other": "are held by something else too",
}
_HEAD = ("MiB", "op", "module", "saved as", "shape", "dtype", "line")


def _cells(entry: SavedEntry) -> tuple[str, ...]:
    """Return the cells of an entry, in the order of ``_HEAD``."""
    module = "?" if entry.module is None else entry.module or "-"
    return (
        mib(entry.nbytes),
        entry.op,
        module,
        entry.name,
        shape(entry.shape),
        entry.dtype,
        str(entry.site) if entry.site is not None else "?",
    )
