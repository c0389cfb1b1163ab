import { describe, expect, test } from "vitest";
import { PageError } from "../data/decode";
import { type Comparison, checked, type Document, isComparison, type Tensors } from "./document";
import { AGREES, DIFFERS, decades, marked, ONLY_B, Pair, SAME } from "./pair";
import { relative } from "./steps";

const ints = (...values: number[]) => new Int32Array(values);
const STRINGS = ["mm", "a", "relu", "b", "gradient", "a.weight", "weight", "2x2 float32"];

function tensors(kind: number[], from: number[]): Tensors {
  const of = () => ({
    word: ints(...kind.map(() => 7)),
    norm: new Float32Array(kind.length),
    bad: ints(...kind.map(() => 0)),
    from: ints(...from),
    name: ints(...kind.map(() => -1)),
  });
  return {
    kind: ints(...kind),
    state: ints(...kind.map(() => 0)),
    distance: new Float32Array(kind.length),
    a: of(),
    b: of(),
  };
}

/** mm and relu of a forward, an operation of B alone, then a gradient and a weight. */
function comparison(change: Partial<Comparison> = {}): Comparison {
  const of = (name: number[]) => ({
    name: ints(...name),
    module: ints(...name.map((one, row) => (one < 0 ? -1 : [1, 3, 3, 5, 5][row]!))),
    call: ints(...name.map(() => 1)),
    step: ints(...name.map((one) => (one < 0 ? -1 : 0))),
    site: ints(...name.map((one) => (one < 0 ? -1 : 0))),
    inner: ints(...name.map(() => -1)),
    node: ints(...name.map(() => -1)),
    arguments: ints(...name.map(() => -1)),
  });
  const site = (line: number) => ({ file: "train.py", line, function: "f", text: "x" });
  return {
    verdict: "differs",
    result: "",
    given: true,
    calculated: true,
    blame: null,
    early: [],
    same: [],
    pairs: 4,
    alone: [0, 1],
    ends: 2,
    different: 1,
    drift: [],
    notes: [],
    findings: [],
    steps: [{ a: 0, b: 0, loss: [1, "NaN"] }],
    sites: [[site(3)], [site(4)]],
    ops: {
      count: 5,
      suspect: 1,
      start: ints(0, 2, 4, 4, 5, 6),
      phase: ints(0, 0, 0, 3, 3),
      state: ints(SAME, DIFFERS, ONLY_B, AGREES, SAME),
      distance: new Float32Array([0, 0.5, -1, 1e-7, 0]),
      exact: new Float32Array([0, 0.5, -1, 0, 0]),
      a: of([0, 2, -1, 4, 6]),
      b: of([0, 2, 0, 4, 6]),
      tensors: tensors([0, 1, 0, 1, 0, 0], [-1, -1, 0, -1, 1, -1]),
      flow: { step: ints(0, 0), phase: ints(0, 0), row: ints(0, 1) },
      strings: STRINGS,
    },
    ...change,
  };
}

const side = {
  name: "A",
  script: "",
  started: null,
  error: null,
  steps: [0],
  ops: 5,
  versions: {},
  curve: { step: ints(), loss: new Float64Array() },
};
const pair = (change: Partial<Comparison> = {}) => new Pair(comparison(change), [side, { ...side, name: "B" }]);

describe("rows of both runs", () => {
  test("one that A does not have is read from B", () => {
    const two = pair();
    expect(two.has(2, "a")).toBe(false);
    expect([two.title(2), two.module(2), two.place(2, "b"), two.place(2, "a")]).toEqual(["mm", "b", "train.py:4", ""]);
    expect(two.title(3)).toBe("the gradient");
  });

  test("are found by all words, and by what they are", () => {
    const two = pair();
    expect(two.find("all", "")).toEqual([0, 1, 2, 3, 4]);
    expect(two.find("all", "MM  b")).toEqual([2]);
    expect(two.find("all", "train.py:4 forward")).toEqual([0, 1, 2]);
    expect(two.find("differs", "")).toEqual([1, 2]);
    expect(two.find("bits", "")).toEqual([1, 2, 3]);
    expect(two.find("alone", "")).toEqual([2]);
    expect(two.find("all", "nothing")).toEqual([]);
  });

  test("those that took what one gave", () => {
    expect(pair().takers(0)).toEqual([1]);
    expect(pair().takers(1)).toEqual([3]);
    expect(pair().takers(3)).toEqual([]);
  });
});

describe("sums", () => {
  test("modules of a step, forward and backward", () => {
    const [a, b] = pair().flow(0);
    expect(a).toEqual({ name: "a", cells: [{ row: 0, state: SAME, distance: 0 }, null] });
    expect(b).toEqual({ name: "b", cells: [{ row: 1, state: DIFFERS, distance: 0.5 }, null] });
    expect(pair().flow(1)).toEqual([]);
  });

  test("a gradient and a weight are of one parameter", () => {
    const [only] = pair().parameters(0);
    expect(only!.name).toBe("a.weight");
    expect(only!.cells.map((cell) => cell?.row)).toEqual([3, 4]);
  });

  test("a step has its losses, and the farthest of its gradients", () => {
    const [step] = pair().steps();
    expect(step!.loss).toEqual([1, NaN]);
    expect(step!.gradients).toMatchObject({ count: 1, same: 0, differs: 0, row: 3 });
    expect(step!.gradients.worst).toBeCloseTo(1e-7, 12);
    expect(step!.weights).toMatchObject({ count: 1, same: 1 });
  });

  test("states in words: what agrees is no rounding where tensors are meant to be others", () => {
    expect(pair().word(AGREES)).toBe("rounding");
    expect(pair({ given: false }).word(AGREES)).toBe("same calculation");
    expect(pair().counts()).toEqual([2, 1, 1, 0, 1, 0, 0]);
  });
});

test("decades of an axis hold all distances, and are three or more", () => {
  expect(decades([0, -1])).toBeNull();
  expect(decades([1])).toEqual([-3, 0]);
  expect(decades([3e-9, 0.2, Infinity, NaN])).toEqual([-9, 0]);
});

test("what differs between two texts is marked", () => {
  expect(marked("(tensor 0, 0.5)", "(tensor 0, 0.25)")).toEqual([
    ["(tensor 0, ", false],
    ["0.5", true],
    [")", false],
  ]);
  expect(marked("a", "a")).toEqual([["a", false]]);
  expect(marked("a a", "a")).toEqual([
    ["a", false],
    [" a", true],
  ]);
  expect(marked("", "b")).toEqual([]);
});

test("how far two losses are apart", () => {
  expect(relative(2, 1)).toBe(0.5);
  expect(relative(0, 0)).toBe(-1);
  expect(relative(NaN, 1)).toBe(-1);
});

test("a document of another format, or without its parts, is refused in words", () => {
  const doc: Document = {
    kind: "comparison",
    format: 1,
    title: "A and B",
    sides: [side, side],
    comparisons: [comparison()],
    groups: [],
  };
  expect(isComparison(doc)).toBe(true);
  expect(isComparison({ format: 2 })).toBe(false);
  expect(checked(doc)).toBe(doc);
  expect(() => checked({ ...doc, format: 9 })).toThrow(PageError);
  expect(() => checked({ ...doc, comparisons: [] })).toThrow(/damaged/);
});
