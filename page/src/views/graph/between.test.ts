import { describe, expect, test } from "vitest";
import { flows, OUTSIDE, Together } from "./between";
import { Links } from "./links";
import { hierarchyOf, leaf, randomSpec, sceneOf } from "./testing";

describe("flows", () => {
  test("a diamond between a node, a module and a node", () => {
    const { h, links, call } = sceneOf({
      modules: [["m", "M"]],
      nodes: [{ to: [1, 2], out: [3, 4] }, { module: "m", to: [3], out: [5] }, { module: "m", to: [3], out: [12] }, {}],
    });
    // In forward order: node 3, the module, node 0.
    const found = flows(h, links, call.out, 0, null);
    expect(found).toContainEqual({ from: 2, to: 1, count: 2, norm: 5, marked: false, cut: false });
    expect(found).toContainEqual({ from: 1, to: 0, count: 2, norm: 13, marked: false, cut: false });
    expect(found.length).toBe(2);
    const inside = flows(h, links, call.out, 1, null);
    expect(inside.map(({ from, to }) => [from, to]).sort()).toEqual(
      [
        [0, OUTSIDE],
        [1, OUTSIDE],
        [OUTSIDE, 0],
        [OUTSIDE, 1],
      ].sort(),
    ); // prettier-ignore
  });

  test("only edges between two nodes of the path are marked", () => {
    const { h, links, call } = sceneOf({ nodes: [{ to: [1, 2] }, { to: [2] }, {}] });
    const on = Uint8Array.of(1, 1, 0);
    expect(flows(h, links, call.out, 0, on).map(({ from, to, marked }) => [from, to, marked])).toEqual([
      [1, 0, false],
      [2, 1, true],
      [2, 0, false],
    ]);
  });

  test("parameters shared by calls have lines where they are, and none out of the calls", () => {
    const { h, links, call } = sceneOf({
      modules: [["a", "A", 2]],
      parameters: [["a.w"]],
      nodes: [{ module: "a", nth: 2, to: [1, 2], seq: 1 }, { module: "a", nth: 1, to: [2], seq: 0 }, leaf("a.w")],
    });
    expect(flows(h, links, call.out, 0, null).map(({ from, to }) => [from, to])).toEqual([
      [0, 2],
      [1, 0],
      [1, 2],
    ]); // prettier-ignore
    const second = h.modules.get(1)![1]!;
    expect(flows(h, links, call.out, second, null).map(({ from, to }) => [from, to])).toEqual([[0, OUTSIDE]]);
  });

  test("is what adding up all edges one by one gives", () => {
    for (let seed = 0; seed < 40; seed++) {
      const h = hierarchyOf(randomSpec(seed, 40));
      const call = h.model.doc.calls[0]!;
      const links = new Links(h.nodes);
      h.groups.forEach((group, id) => {
        const slot = (node: number): number =>
          group.items.findIndex((item) => item === ~node || (item >= 0 && h.holds(item, ~node)));
        const expected = new Map<string, { count: number; squares: number[] }>();
        links.to.forEach((to, e) => {
          const [from, target] = [slot(links.from[e]!), slot(to)];
          if (from === target) return;
          const one = expected.get(`${from},${target}`) ?? { count: 0, squares: [] };
          one.count++;
          if (call.out[e]! >= 0) one.squares.push(call.out[e]! ** 2);
          expected.set(`${from},${target}`, one);
        });
        const found = flows(h, links, call.out, id, null);
        expect(found.length).toBe(expected.size);
        for (const { from, to, count, norm } of found) {
          const { count: n, squares } = expected.get(`${from},${to}`)!;
          expect(count).toBe(n);
          expect(norm).toBeCloseTo(squares.length ? Math.sqrt(squares.reduce((a, b) => a + b, 0)) : -1, 5);
        }
      });
    }
  });
});

test("norms together: nothing measured is not zero, and NaN stays", () => {
  const sum = (...norms: number[]): number => {
    const made = new Together();
    norms.forEach((norm) => made.add(norm));
    return made.norm;
  };
  expect([sum(), sum(-1), sum(0), sum(3, -1, 4), sum(NaN, 1), sum(Infinity)]).toEqual([-1, -1, 0, 5, NaN, Infinity]);
});
