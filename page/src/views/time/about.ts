import type { Calls, Model, Nodes } from "../../data/model";
import { norm, seconds } from "../../parts/words";
import { moduleOf, type Row, type Timeline } from "./timeline";

/** A stretch of a row of the timeline. */
export interface Spot {
  row: number;
  stretch: number;
}

/** What stands in a box: a module's own part of its path, a node's op or type. */
export function labelOf(model: Model, nodes: Nodes, node: boolean, of: number): string {
  if (node) return nodes.strings[nodes.name[of]!] ?? "";
  const { path, parent } = model.doc.modules[of]!;
  if (!path) return model.name(of);
  const above = parent >= 0 ? model.doc.modules[parent]!.path : "";
  return above ? path.slice(above.length + 1) : path;
}

/** Names and values. */
export type Pair = readonly [string, string];

/** What a person reads of a module's stretch. */
export function aboutModule(model: Model, { elapsed }: Timeline, { first, last, of }: Row, k: number): Pair[] {
  const nodes = last[k]! - first[k]! + 1;
  return [
    ["class", model.doc.modules[of[k]!]!.class],
    ["time", seconds(elapsed[last[k]! + 1]! - elapsed[first[k]!]!)],
    ["nodes", nodes.toLocaleString("en-US")],
  ]; // prettier-ignore
}

/** What a person reads of a node. */
export function aboutNode(model: Model, call: Calls, node: number): Pair[] {
  const nodes = model.nodes(call);
  const op = nodes.strings[nodes.op[node]!];
  const marks = marked(call.marks[node]!);
  return [
    ["time", call.time[node]! >= 0 ? seconds(call.time[node]!) : "not measured"],
    ["ran as number", call.order[node]! >= 0 ? String(call.order[node]! + 1) : "did not run"],
    ["module", model.name(moduleOf(model, nodes, node))],
    ...(op ? ([["forward op", op]] as const) : []),
    ...(nodes.site[node]! >= 0 ? ([["line", model.place(nodes.site[node]!)]] as const) : []),
    ["gradient in", norm(call.came[node])],
    ...(marks ? ([["note", marks]] as const) : []),
  ];
}

/** The marks of a node in words; see `Call.marks`. */
export function marked(bits: number): string {
  const words = [
    "gradient not finite",
    "made the first bad gradient",
    "forward result not finite",
    "gradient exactly zero",
    "raised here",
  ];
  return words.filter((_, k) => bits & (1 << k)).join(", ");
}
