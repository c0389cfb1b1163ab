import { describe, expect, test } from "vitest";
import { repeats } from "./repeat";
import { random } from "./testing";

const limits = { least: 3, longest: 8 };
const codes = (text: string): number[] => Array.from(text, (c) => c.charCodeAt(0));

describe("repeats", () => {
  test("finds runs of one, of several, and what stands between them", () => {
    expect(repeats(codes("xaaaay"), limits)).toEqual([{ start: 1, period: 1, times: 4 }]);
    expect(repeats(codes("xabcabcabcy"), limits)).toEqual([{ start: 1, period: 3, times: 3 }]);
    expect(repeats(codes("aaabcbcbcd"), limits)).toEqual([
      { start: 0, period: 1, times: 3 },
      { start: 3, period: 2, times: 3 },
    ]);
  });

  test("two are not enough, and a part of a repeat does not count", () => {
    expect(repeats(codes("abab"), limits)).toEqual([]);
    expect(repeats(codes("abcabcab"), limits)).toEqual([]);
    expect(repeats([], limits)).toEqual([]);
  });

  test("starts where the rank is lowest: the first line of a loop's body", () => {
    // What is before the loop ends as its body does: "c" of line 3, then the body a, b, c of lines 1, 2, 3.
    const lines: Record<string, number> = { a: 1, b: 2, c: 3 };
    const text = "cabcabcabc";
    expect(repeats(codes(text), limits)).toEqual([{ start: 0, period: 3, times: 3 }]);
    expect(repeats(codes(text), limits, (at) => lines[text[at]!]!)).toEqual([{ start: 1, period: 3, times: 3 }]);
  });

  test("a period longer than the limit is not looked for", () => {
    expect(repeats(codes("abcdefghi".repeat(4)), limits)).toEqual([]);
  });

  test("what it finds repeats, and it misses no stretch of the shortest periods", () => {
    for (let seed = 0; seed < 200; seed++) {
      const draw = random(seed);
      const signs = Array.from({ length: 40 }, () => Math.floor(draw() * 2));
      const found = repeats(signs, limits);
      let end = 0;
      for (const { start, period, times } of found) {
        expect(start).toBeGreaterThanOrEqual(end);
        end = start + period * times;
        for (let k = start; k < end - period; k++) expect(signs[k]).toBe(signs[k + period]);
      }
      const covered = new Set(
        found.flatMap(({ start, period, times }) => Array.from({ length: period * times }, (_, k) => start + k)),
      );
      for (let k = 0; k + 2 < signs.length; k++) {
        if (signs[k] === signs[k + 1] && signs[k] === signs[k + 2])
          expect([k, k + 1, k + 2].some((at) => covered.has(at))).toBe(true);
      }
    }
  });

  test("a long sequence without repeats is gone through once for each period", () => {
    const draw = random(1);
    const signs = Int32Array.from({ length: 200_000 }, () => Math.floor(draw() * 1e9));
    expect(repeats(signs, { least: 3, longest: 48 })).toEqual([]);
  }, 30_000);
});
