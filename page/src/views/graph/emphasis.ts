import { shorten } from "../../parts/names";
import { count } from "../../parts/words";
import { whole } from "../../route";
import { cutOf } from "./cut";
import type { Hierarchy } from "./hierarchy";
import { fullName } from "./names";
import { between } from "./paths";
import type { Scene } from "./scene";

/** Nodes that are shown stronger than the others, and a sentence about them. */
export interface Emphasis {
  text: string;
  on: Uint8Array;
  /** Sums over places of the sequence. */
  sums: Int32Array;
  /** Nodes of a shortest path, in the direction of the gradient; empty where it is not about a path. */
  shortest: readonly number[];
}

interface End {
  name: string;
  nodes: number[];
  /** Parameters that are not in the graph. */
  missing: readonly number[];
}

/** A box as an end of a path in the address: `n` and a node, `g` and a group. */
export function endWord(box: number): string {
  return box < 0 ? `n${~box}` : `g${box}`;
}

/** The path that the address asks for: from `from`, the loss where it is left out, to `to`. Null: it asks for none. */
export function asked(scene: Scene, at: Readonly<Record<string, string>>): Emphasis | string | null {
  const { h, links } = scene;
  const to = endOf(scene, at.to);
  if (!to) return null;
  const from = endOf(scene, at.from) ?? loss(scene);
  if (to.missing.length || from.missing.length) {
    const cut = cutOf(h, to.missing.length ? to.missing : from.missing);
    return `No path from ${from.name} to ${to.name}. ${cut.text}.`.replace("..", ".");
  }
  const here = between(links, from.nodes, to.nodes);
  const way = here ?? between(links, to.nodes, from.nodes);
  if (!way) return `No path between ${from.name} and ${to.name}: neither was made from the other.`;
  const [start, end] = here ? [from, to] : [to, from];
  const edges = way.shortest.length - 1;
  const text = `${count(way.count, "node")} on the way of the gradient from ${start.name} to ${end.name}; the shortest path has ${count(edges, "edge")}`;
  return {
    text: here ? text : `${text} (turned round: there is none the other way)`,
    on: way.on,
    sums: summed(h, way.on),
    shortest: way.shortest,
  };
}

/** The nodes of the line that the address names. */
export function ofSite(h: Hierarchy, at: Readonly<Record<string, string>>): Emphasis | null {
  const site = whole(at.site, h.model.doc.sites.length, -1);
  if (site < 0) return null;
  const lines = h.model.linesIn(h.nodes, h.model.doc.sites[site]!.file);
  const on = Uint8Array.from(lines, (one) => (one === site ? 1 : 0));
  const sums = summed(h, on);
  return { text: `${count(sums.at(-1)!, "node")} of ${h.model.place(site)}`, on, sums, shortest: [] };
}

/** How many nodes of a box are emphasised. */
export function within(h: Hierarchy, { sums }: Emphasis, box: number): number {
  const start = box >= 0 ? h.groups[box]!.start : h.position[~box]!;
  return sums[box >= 0 ? h.groups[box]!.end : start + 1]! - sums[start]!;
}

function loss({ call, h }: Scene): End {
  const nodes = call.roots.map((root) => root.node).filter((node) => node >= 0 && node < h.sequence.length);
  return { name: "the loss", nodes, missing: [] };
}

function endOf(scene: Scene, word: string | undefined): End | null {
  const { h } = scene;
  if (word === "loss") return loss(scene);
  const kind = word?.[0];
  const rest = word?.slice(1);
  const node = kind === "n" ? whole(rest, h.sequence.length, -1) : -1;
  if (node >= 0) return { name: shorten(fullName(h, ~node), 60), nodes: [node], missing: [] };
  const group = kind === "g" ? whole(rest, h.groups.length, -1) : -1;
  if (group >= 0) {
    const { start, end, parameters } = h.groups[group]!;
    return {
      name: shorten(fullName(h, group), 60),
      nodes: Array.from(h.sequence.subarray(start, end)),
      missing: parameters,
    };
  }
  const parameter = kind === "p" ? whole(rest, h.model.doc.parameters.length, -1) : -1;
  if (parameter < 0) return null;
  const leaf = h.leaves[parameter]!;
  const { name } = h.model.doc.parameters[parameter]!;
  return { name, nodes: leaf >= 0 ? [leaf] : [], missing: leaf >= 0 ? [] : [parameter] };
}

function summed(h: Hierarchy, on: Uint8Array): Int32Array {
  const sums = new Int32Array(h.sequence.length + 1);
  for (let place = 0; place < h.sequence.length; place++) sums[place + 1] = sums[place]! + on[h.sequence[place]!]!;
  return sums;
}
