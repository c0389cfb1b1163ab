import { describe, expect, it } from "vitest";
import { documentOf, draws, parameter, seriesOf, stepsOf } from "../../charts/testing";
import { canLog, chosen, csvTable, thinning, totals, usualMost } from "./curves";
import { around, events, firstNonfinite, greatestJump } from "./events";
import { cells, matrix, paint, seenBuckets } from "./heat";

const flat = (n: number, value = 1): Float64Array => new Float64Array(n).fill(value);

describe("what to jump to", () => {
  it("is the first loss or gradient that is not finite, once", () => {
    const loss = flat(30);
    const gradient = flat(30);
    loss[21] = NaN;
    gradient[20] = Infinity;
    const made = (more: object) =>
      events(documentOf({ steps: stepsOf(30, { loss, gradient, known: new Int32Array(30).fill(1), ...more }) }));
    expect(made({})).toEqual([{ kind: "nonfinite", step: 20, title: "First gradient that is not finite" }]);
    gradient[20] = 1;
    expect(made({})[0]).toEqual({ kind: "nonfinite", step: 21, title: "First loss that is not finite" });
    gradient[21] = NaN;
    expect(made({})[0]!.title).toBe("Loss and gradient first not finite");
  });
  it("is not a loss that is not known", () => {
    expect(events(documentOf({ steps: stepsOf(10) }))).toEqual([]);
    expect(firstNonfinite([NaN, 1], (i) => i === 1)).toBe(-1);
  });
  it("is the largest jump against the median of the steps before, by the number of the step", () => {
    const gradient = flat(40, 2);
    gradient[12] = 9; // 4.5 times
    gradient[30] = 20; // 10 times
    const steps = stepsOf(40, { gradient, index: Int32Array.from({ length: 40 }, (_, i) => 100 + i) });
    expect(events(documentOf({ steps }))).toEqual([
      { kind: "jump", step: 130, title: "Largest jump of the gradient, 10 times" },
    ]);
  });
  it("is no jump among the first few steps, or below three times", () => {
    expect(greatestJump([1, 1, 50])).toBeNull();
    const gradient = flat(40);
    gradient[20] = 2.9;
    expect(events(documentOf({ steps: stepsOf(40, { gradient }) }))).toEqual([]);
  });
  it("passes over steps that were not measured or not finite", () => {
    const gradient = flat(20);
    gradient.fill(-1, 3, 9);
    gradient[10] = NaN;
    gradient[15] = 8;
    expect(greatestJump(gradient)).toEqual({ position: 15, times: 8 });
  });
  it("agrees with a plain search on random norms", () => {
    const draw = draws(3);
    const norms = Array.from({ length: 200 }, () => (draw() < 0.1 ? -1 : Math.exp(draw() * 4)));
    let best = { position: -1, times: 0 };
    norms.forEach((n, i) => {
      const before = norms
        .slice(0, i)
        .filter((v) => v >= 0)
        .slice(-20)
        .sort((a, b) => a - b); // prettier-ignore
      if (n < 0 || before.length < 5) return;
      const middle =
        before.length % 2
          ? before[(before.length - 1) / 2]!
          : (before[before.length / 2 - 1]! + before[before.length / 2]!) / 2;
      if (n / middle > best.times) best = { position: i, times: n / middle };
    });
    expect(greatestJump(norms)).toEqual(best);
  });
  it("is the first gradient that is exactly zero", () => {
    const gradient = flat(8);
    gradient[5] = gradient[6] = 0;
    expect(events(documentOf({ steps: stepsOf(8, { gradient }) }))).toEqual([
      { kind: "zero", step: 5, title: "First gradient that is exactly zero" },
    ]);
  });
  it("has steps around it that stay inside", () => {
    expect(around(5, 0, 10_000)).toEqual([0, 255]);
    expect(around(50, 0, 100)).toEqual([40, 60]);
    expect(around(99, 0, 100)).toEqual([89, 100]);
  });
});

describe("charts of the run", () => {
  it("leave out what was never measured", () => {
    const steps = stepsOf(3, { gradient: flat(3), loss: Float64Array.of(1, -2, NaN), known: Int32Array.of(1, 1, 1) });
    const made = totals(documentOf({ steps }));
    expect(made.map((c) => c.key)).toEqual(["loss", "norms", "seconds"]);
    expect(canLog(made[0]!.series)).toBe(false);
    expect(canLog(made[1]!.series)).toBe(true);
  });
  it("say how far norms by parameter were thinned, and draw them from the least to the greatest", () => {
    const series = seriesOf([0, 7], false, { gradient: { low: [1, 2], high: [3, 4] } });
    const doc = documentOf({ parameters: [parameter("p")], steps: stepsOf(10, { series }) });
    expect(thinning(doc)).toContain("each point covers 7 steps");
    const [curve] = chosen(doc, "gradient", [0]);
    expect([curve!.low!.values, curve!.curve.values]).toEqual([
      [1, 2],
      [3, 4],
    ]); // prettier-ignore
    expect(thinning(documentOf())).toBe("");
    expect(csvTable([0, 7], [curve!])).toEqual([
      ["step", "p, least", "p, greatest"],
      [
        [0, 1, 3],
        [7, 2, 4],
      ],
    ]);
  });
  it("are saved with what has no place on an axis, and empty where nothing was measured", () => {
    const gradient = Float64Array.of(1, 0, NaN, Infinity, -1);
    const norms = totals(documentOf({ steps: stepsOf(5, { gradient }) })).find((c) => c.key === "norms")!;
    const [columns, rows] = csvTable([0, 1, 2, 3, 4], norms.series);
    expect(columns).toEqual(["step", "gradient", "weight", "update"]);
    expect(rows.map((r) => r[1])).toEqual([1, 0, "NaN", "Infinity", ""]);
  });
});

