"""The result of a capture: a read-only mapping from names to tensors."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ...basics.errors import BackprobeError, UnknownName
from ...basics.select import near, quoted
from ...basics.text import counted, html_table, text_table
from .captured import Entry
from .mode import Lines
from .recorder import Recorder
from .table import HEAD, RIGHT, Row, cells, grouped, row_of

if TYPE_CHECKING:
    from torch.utils.hooks import RemovableHandle

    from .grads import GradRecord
    from .plots import Picture

#: Rows that a repr shows.
_ROWS = 100


def _remove(handles: list[RemovableHandle]) -> None:
    """Remove hooks, and empty the list of their handles."""
    while handles:
        handles.pop().remove()


class Activations(Mapping[str, Any]):
    """Captured tensors by name, in execution order.

    Names: a module's path (``""`` is the model itself), ``:2`` for its second call, ``/0``, ``/key`` for parts of
    nested outputs, ``<in>/0``, ``<in>/key`` for inputs: ``decoder:2/hidden/0``, ``decoder:2<in>/mask``.
    """

    def __init__(self, recorder: Recorder) -> None:
        """Take the recorder, which is not active yet."""
        self._recorder = recorder
        self._state = "new"
        #: The model's return value, if ``capture`` called it.
        self.output: Any = None
        # The hooks on the graph's nodes are ours: they go when this object goes.
        self._finalizer = weakref.finalize(self, _remove, recorder.handles)
        self._finalizer.atexit = False

    # -- as a context --

    def __enter__(self) -> Activations:
        """Start the capture.
        :raises BackprobeError: this capture has run already.
        """
        if self._state != "new":
            raise BackprobeError("this capture has run: call bp.capture(...) again for another block")
        self._state = "on"
        self._recorder.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """End the capture."""
        self._state = "over"
        self._recorder.stop()

    def close(self) -> None:
        """Let go of all tensors and gradients, and remove the hooks on the graph. Dropping the last reference to this
        object does the same, but leaves ``.grad`` on tensors that the program still holds."""
        if self._state == "on":
            raise BackprobeError("close() inside the block: leave the block first")
        _remove(self._recorder.handles)
        for record in self._records():
            record.clear()
        self._recorder.entries.clear()
        self._recorder.lines.clear()
        self.output = None

    # -- as a mapping --

    def __getitem__(self, name: str) -> Any:
        """Return the tensor captured under `name`; raise ``UnknownName``, with the likely reason, if there is none."""
        return self._value(self._entry(name))

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names, in execution order."""
        return iter(list(self._recorder.entries))

    def __len__(self) -> int:
        """Return the number of captured tensors."""
        return len(self._recorder.entries)

    def __contains__(self, name: object) -> bool:
        """Return whether a tensor was captured under `name`."""
        return name in self._recorder.entries

    def _value(self, entry: Entry) -> Any:
        """Return the tensor of an entry, from memory or from its file."""
        writer = self._recorder.writer
        return writer.read(entry.kept.stored) if writer is not None else entry.kept.tensor

    def _entry(self, name: str) -> Entry:
        """Return the entry with this name, also that of a line; raise ``UnknownName`` if there is none."""
        found = self._recorder.entries.get(name) or self._recorder.lines.get(name)
        if found is None:
            raise UnknownName(self._missing(name))
        return found

    def _missing(self, name: str) -> str:
        """Explain why there is no tensor under `name`: not seen, nested, or similar names."""
        what = f"nothing was captured under {name!r}"
        unseen = self.unseen
        if name in unseen:
            return f"{what}: {unseen[name]}"
        parts = [n for n in self if isinstance(name, str) and n.startswith(f"{name}/")]
        if parts:
            return f"{what}: its output is nested, its tensors are {', '.join(map(repr, parts[:6]))}"
        if not len(self):
            return f"{what}, nor under any name: {'; '.join(grouped(unseen)) or 'no module has run yet'}"
        return f"{what}; names are like {quoted(near(name, self))}"

    # -- reports --

    @property
    def unseen(self) -> dict[str, str]:
        """Chosen modules without a captured tensor, with the reason: not called, raised, in a compiled region, ..."""
        return self._recorder.unseen

    @property
    def notes(self) -> dict[str, str]:
        """Remarks on captured tensors by name: no gradient will come, overwritten unseen, recomputed, ..."""
        return dict(self._recorder.notes)

    def table(self) -> list[Row]:
        """Return a ``Row`` for each tensor: class, shape, dtype, range, mean, deviation, count of non-finite values."""
        return [self._row(name) for name in self]

    def _row(self, name: str) -> Row:
        """Return the row of one tensor; raise ``BackprobeError`` while values are being written to a file."""
        entry = self._entry(name)
        if self._recorder.writer is not None and self._state == "on":
            raise BackprobeError("the values are being written: ask when the capture is over")
        return row_of(name, entry.made_by, self._value(entry))

    def _shown(self) -> tuple[str, list[tuple[str, ...]], list[str]]:
        """Return the parts of the text form: title, rows of cells, remarks."""
        if self._recorder.writer is not None:
            title = f"{len(self)} captured tensors in {self._recorder.writer.to}"
            return title, [], self._said()
        names = list(self)
        said = [f"... and {len(names) - _ROWS} more tensors"] if len(names) > _ROWS else []
        title = counted(len(names), "captured tensor")
        return title, [cells(self._row(name)) for name in names[:_ROWS]], said + self._said()

    def _said(self) -> list[str]:
        """Return remarks as lines: results by line, modules that were not seen, notes."""
        lines = [f"{len(self._recorder.lines)} results of ops by line: see .lines"] if self._recorder.lines else []
        return (
            lines
            + [f"not seen: {line}" for line in grouped(self.unseen)]
            + [f"note: {line}" for line in grouped(self._recorder.notes)]
        )

    def __repr__(self) -> str:
        """Return the capture as a text table with remarks."""
        title, body, said = self._shown()
        return "\n".join(part for part in (title, text_table(HEAD, body, RIGHT), *said) if part)

    def _repr_html_(self) -> str:
        """Return the capture as an HTML table with remarks, for a notebook."""
        import html

        title, body, said = self._shown()
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in said)
        return f"<p>{html.escape(title)}</p>{html_table(HEAD, body, RIGHT) if body else ''}{lines}"

    # -- ops by line --

    @property
    def lines(self) -> dict[str, str]:
        """Names of the results kept by line, such as ``model.py:41 add``, and the text of each line."""
        return {name: entry.site.text if entry.site else "" for name, entry in self._recorder.lines.items()}

    def at(self, place: str) -> list[Any]:
        """Return the results of ops at ``model.py:41`` (or ``model.py:41-60``), in order.

        Raises:
            BackprobeError: if ``lines=`` was not asked for, or nothing was made there.
        """
        if not self._recorder.keeps_lines:
            raise BackprobeError(f"capture(..., lines={place!r}) keeps what is made there (lines=True: at every line)")
        wanted = Lines((place,))
        found = [self._value(e) for e in self._recorder.lines.values() if e.site in wanted]
        if not found:
            known = sorted({name.split(" ")[0] for name in self._recorder.lines})
            hint = f"; there are tensors of {', '.join(near(place, known))}" if known else "; no line made any"
            raise BackprobeError(f"no tensor was made at {place}{hint}")
        return found

    # -- gradients --

    @property
    def grads(self) -> Gradients:
        """Gradients by the same names, those that have come so far."""
        return Gradients(self)

    def edge(self, name: str) -> Any:
        """Return the gradient edge of a captured value, for ``torch.autograd.grad`` and ``backward``.

        It is correct even if the tensor was written in place after it was captured.

        Raises: BackprobeError: if the value has no graph, or was captured with ``detach=True``.
        """
        kept = self._entry(name).kept
        if kept.edge is None:
            why = self._recorder.notes.get(name) or "detached, or its inputs and parameters require no gradient"
            raise BackprobeError(f"{name!r} has no gradient edge: {why}; edges are kept with grads=True, detach=False")
        return kept.edge

    def zero_grad(self) -> None:
        """Reset the captured gradients, which are summed over backward calls like ``.grad``."""
        for record in self._records():
            record.clear()

    def _records(self) -> list[GradRecord]:
        """Return the gradient records of all captured values that have one."""
        entries = (*self._recorder.entries.values(), *self._recorder.lines.values())
        return [e.kept.record for e in entries if e.kept.record is not None]

    # -- pictures --

    def plot(self, name: str, **options: Any) -> Picture:
        """Plot a tensor, or its gradient; see ``plot`` of ``plots``."""
        from .plots import plot

        grad = bool(options.get("grad", False))
        title = options.pop("title", f"{name or '(model)'} ({self._entry(name).made_by})")
        return plot(self.grads[name] if grad else self[name], title=title, **options)

    def plot_flow(self, **options: Any) -> Picture:
        """Plot the RMS of the gradient at each module output; see ``plot_flow`` of ``plots``."""
        from .plots import plot_flow

        if not len(self.grads):
            raise BackprobeError("no gradient to draw: call backward() on a loss of this forward first")
        return plot_flow(dict(self.grads), **options)


