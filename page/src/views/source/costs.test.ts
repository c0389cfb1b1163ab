import { describe, expect, test } from "vitest";
import type { Decoded } from "../../data/document";
import { Model } from "../../data/model";
import { empty } from "../../testing/document";
import { byFile, chief, costs, foremost, heldByOneLine, mark, marked, next, nodesAt } from "./costs";

const site = (file: string, line: number) => ({ file, line, function: "f", text: "" });

/** Six nodes: three at a.py:2, one at a.py:4, one at b.py:2, one without a line. The first three were made in a library. */
function doc(): Decoded {
  const made = empty();
  made.sites = [site("a.py", 2), site("a.py", 4), site("b.py", 2), site("a.py", 99)];
  made.sites.push(site("/x/site-packages/lib/net.py", 1), site("/x/site-packages/lib/net.py", 3), site("wrap.py", 9));
  made.sources = [
    { file: "b.py", lines: ["", ""], library: false },
    { file: "a.py", lines: ["1", "2", "3", "4", "5"], library: false },
    { file: "wrap.py", lines: ["", ""], library: true },
    { file: "/x/site-packages/lib/net.py", lines: ["1", "2", "3"], library: true },
  ];
  made.modules.push({ path: "x", class: "X", parent: 0, calls: 1, site: -1 });
  const ints = (...values: number[]) => Int32Array.from(values);
  made.layouts = [
    {
      strings: ["Mul", "Exp"],
      name: ints(0, 1, 0, 0, 0, 1),
      op: ints(0, 0, 0, 0, 0, 0),
      seq: ints(5, 4, 3, 2, 1, 0),
      module: ints(1, 0, 1, 0, 0, 0),
      nth: ints(1, 1, 1, 1, 1, 1),
      site: ints(0, 0, 0, 1, 2, -1),
      library: ints(1, 2, 2, 0, 0, 0),
      stacks: [[], [6, 4], [6, 4, 5]],
      parameter: ints(-1, -1, -1, -1, -1, -1),
      edges: ints(0, 0, 0, 0, 0, 0, 0),
      to: ints(),
      time: Float32Array.of(1, 2, -1, -1, 8, 16),
      timed: 2,
    },
  ]; // prettier-ignore
  const call = {
    step: 3,
    index: 0,
    kind: "backward",
    arguments: {},
    site: -1,
    seconds: 1,
    raised: null,
    layout: 0,
    roots: [],
    order: ints(0, 1, 2, 3, 4, 5),
    time: Float32Array.of(1, 2, -1, -1, 8, 16),
    came: Float32Array.of(1, 5, -1, NaN, 3, 0),
    out: new Float32Array(),
    marks: ints(0, 0, 8, 1, 0, 2),
    shape: ints(-1, -1, -1, -1, -1, -1),
    words: [],
    notes: {},
  }; // prettier-ignore
  made.calls = [{ ...call, marks: ints(0, 0, 0, 0, 0, 0) }, call];
  made.memory = {
    step: 0,
    total: 30,
    notes: [],
    curve: null,
    rows: [10, 20].map((bytes) => ({ module: 0, site: 1, op: "mul", dtype: "", bytes, tensors: 1, names: [] })),
  };
  return made;
}

