import { describe, expect, it } from "vitest";
import { documentOf, modulesOf, parameter, seriesOf, stepsOf } from "../../charts/testing";
import { Model } from "../../data/model";
import { parameterChart } from "./chart";
import { brackets, moduleItems, parameterItems } from "./items";
import { bandPath, linePath, rowsOf, signPath } from "./shapes";

const model = new Model(
  documentOf({
    modules: modulesOf(["", "emb", "enc", "enc.layer", "enc.layer.0", "enc.layer.1", "head"]),
    parameters: [
      "pos",
      "emb.weight",
      "enc.layer.0.weight",
      "enc.layer.0.bias",
      "enc.layer.1.weight",
      "enc.layer.1.bias",
      "head.weight",
    ].map((n) => parameter(n)),
  }),
);

describe("brackets", () => {
  it("join neighbours of a module; one row names modules that hold the same", () => {
    const rows = brackets(parameterItems(model), 3);
    expect(rows[0]).toEqual([
      { first: 1, last: 1, label: "emb" },
      { first: 2, last: 5, label: "enc" },
      { first: 6, last: 6, label: "head" },
    ]);
    expect(rows.slice(1)).toEqual([
      [{ first: 2, last: 5, label: "layer" }],
      [
        { first: 2, last: 3, label: "0" },
        { first: 4, last: 5, label: "1" },
      ],
    ]);
    const only = new Model(documentOf({ parameters: ["a.b.x", "a.b.y"].map((n) => parameter(n)) }));
    expect(brackets(parameterItems(only), 3)).toEqual([[{ first: 0, last: 1, label: "a.b" }]]);
  });
  it("do not join two stretches of the same name", () => {
    const split = new Model(documentOf({ parameters: ["a.x", "a.y", "b.x", "a.z"].map((n) => parameter(n)) }));
    expect(brackets(parameterItems(split), 1)[0]!.map((b) => [b.first, b.last])).toEqual([
      [0, 1],
      [2, 2],
      [3, 3],
    ]); // prettier-ignore
  });
  it("of modules leave out containers that are never called", () => {
    const doc = documentOf({ modules: modulesOf(["", "list", "list.0", "list.1"]) });
    doc.modules[1]!.calls = 0;
    const items = moduleItems(new Model(doc));
    expect(items.map((i) => i.name)).toEqual(["(model)", "list.0", "list.1"]);
    expect(brackets(items, 2)[0]).toEqual([{ first: 1, last: 2, label: "list" }]);
  });
});

describe("the chart of a step", () => {
  const doc = documentOf({
    modules: modulesOf(["", "m"]),
    parameters: [
      parameter("m.a"),
      parameter("m.b"),
      parameter("m.cut", { reached: 0 }),
      parameter("m.ice", { requires_grad: false }),
      parameter("m.none"),
      parameter("m.z"),
    ],
    steps: stepsOf(1, {
      series: seriesOf([0], true, {
        gradient: { high: [2, NaN, -1, -1, -1, 0] },
        weight: { high: [1, 1, 1, 1, 1, 1] },
      }),
    }),
  });
  const chart = parameterChart(new Model(doc), ["gradient"], () => [0, 0]);
  const x = (i: number): number => 10 * i;

  it("says why a parameter has no gradient, and where it began to be bad", () => {
    expect(chart.states).toEqual(["", "", "never reached", "frozen", "no gradient", ""]);
    expect(chart.summary[0]).toBe(
      "1 of 6 gradients are not finite. In the order of the backward, right to left, the first is m.b (NaN, since step 0).",
    );
    expect(chart.summary[1]).toContain("exactly zero. In the order of the backward the first is m.z");
  });
  it("draws a gap where something is not a number, a sign for NaN, and rows in words", () => {
    const band = chart.series[0]!.band;
    const seen = { first: 0, last: 5 };
    expect(linePath(band.middle, x, (v) => v, seen)).toBe("M0.0 2.0");
    expect(signPath(band.high, "nan", x, 5, seen)).toBe("M6.5 1.5l7 7m0 -7l-7 7");
    expect(signPath(band.high, "inf", x, 5, seen)).toBe("");
    expect(bandPath(band, x, (v) => v, seen)).toBe("M0.0 2.0V2.0");
    const rows = rowsOf(chart.series, chart.states);
    expect(rows.above).toEqual(["NaN, Inf"]);
    expect(rows.below).toEqual(["zero", "no gradient", "never reached", "frozen"]);
    expect(rows.marks("frozen", x, 9, seen)).toBe("M26.5 9h7.0");
    expect(rows.marks("frozen", x, 9, { first: 0, last: 2 })).toBe("");
  });
  it("says nothing of missing gradients where none was measured", () => {
    const none = documentOf({
      parameters: [parameter("a")],
      steps: stepsOf(1, { series: seriesOf([0], true, { gradient: { high: [-1] }, weight: { high: [1] } }) }),
    });
    expect(parameterChart(new Model(none), ["gradient"], () => [0, 0]).states).toEqual([""]);
  });
});
