import type { Finding } from "../../data/document";
import { count } from "../../parts/words";
import { type Flow, OUTSIDE } from "./between";
import type { Hierarchy } from "./hierarchy";

/** Why parameters have no gradient in a graph. */
export interface Cut {
  /** In words. */
  text: string;
  /** Place in `doc.findings`, and the finding; -1 and null where none is about them. */
  number: number;
  finding: Finding | null;
  /** Where the way was cut, -1: not known. */
  site: number;
  /** The last node that the cut line made, which should have been connected; -1: none is in the graph. */
  node: number;
  /** No call of the run gave any of them a gradient. */
  never: boolean;
}

export function cutOf(h: Hierarchy, parameters: readonly number[]): Cut {
  const { doc } = h.model;
  const names = new Set(parameters.map((p) => doc.parameters[p]!.name));
  const number = doc.findings.findIndex((f) => f.kind === "none-grad" && f.parameters.some((name) => names.has(name)));
  const finding = doc.findings[number] ?? null;
  const site = finding?.sites.find((s) => s.role === "cut")?.site ?? -1;
  // Of several nodes of that line, the last in the code that has the cut: others may be of modules that it calls.
  const module = finding?.module ?? null;
  let [node, elsewhere] = [-1, -1];
  for (let place = 0; site >= 0 && place < h.sequence.length; place++) {
    const one = h.sequence[place]!;
    if (h.nodes.site[one] !== site || h.nodes.seq[one]! < 0) continue;
    if (doc.modules[h.nodes.module[one]!]?.path === module) node = one;
    else elsewhere = one;
  }
  if (node < 0) node = elsewhere;
  const never = parameters.every((p) => doc.parameters[p]!.reached === 0);
  return { text: finding?.title ?? said(h, parameters, never), number, finding, site, node, never };
}

function said(h: Hierarchy, parameters: readonly number[], never: boolean): string {
  const { parameters: all } = h.model.doc;
  const names = parameters.length === 1 ? all[parameters[0]!]!.name : count(parameters.length, "parameter");
  if (never) return `No backward call of the run gave ${names} a gradient.`;
  const reached = Math.max(...parameters.map((p) => all[p]!.reached));
  return `This call's graph does not reach ${names}; ${count(reached, "other call")} did.`;
}

/** Edges that are not there, because they were cut, among the entries of a group. */
export function cutFlows(h: Hierarchy, id: number): Flow[] {
  const { items, start, end } = h.groups[id]!;
  const found: Flow[] = [];
  items.forEach((item, to) => {
    if (item < 0 || h.groups[item]!.kind !== "cut") return;
    const { node } = cutOf(h, h.groups[item]!.parameters);
    if (node < 0) return;
    const place = h.position[node]!;
    const inside = place >= start && place < end;
    const from = inside
      ? items.findIndex((other) => other === ~node || (other >= 0 && h.holds(other, ~node)))
      : OUTSIDE;
    found.push({ from, to, count: 0, norm: -1, marked: false, cut: true });
  });
  return found;
}
