import { expect, test } from "vitest";
import { normCurve, plainCurve } from "../../charts/marks";
import { empty } from "../../testing/document";
import { curvesOf, ends } from "./course";

test("a curve that ends in NaN says so, and one that was not measured to the end says until when", () => {
  expect(ends(plainCurve([2, 1, Number.NaN, Number.NaN]))).toEqual([
    [0, "2"],
    [3, "NaN"],
  ]);
  expect(ends(normCurve([-1, 0.5, 3, -1, -1]))).toEqual([
    [1, "0.5"],
    [2, "3"],
  ]);
  expect(ends(normCurve([-1, 0]))).toEqual([[1, "0"]]);
  expect(ends(normCurve([-1]))).toEqual([]);
});

test("what was never measured is not drawn", () => {
  const doc = empty();
  doc.steps.index = Int32Array.of(0, 1);
  doc.steps.loss = Float32Array.of(2, 1);
  doc.steps.known = Int32Array.of(1, 1);
  doc.steps.gradient = Float32Array.of(-1, -1);
  expect(curvesOf({ doc }).map(({ title }) => title)).toEqual(["Loss"]);
});
