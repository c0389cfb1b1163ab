import { describe, expect, it } from "vitest";
import { symlog } from "../../charts/scale";
import { bars, type Captured, described, greatest, groups, LINEAR, symlogAxis, symlogTicks, threshold } from "./groups";

function captured(more: Partial<Captured> = {}): Captured {
  return {
    name: "a",
    kind: "output",
    module: 0,
    step: 0,
    shape: [2, 3],
    dtype: "float32",
    edges: Float64Array.of(-1, 0, 1),
    counts: Float64Array.of(2, 4),
    mean: 0,
    std: 1,
    min: -1,
    max: 1,
    zeros: 0,
    nan: 0,
    inf: 0,
    numel: 6,
    map: null,
    ...more,
  }; // prettier-ignore
}

it("puts the steps of a tensor together, in order, and tells kinds apart", () => {
  const found = groups([captured({ step: 5 }), captured({ kind: "gradient" }), captured({ step: 1 })]);
  expect(found.map((g) => [g.key, g.tensors.map((t) => t.step)])).toEqual([
    ["output:a", [1, 5]],
    ["gradient:a", [0]],
  ]); // prettier-ignore
});

describe("histograms", () => {
  it("have areas that count, whatever the width of a bin", () => {
    const tensor = captured({
      edges: Float64Array.of(-10, -0.1, 0, 0.1, 1, 10),
      counts: Float64Array.of(1, 2, 3, 4, 10),
    });
    const { edges, heights } = bars(tensor, symlogAxis(threshold([tensor])));
    const areas = [...heights].map((h, i) => h * (edges[i + 1]! - edges[i]!));
    areas.forEach((a, i) => expect(a).toBeCloseTo(tensor.counts[i]! / 20, 9));
  });
  it("on a linear axis keep their areas, and have round ticks", () => {
    const tensor = captured({ edges: Float64Array.of(-1, 0, 3), counts: Float64Array.of(1, 3) });
    expect([...bars(tensor, LINEAR).heights]).toEqual([0.25, 0.25]);
    expect(LINEAR.ticks(-1, 3, 1)).toEqual([-1, 0, 1, 2, 3]);
  });
  it("bear a tensor without values or width", () => {
    expect([...bars(captured({ counts: Float64Array.of(0, 0) }), symlogAxis(1)).heights]).toEqual([0, 0]);
    expect([
      ...bars(captured({ edges: Float64Array.of(2, 2), counts: Float64Array.of(6) }), symlogAxis(1)).heights,
    ]).toEqual([0]);
  });
  it("go over to a logarithm at their least edge, but not below a millionth", () => {
    expect(threshold([captured({ edges: Float64Array.of(-1, -0.01, 0, 0.5) })])).toBe(0.01);
    expect(threshold([captured({ edges: Float64Array.of(0, 1e-30, 1) })])).toBeCloseTo(1e-6, 12);
    expect(threshold([captured({ edges: Float64Array.of(0, 0) })])).toBe(1);
  });
});

describe("ticks of the symmetric logarithm", () => {
  it("are zero and powers of ten on both sides", () => {
    expect(symlogTicks(-10, 100, 0.1, 0.1)).toEqual([-10, -1, -0.1, 0, 0.1, 1, 10, 100]);
    expect(symlogTicks(0, 50, 1, 0.1)).toEqual([0, 1, 10]);
  });
  it("are never nearer than the gap, and keep the ends", () => {
    const ticks = symlogTicks(-1e3, 1e3, 1e-6, 3);
    ticks.slice(1).forEach((t, i) => expect(symlog(t, 1e-6) - symlog(ticks[i]!, 1e-6)).toBeGreaterThanOrEqual(3));
    expect([ticks[0], ticks[ticks.length - 1], ticks.includes(0)]).toEqual([-1e3, 1e3, true]);
  });
});

it("finds the greatest size of a map among what is finite", () => {
  expect(greatest([1, -3, NaN, -Infinity])).toBe(3);
  expect(greatest([])).toBe(0);
});

it("says zeros and what is not finite in words", () => {
  expect(described(captured({ zeros: 3, nan: 2, inf: 1 }))).toBe("50% zeros, 2 NaN and 1 Inf");
  expect(described(captured({ numel: 0 }))).toBe("0% zeros");
});
