import { expect, it } from "vitest";
import { callOf, documentOf, layoutOf, parameter, stepsOf } from "../charts/testing";
import type { Decoded } from "./document";
import { EACH, search } from "./find";
import { Model } from "./model";

function model(): Model {
  const finding = {
    kind: "zero-grad",
    title: "no gradient",
    step: 4,
    module: null,
    tensor: null,
    parameters: ["a.0.weight"],
  };
  const doc = documentOf({
    findings: [finding as unknown as Decoded["findings"][number]],
    modules: ["", "a", "a.0"].map((path, i) => ({ path, class: "Linear", parent: i - 1, calls: 1, site: -1 })),
    parameters: [...Array.from({ length: 20 }, (_, i) => parameter(`a.${i}.weight`))],
    sources: [{ file: "train.py", lines: ["import torch", "y = x.softmax(-1)"], library: false }],
    steps: stepsOf(10),
    layouts: [
      layoutOf([
        { module: 0, to: [1], name: "MulBackward0" },
        { module: 1, to: [], name: "MulBackward0" },
      ]),
    ],
    calls: [callOf(2, { step: 9 })],
  });
  return new Model(doc);
}
const texts = (query: string) => search(model(), query).hits.map((hit) => `${hit.what} ${hit.text}`);

it("finds each sort of thing, and where it is shown", () => {
  expect(texts("a.0.weight")).toEqual(["finding no gradient", "parameter a.0.weight"]);
  expect(texts("linear a.0")).toEqual(["module a.0"]);
  const [line] = search(model(), "softmax").hits;
  expect(line).toMatchObject({ what: "line", view: "source", at: { file: "train.py", line: "2" } });
  expect(search(model(), "mulback").hits).toMatchObject([
    { what: "operation", detail: "2 nodes", view: "graph", at: { step: "9", call: "0", node: "0" } },
  ]);
  expect(search(model(), "train.py:1").hits[0]).toMatchObject({ at: { line: "1" } });
  expect(search(model(), "zero-grad").hits[0]).toMatchObject({ view: "findings", at: { finding: "0", step: "4" } });
});

it("finds steps by number, the nearest where there is none of it", () => {
  expect(search(model(), "step 4").hits.find((hit) => hit.what === "step")).toMatchObject({ at: { step: "4" } });
  expect(search(model(), "99").hits[0]).toMatchObject({ text: "step 9", detail: "the nearest to 99" });
});

it("shows some of each sort and counts the rest", () => {
  const found = search(model(), "weight");
  expect(found.hits.filter((hit) => hit.what === "parameter")).toHaveLength(EACH);
  expect(found.more).toEqual([["parameter", 20 - EACH]]);
  expect(search(model(), "  ")).toEqual({ hits: [], more: [] });
});
