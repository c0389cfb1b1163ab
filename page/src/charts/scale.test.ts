import { describe, expect, it } from "vitest";
import { normCurve, plainCurve } from "./marks";
import { finiteExtent, logPlace, median, padded, positiveExtent, roomy, sortOf, symlog, symlogInverse } from "./scale";
import { pair, paired } from "./slow";

describe("norms on a logarithmic axis", () => {
  it("are told apart from what has no place on it", () => {
    expect([1e-300, 0, NaN, Infinity, -1, undefined].map(sortOf)).toEqual([
      "number",
      "zero",
      "nan",
      "inf",
      "missing",
      "missing",
    ]);
  });
  it("give the axis its ends; nothing else does", () => {
    expect(positiveExtent([0, -1, NaN, Infinity, 2], [0.5])).toEqual({ low: 0.5, high: 2 });
    expect(positiveExtent([0, -1, NaN, Infinity])).toBeNull();
    expect(finiteExtent([NaN, -3, Infinity, 1])).toEqual({ low: -3, high: 1 });
    expect(finiteExtent([NaN])).toBeNull();
  });
  it("have room around them, at least half a decade", () => {
    const one = roomy({ low: 2, high: 2 });
    expect(Math.log10(one.high / one.low)).toBeCloseTo(0.5, 9);
    expect(roomy({ low: 1e-320, high: 1e308 }).high).toBeLessThan(Infinity);
  });
  it("stand where their logarithm says", () => {
    const y = logPlace({ low: 0.01, high: 100 }, 200, 0);
    expect([0.01, 1, 100].map(y)).toEqual([200, 100, 0]);
  });
});

it("leaves room for the first and the last step", () => {
  expect(padded(0, 40, 800)).toEqual([-0.5, 40.5]);
  expect(padded(5, 5, 800)).toEqual([4.5, 5.5]);
  const [low, high] = padded(0, 10_000, 1000);
  expect([low, high]).toEqual([-40, 10_040]);
});

describe("the symmetric logarithm", () => {
  it("is odd, rises, and has an inverse", () => {
    for (const v of [-1e6, -2, -1e-9, 0, 1e-9, 0.3, 1e6]) {
      expect(symlog(-v, 0.1)).toBeCloseTo(-symlog(v, 0.1), 12);
      expect(symlogInverse(symlog(v, 0.1), 0.1)).toBeCloseTo(v, 5);
    }
  });
  it("is logarithmic far out: decades are as wide as each other", () => {
    expect(symlog(1e5, 1) - symlog(1e4, 1)).toBeCloseTo(Math.log(10), 6);
  });
});

describe("curves", () => {
  it("break where nothing was measured, and keep what has no place as stretches", () => {
    const { values, stretches } = normCurve([1, -1, 0, 0, NaN, 2, NaN, -1, NaN, Infinity]);
    expect(values).toEqual([1, null, null, null, null, 2, null, null, null, null]);
    expect(stretches).toEqual([
      { sort: "zero", first: 2, last: 3 },
      { sort: "nan", first: 4, last: 4 },
      { sort: "nan", first: 6, last: 6 },
      { sort: "nan", first: 8, last: 8 },
      { sort: "inf", first: 9, last: 9 },
    ]);
  });
  it("of plain numbers may be negative; an unknown NaN is a gap and no finding", () => {
    const { values, stretches } = plainCurve([-2, NaN, NaN, -Infinity], (i) => i !== 1);
    expect(values).toEqual([-2, null, null, null]);
    expect(stretches).toEqual([
      { sort: "nan", first: 2, last: 2 },
      { sort: "inf", first: 3, last: 3 },
    ]); // prettier-ignore
  });
});

it("finds the middle", () => {
  expect(median([3, 1, 2])).toBe(2);
  expect(median([4, 1, 10, 2])).toBe(3);
  expect(median(Float64Array.of(10, 9, 100))).toBe(10);
  expect(median([])).toBeNaN();
});

it("writes and reads a range of the address", () => {
  expect(pair(paired([0.125, 80]))).toEqual([0.13, 80]);
  expect(pair(paired([1e-9, 0.5], 10))).toEqual([1e-9, 0.5]);
  expect([undefined, "", "5", "9~2", "a~b", "1~1"].map(pair)).toEqual([null, null, null, null, null, null]);
});
