import { expect, test } from "vitest";
import { label, scalar, shown, sizes } from "./evidence";

test("values without parts", () => {
  expect(
    [null, true, false, 196, 1234567, 0.1234567891, 1e30, "NaN", "Infinity", "-Infinity", "", "a"].map(scalar),
  ).toEqual(["none", "yes", "no", "196", "1,234,567", "0.123457", "1e30", "NaN", "Inf", "-Inf", "(empty)", "a"]); // prettier-ignore
});

test("names lose their underscores", () => {
  expect([label("first_elements"), label("_"), label("op")]).toEqual(["first elements", "_", "operation"]);
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
    columns: ["rank", "operation name", "late"],
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

test("units are those of the key, and many numbers by name are bars", () => {
  expect(shown({ total_bytes: 2048, seconds: 0.5, bytes: "?" })).toEqual({
    kind: "pairs",
    pairs: [
      ["total bytes", { kind: "text", text: "2.00 KiB (2,048)" }],
      ["seconds", { kind: "text", text: "500 ms" }],
      ["bytes", { kind: "text", text: "?" }],
    ],
  });
  expect(shown({ "0.weight": 1, "2.weight": 2, "4.weight": 4 }, 1, "norms")).toEqual({
    kind: "table",
    columns: ["", "norms"],
    rows: [
      ["0.weight", "1"],
      ["2.weight", "2"],
      ["4.weight", "4"],
    ],
    sizes: [null, [0.25, 0.5, 1]],
  });
  expect(sizes([1, 1e6, NaN, 0])).toEqual([1 / 7, 1, 1, 0]);
});
