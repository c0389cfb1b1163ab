import { expect, test } from "vitest";
import { endOfGap, keptBeside, NOT_KEPT, rowsOf } from "./gaps";

const lines = [NOT_KEPT, NOT_KEPT, "a", "b", NOT_KEPT, "c", NOT_KEPT, NOT_KEPT];

test("lines in a row that were not kept share a row", () => {
  expect([...rowsOf(lines)]).toEqual([-1, 0, 0, 1, 2, 3, 4, 5, 5]);
  expect([...rowsOf([])]).toEqual([-1]);
  expect([endOfGap(lines, 1), endOfGap(lines, 5), endOfGap(lines, 7)]).toEqual([2, 5, 8]);
});

test("from kept line to kept line", () => {
  expect([keptBeside(lines, 0, 1), keptBeside(lines, 4, 1), keptBeside(lines, 6, 1)]).toEqual([3, 6, 6]);
  expect([keptBeside(lines, 6, -1), keptBeside(lines, 3, -1)]).toEqual([4, 3]);
});
