import { expect, test } from "vitest";
import { label, scalar, shown } from "./evidence";

test("values without parts", () => {
  expect(
    [null, true, false, 196, 1234567, 0.1234567891, 1e30, "NaN", "Infinity", "-Infinity", "", "a"].map(scalar),
  ).toEqual(["none", "yes", "no", "196", "1,234,567", "0.123457", "1e30", "NaN", "Inf", "-Inf", "(empty)", "a"]); // prettier-ignore
});

test("names lose their underscores", () => {
  expect([label("first_elements"), label("_"), label("op")]).toEqual(["first elements", "_", "op"]);
});

test("lists of values, of tuples, and none", () => {
  expect(shown([1, "a", null])).toEqual({ kind: "list", items: ["1", "a", "none"] });
  expect(
    shown([
      [1, 3, 0],
      [1, 3, 1],
    ]),
  ).toEqual({ kind: "list", items: ["(1, 3, 0)", "(1, 3, 1)"] });
  expect(shown([])).toEqual({ kind: "text", text: "none" });
  expect(shown([[[1], 2]])).toEqual({ kind: "list", items: ["[[1],2]"] });
});

test("records become a table with every column that any has", () => {
  expect(
    shown([
      { rank: 0, op_name: "a" },
      { rank: 1, late: true },
    ]),
  ).toEqual({
    kind: "table",
    columns: ["rank", "op name", "late"],
    rows: [
      ["0", "a", ""],
      ["1", "", "yes"],
    ],
  }); // prettier-ignore
});

test("what is nested stays nested, up to a depth", () => {
  expect(shown({ a: { b: 1 } })).toEqual({
    kind: "pairs",
    pairs: [["a", { kind: "pairs", pairs: [["b", { kind: "text", text: "1" }]] }]],
  });
  const deep = { a: { a: { a: { a: { a: { a: 1 } } } } } };
  expect(JSON.stringify(shown(deep))).toContain(String.raw`{\"a\":1}`);
});
