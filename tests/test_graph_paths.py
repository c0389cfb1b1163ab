"""Paths, dominators, cuts and order of generated graphs, compared with networkx and with brute force."""

from __future__ import annotations

from array import array
from itertools import islice, pairwise

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backprobe import BackprobeError
from backprobe.graphs import order, ways
from backprobe.graphs.compare import align
from backprobe.graphs.data import Columns, GraphFacts, GraphRoot, NodeKind, NodePlace
from backprobe.graphs.graph import Graph


def flat(edges: list[list[int]]) -> tuple[array, array]:
    starts, targets = array("q", [0]), array("q")
    for row in edges:
        targets.extend(row)
        starts.append(len(targets))
    return starts, targets


def graph_of(edges: list[list[int]], roots: list[int]) -> Graph:
    """A graph by hand: no torch is needed for one."""
    columns = Columns(kinds=[NodeKind("MulBackward0", "op", ())], places=[NodePlace()])
    for i, row in enumerate(edges):
        columns.kind.append(0)
        columns.place.append(0)
        columns.seqs.append(len(edges) - i)
        columns.freed.append(0)
        columns.saved_starts.append(0)
        columns.targets.extend(row)
        columns.numbers.extend([0] * len(row))
        columns.starts.append(len(columns.targets))
    return Graph(columns, GraphFacts(tuple(GraphRoot(f"root{k}", i, 0, None) for k, i in enumerate(roots))))


@st.composite
def dags(draw, most: int = 14):
    """Edges that go from lower to higher numbers, with doubles and edges to nowhere, as autograd has them."""
    n = draw(st.integers(2, most))
    return [draw(st.lists(st.sampled_from([-1, *range(i + 1, n)]), max_size=4)) if i + 1 < n else [] for i in range(n)]


def to_networkx(edges: list[list[int]]) -> nx.DiGraph:
    made = nx.DiGraph()
    made.add_nodes_from(range(len(edges)))
    made.add_edges_from((i, to) for i, row in enumerate(edges) for to in row if to >= 0)
    return made


@given(dags())
def test_order_depth_and_reach(edges) -> None:
    starts, targets = flat(edges)
    other = to_networkx(edges)
    found = order.topological(starts, targets)
    place = {i: k for k, i in enumerate(found)}
    assert sorted(found) == list(range(len(edges)))
    assert all(place[a] < place[b] for a, b in other.edges)
    assert max(order.longest(starts, targets, found)) == nx.dag_longest_path_length(other) + 1
    assert max(order.levels(starts, targets, found)) == nx.dag_longest_path_length(other)
    for i in range(len(edges)):
        seen = order.reach(starts, targets, [i])
        assert {k for k, bit in enumerate(seen) if bit} == nx.descendants(other, i) | {i}
    back = order.reverse(starts, targets)
    for i in range(len(edges)):
        assert sorted(set(back[1][back[0][i] : back[0][i + 1]])) == sorted(other.predecessors(i))
    assert set(order.sources(starts, targets)) == {i for i, n in other.in_degree if n == 0}


@given(dags(10), st.data())
def test_paths_between_nodes_and_between_sets(edges, data) -> None:
    starts, targets = flat(edges)
    other = to_networkx(edges)
    numbers = st.sets(st.integers(0, len(edges) - 1), min_size=1, max_size=3)
    a, b = data.draw(numbers), data.draw(numbers)
    several = nx.MultiDiGraph(other)
    several.remove_edges_from(list(several.edges))
    several.add_edges_from((i, to) for i, following in enumerate(edges) for to in following if to >= 0)
    expected = [(i,) for i in a & b]
    for x in a - b:
        for y in b - a:
            # Two edges between the same nodes are two ways.
            for way in nx.all_simple_paths(several, x, y):
                if not set(way[1:]) & a and not set(way[:-1]) & b:
                    expected.append(tuple(way))
    found = [tuple(way) for way in ways.paths(starts, targets, a, b)]
    assert sorted(found) == sorted(expected)
    assert ways.count(starts, targets, a, b) == len(expected)
    shortest = ways.shortest(starts, targets, a, b)
    lengths = [nx.shortest_path_length(other, x, y) for x in a for y in b if nx.has_path(other, x, y)]
    assert (len(shortest) - 1 == min(lengths)) if lengths else shortest == []
    mask = ways.between(starts, targets, a, b)
    inside = {i for i in other if any(nx.has_path(other, x, i) for x in a) and any(nx.has_path(other, i, y) for y in b)}
    assert {i for i, bit in enumerate(mask) if bit} == inside


@given(dags(16), st.data())
def test_dominators(edges, data) -> None:
    starts, targets = flat(edges)
    roots = sorted(data.draw(st.sets(st.integers(0, len(edges) - 1), min_size=1, max_size=3)))
    other = to_networkx(edges)
    other.add_edges_from(("top", i) for i in roots)
    expected = nx.immediate_dominators(other, "top")
    tree = ways.Dominators(starts, targets, roots)
    for i in range(len(edges)):
        if i not in expected:
            assert tree.parent[i] == -1
        else:
            assert tree.parent[i] == (len(edges) if expected[i] == "top" else expected[i])


