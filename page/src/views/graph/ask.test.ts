import { describe, expect, test } from "vitest";
import { stepsOf } from "../../charts/testing";
import { callAt } from "../../data/step";
import { shorten } from "../../parts/names";
import { choose, chosen } from "./choice";
import { cutFlows, cutOf } from "./cut";
import { asked, endWord, ofSite, within } from "./emphasis";
import { fullName, nameOf } from "./names";
import { search } from "./search";
import { chipsOf } from "./sizes";
import { childRows, nodeRows, sorted } from "./tables";
import { leaf, type Spec, sceneOf } from "./testing";

const spec: Spec = {
  modules: [
    ["enc", "Encoder"],
    ["enc.lin", "Linear", 2],
    ["off", "Linear"],
  ],
  parameters: [["enc.lin.weight"], ["off.weight", { reached: 0 }], ["off.bias", { reached: 0 }]],
  sites: [
    ["train.py", 41],
    ["lib/model.py", 7],
  ],
  nodes: [
    { name: "MseLossBackward0", op: "mse_loss", site: 0, to: [1], seq: 4, came: 1 },
    { name: "AddBackward0", op: "add", site: 1, to: [2], seq: 3 },
    { name: "MmBackward0", op: "linear", module: "enc.lin", nth: 2, site: 1, to: [3, 4], seq: 2, out: [2, 5] },
    { name: "MmBackward0", op: "linear", module: "enc.lin", nth: 1, site: 1, to: [4, -1], seq: 1 },
    leaf("enc.lin.weight"),
  ],
  findings: [
    {
      kind: "none-grad",
      title: "detach cut the graph",
      module: "",
      parameters: ["off.weight", "off.bias"],
      sites: [{ role: "cut", meaning: "", site: 1 }],
    },
  ],
}; // prettier-ignore
const scene = sceneOf(spec);
const { h } = scene;
const model = h.model;
const enc = h.modules.get(1)![0]!;
const lin = h.modules.get(2)!;
const off = h.cuts.get(1)!;

describe("names", () => {
  test("of modules from the one around, with the call; of nodes, parameters and cuts", () => {
    expect(nameOf(h, lin[1]!)).toEqual({ title: "lin:2", kind: "Linear" });
    expect(fullName(h, lin[1]!)).toBe("enc.lin:2, Linear");
    expect(nameOf(h, ~1)).toEqual({ title: "AddBackward0", kind: "add model.py:7" });
    expect(nameOf(h, ~4)).toEqual({ title: "lin.weight", kind: "2" });
    expect(nameOf(h, off).title).toBe("off");
    expect(fullName(h, off)).toBe("off: no gradient");
  });

  test("of what is folded, and of its parts", () => {
    const size = 200;
    const nodes = Array.from({ length: size }, (_, i) => ({
      name: "MulBackward0",
      op: "mul",
      to: i + 1 < size ? [i + 1] : [],
    }));
    const long = sceneOf({ nodes }).h;
    const [run, part] = [1, 2];
    expect(nameOf(long, run)).toEqual({ title: "MulBackward0 ×200", kind: "mul" });
    expect(nameOf(long, part).title).toBe("1–22 of 200");
    const parts = Array.from(long.groups[run]!.items, (id) => nameOf(long, id).title);
    expect(parts.at(-1)).toBe("178–200 of 200");
  });

  test("of turns: by their module where each has its own, else by number", () => {
    const made = (names: string[]): string[] => {
      const modules = [...new Set(names)].map((name): [string, string, number] => [name, "Linear", names.length]);
      const nodes = names.flatMap((module, i) => [
        { name: "A", seq: 3 * i },
        { name: "B", seq: 3 * i + 1 },
        { name: "C", module, nth: i + 1, seq: 3 * i + 2 },
      ]);
      const loop = sceneOf({ modules, nodes }).h;
      return [1, ...loop.groups[1]!.items].map((id) => nameOf(loop, id).title);
    };
    expect(made(["q", "k", "v"])).toEqual(["q … v ×3", "q …", "k …", "v …"]);
    expect(made(["q", "q", "q"])).toEqual(["repeats ×3", "turn 1 of 3", "turn 2 of 3", "turn 3 of 3"]);
  });

  test("are cut in the middle", () => {
    expect(shorten("abcdefghij", 10)).toBe("abcdefghij");
    expect(shorten("abcdefghijk", 7)).toBe("abc…ijk");
    expect(shorten("abcdefghijk", 6).length).toBe(6);
  });
});

