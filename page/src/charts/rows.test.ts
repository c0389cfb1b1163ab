import { describe, expect, it } from "vitest";
import { csv } from "../parts/save";
import { type Column, cells, sorted, turned } from "./rows";

interface Row {
  name: string;
  norm: number;
}

const COLUMNS: readonly Column<Row>[] = [
  { name: "name", value: (r) => r.name },
  { name: "norm", value: (r) => r.norm, numeric: true },
];
const ROWS: readonly Row[] = [
  { name: "layer.10", norm: 1 },
  { name: "layer.2", norm: -1 },
  { name: "layer.1", norm: NaN },
  { name: "=cmd", norm: Infinity },
  { name: "b", norm: 0 },
];
const names = (order: Parameters<typeof sorted<Row>>[2]): string[] =>
  sorted(ROWS, COLUMNS, order).map((i) => ROWS[i]!.name);

describe("a table", () => {
  it("keeps its order until a head is clicked, and turns with the next click", () => {
    expect(sorted(ROWS, COLUMNS, null)).toEqual([0, 1, 2, 3, 4]);
    const first = turned(COLUMNS[1]!, null);
    expect(first).toEqual({ column: "norm", down: true });
    expect(turned(COLUMNS[1]!, first)).toEqual({ column: "norm", down: false });
    expect(turned(COLUMNS[0]!, first)).toEqual({ column: "name", down: false });
  });
  it("puts what is not finite first, and what was not measured last either way", () => {
    expect(names({ column: "norm", down: true })).toEqual(["layer.1", "=cmd", "layer.10", "b", "layer.2"]);
    expect(names({ column: "norm", down: false })).toEqual(["b", "layer.10", "=cmd", "layer.1", "layer.2"]);
  });
  it("knows that 2 is before 10 in names", () => {
    expect(names({ column: "name", down: false }).slice(-3)).toEqual(["layer.1", "layer.2", "layer.10"]);
  });
  it("takes numbers below zero for values where a column says so", () => {
    const signed: Column<Row> = { name: "mean", value: (r) => r.norm, signed: true };
    expect(
      sorted(
        [
          { name: "a", norm: 1 },
          { name: "b", norm: -5 },
        ],
        [signed],
        { column: "mean", down: false },
      ),
    ).toEqual([1, 0]); // prettier-ignore
    expect([...cells([{ name: "b", norm: -5 }], [signed], [0])]).toEqual([[-5]]);
  });
  it("is saved as it is seen; what was not measured is empty, a formula is disarmed", () => {
    const order = sorted(ROWS, COLUMNS, { column: "norm", down: true });
    expect(csv(["name", "norm"], cells(ROWS, COLUMNS, order))).toBe(
      "name,norm\r\nlayer.1,NaN\r\n'=cmd,Infinity\r\nlayer.10,1\r\nb,0\r\nlayer.2,\r\n",
    );
  });
});
