import { describe, expect, test } from "vitest";
import { Links } from "./links";
import { between, distances } from "./paths";
import { modelOf, randomSpec } from "./testing";

function links(to: number[][]): Links {
  const edges = [0];
  for (const some of to) edges.push(edges.at(-1)! + some.length);
  return new Links({ edges: Int32Array.from(edges), to: Int32Array.from(to.flat()) });
}

describe("links", () => {
  test("the same edges both ways; an edge to nothing has no way back", () => {
    const made = links([[1, 2], [2, -1], []]);
    expect(Array.from(made.from)).toEqual([0, 0, 1, 1]);
    const into = (node: number): number[] =>
      Array.from(made.back.subarray(made.into[node]!, made.into[node + 1]!), (e) => made.from[e]!);
    expect([into(0), into(1), into(2)]).toEqual([[], [0], [0, 1]]);
  });
});

describe("between", () => {
  const diamond = links([[1, 2], [3], [3], [4], [], [4]]);

  test("all nodes of a diamond, and a shortest way through it", () => {
    const way = between(diamond, [0], [4])!;
    expect(Array.from(way.on)).toEqual([1, 1, 1, 1, 1, 0]);
    expect(way.shortest).toEqual([0, 1, 3, 4]);
  });

  test("one side only", () => {
    expect(Array.from(between(diamond, [2], [4])!.on)).toEqual([0, 0, 1, 1, 1, 0]);
  });

  test("several roots: the nearest is the start of the shortest way", () => {
    const way = between(diamond, [0, 5], [4])!;
    expect(way.count).toBe(6);
    expect(way.shortest).toEqual([5, 4]);
  });

  test("from a node to itself", () => {
    expect(between(diamond, [3], [3])).toMatchObject({ count: 1, shortest: [3] });
  });

  test("none against the gradient, nor from nothing", () => {
    expect(between(diamond, [4], [0])).toBeNull();
    expect(between(diamond, [1], [2])).toBeNull();
    expect(between(diamond, [], [4])).toBeNull();
  });

  test("a chain of 200,000", () => {
    const size = 200_000;
    const chain = links(Array.from({ length: size }, (_, i) => (i + 1 < size ? [i + 1] : [])));
    expect(between(chain, [0], [size - 1])!.shortest.length).toBe(size);
    expect(distances(chain, [size - 1], true)[0]).toBe(size - 1);
  }, 30_000);

  test("is what reachability by trying all says", () => {
    for (let seed = 0; seed < 30; seed++) {
      const { doc } = modelOf(randomSpec(seed, 24));
      const made = new Links(doc.layouts[0]!);
      const reach = Array.from({ length: 24 }, (_, i) => Array.from({ length: 24 }, (_, j) => i === j));
      for (let pass = 0; pass < 24; pass++)
        for (const [e, to] of made.to.entries()) for (const row of reach) row[to] ||= row[made.from[e]!]!;
      for (const [a, b] of [
        [0, 23],
        [3, 17],
        [10, 12],
      ] as const) {
        const expected = reach.map((row, i) => (reach[a]![i]! && row[b]! ? 1 : 0));
        const way = between(made, [a], [b]);
        if (!reach[a]![b]) expect(way).toBeNull();
        else {
          expect(Array.from(way!.on)).toEqual(expected);
          way!.shortest.slice(1).forEach((node, k) => {
            const before = way!.shortest[k]!;
            expect(Array.from(made.to.subarray(made.edges[before]!, made.edges[before + 1]!))).toContain(node);
          });
        }
      }
    }
  });
});
