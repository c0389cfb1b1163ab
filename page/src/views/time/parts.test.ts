import { expect, test } from "vitest";
import { partsOf } from "./parts";

test("shares are of the whole step, and parts that take no time are left out", () => {
  const { total, parts } = partsOf({ steps: 4, seconds: [0.01, 0.03, 0.05, 0.01, 0] });
  expect(total).toBeCloseTo(0.1);
  expect(parts.map((p) => p.key)).toEqual(["before", "forward", "backward", "optimizer"]);
  expect(parts.map((p) => Number(p.share.toFixed(6)))).toEqual([0.1, 0.3, 0.5, 0.1]);
});

test("a step without any time has no parts", () => {
  expect(partsOf({ steps: 1, seconds: [0, 0, 0, 0, 0] })).toEqual({ total: 0, parts: [] });
});
