import { describe, expect, test } from "vitest";
import type { Decoded, Finding, Ledger, LedgerRow } from "../../data/document";
import { empty } from "../../testing/document";
import { accountOf, ledgered, movement, often, toLedger } from "./ledger";

function row(more: Partial<LedgerRow> = {}): LedgerRow {
  return {
    optimizer: 0,
    events: [0],
    periods: 5,
    first: 1,
    last: 5,
    moved: 5,
    kept: 0,
    why: "",
    frozen: false,
    ...more,
  };
}

/** Parameters a, b, c and d with these accounts. */
function doc(of: number[], accounts: number[][], rows: LedgerRow[]): Decoded {
  const ledger: Ledger<Int32Array> = {
    optimizers: [
      { name: "SGD", made: 7, omitted: 0 },
      { name: "Adam", made: 8, omitted: 0 },
    ],
    rows,
    events: [{ sign: "step", text: "SGD stepped with the gradient", site: -1 }],
    accounts: accounts.map((one) => ({ rows: one, cut: 0 })),
    of: Int32Array.from(of),
    changes: [{ parameter: 0, optimizer: 0, split: true, rows: [["1", "0.1 (5%)", "0.1 (100%)", "0", "0", ""]] }],
    buffers: [
      { module: "", title: "mean, a buffer of Norm", rows: [] },
      { module: "norm", title: "norm.mean, a buffer of Norm", rows: [] },
    ],
  };
  const parameters = ["a", "b", "c", "d"].map((name) => ({ name }) as Decoded["parameters"][number]);
  return { ...empty(), parameters, ledger };
}

const finding = (more: Partial<Finding>): Finding => ({ parameters: [], sites: [], ...more }) as Finding;

describe("the account of a parameter", () => {
  test("is none where nothing was observed, or no optimizer holds the parameter", () => {
    expect(accountOf(empty(), 0)).toBeNull();
    expect(accountOf(doc([-1, 0], [[0]], [row()]), 0)).toBeNull();
    expect(accountOf(doc([-1, 0], [[0]], [row()]), 9)).toBeNull();
  });

  test("has the rows of each optimizer, and the parameters that share it", () => {
    const rows = [row(), row({ events: [0, 0], first: 9 }), row({ optimizer: 1 }), row({ first: 3 })];
    const found = accountOf(doc([0, 1, 0, 0], [[0, 1, 2], [3]], rows), 2)!;
    expect(found.alike).toEqual([0, 3]);
    expect(found.books.map(({ optimizer }) => optimizer.name)).toEqual(["SGD", "Adam"]);
    expect(found.books.map((book) => book.rows)).toEqual([[rows[0], rows[1]], [rows[2]]]);
  });

  test("has the changes of the parameter and the buffers of its module", () => {
    const found = accountOf(doc([0, 0], [[0]], [row()]), 0)!;
    expect(found.changes).toHaveLength(1);
    expect(found.buffers.map(({ title }) => title)).toEqual(["mean, a buffer of Norm"]);
    expect(accountOf(doc([0, 0], [[0]], [row()]), 1)!.changes).toEqual([]);
  });

  test("says why a weight stayed, and keeps such rows apart", () => {
    const why = "because the learning rate was 0";
    expect(movement(row({ moved: 0, kept: 5, why })).text).toBe(`the weight stayed as it was, ${why}`);
    expect(movement(row({ moved: 3, kept: 2, why })).text).toBe(`the weight moved in 3 of 5; ${why}`);
    const rows = [row({ moved: 0, kept: 5, why }), row({ moved: 0, kept: 4, why })];
    expect(accountOf(doc([0], [[0, 1]], rows), 0)!.books[0]!.rows).toHaveLength(2);
  });

  test("has one row for rows that read the same", () => {
    const rows = [row({ last: 1, periods: 1, moved: 1 }), row({ first: 2, last: 6, moved: 2, kept: 3 })];
    const found = accountOf(doc([0], [[0, 1]], rows), 0)!;
    expect(found.books[0]!.rows).toEqual([row({ first: 1, last: 6, periods: 6, moved: 3, kept: 3 })]);
    expect(rows[0]!.periods).toBe(1);
  });

  test("keeps rows apart whose parameter was frozen in one of them only, and says how many rows were cut", () => {
    const made = doc([0], [[0, 1]], [row(), row({ frozen: true })]);
    made.ledger!.accounts[0]!.cut = 3;
    const found = accountOf(made, 0)!;
    expect(found.books[0]!.rows).toHaveLength(2);
    expect(found.cut).toBe(3);
  });
});

describe("the ledger of a finding", () => {
  const made = doc([-1, 0, 1], [[0], [1]], [row(), row({ optimizer: 1 })]);
  test("is that of its first parameter that has one", () => {
    expect(ledgered(made, finding({ parameters: ["no", "a", "c", "b"] }))).toBe(2);
    expect(ledgered(made, finding({ parameters: ["a", "d"] }))).toBe(-1);
    expect(ledgered(empty(), finding({ parameters: ["a"] }))).toBe(-1);
  });

  test("is that of a parameter of its optimizer where it names no parameter", () => {
    const sites = [
      { role: "stepped", meaning: "", site: 7 },
      { role: "optimizer", meaning: "", site: 8 },
    ];
    expect(ledgered(made, finding({ sites }))).toBe(2);
    expect(ledgered(made, finding({ sites: [{ role: "optimizer", meaning: "", site: 9 }] }))).toBe(-1);
    expect(ledgered(made, finding({ sites, parameters: ["a"] }))).toBe(-1);
    expect(ledgered(made, finding({}))).toBe(-1);
  });

  test("is an address of the parameter", () => {
    expect(toLedger(3)).toEqual({ parameter: "3", section: "ledger" });
  });
});

test("steps that follow each other are said to be the same, others are counted", () => {
  expect(often(row({ first: 3, last: 15, periods: 13 }))).toBe("the same in all 13");
  expect(often(row({ first: 3, last: 15, periods: 4 }))).toBe("4 times");
  expect(often(row({ first: 3, last: 15, periods: 1200 }))).toBe("1,200 times");
  expect(often(row({ first: 3, last: 3, periods: 1 }))).toBe("");
  expect(often(row({ first: 3, last: 3, periods: 2 }))).toBe("2 times");
});

test("whether the weight moved is said where its values were compared", () => {
  expect(movement(row({ moved: 0 }))).toEqual({ text: "", good: true });
  expect(movement(row())).toEqual({ text: "the weight moved", good: true });
  expect(movement(row({ moved: 3 }))).toEqual({ text: "the weight moved in all 3 that were compared", good: true });
  expect(movement(row({ moved: 3, kept: 2 }))).toEqual({ text: "the weight moved in 3 of 5", good: false });
  expect(movement(row({ moved: 0, kept: 5 }))).toEqual({ text: "the weight stayed as it was", good: false });
});