class Gradients(Mapping[str, Any]):
    """Gradients of captured values, by the same names; those that have come so far.

    Each is the gradient of the value as it was captured, after the user's own tensor hooks, summed over backward calls,
    and kept the way values are (sliced, reduced, cast, moved).
    """

    def __init__(self, acts: Activations) -> None:
        """Take the capture to which the gradients belong."""
        self._acts = acts

    def _grad(self, entry: Entry) -> Any:
        """Return the gradient of an entry so far; ``None`` if none has come."""
        record = entry.kept.record
        if record is None:
            return None
        if record.value is None and record.tensor is not None:
            tensor = record.tensor()  # backward(inputs=[tensor]) fills .grad and runs no node for it
            return tensor.grad if tensor is not None and tensor.retains_grad else None
        return record.value

    def __getitem__(self, name: str) -> Any:
        """Return the gradient of the value captured under `name`; raise ``UnknownName``, with the reason, if there is
        none.
        """
        acts = self._acts
        entry = acts._entry(name)
        record = entry.kept.record
        if record is not None and record.partial:
            raise UnknownName(f"no true gradient for {name!r}: {record.partial}")
        grad = self._grad(entry)
        if grad is None:
            raise UnknownName(f"no gradient for {name!r}: {self._why(acts, name, entry)}")
        return grad

    def _why(self, acts: Activations, name: str, entry: Entry) -> str:
        """Explain why no gradient has come for `name`."""
        if not acts._recorder.wants_grads:
            return "the capture was made with grads=False"
        if entry.kept.record is None:
            said = acts._recorder.notes.get(name) or acts._recorder.notes.get(name.split("/")[0])
            return said or "the tensor requires none (its dtype, no_grad, or nothing before it is trainable)"
        if any(self._grad(e) is not None for e in acts._recorder.entries.values()):
            return "the backward reached others, but there is no path from its loss to this one"
        return "no backward has come by yet"

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names that have a gradient."""
        recorder = self._acts._recorder
        for name, entry in (*recorder.entries.items(), *recorder.lines.items()):
            if self._grad(entry) is not None and not (entry.kept.record and entry.kept.record.partial):
                yield name

    def __len__(self) -> int:
        """Return the number of gradients that have come."""
        return sum(1 for _ in self)

    def __repr__(self) -> str:
        """Return the gradients as a text table."""
        names = list(self)
        rows = [cells(row_of(n, self._acts._entry(n).made_by, self[n])) for n in names[:_ROWS]]
        more = [f"... and {len(names) - _ROWS} more"] if len(names) > _ROWS else []
        return "\n".join(p for p in (f"{len(names)} gradients", text_table(HEAD, rows, RIGHT), *more) if p)
