import { describe, expect, it } from "vitest";
import { documentOf, memoryOf, modulesOf } from "../../charts/testing";
import { Model } from "../../data/model";
import { divided, find, hierarchy, sums, trail } from "./hierarchy";

const memory = memoryOf([
  { module: 2, site: 0, op: "linear", bytes: 100, tensors: 2, dtype: "float32", names: ["self"] },
  { module: 2, site: 0, op: "gelu", bytes: 50, dtype: "float16", names: ["self", "other"] },
  { module: 3, site: 1, op: "linear", bytes: 30, dtype: "float32" },
  { module: 0, site: -1, op: "", bytes: 5 },
  { module: -1, site: -1, op: "loss", bytes: 1 },
]);
const doc = documentOf({
  modules: modulesOf(["", "enc", "enc.0", "enc.1"]),
  sites: [
    { file: "src/net.py", line: 4, function: "forward", text: "  return self.f(x)" },
    { file: "src/net.py", line: 9, function: "forward", text: "" },
  ],
  memory,
});
const model = new Model(doc);

describe("the tree of what was kept", () => {
  const root = hierarchy(model, memory.rows);
  it("adds up at every part", () => {
    expect([root.bytes, root.tensors]).toEqual([186, 6]);
    const walk = [root];
    for (let p = walk.pop(); p; p = walk.pop()) {
      if (p.children.length > 0) expect(p.children.reduce((n, c) => n + c.bytes, 0)).toBe(p.bytes);
      walk.push(...p.children);
    }
  });
  it("goes from module to module to line to op, the largest first", () => {
    expect(root.children.map((c) => [c.kind, c.label, c.bytes])).toEqual([
      ["module", "enc", 180],
      ["line", "line not known", 6],
    ]); // prettier-ignore
    const zero = root.children[0]!.children[0]!;
    expect([zero.label, zero.name]).toEqual(["0", "enc.0"]);
    expect(zero.children[0]).toMatchObject({ kind: "line", label: "net.py:4", name: "src/net.py:4  return self.f(x)" });
    expect(zero.children[0]!.children.map((c) => [c.label, c.bytes])).toEqual([
      ["linear", 100],
      ["gelu", 50],
    ]); // prettier-ignore
  });
  it("is found again by its address, and the root where that is wrong", () => {
    const gelu = find(root, "m2.s0.gelu");
    expect(trail(gelu).map((p) => p.label)).toEqual(["(model)", "enc", "0", "net.py:4", "gelu"]);
    expect(find(root, "m99")).toBe(root);
    expect(find(root, undefined)).toBe(root);
  });
  it("opens down to where it is divided", () => {
    expect(divided(find(root, "m2")).label).toBe("net.py:4");
    expect(divided(find(root, "m3")).label).toBe("net.py:9");
    expect(divided(root)).toBe(root);
  });
  it("of nothing is an empty model", () => {
    expect(hierarchy(model, [])).toMatchObject({ id: "m0", bytes: 0, children: [] });
  });
});

describe("sums", () => {
  it("by each side hold all bytes, the largest first", () => {
    for (const group of ["module", "line", "op", "dtype"] as const) {
      const rows = sums(model, doc, group);
      expect(rows.reduce((n, r) => n + r.bytes, 0)).toBe(186);
      expect(rows.every((r, i) => i === 0 || r.bytes <= rows[i - 1]!.bytes)).toBe(true);
    }
    expect(sums(model, doc, "dtype").map((r) => [r.name, r.bytes])).toEqual([
      ["float32", 130],
      ["float16", 50],
      ["not known", 6],
    ]); // prettier-ignore
    expect(sums(model, doc, "module")[0]).toMatchObject({ name: "enc.0", tensors: 3, names: "other, self" });
  });
});