describe("what lines cost", () => {
  const model = new Model(doc());
  const found = costs(model, "a.py", 5, model.doc.calls[1]);

  test("is summed over the nodes of a line; what was not measured is not zero", () => {
    expect([...found.nodes]).toEqual([0, 0, 3, 0, 1, 0]);
    expect([...found.time]).toEqual([-1, -1, 3, -1, -1, -1]);
    expect([...found.kept]).toEqual([0, 0, 0, 0, 30, 0]);
    expect(found.most).toEqual({ time: 3, kept: 30 });
  });

  test("has the greatest norm, and one that is not a number before all", () => {
    expect([...found.came]).toEqual([-1, -1, 5, -1, NaN, -1]);
  });

  test("has the marks of all its nodes", () => {
    expect([...found.marks]).toEqual([0, 0, 8, 0, 1, 0]);
    expect(marked(found)).toEqual([4]);
    expect([mark(8 | 2)?.word, mark(1)?.word, mark(0)]).toEqual(["made NaN/Inf", "NaN/Inf", null]);
  });

  test("without a call only memory and findings are known", () => {
    const bare = costs(model, "a.py", 5, undefined);
    expect(Math.max(...bare.nodes)).toBe(0);
    expect(bare.kept[4]).toBe(30);
  });

  test("by file", () => {
    expect([...byFile(model, model.doc.calls[1])]).toEqual([
      ["a.py", 3],
      ["b.py", 8],
      ["/x/site-packages/lib/net.py", 3],
      ["wrap.py", 3],
    ]);
  });

  test("in a library's file: what was made through it, at the innermost line", () => {
    const { file } = model.doc.sources[3]!;
    const library = costs(model, file, 3, model.doc.calls[1]);
    expect([...library.nodes]).toEqual([0, 1, 0, 2]);
    expect([...library.time]).toEqual([-1, 1, -1, 2]);
    expect([...library.came]).toEqual([-1, 1, -1, 5]);
    expect([...library.marks]).toEqual([0, 0, 0, 8]);
    expect(nodesAt(model, model.doc.calls[1]!, file, 3)).toMatchObject({ modules: ["(model)", "x"], site: 5 });
  });

  test("the nodes of a line", () => {
    expect(nodesAt(model, model.doc.calls[1]!, "a.py", 2)).toEqual({
      names: [
        ["Mul", 2],
        ["Exp", 1],
      ],
      modules: ["(model)", "x"],
      site: 0,
    });
  });
});

test("findings mark their lines, and say which file and call to open", () => {
  const made = doc();
  const finding = {
    kind: "inplace",
    sites: [
      { role: "cause", site: 0 },
      { role: "failed", site: 3 },
    ],
    at: null,
  };
  made.findings = [finding, { ...finding, sites: [{ role: "cut", site: 0 }] }] as unknown as Decoded["findings"];
  const model = new Model(made);
  const found = costs(model, "a.py", 5, undefined);
  expect([...found.roles]).toEqual([
    [
      2,
      [
        { role: "cause", finding: 0 },
        { role: "cut", finding: 1 },
      ],
    ],
  ]);
  expect(marked(found)).toEqual([2]);
  expect(foremost(found)).toBe(2);
  expect(foremost({ ...found, roles: new Map() })).toBe(0);
  expect(chief(model, new Map())).toBe(1);
});

test("without findings: the file that takes longest", () => {
  const model = new Model(doc());
  expect(chief(model, byFile(model, model.doc.calls[1]))).toBe(0);
});

test("of libraries: the file that is called through most lines", () => {
  const model = new Model(doc());
  expect(chief(model, byFile(model, model.doc.calls[1]), true)).toBe(3);
  model.doc.sources.splice(2);
  expect(chief(model, new Map(), true)).toBe(-1);
});

test("from mark to mark, around the end", () => {
  expect([next([2, 5], 0, 1), next([2, 5], 2, 1), next([2, 5], 5, 1)]).toEqual([2, 5, 2]);
  expect([next([2, 5], 5, -1), next([2, 5], 2, -1), next([], 3, 1)]).toEqual([2, 5, 0]);
});

describe("a line that holds nearly all nodes", () => {
  const held = (sites: number[]) => {
    const made = doc();
    const ints = Int32Array.from(sites);
    made.layouts[0] = { ...made.layouts[0]!, site: ints };
    const model = new Model(made);
    return heldByOneLine(model, model.doc.calls[0]);
  };
  const many = (n: number, site: number) => Array.from({ length: n }, () => site);

  test("is one with nine tenths of them", () => {
    expect(held([...many(27, 0), ...many(3, 1), ...many(9, -1)])).toBe(true);
    expect(held([...many(26, 0), ...many(4, 1)])).toBe(false);
  });

  test("says nothing where there are few nodes, or no call", () => {
    expect(held(many(19, 0))).toBe(false);
    expect(heldByOneLine(new Model(doc()), undefined)).toBe(false);
  });
});
