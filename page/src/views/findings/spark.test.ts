import { expect, test } from "vitest";
import { spark } from "./spark";

const all = (n: number) => new Uint8Array(n).fill(1);

test("every value where there are few", () => {
  expect(spark([4, 2, 0], all(3))).toEqual({
    parts: [
      [
        [0, 0],
        [0.5, 0.5],
        [1, 1],
      ],
    ],
    low: 0,
    high: 4,
    first: 4,
    last: 0,
    bad: 0,
  }); // prettier-ignore
});

test("a value that is not finite makes a gap and is counted", () => {
  const found = spark([4, NaN, 2, Infinity], all(4))!;
  expect(found.parts.map((part) => part.length)).toEqual([1, 1]);
  expect([found.bad, found.low, found.high, found.last]).toEqual([2, 2, 4, Infinity]);
});

test("unknown values are left out; none at all gives nothing", () => {
  expect(spark([1, 9, 3], [1, 0, 1])!.high).toBe(3);
  expect(spark([1], [0])).toBeNull();
  expect(spark([NaN], [1])).toBeNull();
});

test("a constant is in the middle", () => {
  expect(spark([5, 5], all(2))!.parts[0]).toEqual([
    [0, 0.5],
    [1, 0.5],
  ]);
});

test("of many values the extremes stay", () => {
  const values = Float64Array.from({ length: 10_000 }, (_, i) => (i === 777 ? 50 : Math.sin(i)));
  const found = spark(values, all(10_000), 100)!;
  expect(found.parts[0]!.length).toBeLessThanOrEqual(200);
  expect(found.parts[0]!.some(([, y]) => y === 0)).toBe(true);
});
