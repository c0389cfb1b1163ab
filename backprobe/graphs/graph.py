"""``Graph``: an autograd graph as plain data, and queries on it. No torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from ..basics.errors import BackprobeError
from ..basics.text import without_controls
from ..records import ModuleCall
from . import order, places, ways
from .data import Columns, GraphFacts, GraphRoot, Inside, Leaf, Node, Saved
from .places import Place

if TYPE_CHECKING:
    from .collapse import Diagram
    from .compare import GraphDiff

_FREED = (None, False, True)


class Graph(Sequence[Node]):
    """The nodes of an autograd graph, roots first. ``backprobe.graph(loss)`` makes one.

    Edges go in the direction of the gradient: from a loss to the parameters. A `Place` is a node or its number, the
    name of a root, of a parameter, of a module, of a tensor named with ``tensors=``, a line (``"train.py:12"``), a
    node's type, a glob or compiled pattern over parameters and modules, or a list of these.

    :ivar notes: remarks on missing information, for the reader.
    """

    def __init__(self, columns: Columns, facts: GraphFacts) -> None:
        self.columns = columns
        self.facts = facts

    # What is there

    def __len__(self) -> int:
        return len(self.columns.seqs)

    @overload
    def __getitem__(self, at: int) -> Node: ...
    @overload
    def __getitem__(self, at: slice) -> list[Node]: ...
    def __getitem__(self, at: int | slice) -> Node | list[Node]:
        if isinstance(at, slice):
            return [self._node(i) for i in range(*at.indices(len(self)))]
        if not -len(self) <= at < len(self):
            raise IndexError(f"there is no node {at}: the graph has {len(self)} nodes")
        return self._node(at % len(self))

    def __iter__(self) -> Iterator[Node]:
        return (self._node(i) for i in range(len(self)))

    def __getstate__(self) -> dict[str, object]:
        return {"columns": self.columns, "facts": self.facts}

    @property
    def roots(self) -> tuple[GraphRoot, ...]:
        """The tensors from which the graph was read."""
        return self.facts.roots

    @property
    def calls(self) -> tuple[ModuleCall, ...]:
        """The module calls that made nodes, and those around them, in the order in which they began."""
        return self.facts.calls

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on missing information, for the reader."""
        return self.facts.notes

    @property
    def tensors(self) -> dict[str, tuple[int, int]]:
        """Names given with ``tensors=`` -> node, and number of its forward output."""
        return dict(self.facts.tensors)

    @property
    def leaves(self) -> dict[int, Leaf]:
        """Accumulators by node: the parameters and other leaves that the roots reach."""
        return dict(self.facts.leaves)

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Names of the leaves, including aliases of tied ones -> node."""
        found = {}
        for i, leaf in self.facts.leaves.items():
            for name in (leaf.name, *leaf.aliases):
                if name is not None:
                    found[name] = i
        return found

    @property
    def edges(self) -> int:
        """The number of edges."""
        return sum(1 for to in self.columns.targets if to >= 0)

    def type(self, i: int) -> str:
        """Return the name of node `i`, such as ``MulBackward0``."""
        return self.columns.kinds[self.columns.kind[i]].name

    def call_of(self, i: int) -> int:
        """Return the index in ``calls`` of the innermost module call that made node `i`; -1 for none."""
        return self.columns.places[self.columns.place[i]].call

    def inside(self, i: int) -> tuple[Inside, ...]:
        """Return the operations of a compiled region's backward; empty for other nodes, or if torch no longer has
        them.
        """
        return self.facts.inside.get(i, ())

    def saved(self, i: int) -> tuple[Saved, ...]:
        """Return the tensors that node `i` saves for its backward."""
        c = self.columns
        found = []
        for row in range(c.saved_starts[i], c.saved_starts[i + 1]):
            k = c.saved_kinds[c.saved_kind[row]]
            storage, made = c.storage[row], c.made[row]
            found.append(
                Saved(
                    *(k.name, k.meta, k.bytes, storage if storage >= 0 else None, k.storage_bytes, k.view, k.role),
                    *(k.owner, made if made >= 0 else None, k.changed, k.hook),
                )
            )
        return tuple(found)

    def saved_bytes(self, nodes: Iterable[int] | None = None) -> int:
        """Return the bytes of the storages that `nodes` (default: all) keep, each once, without parameters and
        buffers.
        """
        c = self.columns
        seen: set[int] = set()
        total = 0
        for i in range(len(self)) if nodes is None else nodes:
            for row in range(c.saved_starts[i], c.saved_starts[i + 1]):
                storage, kind = c.storage[row], c.saved_kinds[c.saved_kind[row]]
                if storage >= 0 and storage not in seen and kind.role not in ("parameter", "buffer"):
                    seen.add(storage)
                    total += kind.storage_bytes
        return total

    def _node(self, i: int) -> Node:
        """Make the ``Node`` object with the data of row `i` of the columns."""
        c = self.columns
        kind, place = c.kinds[c.kind[i]], c.places[c.place[i]]
        call = self.calls[place.call] if place.call >= 0 else None
        leaf = self.facts.leaves.get(i)
        pairs = zip(*(part[c.starts[i] : c.starts[i + 1]] for part in (c.targets, c.numbers)), strict=True)
        return Node(
            index=i,
            name=kind.name,
            seq=c.seqs[i],
            kind=kind.kind,
            module=call.path if call else None,
            call=call.call if call else 1,
            site=place.site,
            op=place.op,
            seen=place.seen,
            parameter=leaf.name if leaf else None,
            inputs=kind.inputs,
            saved=self.saved(i),
            freed=_FREED[c.freed[i]],
            edges=tuple((to, number) if to >= 0 else None for to, number in pairs),
            library=place.library,
        )

    # Asking

    def at(self, place: Place) -> list[int]:
        """Return the numbers of the nodes that `place` refers to.

        :raises BackprobeError: nothing matches; the message suggests similar names.
        """
        return places.resolve(self, place)

    def find(
        self,
        *,
        module: str | None = None,
        line: str | int | None = None,
        type: str | None = None,
        kind: str | None = None,
        where: Callable[[Node], bool] | None = None,
    ) -> list[Node]:
        """Return the nodes that match all given conditions; the list may be empty.

        :param module: a path; includes modules inside it. ``"block:2"`` is its second call.
        :param line: ``"train.py:12"``, also a line of a library through which the op was called; or the number of your
            line alone.
        :param type: a node's name, with or without the number at its end (``"MulBackward0"``, ``"MulBackward"``).
        :param kind: ``op``, ``accumulate``, ``function``, ``compiled`` or ``checkpoint``.
        """
        found: set[int] | None = None
        if module is not None:
            found = set(places.in_module(self, module))
        if line is not None:
            fits = set(places.at_line(self, line))
            found = fits if found is None else found & fits
        rows = range(len(self)) if found is None else sorted(found)
        kinds = {
            row
            for row, k in enumerate(self.columns.kinds)
            if (type is None or k.name == type or k.name.rstrip("0123456789") == type)
            and (kind is None or k.kind == kind)
        }
        nodes = (self._node(i) for i in rows if self.columns.kind[i] in kinds)
        return [node for node in nodes if where is None or where(node)]

    def path(self, a: Place, b: Place) -> list[Node]:
        """Return a shortest path of the gradient from `a` to `b`; empty if there is none."""
        c = self.columns
        return [self._node(i) for i in ways.shortest(c.starts, c.targets, self.at(a), self.at(b))]

    def paths(self, a: Place, b: Place, limit: int | None = 1000) -> list[list[Node]]:
        """Return the first `limit` paths of the gradient from `a` to `b`: their number may be astronomical. Two edges
        between the same nodes (``x * x``) count as two paths.
        """
        c = self.columns
        found = islice(ways.paths(c.starts, c.targets, self.at(a), self.at(b)), limit)
        return [[self._node(i) for i in way] for way in found]

    def count_paths(self, a: Place, b: Place) -> int:
        """Return the exact number of paths of the gradient from `a` to `b`."""
        return ways.count(self.columns.starts, self.columns.targets, self.at(a), self.at(b))

    def between(self, a: Place, b: Place) -> Graph:
        """Return the subgraph of all paths from `a` to `b`."""
        mask = ways.between(self.columns.starts, self.columns.targets, self.at(a), self.at(b))
        return self.subgraph(i for i in range(len(self)) if mask[i])

    def reached(self, root: Place | None = None) -> list[str]:
        """Return the names of the parameters that a gradient from `root` (default: any root) can reach. ``leaf 17`` has
        no name.
        """
        begin = [r.node for r in self.roots] if root is None else self.at(root)
        seen = order.reach(self.columns.starts, self.columns.targets, begin)
        return [leaf.name or f"leaf {i}" for i, leaf in sorted(self.facts.leaves.items()) if seen[i]]

    def reached_by(self, place: Place) -> list[str]:
        """Return the names of the roots whose gradient reaches `place`."""
        seen = order.reach(*self._back, self.at(place))
        return [root.name for root in self.roots if seen[root.node]]

    @cached_property
    def _back(self) -> tuple[Sequence[int], Sequence[int]]:
        """The edges of the graph reversed, as starts and targets."""
        return order.reverse(self.columns.starts, self.columns.targets)

    def dominators(self) -> list[int]:
        """Return for each node the nearest other node that every gradient to it passes through; -1 if there is none."""
        tree = ways.Dominators(self.columns.starts, self.columns.targets, [r.node for r in self.roots])
        return [parent if 0 <= parent < len(self) else -1 for parent in tree.parent[:-1]]

    def bottlenecks(self, a: Place | None = None, b: Place | None = None) -> list[Node]:
        """Return the nodes that every gradient from `a` (default: all roots) to `b` (default: all leaves) passes
        through, in order.

        The nodes of `a` and `b` themselves are left out.
        """
        c = self.columns
        begin = [r.node for r in self.roots] if a is None else self.at(a)
        ends = list(self.facts.leaves) if b is None else self.at(b)
        mask = ways.between(c.starts, c.targets, begin, ends)
        tree = ways.Dominators(c.starts, c.targets, [i for i in begin if mask[i]], mask)
        given = {*begin, *ends}
        return [self._node(i) for i in tree.above(i for i in ends if mask[i]) if i not in given]

    def cut(self, a: Place, b: Place) -> list[Node]:
        """Return the fewest nodes, outside `a` and `b`, that every gradient from `a` to `b` passes through; empty if no
        gradient goes there. Takes one walk of the nodes in between for each node of the result.

        :raises BackprobeError: an edge leads from `a` into `b`, so that no nodes lie between.
        """
        found = ways.smallest_cut(self.columns.starts, self.columns.targets, self.at(a), self.at(b))
        if found is None:
            raise BackprobeError(f"nothing can be cut between {a!r} and {b!r}: they share a node or an edge joins them")
        return [self._node(i) for i in found]

    @cached_property
    def order(self) -> list[int]:
        """The nodes in topological order: each after all nodes that its gradients come from."""
        return order.topological(self.columns.starts, self.columns.targets)

    @property
    def depth(self) -> int:
        """The number of nodes in the longest chain."""
        c = self.columns
        return int(max(order.longest(c.starts, c.targets, self.order), default=0))

    def longest_chain(self, weight: Callable[[Node], float] | None = None) -> list[Node]:
        """Return the longest chain of nodes from a root; with `weight` (not negative), the chain with the highest
        sum.
        """
        c = self.columns
        weights = None if weight is None else [weight(self._node(i)) for i in range(len(self))]
        best = order.longest(c.starts, c.targets, self.order, weights)
        chain = []
        at = max((r.node for r in self.roots), key=best.__getitem__, default=-1)
        while at >= 0:
            chain.append(self._node(at))
            at = max(ways.following(c.starts, c.targets, at), key=best.__getitem__, default=-1)
        return chain

    def subgraph(self, nodes: Iterable[int]) -> Graph:
        """Return the graph of these nodes and the edges among them. If no root is among them, nodes without incoming
        edges become roots.
        """
        from .cutting import subgraph

        return subgraph(self, nodes)

    def module(self, path: str) -> Graph:
        """Return the subgraph of a module: the nodes of its calls, and its parameters. ``"block:2"`` is its second
        call.

        :raises BackprobeError: no call of such a module made nodes.
        """
        found = places.in_module(self, path)
        if not found:
            from ..basics.select import nothing_chosen

            raise nothing_chosen(sorted({c.path for c in self.calls}), path, "module that made nodes")
        return self.subgraph(found)

    def compare(self, other: Graph) -> GraphDiff:
        """Return the differences from `other`: nodes, edges, shapes and saved tensors that only one of the graphs
        has.
        """
        from .compare import compare

        return compare(self, other)

    # Showing

    def collapse(self, depth: int | None = None, **options: Any) -> Diagram:
        """Collapse the graph into boxes for a drawing: module calls closed below `depth`, repeated blocks folded. See
        ``Diagram``.

        :param depth: levels of modules that are opened; by default as many as leave at most 60 boxes.
        :param open: additional modules to open, by name, glob or pattern.
        :param fold: fold repeated blocks (``x12``).
        :param parameters: draw a box for each parameter.
        """
        from .collapse import collapse

        return collapse(self, depth, **options)

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        name = f" of {self.facts.model}" if self.facts.model else ""
        return without_controls(
            f"<Graph{name}: {len(self)} nodes, {self.edges} edges, {len(self.facts.leaves)} leaves>"
        )

    def text(self, depth: int | None = None, **options: object) -> str:
        """Return a tree of modules as text. Options are those of ``collapse``."""
        from .outline import text

        return text(self.collapse(depth, **options))

    def svg(self, depth: int | None = None, **options: object) -> str:
        """Return a drawing as SVG. Options are those of ``collapse``."""
        from .svg import svg

        return svg(self.collapse(depth, **options))

    def dot(self, depth: int | None = None, **options: object) -> str:
        """Return the graph in Graphviz's language. Options are those of ``collapse``."""
        from .export import dot

        return dot(self.collapse(depth, **options))

    def mermaid(self, depth: int | None = None, **options: object) -> str:
        """Return the graph as Mermaid, for Markdown. Options are those of ``collapse``."""
        from .export import mermaid

        return mermaid(self.collapse(depth, **options))

    def to_json(self) -> str:
        """Return the whole graph as JSON: nodes with all their data, calls, roots, notes."""
        from .export import to_json

        return to_json(self)

    def to_model_explorer(self) -> str:
        """Return JSON for Model Explorer: all nodes, in the namespaces of their module calls."""
        from .export import model_explorer

        return model_explorer(self)

    def to_chrome_trace(self) -> str:
        """Return JSON for Perfetto and chrome://tracing: nodes in their module calls, in forward order."""
        from .export import chrome_trace

        return chrome_trace(self)

    def to_networkx(self) -> Any:
        """Return a ``networkx.MultiDiGraph``; edges go in the direction of the gradient.

        :raises BackprobeError: networkx is not installed.
        """
        from .interop import networkx_graph

        return networkx_graph(self)

    def to_pandas(self) -> Any:
        """Return a ``pandas.DataFrame`` with a row for each node.

        :raises BackprobeError: pandas is not installed.
        """
        from .interop import data_frame

        return data_frame(self)

    def _repr_html_(self) -> str:
        from .svg import html

        return html(self)
