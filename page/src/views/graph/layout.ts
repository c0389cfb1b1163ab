import { layout as dagre, Graph } from "@dagrejs/dagre";
import { type Flow, OUTSIDE } from "./between";
import type { Hierarchy } from "./hierarchy";

export interface Size {
  width: number;
  height: number;
}

export interface Spot extends Size {
  box: number;
  /** From the group around it. */
  x: number;
  y: number;
  /** Of an open group: what is in it. */
  inner: Inner | null;
}

export interface Wire {
  /** Where the forward's value comes from and goes to: places in `Group.items`, or `OUTSIDE`. */
  flow: Flow;
  points: { x: number; y: number }[];
}

/** A group laid out: inputs at the top, the loss at the bottom. */
export interface Inner extends Size {
  group: number;
  spots: Spot[];
  wires: Wire[];
}

export const HEADER = 30;
const PAD = 14;
const [TOP, BOTTOM] = ["in", "out"];

/** Lays out open groups, each by itself; one whose inside has not changed keeps its layout. */
export class Layouter {
  private readonly kept = new Map<number, { key: string; inner: Inner }>();

  constructor(
    private readonly h: Hierarchy,
    private readonly flows: (id: number) => readonly Flow[],
    private readonly size: (box: number) => Size,
  ) {}

  /** The whole picture. */
  picture(open: ReadonlySet<number>): Inner {
    const groups = this.shown(open);
    const below = new Map<number, number[]>();
    // Inner groups first: they have the greater numbers.
    for (const id of groups.reverse()) {
      const inside = below.get(id) ?? [];
      const key = inside.join(",");
      const kept = this.kept.get(id);
      if (kept?.key !== key) this.kept.set(id, { key, inner: this.place(id, open) });
      const parent = this.h.groups[id]!.parent;
      if (parent >= 0) below.set(parent, [...(below.get(parent) ?? []), id, ...inside]);
    }
    return this.kept.get(0)!.inner;
  }

  /** Open groups that are in no closed one, by number. */
  private shown(open: ReadonlySet<number>): number[] {
    const seen = new Set<number>();
    for (const id of [...open].sort((a, b) => a - b)) {
      if (id === 0 || seen.has(this.h.groups[id]!.parent)) seen.add(id);
    }
    return [...seen];
  }

  private place(id: number, open: ReadonlySet<number>): Inner {
    const { items } = this.h.groups[id]!;
    const graph = new Graph({ multigraph: false });
    graph.setGraph({ rankdir: "TB", nodesep: 18, ranksep: 26, edgesep: 10, marginx: 0, marginy: 0 });
    graph.setDefaultEdgeLabel(() => ({}));
    const inner = Array.from(items, (box) => (box > 0 && open.has(box) ? this.kept.get(box)!.inner : null));
    items.forEach((box, k) => {
      const { width, height } = inner[k] ?? this.size(box);
      graph.setNode(String(k), { width, height });
    });
    const flows = this.flows(id);
    const stubs = stubsOf(flows);
    for (const flow of flows) {
      if (stubs.has(flow)) continue;
      const { from, to } = flow;
      const [source, target] = [to === OUTSIDE ? TOP! : String(to), from === OUTSIDE ? BOTTOM! : String(from)];
      for (const port of [source, target]) if (!graph.hasNode(port)) graph.setNode(port, { width: 1, height: 1 });
      graph.setEdge(source, target, {});
    }
    dagre(graph);
    const top = id === 0 ? 0 : HEADER;
    const pad = id === 0 ? 0 : PAD;
    const spots = Array.from(items, (box, k): Spot => {
      const { x, y, width, height } = graph.node(String(k)) as Size & { x: number; y: number };
      return { box, x: x - width / 2 + pad, y: y - height / 2 + top, width, height, inner: inner[k]! };
    });
    // Of nothing, dagre says that it is infinitely small.
    const whole = items.length ? (graph.graph() as Size) : { width: 0, height: 0 };
    const width = Math.max(whole.width, this.size(id).width - 2 * pad) + 2 * pad;
    const height = whole.height + top + pad;
    const shift = (width - 2 * pad - whole.width) / 2;
    for (const spot of spots) spot.x += shift;
    const wires = flows.map((flow): Wire => {
      if (stubs.has(flow))
        return { flow, points: stub(spots[flow.to === OUTSIDE ? flow.from : flow.to]!, flow.to === OUTSIDE) };
      const [source, target] = [
        flow.to === OUTSIDE ? TOP! : String(flow.to),
        flow.from === OUTSIDE ? BOTTOM! : String(flow.from),
      ];
      const label = graph.edge(source, target) as { points: { x: number; y: number }[] };
      const points = label.points.map(({ x, y }) => ({ x: x + pad + shift, y: y + top }));
      // dagre aims at the middle of a box, so lines would end at the sides of a tall one.
      const [above, below] = [spots[flow.to], spots[flow.from]];
      if (above?.inner) points[0] = { x: above.x + above.width / 2, y: above.y + above.height };
      if (below?.inner) points[points.length - 1] = { x: below.x + below.width / 2, y: below.y };
      // Straight to the border from where the port has room: boxes are beside it.
      if (source === TOP) points.unshift({ x: points[0]!.x, y: HEADER - 4 });
      if (target === BOTTOM) points.push({ x: points.at(-1)!.x, y: height });
      return { flow, points };
    });
    return { group: id, width, height, spots, wires };
  }
}

/** More lines than these over one border are drawn short, but for the first: they would take all the room. */
const OVER = 4;

function stubsOf(flows: readonly Flow[]): Set<Flow> {
  const above = flows.filter((flow) => flow.to === OUTSIDE).sort((a, b) => a.from - b.from);
  const below = flows.filter((flow) => flow.from === OUTSIDE && !flow.cut).sort((a, b) => b.to - a.to);
  return new Set([above, below].flatMap((some) => (some.length > OVER ? some.slice(1) : [])));
}

/** A short line at the left of a box: into it, or out of it. */
function stub(spot: Spot, into: boolean): { x: number; y: number }[] {
  const y = spot.y + spot.height / 2;
  const far = { x: spot.x - 14, y: into ? y - 8 : y + 8 };
  return into ? [far, { x: spot.x, y }] : [{ x: spot.x, y }, far];
}

/** A line through points, without corners. */
export function curve(points: readonly { x: number; y: number }[], dx = 0, dy = 0): string {
  const at = points.map(({ x, y }) => ({ x: round(x + dx), y: round(y + dy) }));
  const [first, ...rest] = at;
  if (!first) return "";
  let path = `M${first.x},${first.y}`;
  for (let k = 0; k < rest.length - 1; k++) {
    const [here, next] = [rest[k]!, rest[k + 1]!];
    path += `Q${here.x},${here.y} ${round((here.x + next.x) / 2)},${round((here.y + next.y) / 2)}`;
  }
  const last = rest.at(-1);
  return last ? `${path}L${last.x},${last.y}` : path;
}

function round(value: number): number {
  return Math.round(value * 10) / 10;
}
