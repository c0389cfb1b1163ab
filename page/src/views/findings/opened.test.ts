import { expect, test } from "vitest";
import { opened, toggled } from "./opened";

test("the first one is open where nothing is said or nothing said makes sense", () => {
  for (const text of [undefined, "", "7", "x", "-1", "1.5"]) expect(opened(text, 3)).toEqual([0]);
});

test("several, each once", () => {
  expect(opened("2,0,2,9", 3)).toEqual([2, 0]);
  expect(opened("none", 3)).toEqual([]);
  expect(opened("0", 0)).toEqual([]);
});

test("folding and unfolding", () => {
  expect(toggled([0], 2)).toBe("0,2");
  expect(toggled([0, 2], 0)).toBe("2");
  expect(toggled([0], 0)).toBe("none");
  expect(opened(toggled([], 1), 3)).toEqual([1]);
});
