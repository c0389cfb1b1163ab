import { describe, expect, test } from "vitest";
import { type Flow, flows, OUTSIDE } from "./between";
import { drawn, find, fitted, MOST_DRAWN, region } from "./cull";
import { curve, type Inner, Layouter, type Spot } from "./layout";
import { firstOpened, opened, reveal, visible, written } from "./opened";
import type { Scene } from "./scene";
import { sizeOf } from "./sizes";
import { leaf, randomSpec, sceneOf } from "./testing";

function layouterOf({ h, links, call }: Scene, asked: number[] = []): Layouter {
  const of = (id: number): Flow[] => {
    asked.push(id);
    return flows(h, links, call.out, id, null);
  };
  return new Layouter(h, of, (box) => sizeOf(h, box));
}

const overlap = (a: Spot, b: Spot): boolean =>
  a.x < b.x + b.width - 0.01 &&
  b.x < a.x + a.width - 0.01 &&
  a.y < b.y + b.height - 0.01 &&
  b.y < a.y + a.height - 0.01;

function check(inner: Inner): void {
  inner.spots.forEach((spot, k) => {
    expect(spot.x).toBeGreaterThanOrEqual(-0.01);
    expect(spot.x + spot.width).toBeLessThanOrEqual(inner.width + 0.01);
    expect(spot.y + spot.height).toBeLessThanOrEqual(inner.height + 0.01);
    for (const other of inner.spots.slice(k + 1)) expect(overlap(spot, other)).toBe(false);
    if (spot.inner) check(spot.inner);
  });
}

const spec = {
  modules: [
    ["a", "A"],
    ["a.x", "X"],
    ["b", "B"],
  ] as [string, string][],
  parameters: [["a.x.w"]] as [string][],
  nodes: [
    { to: [1] },
    { module: "b", to: [2, 3] },
    { module: "a", to: [3] },
    { module: "a.x", to: [4] },
    leaf("a.x.w"),
  ],
}; // prettier-ignore

describe("layout", () => {
  test("inputs above what they go into; what is open is around what is in it", () => {
    const scene = sceneOf(spec);
    const [a, x] = [1, 2].map((m) => scene.h.modules.get(m)![0]!) as [number, number];
    const picture = layouterOf(scene).picture(new Set([0, a]));
    check(picture);
    const [top, middle, bottom] = picture.spots as [Spot, Spot, Spot];
    expect(top.box).toBe(a);
    expect(top.y + top.height).toBeLessThan(middle.y);
    expect(middle.y + middle.height).toBeLessThan(bottom.y);
    const inside = top.inner!.spots;
    expect(inside.map((spot) => spot.box)).toEqual([x, ~2]);
    expect(inside[0]!.y).toBeLessThan(inside[1]!.y);
  });

  test("every edge is a line from the value to where it goes", () => {
    const scene = sceneOf(spec);
    const picture = layouterOf(scene).picture(new Set([0]));
    for (const { flow, points } of picture.wires) {
      const [source, target] = [picture.spots[flow.to]!, picture.spots[flow.from]!];
      expect(points[0]!.y).toBeCloseTo(source.y + source.height, 0);
      expect(points.at(-1)!.y).toBeCloseTo(target.y, 0);
    }
  });

  test("only groups whose inside has changed are laid out again", () => {
    const scene = sceneOf(spec);
    const asked: number[] = [];
    const layouter = layouterOf(scene, asked);
    const [a, x, b] = [1, 2, 3].map((m) => scene.h.modules.get(m)![0]!) as [number, number, number];
    layouter.picture(new Set([0, a, b]));
    expect(asked.splice(0).sort()).toEqual([0, a, b]);
    layouter.picture(new Set([0, a, b, x]));
    expect(asked.splice(0).sort()).toEqual([0, a, x]);
    layouter.picture(new Set([0, a, b, x]));
    expect(asked).toEqual([]);
  });

  test("a group that is open inside a closed one is not laid out", () => {
    const scene = sceneOf(spec);
    const asked: number[] = [];
    layouterOf(scene, asked).picture(new Set([0, scene.h.modules.get(2)![0]!]));
    expect(asked).toEqual([0]);
  });

  test("lines over a border that many cross are short, but for the first", () => {
    const nodes = [...Array.from({ length: 6 }, () => ({ module: "m", to: [6] })), {}];
    const scene = sceneOf({ modules: [["m", "M"]], nodes, roots: [0, 1, 2, 3, 4, 5] });
    const m = scene.h.modules.get(1)![0]!;
    const inner = layouterOf(scene)
      .picture(new Set([0, m]))
      .spots.find((spot) => spot.box === m)!.inner!;
    const over = inner.wires.filter(({ flow }) => flow.to === OUTSIDE);
    expect(over.length).toBe(6);
    expect(
      over.filter(({ points }) => points.length === 2 && Math.abs(points[0]!.x - points[1]!.x) === 14).length,
    ).toBe(5);
  });

  test("boxes never overlap, whatever is open", () => {
    for (let seed = 0; seed < 12; seed++) {
      const scene = sceneOf(randomSpec(seed, 24));
      check(layouterOf(scene).picture(new Set(scene.h.groups.map((_, id) => id))));
    }
  }, 30_000);

  test("a graph without nodes is an empty picture", () => {
    const empty = layouterOf(sceneOf({ nodes: [], roots: [] })).picture(new Set([0]));
    expect([empty.spots, empty.wires, empty.height]).toEqual([[], [], 0]);
    expect(Number.isFinite(empty.width) && Number.isFinite(fitted(empty, 100, 100).k)).toBe(true);
  });

  test("curves", () => {
    expect(
      curve(
        [
          { x: 0, y: 0 },
          { x: 1, y: 2 },
        ],
        10,
        10,
      ),
    ).toBe("M10,10L11,12"); // prettier-ignore
    expect(
      curve([
        { x: 0, y: 0 },
        { x: 0, y: 10 },
        { x: 5, y: 20 },
      ]),
    ).toBe("M0,0Q0,10 2.5,15L5,20"); // prettier-ignore
    expect(curve([])).toBe("");
  });
});

