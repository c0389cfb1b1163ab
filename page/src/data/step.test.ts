import { describe, expect, it } from "vitest";
import { empty } from "../testing/document";
import type { Decoded } from "./document";
import { Model } from "./model";
import { callAt, callShown, callSteps, elsewhere, graphShown, nearest, recordedSteps, selected, toStep } from "./step";

function call(step: number, index: number, more: object = {}): Decoded["calls"][number] {
  return { step, index, raised: null, layout: 0, marks: new Int32Array(1), ...more } as Decoded["calls"][number];
}
function model(findings: { step: number | null; at?: [number, number] }[], calls = [0, 10, 20, 39, 41]): Model {
  const doc = empty();
  doc.steps.index = Int32Array.from({ length: 50 }, (_, i) => i);
  doc.calls = calls.map((step, i) => call(step, i));
  doc.findings = findings.map((f) => ({ at: null, ...f })) as unknown as Decoded["findings"];
  return new Model(doc);
}

describe("the selected step", () => {
  it("is the address's, else the first finding's, else that of a call that went wrong, else the last", () => {
    const late = model([{ step: null }, { step: 40 }]);
    expect(selected(late, {})).toBe(40);
    expect(selected(late, { step: "7" })).toBe(7);
    expect(selected(late, { call: "1" })).toBe(10);
    expect(selected(late, { step: "x" })).toBe(40);
    expect(selected(model([{ step: null, at: [2, 0] }]), {})).toBe(20);
    expect(selected(model([]), {})).toBe(49);
    const raised = model([]);
    (raised.doc.calls[1] as { raised: string | null }).raised = "RuntimeError: no";
    expect(selected(raised, {})).toBe(10);
    expect(selected(new Model(empty()), {})).toBe(0);
  });
});

describe("the step that a page opens with", () => {
  const budget = (findings: { step: number | null }[]): Model => {
    const some = model(findings);
    some.doc.steps.recorded = Int32Array.from({ length: 50 }, (_, i) => Number(i % 20 === 3));
    return some;
  };
  it("is a recorded one: the last before that of the finding, or before the end", () => {
    expect(selected(budget([]), {})).toBe(43);
    expect(selected(budget([{ step: 40 }]), {})).toBe(23);
    expect(selected(budget([{ step: 1 }]), {})).toBe(3);
  });
  it("is the finding's where the page has a call of it, and what the address says", () => {
    expect(selected(budget([{ step: 39 }]), {})).toBe(39);
    expect(selected(budget([{ step: 40 }]), { step: "40" })).toBe(40);
  });
});

describe("the steps whose nodes were recorded", () => {
  it("are named where a budget left others out", () => {
    const some = model([]);
    some.doc.steps.recorded = Int32Array.from({ length: 50 }, (_, i) => Number(i % 20 === 3));
    expect(recordedSteps(some)).toEqual(Int32Array.of(3, 23, 43));
    some.doc.steps.recorded.fill(1);
    expect(recordedSteps(some)).toBeNull();
    some.doc.steps.recorded.fill(0);
    expect(recordedSteps(some)).toBeNull();
  });
});

describe("the call of a step", () => {
  it("is the nearest that there is, the earlier of two, and it is said", () => {
    const late = model([{ step: 40 }]);
    expect(callAt(late, {})).toBe(3);
    expect(elsewhere(callShown(late, {}), 40)).toEqual(["graph of step 39: not in this page for step 40"]);
    expect(elsewhere(callShown(late, { step: "10" }), 10)).toEqual([]);
    expect(callAt(new Model(empty()), {})).toBe(-1);
  });
  it("is the named one only where it is of the step", () => {
    const two = model([], [3, 3, 5]);
    expect(callAt(two, { call: "1" })).toBe(1);
    expect(callAt(two, { call: "1", step: "3" })).toBe(1);
    expect(callAt(two, { call: "1", step: "5" })).toBe(2);
    expect(callAt(two, { step: "3" })).toBe(0);
    expect(callAt(model([{ step: 3, at: [1, 0] }], [3, 3, 5]), {})).toBe(1);
  });
  it("lists steps once, in the order of numbers", () => {
    expect([...callSteps(model([], [0, 2, 2, 10]))]).toEqual([0, 2, 10]);
  });
});

it("another step keeps what is chosen where the graph is alike", () => {
  const same = model([]);
  expect(toStep(same, { node: "4" }, 10)).toEqual({ step: "10", call: "" });
  (same.doc.calls[1] as { layout: number }).layout = 1;
  expect(toStep(same, { node: "4" }, 10)).toMatchObject({ step: "10", node: "", range: "" });
});

it("finds the nearest measured place", () => {
  expect(nearest([0, 5, 10], 8)).toBe(2);
  expect(nearest([0, 5, 10], 8, (i) => i < 2)).toBe(1);
  expect(nearest([4, 6], 5)).toBe(0);
  expect(nearest([], 5)).toBe(-1);
});

it("a graph has norms of outputs of the nearest step in which they were measured", () => {
  const late = model([{ step: 40 }]);
  expect(graphShown(late, {})).toEqual(callShown(late, {}));
  const forward = [0, 38].map((step) => ({
    step,
    module: new Int32Array(),
    nth: new Int32Array(),
    norm: new Float32Array(),
  }));
  const shown = graphShown(new Model({ ...late.doc, forward }), {});
  expect(elsewhere(shown, 40)).toEqual([
    "graph of step 39: not in this page for step 40",
    "forward norms of step 38: not measured at step 40",
  ]);
});
