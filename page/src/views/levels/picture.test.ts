import { describe, expect, it } from "vitest";
import { empty } from "../../testing/document";
import { alarmOf, toAlarm } from "./alarms";
import {
  type AllLevels,
  apart,
  chosen,
  columnAt,
  curveOf,
  edges,
  type Kind,
  kindOf,
  raster,
  scaleOf,
  thinned,
} from "./picture";

const none = -Infinity;
const kind = (values: number[], more: Partial<Kind> = {}): Kind => ({
  quantity: "activation_rms",
  title: "RMS of activations",
  names: ["a", "b"],
  least: false,
  middle: false,
  values: Float32Array.from(values),
  bound: Float64Array.from([none, none]),
  ...more,
});
const levels = (steps: number[], more: Partial<AllLevels> = {}): AllLevels => ({
  steps: Int32Array.from(steps),
  last: steps.at(-1) ?? 0,
  looks: steps.length,
  width: 1,
  kinds: [],
  alarms: [],
  ...more,
});
const alarm = {
  kind: "update-too-large",
  quantity: "activation_rms",
  name: "b",
  step: 20,
  since: 10,
  value: 3,
  text: "",
  finding: 0,
};

describe("columns", () => {
  it("lie half of the way to their neighbours", () => {
    expect([...edges([0, 10, 30])]).toEqual([-5, 5, 20, 40]);
    expect([...edges([7])]).toEqual([6.5, 7.5]);
  });
  it("are found by the nearest step", () => {
    expect([columnAt([0, 10, 30], 19), columnAt([0, 10, 30], 500), columnAt([0], 3)]).toEqual([1, 2, 0]);
  });
});

describe("raster", () => {
  const three = kind([1, 5, 2, NaN, 3, none]);
  it("puts layers in rows", () => {
    const made = raster(three, [0, 1, 2, 3], 10, 3, (x) => x);
    expect([made.rows, made.columns, ...made.values]).toEqual([2, 3, 1, 2, 3, 5, NaN, none]);
  });
  it("puts neighbours together: NaN before the greatest before what is not known", () => {
    expect([...raster(three, [0, 1, 2, 3], 1, 1, (x) => x / 3).values]).toEqual([NaN]);
    const known = kind([1, 5, none, 2]);
    expect([...raster(known, [0, 1, 2], 2, 1, (x) => x / 2).values]).toEqual([1, 5]);
    expect([...raster({ ...known, least: true }, [0, 1, 2], 2, 1, (x) => x / 2).values]).toEqual([1, 2]);
  });
  it("leaves out what is not in sight", () => {
    expect([...raster(three, [0, 1, 2, 3], 2, 1, (x) => x - 2).values]).toEqual([3, none]);
  });
});

describe("scaleOf", () => {
  it("is logarithmic where values are far apart, and a zero is the least", () => {
    const scale = scaleOf(kind([0, 1, 10, 100]));
    expect([scale.log, scale.low, scale.high, scale.place(0)]).toEqual([true, 1, 100, 0]);
    expect(scale.place(10)).toBeCloseTo(0.5);
  });
  it("is linear where they are near, or some are below zero", () => {
    expect(scaleOf(kind([1, 2, none, NaN])).place(1.5)).toBeCloseTo(0.5);
    expect(scaleOf(kind([-1, 1])).place(0)).toBeCloseTo(0.5);
  });
  it("shows small ones beside a huge one where some are below zero", () => {
    const scale = scaleOf(kind([-2, 1, 2, 3, 1e6, -1]));
    expect(scale.log).toBe(false);
    expect(scale.place(3) - scale.place(-2)).toBeGreaterThan(0.05);
    expect([scale.place(-2), scale.place(1e6)]).toEqual([0, 1]);
  });
});

describe("what is shown", () => {
  it("is the layer that is named, that of an alarm, or the one to look at at last", () => {
    const two = kind([1, 5, 9, 2]);
    expect(chosen(levels([0, 10]), two, "b,x,a,b", 8)).toEqual([1, 0]);
    expect(chosen(levels([0, 10]), two, undefined, 8)).toEqual([0]);
    expect(chosen(levels([0, 10]), { ...two, least: true }, undefined, 8)).toEqual([1]);
    expect(chosen(levels([0, 10]), { ...two, bound: Float64Array.from([none, 3]) }, undefined, 8)).toEqual([1]);
    expect(chosen(levels([0, 10], { alarms: [alarm] }), two, undefined, 8)).toEqual([1]);
    expect(chosen(levels([0, 10], { alarms: [alarm] }), two, "none", 8)).toEqual([]);
    expect(chosen(levels([0, 10]), kind([1, 5, none, none]), undefined, 8)).toEqual([1]);
  });
  it("is the quantity that is named, or that of the first alarm", () => {
    const kinds = [kind([]), kind([], { quantity: "dead" }), kind([], { quantity: "update_ratio" })];
    expect(kindOf(levels([], { kinds }), "dead").quantity).toBe("dead");
    expect(kindOf(levels([], { kinds }), "nothing").quantity).toBe("update_ratio");
    expect(kindOf(levels([], { kinds, alarms: [alarm] }), undefined).quantity).toBe("activation_rms");
  });
  it("has gaps where nothing is known", () => {
    const found = curveOf(kind([1, 5, none, 2, NaN, 3]), 0, false);
    expect(found.values).toEqual([1, null, null]);
    expect(found.stretches).toEqual([{ sort: "nan", first: 2, last: 2 }]);
    expect(curveOf(kind([1, 5, none, 2, 0, 3]), 0, true).stretches).toEqual([{ sort: "zero", first: 2, last: 2 }]);
  });
  it("says what was put together", () => {
    expect(thinned(levels([0]), kind([]))).toBe("");
    expect(thinned(levels([0], { looks: 1234, width: 8 }), kind([]))).toBe(
      "Of 1,234 looks, each point is 8 that follow one another, with the greatest of them.",
    );
  });
});

it("names rows by what tells them apart", () => {
  expect(apart(["blocks.0.attention", "blocks.1.attention"])).toEqual(["blocks.0", "blocks.1"]);
  expect(apart(["a.weight", "weight"])).toEqual(["a.weight", "weight"]);
  expect(apart(["a.b"])).toEqual(["a.b"]);
});

it("finds the alarm of a finding", () => {
  const doc = { ...empty(), levels: levels([0], { alarms: [alarm] }) };
  const finding = { kind: "update-too-large", step: 10 } as (typeof doc.findings)[number];
  expect(alarmOf({ ...doc, findings: [finding] }, finding)).toBe(alarm);
  expect(alarmOf({ ...doc, findings: [{ ...finding }, finding] }, finding)).toBe(null);
  expect(alarmOf({ ...doc, levels: null, findings: [finding] }, finding)).toBe(null);
  expect(toAlarm(alarm)).toEqual({ of: "activation_rms", layers: "b", from: "", to: "" });
});
