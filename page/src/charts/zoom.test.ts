import { expect, it } from "vitest";
import { clamped, zoomed } from "./zoom";

it("stays inside the whole, and is not smaller than the least", () => {
  expect(clamped([-5, 15], 100, 4)).toEqual([0, 20]);
  expect(clamped([90, 120], 100, 4)).toEqual([70, 100]);
  expect(clamped([0, 500], 100, 4)).toEqual([0, 100]);
  expect(clamped([10, 10], 100, 4)).toEqual([10, 14]);
  expect(clamped([0, 1], 2, 4)).toEqual([0, 2]);
});

it("zooms about a place that stays where it is", () => {
  expect(zoomed([20, 60], 0.5, 30, 100, 4)).toEqual([25, 45]);
  expect(zoomed([20, 60], 100, 40, 100, 4)).toEqual([0, 100]);
});