describe("search", () => {
  const texts = (query: string): string[] => search(h, query).hits.map((hit) => `${hit.what} ${hit.text}`);

  test("modules, parameters with and without gradient, types, ops and lines", () => {
    expect(texts("enc.lin")).toEqual(["module enc.lin", "parameter enc.lin.weight"]);
    expect(texts("OFF.w")).toEqual(["parameter off.weight"]);
    expect(texts("mse_")).toEqual(["node MseLossBackward0"]);
    expect(texts("model.py:7")).toEqual(["node MmBackward0 ×2", "node AddBackward0"]);
    expect(search(h, "model.py:7").total).toBe(3);
    expect(texts("  ")).toEqual([]);
    expect(search(h, "nowhere")).toEqual({ hits: [], total: 0 });
  });

  test("gives no more than asked for, and says how many there are", () => {
    const found = search(h, "backward", 1);
    expect([found.hits.length, found.total]).toEqual([1, 4]);
  });
});

describe("paths that the address asks for", () => {
  const say = (at: Record<string, string>): string => {
    const found = asked(scene, at);
    return typeof found === "string" ? found : (found?.text ?? "");
  };

  test("from the loss to a parameter", () => {
    const way = asked(scene, { to: "p0" });
    if (way === null || typeof way === "string") throw new Error("a path was expected");
    expect(way.text).toBe(
      "5 nodes on the way of the gradient from the loss to enc.lin.weight; the shortest path has 3 edges",
    );
    expect(way.shortest).toEqual([0, 1, 2, 4]);
    expect([within(h, way, enc), within(h, way, off)]).toEqual([3, 0]);
  });

  test("between two nodes, the other way round, and of a group", () => {
    expect(say({ from: "n1", to: "n3" })).toContain("3 nodes on the way");
    expect(say({ from: "n3", to: "n1" })).toContain("turned round");
    expect(say({ to: endWord(lin[0]!) })).toContain("to enc.lin:1, Linear");
    expect(say({})).toBe("");
    expect(say({ to: "n99" })).toBe("");
  });

  test("to a parameter that has no gradient, in words", () => {
    expect(say({ to: "p1" })).toBe("No path from the loss to off.weight. detach cut the graph.");
    expect(say({ to: endWord(off) })).toContain("detach cut the graph");
    expect(say({ from: "n4", to: "n4" })).toContain("1 node on");
  });

  test("nodes of a line", () => {
    const line = ofSite(h, { site: "1" })!;
    expect(line.text).toBe("3 nodes of lib/model.py:7");
    expect(within(h, line, enc)).toBe(2);
    expect(ofSite(h, { site: "9" })).toBeNull();
  });
});

describe("cuts", () => {
  test("name the finding, its line, and the node that should have been joined", () => {
    expect(cutOf(h, [1, 2])).toMatchObject({ text: "detach cut the graph", number: 0, site: 1, node: 1, never: true });
    const [flow] = cutFlows(h, 0);
    expect([h.groups[0]!.items[flow!.to], h.groups[0]!.items[flow!.from], flow!.cut]).toEqual([off, ~1, true]);
  });

  test("say what is known where no finding is about them", () => {
    const other = sceneOf({ ...spec, findings: [], parameters: [["enc.lin.weight"], ["off.weight", { reached: 3 }]] }); // prettier-ignore
    expect(cutOf(other.h, [1]).text).toBe("This call's graph does not reach off.weight; 3 other calls did.");
    const never = sceneOf({ ...spec, findings: [] });
    expect(never.cut(never.h.cuts.get(1)!).text).toBe("No backward call of the run gave 2 parameters a gradient.");
    expect(cutFlows(never.h, 0)).toEqual([]);
  });
});

