import { describe, expect, test } from "vitest";
import { cells, markWords, signs } from "./cells";
import { BAD, FORWARD, MADE } from "./metrics";
import { colour, inkOn, look, said, scaleOf, ticks } from "./scale";
import { leaf, randomSpec, sceneOf } from "./testing";

describe("metrics", () => {
  const scene = sceneOf({
    modules: [
      ["m", "M"],
      ["m.a", "A"],
      ["m.b", "B"],
    ],
    parameters: [["m.a.w"]],
    nodes: [
      { to: [1], out: [3], time: 0.5, came: 1 },
      { module: "m.b", to: [2, 3], out: [6, 8], time: 1, marks: MADE, came: 3 },
      { module: "m.a", to: [4], out: [NaN], time: -1, marks: BAD, came: 6 },
      { module: "m", time: 2, order: -1, came: -1 },
      leaf("m.a.w", { came: NaN, order: 3 }),
    ],
    memory: [
      { module: "m.a", site: -1, op: "", bytes: 100 },
      { module: "m.b", site: 9, op: "", bytes: 7 },
      { module: "m", site: -1, op: "", bytes: 1 },
    ],
    forward: [{ step: 5, module: "m", nth: 1, norm: 4 }],
  }); // prettier-ignore
  const { h, metrics } = scene;
  const [m, a, b] = [1, 2, 3].map((module) => h.modules.get(module)![0]!) as [number, number, number];

  test("gradients that came into a group, without those inside it", () => {
    expect(metrics.gradient(m)).toBe(3);
    expect(metrics.gradient(a)).toBe(6);
    expect(metrics.gradient(b)).toBe(3);
    expect(metrics.gradient(0)).toBe(1);
    expect(metrics.gradient(~3)).toBe(-1);
    expect(metrics.gradient(~4)).toBeNaN();
  });

  test("seconds, order, marks and nodes that ran", () => {
    expect(metrics.seconds(m)).toBe(3);
    expect(metrics.seconds(a)).toBe(-1);
    expect(metrics.order(m)).toBe(1);
    expect(metrics.order(~3)).toBe(-1);
    expect([metrics.count(BAD, m), metrics.count(MADE, m), metrics.count(MADE, a)]).toEqual([1, 1, 0]);
    expect([metrics.run(0), metrics.run(m)]).toEqual([4, 3]);
  });

  test("bytes of modules are exact, also where no node is known to keep them", () => {
    expect(metrics.bytes(m)).toEqual({ bytes: 108, shared: false });
    expect(metrics.bytes(b)).toEqual({ bytes: 7, shared: false });
    expect(metrics.bytes(~1)).toEqual({ bytes: 0, shared: true });
    expect(metrics.bytes(~2)).toEqual({ bytes: 100, shared: true });
  });

  test("norms of outputs, from the step that has them", () => {
    expect(metrics.output(m)).toBe(4);
    expect(metrics.output(a)).toBe(-1);
    expect(metrics.forwardStep).toBe(5);
  });

  test("gradient and time of groups are what adding up one by one gives", () => {
    for (let seed = 0; seed < 30; seed++) {
      const made = sceneOf(randomSpec(seed, 50));
      made.h.groups.forEach((_, id) => {
        const inside = (node: number): boolean => made.h.holds(id, ~node);
        const squares: number[] = [];
        made.links.to.forEach((to, e) => {
          if (inside(to) && !inside(made.links.from[e]!) && made.call.out[e]! >= 0)
            squares.push(made.call.out[e]! ** 2);
        });
        if (inside(0)) squares.push(1);
        const norm = squares.length ? Math.sqrt(squares.reduce((x, y) => x + y, 0)) : -1;
        expect(made.metrics.gradient(id)).toBeCloseTo(norm, 5);
        const times = Array.from(made.call.time).filter((t, node) => t >= 0 && inside(node));
        expect(made.metrics.seconds(id)).toBeCloseTo(times.length ? times.reduce((x, y) => x + y, 0) : -1, 5);
      });
    }
  });

  test("a root in the middle of a graph: what was given to it counts, and not twice what came over edges", () => {
    const roots = sceneOf({
      roots: [0, 1],
      modules: [["m", "M"]],
      nodes: [
        { to: [1], out: [4], came: 1 },
        { module: "m", came: 5 },
      ],
    }); // prettier-ignore
    expect(roots.metrics.gradient(1)).toBeCloseTo(5, 6);
    expect(roots.metrics.gradient(0)).toBeCloseTo(Math.sqrt(1 + 9), 6);
  });

  test("where results of the forward first were not finite", () => {
    const made = sceneOf({
      modules: [["m", "M"]],
      nodes: [{ to: [1], marks: FORWARD }, { module: "m", to: [2], marks: FORWARD }, { module: "m" }],
    }); // prettier-ignore
    expect(made.metrics.firstForward).toBe(1);
    expect([1, ~1, ~0].map((box) => made.metrics.beganForward(box))).toEqual([true, true, false]);
    const bad = made.scale("bad");
    expect([1, ~0].map((box) => cells(made.metrics, bad, box).forward.text)).toEqual(["began here", "not finite"]);
    expect(metrics.firstForward).toBe(-1);
  });

  test("halves and signs of boxes", () => {
    const scale = scene.scale("gradient");
    expect(cells(metrics, scale, m).forward).toMatchObject({ text: "4", look: null });
    expect(cells(metrics, scale, m).backward).toMatchObject({ text: "3", look: { kind: "on" } });
    expect(cells(metrics, scale, ~3).backward).toMatchObject({ text: "–", look: { kind: "unknown" } });
    expect(cells(metrics, scale, ~4).backward).toMatchObject({ text: "NaN", look: { kind: "bad" } });
    expect(cells(metrics, scene.scale("bytes"), ~2).forward.text).toBe("≈100 B");
    expect(cells(metrics, scene.scale("bad"), b).backward.text).toBe("began here");
    expect(cells(metrics, scene.scale("bad"), a).backward.text).toBe("spread 1/2");
    expect(cells(metrics, scene.scale("bad"), ~3).backward.text).toBe("did not run");
    expect(signs(metrics, m, "gradient").map((sign) => sign.text)).toEqual(["✕ first bad"]);
    expect(signs(metrics, a, "gradient")).toEqual([]);
    expect(markWords(1 | 2)).toEqual([expect.stringContaining("made the first gradient")]);
    expect(markWords(8 | 16).length).toBe(2);
  });
});