describe("what is drawn", () => {
  const scene = sceneOf(spec);
  const a = scene.h.modules.get(1)![0]!;
  const picture = layouterOf(scene).picture(new Set([0, a]));
  const all = { left: -1e6, top: -1e6, right: 1e6, bottom: 1e6 };

  test("what is in sight", () => {
    expect(drawn(picture, all, 1)).toMatchObject({ more: 0, frames: [{ box: a }] });
    expect(drawn(picture, all, 1).boxes.length).toBe(4);
    const away = drawn(picture, { left: 1e5, top: 0, right: 1e5 + 1, bottom: 1 }, 1);
    expect([away.boxes.length, away.frames.length, away.wires.length]).toEqual([0, 0, 0]);
  });

  test("an open group too small to see is drawn closed", () => {
    const far = drawn(picture, all, 0.05);
    expect(far.frames).toEqual([]);
    expect(far.boxes.length).toBe(3);
  });

  test("never more than a page can bear", () => {
    const spots = Array.from(
      { length: 1000 },
      (_, k): Spot => ({ box: k, x: 0, y: k, width: 1, height: 1, inner: null }),
    );
    const made = drawn({ group: 0, spots, wires: [], width: 1, height: 1000 }, all, 1);
    expect([made.boxes.length, made.more]).toEqual([MOST_DRAWN, 600]);
  });

  test("where a box is, also inside an open one", () => {
    const inside = find(picture, [a], ~2)!;
    const outer = find(picture, [], a)!;
    expect(inside.left).toBeGreaterThan(outer.left);
    expect(inside.top + inside.height).toBeLessThan(outer.top + outer.height);
    expect(find(picture, [scene.h.modules.get(3)![0]!], ~1)).toBeNull();
  });

  test("the eye: fits, sees a region", () => {
    const eye = fitted({ width: 100, height: 100 }, 400, 300);
    expect(eye.k).toBe(1.1);
    expect(eye.x + 50 * eye.k).toBeCloseTo(200);
    expect(fitted({ width: 1000, height: 90_000 }, 400, 300)).toMatchObject({ k: 0.352, y: 24 });
    expect(region({ x: 10, y: 0, k: 2 }, 100, 100, 0)).toMatchObject({ left: -5, right: 45, bottom: 50 });
  });
});

describe("what is open", () => {
  const { h } = sceneOf(spec);
  const [a, x] = [1, 2].map((m) => h.modules.get(m)![0]!) as [number, number];

  test("at first: the largest modules, in a small graph all", () => {
    expect([...firstOpened(h)].sort()).toEqual([0, a, x]);
    expect(opened(h, undefined)).toEqual(firstOpened(h));
  });

  test("goes through the address, and nonsense in it does no harm", () => {
    for (const open of [new Set([0]), new Set([0, a]), new Set([0, a, x])])
      expect(opened(h, written(open))).toEqual(open);
    expect(opened(h, "zzz--1-%-0")).toEqual(new Set([0, 1]));
  });

  test("revealing a box opens all around it", () => {
    expect(reveal(h, new Set([0]), ~3)).toEqual(new Set([0, a, x]));
  });

  test("rows of the outline", () => {
    const rows = (open: number[]): string =>
      visible(h, new Set(open))
        .map(({ box, level }) => `${level}:${box}`)
        .join(" "); // prettier-ignore
    expect(rows([0])).toBe(`1:${a} 1:${h.modules.get(3)![0]} 1:-1`);
    expect(rows([0, a])).toBe(`1:${a} 2:${x} 2:-3 1:${h.modules.get(3)![0]} 1:-1`);
  });
});
