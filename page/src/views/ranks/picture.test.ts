import { describe, expect, it } from "vitest";
import type { Floats, RankPictures } from "../../data/document";
import { apart, cells, evenScale, paint, plainScale, stepsOf } from "./picture";

const none = -Infinity;
const made = (count: number, ranks: number, seconds: number[]): RankPictures<Floats> => ({
  ranks: Array.from({ length: ranks }, (_, r) => r),
  width: 2,
  count,
  seconds: Float64Array.from(seconds),
  gradient: new Float64Array(count * ranks).fill(none),
  loss: new Float64Array(count * ranks).fill(none),
});

describe("cells", () => {
  it("puts ranks in rows", () => {
    const found = cells(made(2, 3, [1, 2, 3, 4, 5, 6]), "seconds", 10);
    expect([...found.values]).toEqual([1, 4, 2, 5, 3, 6]);
    expect([found.rows, found.columns]).toEqual([3, 2]);
  });
  it("keeps the greatest of neighbours, and NaN before all", () => {
    const found = cells(made(4, 1, [1, 7, NaN, 2]), "seconds", 2);
    expect([...found.values]).toEqual([7, NaN]);
  });
  it("knows what is not known", () => {
    expect([...cells(made(1, 2, [1, 2]), "loss", 5).values]).toEqual([none, none]);
  });
});

describe("apart", () => {
  it("is how many times the middle of the ranks", () => {
    const found = apart(cells(made(1, 3, [1, 1, 4]), "seconds", 5), true);
    expect([...found.values]).toEqual([0, 0, 2]);
  });
  it("is the difference where values may be below zero", () => {
    const found = apart(cells(made(1, 3, [-1, 2, 3]), "seconds", 5), false);
    expect([...found.values]).toEqual([-3, 0, 1]);
  });
  it("leaves what is not a number", () => {
    const found = apart(cells(made(1, 3, [1, NaN, none]), "seconds", 5), true);
    expect([...found.values]).toEqual([0, NaN, none]);
  });
});

describe("scales and colours", () => {
  it("is logarithmic for what is far apart", () => {
    const scale = plainScale({ values: Float64Array.from([1, 10, 100]), rows: 1, columns: 3 });
    expect(scale.place(10)).toBeCloseTo(0.5);
  });
  it("is even to both sides", () => {
    const scale = evenScale({ values: Float64Array.from([-4, 1, none]), rows: 1, columns: 3 }, 0.1);
    expect([scale.place(-4), scale.place(0), scale.high]).toEqual([-1, 0, 4]);
  });
  it("leaves out what is not known and marks what is not finite", () => {
    const all = { values: Float64Array.from([none, NaN, 0]), rows: 1, columns: 3 };
    const found = paint(all, evenScale(all, 1), true, [9, 8, 7]);
    expect([...found.slice(0, 8)]).toEqual([0, 0, 0, 0, 9, 8, 7, 255]);
    expect(found[11]).toBe(255);
  });
  it("names the steps of a column", () => {
    const pictures = made(5, 1, [1, 2, 3, 4, 5]);
    expect(stepsOf(pictures, 0, 5)).toEqual([0, 1]);
    expect(stepsOf(pictures, 0, 2)).toEqual([0, 5]);
    expect(stepsOf(pictures, 1, 2)).toEqual([6, 9]);
  });
});