describe("scale", () => {
  const { metrics } = sceneOf({
    nodes: [
      { to: [1], out: [0.01], came: 1 },
      { to: [2], came: 0.01, out: [0] },
      { to: [3], came: 0, out: [Infinity] },
      { came: Infinity },
    ],
  }); // prettier-ignore

  test("from the least to the greatest that is a number and not zero", () => {
    const scale = scaleOf(metrics, "gradient");
    expect([scale.low, scale.high].map((x) => Number(x.toPrecision(3)))).toEqual([0.01, 1]);
    expect(look(scale, 1)).toEqual({ kind: "on", at: 1 });
    expect((look(scale, 0.1) as { at: number }).at).toBeCloseTo(0.5, 5);
    expect([0, -1, NaN, Infinity].map((x) => look(scale, x).kind)).toEqual(["zero", "unknown", "bad", "bad"]);
    expect(ticks(scale, 3).map((t) => said("gradient", t.value))).toEqual(["0.01", "0.1", "1"]);
  });

  test("order is even, and its first place is no zero", () => {
    const scale = scaleOf(metrics, "order");
    expect(look(scale, 0)).toEqual({ kind: "on", at: 0 });
    expect(said("order", 0)).toBe("#1");
    expect(scaleOf(metrics, "time").high).toBe(0);
    expect(ticks(scaleOf(metrics, "time"))).toEqual([]);
  });

  test("ink on any colour has a contrast of 4.5 at least", () => {
    const light = (text: string): number => {
      const [r, g, b] = text.startsWith("#")
        ? [1, 3, 5].map((k) => Number.parseInt(text.slice(k, k + 2), 16))
        : text.match(/\d+/g)!.map(Number);
      const linear = (c: number): number => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
      return 0.2126 * linear(r!) + 0.7152 * linear(g!) + 0.0722 * linear(b!);
    };
    for (let k = 0; k <= 100; k++) {
      const [a, b] = [light(colour(k / 100)), light(inkOn(k / 100))];
      expect((Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)).toBeGreaterThanOrEqual(4.5);
    }
  });
});
