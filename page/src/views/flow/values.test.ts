import { describe, expect, it } from "vitest";
import { documentOf, draws, parameter, seriesOf, stepsOf } from "../../charts/testing";
import {
  beginnings,
  bucketOf,
  condition,
  measuredStep,
  parameterBand,
  parameterCurve,
  positionOf,
  valueAt,
} from "./values";

function exact(gradient: number[], steps: number, more: { weight?: number[]; update?: number[] } = {}) {
  const kinds = {
    gradient: { high: gradient },
    ...(more.weight ? { weight: { high: more.weight } } : {}),
    ...(more.update ? { update: { high: more.update } } : {}),
  };
  const start = Array.from({ length: steps }, (_, i) => i);
  const names = Array.from({ length: gradient.length / steps }, (_, i) => parameter(`p${i}`));
  return documentOf({ parameters: names, steps: stepsOf(steps, { series: seriesOf(start, true, kinds) }) });
}

describe("places of steps", () => {
  it("finds the bucket of a position and the last step up to a number", () => {
    expect([0, 6, 7, 13, 99].map((p) => bucketOf(Int32Array.of(0, 7, 14), p))).toEqual([0, 0, 1, 1, 2]);
    expect([3, 10, 11, 25, 0].map((s) => positionOf(Int32Array.of(3, 10, 20), s))).toEqual([0, 1, 1, 2, 0]);
    expect(positionOf(new Int32Array(), 4)).toBe(-1);
  });
  it("finds the nearest step that was measured, of each kind", () => {
    const doc = documentOf({ steps: stepsOf(5, { gradient: Float64Array.of(1, -1, NaN, -1, -1) }) });
    expect(measuredStep(doc, "gradient", 4)).toBe(2);
    expect(measuredStep(doc, "gradient", 1)).toBe(0);
    expect(measuredStep(doc, "update", 4)).toBe(-1);
    const bad = {
      weight: Float64Array.of(1, 1, 1),
      update: Float64Array.of(1, -1, NaN),
      ratio: Float64Array.of(1, -1, -1),
    };
    expect(measuredStep(documentOf({ steps: stepsOf(3, bad) }), "ratio", 2)).toBe(2);
  });
});

describe("bands", () => {
  it("of one step are its values", () => {
    const doc = exact([1, 2, 3, 4, 0, -1], 3);
    expect([...parameterBand(doc, "gradient", 1, 1).middle]).toEqual([2, 0]);
    expect([...parameterBand(doc, "gradient", 2, 2).high]).toEqual([3, -1]);
  });
  it("over steps go from the least over the median to the greatest, without what was not measured", () => {
    const band = parameterBand(exact([4, -1, 1, 9, 2, -1], 6), "gradient", 0, 5);
    expect([band.low[0], band.middle[0], band.high[0]]).toEqual([1, 3, 9]);
  });
  it("say that something was not finite, and still show the rest", () => {
    const band = parameterBand(exact([4, NaN, 1, 9], 4), "gradient", 0, 3);
    expect([band.low[0], band.middle[0], band.high[0]]).toEqual([1, 4, NaN]);
    const only = parameterBand(exact([Infinity, -1], 2), "gradient", 0, 1);
    expect([only.low[0], only.middle[0], only.high[0]]).toEqual([Infinity, Infinity, Infinity]);
  });
  it("agree with a sort of all values on random data", () => {
    const draw = draws(7);
    const [parameters, steps] = [5, 40];
    const values = Array.from({ length: parameters * steps }, () => (draw() < 0.2 ? -1 : draw() * 10));
    const band = parameterBand(exact(values, steps), "gradient", 3, 30);
    for (let p = 0; p < parameters; p++) {
      const own = values
        .slice(p * steps + 3, p * steps + 31)
        .filter((v) => v >= 0)
        .sort((a, b) => a - b); // prettier-ignore
      const middle =
        own.length % 2 ? own[(own.length - 1) / 2]! : (own[own.length / 2 - 1]! + own[own.length / 2]!) / 2;
      expect([band.low[p], band.middle[p], band.high[p]]).toEqual([own[0], middle, own[own.length - 1]]);
    }
  });
  it("of thinned series use the least and the greatest of each bucket", () => {
    const series = seriesOf([0, 5], false, { gradient: { low: [1, 2], high: [3, NaN] } });
    const doc = documentOf({ parameters: [parameter("p")], steps: stepsOf(10, { series }) });
    const band = parameterBand(doc, "gradient", 0, 1);
    expect([band.low[0], band.middle[0], band.high[0]]).toEqual([1, 2, NaN]);
    expect([...parameterCurve(doc, "gradient", 0).low]).toEqual([1, 2]);
  });
});

describe("update to weight", () => {
  it("is not known where one of them is not, or the weight is zero", () => {
    const doc = exact([1, 1, 1, 1], 4, { weight: [2, 0, -1, NaN], update: [1, 1, 1, 1] });
    expect([0, 1, 2].map((k) => valueAt(doc.steps.series, "ratio", 0, k)[1])).toEqual([0.5, -1, -1]);
    expect(valueAt(doc.steps.series, "ratio", 0, 3)[1]).toBeNaN();
  });
  it("is as wide as both allow where they are thinned", () => {
    const series = seriesOf([0], false, { weight: { low: [2], high: [4] }, update: { low: [1], high: [8] } });
    expect(valueAt(series, "ratio", 0, 0)).toEqual([0.25, 4]);
  });
});

it("knows when a gradient began to be not finite or zero", () => {
  const doc = exact([1, 0, NaN, 0, 1, 1, 1, 1], 4);
  expect(beginnings(doc, 0)).toEqual({ nonfinite: 2, zero: 1 });
  expect(beginnings(doc, 1)).toEqual({ nonfinite: -1, zero: -1 });
});

it("says in words what norms do not", () => {
  expect(condition(parameter("a", { requires_grad: false }), false)).toBe("frozen");
  expect(condition(parameter("a", { reached: 0 }), false)).toBe("never reached");
  expect(condition(parameter("a", { reached: 0 }), true)).toBe("");
  expect(condition(parameter("a", { trained: false }), true)).toBe("not in the optimizer");
  expect(condition(parameter("a", { trained: null }), true)).toBe("");
});