@given(dags(12), st.data())
def test_bottlenecks_are_on_every_path(edges, data) -> None:
    a = data.draw(st.sets(st.integers(0, len(edges) - 1), min_size=1, max_size=2))
    b = data.draw(st.sets(st.integers(0, len(edges) - 1), min_size=1, max_size=2))
    graph = graph_of(edges, [0])
    other = to_networkx(edges)
    expected = None
    for x in a:
        for y in b:
            for way in nx.all_simple_paths(other, x, y) if x != y else [[x]]:
                expected = set(way) if expected is None else expected & set(way)
    assert {n.index for n in graph.bottlenecks(sorted(a), sorted(b))} == (expected or set()) - a - b


@settings(max_examples=200)
@given(dags(12), st.data())
def test_a_cut_has_the_fewest_nodes_and_cuts(edges, data) -> None:
    a = data.draw(st.sets(st.integers(0, len(edges) - 1), min_size=1, max_size=2))
    b = data.draw(st.sets(st.integers(0, len(edges) - 1), min_size=1, max_size=2))
    starts, targets = flat(edges)
    found = ways.smallest_cut(starts, targets, sorted(a), sorted(b))
    other = to_networkx(edges)
    if a & b or any(other.has_edge(x, y) for x in a for y in b):
        assert found is None
        return
    assert found is not None
    joined = to_networkx(edges)
    joined.remove_edges_from([(i, x) for x in a for i in list(joined.predecessors(x))])
    joined.remove_edges_from([(y, i) for y in b for i in list(joined.successors(y))])
    joined.add_edges_from([("s", t) for x in a for t in list(joined.successors(x))])
    joined.add_edges_from([(t, "t") for y in b for t in list(joined.predecessors(y))])
    joined.remove_nodes_from(a | b)
    expected = 0
    if "s" in joined and "t" in joined and nx.has_path(joined, "s", "t"):
        expected = len(nx.minimum_node_cut(joined, "s", "t"))
    assert len(found) == expected
    other.remove_nodes_from(found)
    assert not any(nx.has_path(other, x, y) for x in a for y in b)


def test_what_is_asked_of_a_graph_by_hand() -> None:
    #     0 -> 1 -> 3 -> 4,  0 -> 2 -> 3,  2 -> nowhere
    graph = graph_of([[1, 2], [3], [3, -1], [4], []], [0])
    assert [n.index for n in graph.path("root0", 4)] == [0, 1, 3, 4]
    assert [[n.index for n in way] for way in graph.paths(0, 4)] == [[0, 1, 3, 4], [0, 2, 3, 4]]
    assert graph.count_paths(0, 4) == 2
    assert [n.index for n in graph.bottlenecks(0, 4)] == [3]
    assert graph.dominators() == [-1, 0, 0, 0, 3]
    assert [n.index for n in graph.cut(0, 3)] == [1, 2]
    with pytest.raises(BackprobeError, match="nothing can be cut between 3 and 4"):
        graph.cut(3, 4)
    assert graph.depth == 4 and [n.index for n in graph.longest_chain()] == [0, 1, 3, 4]
    assert [n.index for n in graph.longest_chain(lambda n: 5 if n.index == 2 else 1)] == [0, 2, 3, 4]
    part = graph.between(2, 4)
    assert [n.edges for n in part] == [((1, 0), None), ((2, 0),), ()]
    assert [r.name for r in part.roots] == ["out"]


def test_hard_shapes_in_linear_time() -> None:
    """A ladder has more ways than atoms, and dominator and cut searches that are quadratic show here."""
    n = 20_000
    ladder = [[i + 1, i + 2] for i in range(n - 2)] + [[n - 1], []]
    graph = graph_of(ladder, [0])
    assert graph.count_paths(0, n - 1) > 10**1000
    assert len(graph.paths(0, n - 1, limit=2)) == 2
    assert graph.bottlenecks(0, n - 1) == []
    assert len(graph.cut(0, n - 1)) == 2
    assert graph.depth == n
    rungs = [[i + 1] if i + 1 < n else [] for i in range(n)]
    assert len(graph_of(rungs, [0]).bottlenecks(0, n - 1)) == n - 2
    assert list(islice(ways.paths(*flat(rungs), [0], [n - 1]), 2)) == [list(range(n))]


@given(st.lists(st.sampled_from("abc"), max_size=30), st.lists(st.sampled_from("abc"), max_size=30))
def test_alignment_pairs_equal_labels_in_order(a, b) -> None:
    pairs = align(a, b)
    assert all(a[i] == b[k] for i, k in pairs)
    assert all(x < y and p < q for (x, p), (y, q) in pairwise(pairs))
    assert len(align(a, a)) == len(a)


def test_alignment_of_long_sequences() -> None:
    a = [f"x{i % 7}" for i in range(30_000)]
    b = [*a[:100], "new", *a[100:20_000], *a[20_010:]]
    assert len(align(a, b)) > 29_900
    once = [f"y{i}" for i in range(3_000)]
    moved = [*once[:1000], "new", *once[1001:2500], "newer", *once[2500:]]
    assert len(align(once, moved)) == 2999
