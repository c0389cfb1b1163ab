import { expect, test } from "vitest";
import type { Finding } from "../../data/document";
import { FORWARD } from "../graph/metrics";
import { leaf, modelOf } from "../graph/testing";
import { chain } from "./chain";

const at = (node: number, call = 0) => ({ at: [call, node] }) as unknown as Finding;

test("the way leads from the finding's node to the loss, by the shortest of several", () => {
  const model = modelOf({
    modules: [["head", "Linear"]],
    parameters: [["head.weight"]],
    nodes: [
      { op: "mean", to: [1, 3], marks: FORWARD, site: 0 },
      { op: "add", to: [2], marks: FORWARD },
      { op: "log", module: "head", to: [4], marks: FORWARD, site: 1 },
      { op: "log", to: [2] },
      leaf("head.weight", { module: "head" }),
    ],
    sites: [
      ["train.py", 9],
      ["train.py", 5],
    ],
  });
  const found = chain(model, at(4));
  expect(found).toEqual([
    { node: 4, text: "head.weight", module: "head", site: -1, bad: false },
    { node: 2, text: "log", module: "head", site: 1, bad: true },
    { node: 1, text: "add", module: "(model)", site: -1, bad: true },
    { node: 0, text: "mean", module: "(model)", site: 0, bad: true },
  ]);
});

test("of a long way the ends are shown, and how many nodes are not", () => {
  const nodes = Array.from({ length: 20 }, (_, i) => ({ op: `op${i}`, to: i < 19 ? [i + 1] : [] }));
  const found = chain(modelOf({ nodes }), at(19));
  expect(found.map((one) => (typeof one === "number" ? one : one.text))).toEqual([
    ...["op19", "op18", "op17", "op16", 12, "op3", "op2", "op1", "op0"],
  ]);
});

test("there is none without a graph, for the loss itself, or for a node that does not lead to it", () => {
  const model = modelOf({ nodes: [{ op: "mean", to: [1] }, { op: "log" }, { op: "sin" }] });
  expect(chain(model, { at: null } as unknown as Finding)).toEqual([]);
  expect(chain(model, at(0, 7))).toEqual([]);
  expect(chain(model, at(0))).toEqual([]);
  expect(chain(model, at(2))).toEqual([]);
});
