import { describe, expect, test } from "vitest";
import { stepsOf } from "../charts/testing";
import { gradientSaid, lossSaid, meanSaid, shapeSaid } from "./said";

describe("what a step's numbers are", () => {
  const steps = stepsOf(4, {
    known: Int32Array.of(1, 1, 1, 0),
    calls: Int32Array.of(1, 4, 4, 9),
    scale: Float64Array.of(1, 1, 65536, 2),
    source: Int32Array.of(0, 1, 2, 1),
  });

  test("gradients are backward's or the optimizer's", () => {
    expect([0, 1, 2].map((i) => gradientSaid(steps, i, i))).toEqual([
      "",
      "as backward gave it",
      "as the optimizer met it",
    ]);
    expect(gradientSaid(steps)).toBe("as backward gave it in 2 steps, as the optimizer met it in 1");
  });

  test("a loss may be a sum and without a factor; steps whose loss is not known do not count", () => {
    expect([0, 1, 2, 3].map((i) => lossSaid(steps, i, i))).toEqual([
      "",
      "the sum over its 4 backward calls",
      "the sum over its 4 backward calls; without the GradScaler's factor, 65536",
      "",
    ]);
    expect(lossSaid(steps)).toBe("the sum over 1 to 4 backward calls; without the GradScaler's factor, 1 to 65536");
    expect(lossSaid(stepsOf(3, { known: Int32Array.of(1, 1, 1) }))).toBe("");
  });
});

test("shapes, and one that is not known", () => {
  expect([[], [3, 4], [-1], [0]].map(shapeSaid)).toEqual(["scalar", "3×4", "?", "0"]);
});

test("times of nodes, of how many calls", () => {
  expect([0, 1, 5].map(meanSaid)).toEqual(["", "of one call", "mean of 5 calls"]);
});
