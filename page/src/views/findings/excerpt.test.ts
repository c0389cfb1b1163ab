import { expect, test } from "vitest";
import { excerpts } from "./excerpt";

const lines = Array.from({ length: 40 }, (_, i) => `line ${i + 1}`);
const site = (line: number, text = `line ${line}`, file = "a.py") => ({ file, line, function: "f", text });
const sites = [site(10), site(14), site(30), site(1), site(12, "other"), site(5, "gone", "b.py"), site(40)];
const doc = { sites, sources: [{ file: "a.py", lines, library: false }] };
const of = (...named: [string, number][]) =>
  excerpts(doc, { sites: named.map(([role, number]) => ({ role, meaning: "", site: number })) });

test("the main line comes with more lines around it", () => {
  const [first] = of(["cause", 0]);
  expect([first!.first, first!.lines.length, first!.lines[4]]).toEqual([6, 9, "line 10"]);
  expect([...first!.marks]).toEqual([[10, { roles: ["cause"], function: "f" }]]);
});

test("lines that are near share an excerpt, others do not", () => {
  const found = of(["mutated", 0], ["saved", 1], ["failed", 2], ["cause", 0]);
  expect(found.map((one) => [one.first, one.first + one.lines.length - 1])).toEqual([
    [6, 16],
    [28, 32],
  ]);
  expect(found[0]!.marks.get(10)!.roles).toEqual(["mutated", "cause"]);
  expect(found[0]!.marks.get(14)!.roles).toEqual(["saved"]);
});

test("an excerpt stays inside the file", () => {
  expect(of(["cause", 3])[0]!.first).toBe(1);
  expect(of(["cause", 6])[0]!.lines.at(-1)).toBe("line 40");
});

test("a file that was not kept shows the recorded line, and so does one that has changed since", () => {
  const gone = of(["cause", 5])[0]!;
  expect([gone.first, gone.lines, gone.changed]).toEqual([5, ["gone"], false]);
  const other = of(["cause", 4])[0]!;
  expect([other.first, other.lines, other.changed]).toEqual([12, ["other"], true]);
});

test("a site that is not there is left out", () => {
  expect(of(["cause", 99])).toEqual([]);
});