describe("the heat map", () => {
  it("puts what is smaller than a pixel together, the worst first", () => {
    const values = Float32Array.of(1, 0, 4, 5, NaN, -1, 2, 3, -1, -1, -1, -1);
    // 3 parameters by 4 buckets on 3 by 2 cells
    const steps = stepsOf(4);
    steps.series.size = 3;
    const on = (columns: number) => (at: number) => ((at + 0.5) / 4) * columns;
    expect([...cells(values, steps, [0, 4], 9, 2, on(2)).values]).toEqual([5, 2, NaN, 3, 4, -1]);
    const small = cells(values, steps, [1, 3], 1, 1, on(1));
    expect([small.rows, small.columns, small.values[0]]).toEqual([1, 1, NaN]);
  });
  it("shows the last step where it is narrower than a pixel, and leaves gaps between steps clear", () => {
    const many = stepsOf(1000);
    const values = new Float32Array(1000).fill(1);
    values[999] = NaN;
    const made = cells(values, many, [0, 1000], 1, 10, (at) => ((at + 0.5) / 1000) * 10).values;
    expect([...made]).toEqual([1, 1, 1, 1, 1, 1, 1, 1, 1, NaN]);
    const gap = stepsOf(2, { index: Int32Array.of(0, 3) });
    expect([...cells(Float32Array.of(7, 8), gap, [0, 2], 1, 4, (at) => at + 0.5).values]).toEqual([7, -1, -1, 8]);
  });
  it("paints numbers by their logarithm, and leaves what was not measured clear", () => {
    const made = { values: Float32Array.of(1, 100, -1, 0, NaN), rows: 1, columns: 5 };
    const pixels = paint(made, { low: 1, high: 100 }, { bad: [1, 2, 3], zero: [4, 5, 6] });
    const at = (i: number): number[] => [...pixels.slice(4 * i, 4 * i + 4)];
    expect([at(0), at(1), at(2), at(3), at(4)]).toEqual([
      [0, 34, 78, 255],
      [254, 232, 56, 255],
      [0, 0, 0, 0],
      [4, 5, 6, 255],
      [1, 2, 3, 255],
    ]); // prettier-ignore
  });
  it("finds the buckets of a range of steps", () => {
    const index = Int32Array.from({ length: 20 }, (_, i) => i * 10);
    const start = Int32Array.of(0, 5, 10, 15); // steps 0, 50, 100, 150
    expect(seenBuckets(start, index, 0, 190)).toEqual([0, 4]);
    expect(seenBuckets(start, index, 60, 100)).toEqual([1, 3]);
    expect(seenBuckets(start, index, 60, 70)).toEqual([1, 2]);
    expect(seenBuckets(start, index, 500, 600)).toEqual([3, 4]);
  });
  it("has no ratio where a weight is zero", () => {
    const series = seriesOf([0], true, { weight: { high: [2, 0, -1] }, update: { high: [1, 1, 1] } });
    const doc = documentOf({ parameters: ["a", "b", "c"].map((n) => parameter(n)), steps: stepsOf(1, { series }) });
    expect([...matrix(doc, "ratio")]).toEqual([0.5, -1, -1]);
  });
});

describe("the axis of times", () => {
  it("ends where most steps are, and says which leave it", () => {
    const seconds = new Float32Array(100).fill(0.01);
    seconds[0] = 9;
    seconds[40] = 0.5;
    expect(usualMost(seconds)).toBeCloseTo(0.02);
    const chart = totals(documentOf({ steps: stepsOf(100, { seconds }) })).find((c) => c.key === "seconds")!;
    expect(chart.most).toBeCloseTo(0.02);
    expect(chart.note).toBe("Step 0 took 9.00 s, the longest of 2 that took more than is drawn.");
    seconds[40] = 0.01;
    const one = totals(documentOf({ steps: stepsOf(100, { seconds }) })).find((c) => c.key === "seconds")!;
    expect(one.note).toBe("Step 0 took 9.00 s, more than is drawn.");
  });
  it("is whole where no step sticks out, and of a few steps", () => {
    expect(usualMost(Float32Array.from({ length: 100 }, (_, i) => 0.01 + i / 10_000))).toBeNull();
    expect(usualMost([])).toBeNull();
    expect(usualMost([0, 0, 1])).toBeNull();
    expect(usualMost([1, 9])).toBe(2);
  });
});
