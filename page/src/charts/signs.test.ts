import { expect, test } from "vitest";
import { together } from "./signs";

const at = (x: number, word: string, zero = false) => ({ x, y: 0, zero, word });

test("words that begin near to each other are one; those of zeros stand elsewhere", () => {
  expect(together([at(110, "NaN"), at(100, "Inf"), at(105, "zero", true), at(200, "Inf again")], 44)).toEqual([
    at(100, "Inf, NaN"),
    at(105, "zero", true),
    at(200, "Inf again"),
  ]);
});
