import { expect, test } from "vitest";
import { positions } from "./exact";

test("positions of a range of step numbers, which may have gaps", () => {
  const index = Int32Array.from([0, 2, 4, 6, 10, 11]);
  expect(positions(index, 0, 11)).toEqual([0, 6]);
  expect(positions(index, 3, 9)).toEqual([2, 4]);
  expect(positions(index, 4, 4)).toEqual([2, 3]);
  expect(positions(index, 7, 9)).toEqual([4, 4]);
  expect(positions(index, 12, 20)).toEqual([6, 6]);
  expect(positions(new Int32Array(0), 0, 5)).toEqual([0, 0]);
});
