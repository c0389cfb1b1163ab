import type { Calls, Model, Nodes } from "../../data/model";
import { norm, seconds } from "../../parts/words";
import { moduleOf, secondsOf, type Timeline } from "./timeline";

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

type Said = [string, [string, string][]];

/** What a person reads of a stretch: a title, and names with values. */
export function about(model: Model, call: Calls, { begin, rows, sequence }: Timeline, { row: r, stretch }: Spot): Said[] {
  const row = rows[r]!;
  const [first, last, of] = [row.first[stretch]!, row.last[stretch]!, row.of[stretch]!];
  let time = 0;
  for (let k = first; k <= last; k++) time += secondsOf(call.time[sequence[k]!]);
  if (r < rows.length - 1) {
    return [[model.name(of), [["class", model.doc.modules[of]!.class], ["time", seconds(time)], ["nodes", String(last - first + 1)]]]]; // prettier-ignore
  }
  const nodes = model.nodes(call);
  const op = nodes.strings[nodes.op[of]!];
  const marks = marked(call.marks[of]!);
  const pairs: [string, string][] = [
    ["time", call.time[of]! >= 0 ? seconds(call.time[of]!) : "not measured"],
    ["ran as number", String(first + 1)],
    ["module", model.name(moduleOf(model, nodes, of))],
    ...(op ? ([["forward op", op]] as [string, string][]) : []),
    ...(nodes.site[of]! >= 0 ? ([["line", model.place(nodes.site[of]!)]] as [string, string][]) : []),
    ["gradient in", norm(call.came[of])],
    ...(marks ? ([["note", marks]] as [string, string][]) : []),
  ];
  return [[`${nodes.strings[nodes.name[of]!] ?? ""}`, begin.length ? pairs : []]];
}

/** The marks of a node in words; see `Call.marks`. */
export function marked(bits: number): string {
  const words = ["gradient not finite", "made the first bad gradient", "forward result not finite", "gradient exactly zero", "raised here"];
  return words.filter((_, k) => bits & (1 << k)).join(", ");
}
