import { describe, expect, it } from "vitest";
import { draws } from "./testing";
import { byteTicks, linearTicks, logTicks, tickText } from "./ticks";

describe("linear ticks", () => {
  it("are round and exact", () => {
    expect(linearTicks(0, 1, 5)).toEqual([0, 0.2, 0.4, 0.6, 0.8, 1]);
    expect(linearTicks(0, 0.35, 4)).toEqual([0, 0.1, 0.2, 0.3]);
    expect(linearTicks(-3, 7, 5)).toEqual([-2, 0, 2, 4, 6]);
  });
  it("lie inside, evenly, and are about as many as asked for", () => {
    const draw = draws(1);
    for (let k = 0; k < 300; k++) {
      const low = (draw() - 0.5) * 10 ** (draw() * 12 - 6);
      const high = low + 10 ** (draw() * 12 - 6);
      const count = 2 + Math.floor(draw() * 10);
      const ticks = linearTicks(low, high, count);
      const slack = (high - low) * 1e-6;
      for (const t of ticks) expect(t >= low - slack && t <= high + slack).toBe(true);
      expect(ticks.length).toBeLessThanOrEqual(count * 1.8 + 1);
      expect(ticks.length).toBeGreaterThanOrEqual(Math.floor(count / 2.5));
    }
  });
  it("bear what is no range", () => {
    expect(linearTicks(3, 3, 5)).toEqual([3]);
    expect(linearTicks(NaN, 1, 5)).toEqual([]);
    expect(linearTicks(0, Infinity, 5)).toEqual([]);
  });
});

describe("logarithmic ticks", () => {
  it("are powers of ten, thinned on multiples that stay while a person moves along", () => {
    expect(logTicks(1e-3, 1e3, 8)).toEqual([1e-3, 1e-2, 0.1, 1, 10, 100, 1000]);
    expect(logTicks(1e-12, 1, 3)).toEqual([1e-10, 1e-5, 1]);
    expect(logTicks(3e-12, 1, 3)).toEqual([1e-10, 1e-5, 1]);
  });
  it("have 2 and 5 between where the range is narrow", () => {
    expect(logTicks(0.5, 6, 8)).toEqual([0.5, 1, 2, 5]);
    expect(logTicks(1.2, 1.9, 3).length).toBeGreaterThan(1);
  });
  it("bear the ends of what a number can be", () => {
    expect(logTicks(0, 1, 5)).toEqual([]);
    expect(logTicks(1, Infinity, 5)).toEqual([]);
    expect(logTicks(1e-300, 1e300, 6).length).toBeLessThanOrEqual(7);
  });
});

it("says ticks shortly", () => {
  expect([0, 1, 0.005, 1500, 1e-7, 2e-9, -1e-5, 1e6].map(tickText)).toEqual([
    "0",
    "1",
    "0.005",
    "1500",
    "10⁻⁷",
    "2·10⁻⁹",
    "-10⁻⁵",
    "10⁶",
  ]);
});

it("puts ticks of bytes on round numbers of their unit", () => {
  const MiB = 2 ** 20;
  expect(byteTicks(300 * MiB, 500 * MiB, 4)).toEqual([300, 350, 400, 450, 500].map((n) => n * MiB));
  expect(byteTicks(0, 10, 2)).toEqual([0, 5, 10]);
});
