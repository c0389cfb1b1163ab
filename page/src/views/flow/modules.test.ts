import { describe, expect, it } from "vitest";
import { callOf, documentOf, draws, layoutOf, modulesOf } from "../../charts/testing";
import { type Calls, Model } from "../../data/model";
import { backwardNorms, forwardNorms } from "./modules";

const PATHS = ["", "a", "a.x", "a.x.p", "a.y", "b", "b.z", "b.z.q"];

/** Module by module and edge by edge, by paths alone: slow and plain. */
function oracle(model: Model, call: Calls): number[] {
  const nodes = model.nodes(call);
  const inside = (path: string, outer: string): boolean =>
    outer === "" || path === outer || path.startsWith(`${outer}.`);
  return model.doc.modules.map(({ path }) => {
    const norms: number[] = [];
    nodes.module.forEach((from, i) => {
      for (let e = nodes.edges[i]!; e < nodes.edges[i + 1]!; e++) {
        const to = nodes.to[e]!;
        if (to < 0 || nodes.seq[to] === -1 || call.out[e]! < 0 || nodes.module[to]! < 0) continue;
        const enters = inside(PATHS[nodes.module[to]!]!, path) && !(from >= 0 && inside(PATHS[from]!, path));
        if (enters) norms.push(call.out[e]!);
      }
    });
    const root = call.roots[0]!.node;
    if (nodes.module[root]! >= 0 && inside(PATHS[nodes.module[root]!]!, path) && !(call.came[root]! < 0))
      norms.push(call.came[root]!);
    return norms.length === 0 ? -1 : Math.sqrt(norms.reduce((s, n) => s + n * n, 0));
  });
}

describe("gradients at the boundaries of modules", () => {
  it("are those that enter from outside, and not those within", () => {
    // loss -> b.z -> a.x.p -> a.y -> a parameter
    const layout = layoutOf([
      { module: 0, to: [1] },
      { module: 6, to: [2, 3] },
      { module: 3, to: [3, 4] },
      { module: 4, to: [4] },
      { module: 3, to: [], leaf: true },
    ]);
    const call = callOf(5, { out: Float32Array.of(2, 3, 4, 12, 100, 100), came: Float32Array.of(1, -1, -1, -1, -1) });
    const model = new Model(documentOf({ modules: modulesOf(PATHS), layouts: [layout], calls: [call] }));
    const norms = backwardNorms(model, call);
    expect(norms[1]).toBeCloseTo(5, 6); // a: 3 and 4 from b.z; 12 goes from a.x to a.y, inside it
    expect(norms[2]).toBeCloseTo(3, 6);
    expect(norms[4]).toBeCloseTo(Math.hypot(4, 12), 5);
    expect([norms[0], norms[5], norms[6], norms[7]]).toEqual([1, 2, 2, -1]);
  });

  it("agree with a slow oracle on random graphs", () => {
    for (let seed = 0; seed < 60; seed++) {
      const draw = draws(seed);
      const count = 3 + Math.floor(draw() * 30);
      const layout = layoutOf(
        Array.from({ length: count }, (_, i) => ({
          module: Math.floor(draw() * (PATHS.length + 1)) - 1,
          leaf: i > count / 2 && draw() < 0.3,
          to: Array.from({ length: Math.floor(draw() * 4) }, () =>
            draw() < 0.1 ? -1 : i + 1 + Math.floor(draw() * (count - i - 1)),
          ).filter((t) => t < count),
        })),
      );
      const out = Float32Array.from(layout.to, () =>
        draw() < 0.15 ? -1 : draw() < 0.03 ? NaN : draw() < 0.05 ? 0 : draw() * 10,
      );
      const call = callOf(count, { out, came: new Float32Array(count).fill(draw() < 0.3 ? -1 : 1.5) });
      const model = new Model(documentOf({ modules: modulesOf(PATHS), layouts: [layout], calls: [call] }));
      const [found, expected] = [backwardNorms(model, call), oracle(model, call)];
      found.forEach((v, m) =>
        Number.isNaN(expected[m]!) ? expect(v).toBeNaN() : expect(v).toBeCloseTo(expected[m]!, 4),
      );
    }
  });
});

it("puts the calls of a module together in the forward", () => {
  const model = new Model(documentOf({ modules: modulesOf(["", "a", "b"]) }));
  const norms = forwardNorms(model, {
    step: 0,
    module: Int32Array.of(1, 1, 2, -1),
    nth: Int32Array.of(1, 2, 1, 1),
    norm: Float32Array.of(3, 4, NaN, 9),
  });
  expect([...norms]).toEqual([-1, 5, NaN]);
});
