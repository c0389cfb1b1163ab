import { describe, expect, test } from "vitest";
import { MOST } from "./fold";
import { hierarchyOf, leaf, type NodeSpec, randomSpec, shape } from "./testing";

/** Nodes from the loss on, each giving to the next. */
function chain(specs: NodeSpec[]): NodeSpec[] {
  return specs.map((spec, i) => ({ to: i + 1 < specs.length ? [i + 1] : [], ...spec }));
}

describe("hierarchy", () => {
  test("nodes in their modules, in forward order", () => {
    const h = hierarchyOf({
      modules: [
        ["enc", "Encoder"],
        ["enc.lin", "Linear"],
        ["head", "Linear"],
      ],
      nodes: chain([
        { name: "Loss" },
        { module: "head" },
        { module: "enc" },
        { module: "enc.lin" },
        { module: "enc.lin" },
      ]),
    }); // prettier-ignore
    expect(shape(h)).toBe("enc[enc.lin[4 3] 2] head[1] 0");
    expect(h.groups.map((g) => [g.start, g.end, g.last])).toEqual([
      [0, 5, 4],
      [0, 3, 3],
      [0, 2, 3],
      [3, 4, 4],
    ]); // prettier-ignore
    expect(h.holds(1, ~4)).toBe(true);
    expect(h.holds(1, ~1)).toBe(false);
    expect(h.holds(1, 2)).toBe(true);
  });

  test("a container that nobody calls is left out, and a module without nodes of its own is there", () => {
    const h = hierarchyOf({
      modules: [
        ["blocks", "", 0],
        ["blocks.0", "Sequential"],
        ["blocks.0.1", "Linear"],
      ],
      nodes: chain([{}, { module: "blocks.0.1" }]),
    }); // prettier-ignore
    expect(shape(h)).toBe("blocks.0[blocks.0.1[1]] 0");
  });

  test("calls of a module are apart, and calls inside are shared out among them", () => {
    const h = hierarchyOf({
      modules: [
        ["rnn", "Cell", 2],
        ["rnn.gate", "Linear", 4],
      ],
      nodes: chain([4, 3, 2, 1].map((nth) => ({ module: "rnn.gate", nth }))),
    });
    expect(shape(h)).toBe("rnn:1[rnn.gate:1[3] rnn.gate:2[2]] rnn:2[rnn.gate:3[1] rnn.gate:4[0]]");
  });

  test("nodes of no module are at the top, with module -1 too", () => {
    const h = hierarchyOf({ nodes: [{ to: [1] }, { module: "not there" }] });
    expect(shape(h)).toBe("1 0");
  });

  test("blocks that look the same are one box; one that differs is not among them", () => {
    const modules: [string, string][] = Array.from({ length: 5 }, (_, k) => [`b${k}`, "Block"]);
    const nodes = chain(
      [4, 3, 2, 1, 0].flatMap((k) => [
        { module: `b${k}`, name: "A" },
        { module: `b${k}`, name: k === 0 ? "C" : "B" },
      ]),
    );
    expect(shape(hierarchyOf({ modules, nodes }))).toBe("b0[9 8] run×4[b1[7 6] b2[5 4] b3[3 2] b4[1 0]]");
  });

  test("the same inside but of another class is not the same", () => {
    const modules: [string, string][] = [
      ["b0", "A"],
      ["b1", "A"],
      ["b2", "B"],
      ["b3", "A"],
    ]; // prettier-ignore
    const nodes = chain([3, 2, 1, 0].flatMap((k) => [{ module: `b${k}` }, { module: `b${k}` }]));
    expect(shape(hierarchyOf({ modules, nodes }))).not.toContain("run");
  });

  test("a loop's turns are folded, and a short one is left as it is", () => {
    const loop = (times: number): string =>
      shape(hierarchyOf({ nodes: chain(Array.from({ length: 3 * times }, (_, i) => ({ name: `N${i % 3}` }))) }));
    expect(loop(3)).toBe("run×3[turn[8 7 6] turn[5 4 3] turn[2 1 0]]");
    expect(loop(2)).toBe("5 4 3 2 1 0");
  });

  test("loops in loops", () => {
    const body = ["A", "A", "A", "A", "A", "A", "A", "A", "A", "B"];
    const h = hierarchyOf({ nodes: chain([...body, ...body, ...body, ...body, ...body].map((name) => ({ name }))) });
    expect(h.groups.map((g) => g.kind)).toEqual([
      "module",
      "run",
      "turn",
      "run",
      "turn",
      "run",
      "turn",
      "run",
      "turn",
      "run",
      "turn",
      "run",
    ]);
    expect(h.groups[1]!.times).toBe(5);
  });

  test("parameters are in their module; those of several calls are around the calls", () => {
    const h = hierarchyOf({
      modules: [
        ["a", "Linear"],
        ["cell", "Cell"],
        ["cell.lin", "Linear", 2],
      ],
      parameters: [["a.weight"], ["cell.lin.weight"]],
      nodes: [
        { module: "cell.lin", nth: 2, to: [1, 4], seq: 3 },
        { module: "cell.lin", nth: 1, to: [2, 4], seq: 2 },
        { module: "a", to: [3], seq: 1 },
        leaf("a.weight"),
        leaf("cell.lin.weight"),
      ],
    }); // prettier-ignore
    expect(shape(h)).toBe("a[2 3] cell[cell.lin:1[1] cell.lin:2[0] 4]");
    expect(Array.from(h.leaves)).toEqual([3, 4]);
  });

  test("parameters without gradient: one box for each outermost module that is not there", () => {
    const h = hierarchyOf({
      modules: [
        ["used", "Linear"],
        ["off", "Branch", 0],
        ["off.a", "Linear", 0],
        ["off.b", "Linear", 0],
        ["frozen", "Linear"],
      ],
      parameters: [
        ["used.weight"],
        ["used.bias"],
        ["off.a.weight"],
        ["off.b.weight"],
        ["frozen.weight", { requires_grad: false }],
      ],
      nodes: [{ module: "used", to: [1] }, leaf("used.weight")],
    }); // prettier-ignore
    expect(shape(h)).toBe("used[0 1 cut used[]] cut off[]");
    expect(h.groups[h.cuts.get(2)!]!.parameters).toEqual([2, 3]);
    expect(h.groups[h.cuts.get(1)!]!.parameters).toEqual([1]);
    expect(h.cuts.has(4)).toBe(false);
  });

  test("many of them for one reason are one box; those of a finding are apart", () => {
    const names = ["a", "b", "c", "d", "e"];
    const h = hierarchyOf({
      modules: names.map((name) => [name, "Linear"]),
      parameters: names.map((name) => [`${name}.weight`, { reached: 0 }]),
      nodes: [{}],
      findings: [{ kind: "none-grad", parameters: ["e.weight"] }],
    });
    expect(shape(h)).toBe("0 cut [] cut e[]");
    expect(h.groups[1]!.parameters).toEqual([0, 1, 2, 3]);
    expect(h.groups[h.cuts.get(4)!]!.module).toBe(5);
  });

  test("a chain of 200,000 different nodes opens page by page, and no page is long", () => {
    const size = 200_000;
    const nodes = chain(
      Array.from({ length: size }, (_, i) => ({ name: `N${(i * 7919) % 997}`, op: `o${i % 1009}`, site: i % 2 })),
    );
    const h = hierarchyOf({
      nodes,
      sites: [
        ["a.py", 1],
        ["b.py", 2],
      ],
    }); // prettier-ignore
    expect(Math.max(...h.groups.map((g) => g.items.length))).toBeLessThanOrEqual(MOST);
    expect(Array.from(h.sequence.subarray(0, 3))).toEqual([size - 1, size - 2, size - 3]);
    expect(h.groups[0]!.end).toBe(size);
  }, 30_000);

  test("nodes of one call of a function come together where there are many", () => {
    const nodes = chain(Array.from({ length: 120 }, (_, i) => ({ name: `N${i}`, op: `op${i >> 2}`, site: i >> 2 })));
    const h = hierarchyOf({ nodes });
    expect(h.groups[0]!.items.length).toBe(30);
    expect(h.groups[1]!.kind).toBe("line");
  });

  test("each node is in one place, and groups nest", () => {
    for (let seed = 0; seed < 40; seed++) {
      const h = hierarchyOf(randomSpec(seed, 60));
      expect(Array.from(h.sequence).sort((a, b) => a - b)).toEqual(Array.from({ length: 60 }, (_, i) => i));
      h.sequence.forEach((node, place) => expect(h.position[node]).toBe(place));
      h.groups.forEach((group, id) => {
        if (id > 0) expect(h.holds(group.parent, id)).toBe(true);
        for (const item of group.items) expect(h.around(item)).toBe(id);
      });
    }
  });
});
