import { markWords } from "./cells";
import { nameOf, nodeFacts } from "./names";
import type { Scene } from "./scene";

export const NODE_COLUMNS = [
  "node",
  "type",
  "op",
  "module",
  "call",
  "place",
  "sequence number",
  "order from 0",
  "seconds",
  "mean seconds",
  "gradient norm in",
  "shape",
  "parameter",
  "marks",
] as const; // prettier-ignore

/** The nodes of a box, or of the whole graph, as rows. Below 0 becomes empty: not measured, or did not run. */
export function* nodeRows({ h, call }: Scene, box: number | null): Generator<(string | number)[]> {
  const known = (value: number): number | string => (value < 0 ? "" : value);
  const group = box === null ? h.groups[0]! : box >= 0 ? h.groups[box]! : null;
  const nodes = group ? h.sequence.subarray(group.start, group.end) : [~box!];
  for (const i of nodes) {
    const { type, op, place } = nodeFacts(h, i);
    const { module, nth, seq, parameter } = h.nodes;
    const shape = call.words[call.shape[i]!] ?? "";
    const name = h.model.doc.parameters[parameter[i]!]?.name ?? "";
    const path = h.model.doc.modules[module[i]!]?.path ?? "";
    const marks = markWords(call.marks[i]!).join(" ");
    yield [
      i,
      type,
      op,
      path,
      nth[i]!,
      place,
      known(seq[i]!),
      known(call.order[i]!),
      known(call.time[i]!),
      known(h.nodes.time[i]!),
      known(call.came[i]!),
      shape,
      name,
      marks,
    ];
  }
}

export interface Row {
  box: number;
  name: string;
  nodes: number;
  gradient: number;
  seconds: number;
  bytes: number;
}

export type RowKey = "name" | "nodes" | "gradient" | "seconds" | "bytes";

/** What is right inside a group, in the order of the forward. */
export function childRows({ h, metrics }: Scene, id: number): Row[] {
  return Array.from(h.groups[id]!.items, (box) => ({
    box,
    name: nameOf(h, box).title,
    nodes: box >= 0 ? h.groups[box]!.end - h.groups[box]!.start : 1,
    gradient: metrics.gradient(box),
    seconds: metrics.seconds(box),
    bytes: metrics.bytes(box).bytes,
  }));
}

/** Sorted by a column: numbers the greatest first, what is not finite before all, what is not known last. */
export function sorted(rows: readonly Row[], key: RowKey | null): Row[] {
  if (key === null) return [...rows];
  if (key === "name") return [...rows].sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
  const rank = (value: number): number => (Number.isNaN(value) ? Infinity : value);
  return [...rows].sort((a, b) => (rank(b[key]) === rank(a[key]) ? 0 : rank(b[key]) - rank(a[key])));
}
