import { describe, expect, it } from "vitest";
import { callOf, documentOf, draws, layoutOf, modulesOf, parameter } from "../../charts/testing";
import { Model } from "../../data/model";
import { marked } from "./about";
import { byModule, byOp, coverage } from "./tables";
import { boxes, moduleOf, type Row, ranInOrder, stretchAt, timeline } from "./timeline";

const PATHS = ["", "a", "a.x", "b"];

function made(
  modules: number[],
  time: number[],
  more: { order?: number[]; names?: string[]; parameter?: number[] } = {},
) {
  const layout = layoutOf(
    modules.map((module, i) => ({
      module,
      to: [],
      name: more.names?.[i] ?? "Node",
      parameter: more.parameter?.[i] ?? -1,
    })),
  );
  const call = callOf(modules.length, {
    time: Float32Array.from(time),
    ...(more.order ? { order: Int32Array.from(more.order) } : {}),
  });
  const model = new Model(
    documentOf({
      modules: modulesOf(PATHS),
      layouts: [layout],
      calls: [call],
      parameters: [parameter("a.x.weight", { module: 2 })],
    }),
  );
  return { model, call };
}
const rowOf = (row: Row): number[][] => [...row.of].map((of, k) => [of, row.first[k]!, row.last[k]!]);

describe("a timeline", () => {
  it("lays nodes end to end in the order in which they ran, those without a time as nothing", () => {
    const { model, call } = made([1, 1, 3, 0], [4, -1, 2, 8], { order: [2, 0, 1, -1] });
    expect([...ranInOrder(call.order)]).toEqual([1, 2, 0]);
    const line = timeline(model, call, false);
    expect([...line.begin]).toEqual([0, 0, 2, 6]);
    expect(line.measured).toBe(2);
    expect([...timeline(model, call, true).begin]).toEqual([0, 1, 2, 3]);
  });
  it("has a row for each depth, in which neighbours of a module are one stretch, and the nodes at the foot", () => {
    const { model, call } = made([2, 2, 1, 3, 2, -1], [1, 1, 1, 1, 1, 1]);
    const { rows } = timeline(model, call, false);
    expect(rows.length).toBe(4);
    expect(rowOf(rows[0]!)).toEqual([[0, 0, 4]]);
    expect(rowOf(rows[1]!)).toEqual([
      [1, 0, 2],
      [3, 3, 3],
      [1, 4, 4],
    ]); // prettier-ignore
    expect(rowOf(rows[2]!)).toEqual([
      [2, 0, 1],
      [2, 4, 4],
    ]); // prettier-ignore
    expect([...rows[3]!.of]).toEqual([0, 1, 2, 3, 4, 5]);
  });
  it("counts a node that accumulates into a parameter to the parameter's module", () => {
    const { model, call } = made([2, -1, 2], [1, 1, 1], { parameter: [-1, 0, -1] });
    expect(moduleOf(model, model.nodes(call), 1)).toBe(2);
    expect(rowOf(timeline(model, call, false).rows[2]!)).toEqual([[2, 0, 2]]);
  });
});

describe("boxes", () => {
  it("are the seen stretches, cut at the edges", () => {
    const { model, call } = made([1, 3, 1], [10, 20, 30]);
    const line = timeline(model, call, false);
    expect(boxes(line, line.rows[1]!, 5, 45, 80)).toEqual([
      { from: 0, to: 0, x: 0, width: 10 },
      { from: 1, to: 1, x: 10, width: 40 },
      { from: 2, to: 2, x: 50, width: 30 },
    ]);
    expect(boxes(line, line.rows[1]!, 12, 14, 100)).toEqual([{ from: 1, to: 1, x: 0, width: 100 }]);
  });

  it("join what is narrower than a pixel: few boxes, nothing lost, nothing twice", () => {
    const draw = draws(5);
    const n = 20_000;
    const time = Array.from({ length: n }, () => (draw() < 0.2 ? -1 : draw() ** 6));
    const { model, call } = made(
      Array.from({ length: n }, () => Math.floor(draw() * 4)),
      time,
    );
    const line = timeline(model, call, false);
    const total = line.begin[n]!;
    for (const [low, high] of [
      [0, total],
      [total * 0.3, total * 0.31],
      [total * 0.5, total * 0.50001],
    ] as const) {
      for (const row of line.rows) {
        const found = boxes(line, row, low, high, 500);
        expect(found.length).toBeLessThanOrEqual(1002);
        let before = -1;
        for (const b of found) {
          expect(b.from).toBeGreaterThan(before);
          before = b.to;
          expect(b.x >= 0 && b.x <= 500).toBe(true);
          // Only narrow ones are joined.
          if (b.to > b.from)
            expect(
              ((line.begin[row.last[b.to]! + 1]! - line.begin[row.first[b.from]!]!) * 500) / (high - low),
            ).toBeLessThanOrEqual(1.0001);
        }
        const covered = new Set(found.flatMap((b) => Array.from({ length: b.to - b.from + 1 }, (_, k) => b.from + k)));
        for (let k = 0; k < row.first.length; k++) {
          const [a, b] = [line.begin[row.first[k]!]!, line.begin[row.last[k]! + 1]!];
          if (b > a && b > low && a < high) expect(covered.has(k)).toBe(true);
        }
      }
    }
  });

  it("are found again by their time", () => {
    const { model, call } = made([1, 3, 1], [10, 0, 30]);
    const line = timeline(model, call, false);
    const bottom = line.rows[line.rows.length - 1]!;
    expect([0, 9.9, 10, 39, 41].map((t) => stretchAt(line, bottom, t))).toEqual([0, 0, 2, 2, -1]);
    const gap = made([1, 0, 1], [10, 5, 30]);
    const other = timeline(gap.model, gap.call, false);
    expect([5, 12, 20].map((t) => stretchAt(other, other.rows[1]!, t))).toEqual([0, -1, 1]);
  });
});

describe("tables of time", () => {
  const { model, call } = made([2, 1, 3, -1, 2], [4, 2, 1, 8, -1], { names: ["Mm", "Add", "Mm", "Sum", "Add"] });
  it("add up by module, with what is inside", () => {
    expect(byModule(model, call).map((m) => [m.name, m.own, m.all, m.nodes])).toEqual([
      ["(model)", 0, 7, 4],
      ["a", 2, 6, 3],
      ["a.x", 4, 4, 2],
      ["b", 1, 1, 1],
    ]); // prettier-ignore
  });
  it("add up by kind of node, the slowest first", () => {
    expect(byOp(model, call).map((o) => [o.name, o.seconds, o.nodes, o.measured])).toEqual([
      ["Sum", 8, 1, 1],
      ["Mm", 5, 2, 2],
      ["Add", 2, 2, 1],
    ]); // prettier-ignore
  });
  it("say what they cover", () => {
    const words = (s: number): string => `${s} s`;
    expect(coverage(3, 4, 10, 10, words)).toBe(
      "All 10 nodes that ran were timed. Together they took 3 s; the call took 4 s: 75% of it.",
    );
    expect(coverage(3, 4, 10, 6, words)).toContain("6 of the 10 nodes that ran were timed; the others count as 0.");
    expect(coverage(6, 4, 10, 10, words)).toContain("150%, as times of nodes may overlap");
    expect(coverage(0, 4, 10, 0, words)).toBe("0 of the 10 nodes that ran were timed; the others count as 0.");
  });
});

it("says marks in words", () => {
  expect(marked(0)).toBe("");
  expect(marked(1 | 2)).toBe("gradient not finite, made the first bad gradient");
  expect(marked(16)).toBe("raised here");
});