describe("what is chosen", () => {
  test("goes through the address", () => {
    for (const box of [~1, ~4, enc, lin[1]!, off]) expect(chosen(h, choose(h, box))).toBe(box);
    expect(chosen(h, choose(h, null))).toBeNull();
  });

  test("by parameter, by number or by name; by module; and nonsense is nothing", () => {
    expect([chosen(h, { parameter: "0" }), chosen(h, { parameter: "off.bias" })]).toEqual([~4, off]);
    expect([chosen(h, { module: "2", nth: "2" }), chosen(h, { module: "2" }), chosen(h, { module: "3" })]).toEqual([
      lin[1],
      lin[0],
      off,
    ]); // prettier-ignore
    expect(chosen(h, { module: "enc" })).toBe(enc);
    expect([chosen(h, { node: "99" }), chosen(h, { module: "x" }), chosen(h, { group: "-1" })]).toEqual([
      null,
      null,
      null,
    ]);
  });

  test("the call: of the address, of a finding, of a finding's step, else the last", () => {
    const three = [0, 1, 2].map((step) => ({ ...model.doc.calls[0]!, step }));
    const at = (findings: Partial<(typeof model.doc.findings)[0]>[], address = {}): number => {
      const doc = {
        ...model.doc,
        steps: stepsOf(3),
        calls: three,
        findings: findings.map((f) => ({ ...model.doc.findings[0]!, ...f })),
      };
      return callAt({ ...model, doc } as typeof model, address);
    };
    expect(at([], {})).toBe(2);
    expect(at([{ step: null }, { step: 1 }])).toBe(1);
    expect(at([{ step: 9 }, { at: [0, 3] }])).toBe(2);
    expect(at([{ step: null }, { step: null, at: [0, 3] }])).toBe(0);
    expect(at([{ step: 1 }], { call: "2" })).toBe(2);
  });
});

describe("tables", () => {
  test("nodes of a box; what was not measured is empty", () => {
    const rows = [...nodeRows(scene, enc)];
    expect(rows.map((row) => row.slice(0, 6))).toEqual([
      [3, "MmBackward0", "linear", "enc.lin", 1, "lib/model.py:7"],
      [2, "MmBackward0", "linear", "enc.lin", 2, "lib/model.py:7"],
      [4, "AccumulateGrad", "", "", 1, ""],
    ]);
    expect(rows[2]!.slice(6)).toEqual(["", 4, "", "", 1, "", "enc.lin.weight", ""]);
    expect([...nodeRows(scene, null)].length).toBe(5);
    expect([...nodeRows(scene, ~1)].length).toBe(1);
  });

  test("children sorted: what is not finite first, what is not known last", () => {
    const row = { box: 0, name: "", nodes: 1, seconds: 0, bytes: 0 };
    const by = sorted(
      [-1, 3, NaN, 7].map((gradient) => ({ ...row, gradient })),
      "gradient",
    );
    expect(by.map((r) => r.gradient)).toEqual([NaN, 7, 3, -1]);
    expect(
      sorted(
        ["b10", "b9"].map((name) => ({ ...row, name, gradient: 0 })),
        "name",
      ).map((r) => r.name),
    ).toEqual(["b9", "b10"]);
    expect(childRows(scene, 0).map((r) => r.name)).toEqual(["enc", "AddBackward0", "MseLossBackward0", "off"]);
  });

  test("chips: the parameters right in a module, if they are few", () => {
    expect(chipsOf(h, lin[0]!)).toEqual([0]);
    expect(chipsOf(h, enc)).toEqual([]);
    expect(chipsOf(h, ~1)).toEqual([]);
  });
});
