/** What autograd kept, as a tree: module in module, then the line, then the op. */
import type { Decoded, Floats, Memory } from "../../data/document";
import type { Model } from "../../data/model";

export interface Part {
  /** Names it in the address, and its parents before it: "m4.s7.o0". */
  id: string;
  kind: "module" | "line" | "op";
  label: string;
  /** In full. */
  name: string;
  /** What has the same colour: the module's class, the file, the op. */
  alike: string;
  bytes: number;
  tensors: number;
  children: Part[];
  parent: Part | null;
}

type Kept = Memory<Floats>["rows"][number];

/** The tree of all rows; modules that kept nothing are not in it. The root is the outermost module. */
export function hierarchy(model: Model, rows: readonly Kept[]): Part {
  const made = new Map<string, Part>();
  const take = (
    id: string,
    parent: Part | null,
    kind: Part["kind"],
    label: string,
    name: string,
    alike: string,
  ): Part => {
    let part = made.get(id);
    if (!part) {
      part = { id, kind, label, name, alike, bytes: 0, tensors: 0, children: [], parent };
      made.set(id, part);
      parent?.children.push(part);
    }
    return part;
  };
  const ofModule = (module: number): Part => {
    const chain: number[] = [];
    for (let m = Math.max(module, 0); m >= 0; m = model.doc.modules[m]!.parent) chain.push(m);
    let part: Part | null = null;
    for (const m of chain.reverse()) {
      const path = model.name(m);
      const above: string = part === null || part.id === "m0" ? "" : part.name;
      part = take(
        `m${m}`,
        part,
        "module",
        above ? path.slice(above.length + 1) : path,
        path,
        model.doc.modules[m]!.class,
      );
    }
    return part!;
  };
  for (const row of rows) {
    const module = ofModule(row.module);
    const place = model.place(row.site) || "line not known";
    const line = take(
      `${module.id}.s${row.site}`,
      module,
      "line",
      place.slice(place.lastIndexOf("/") + 1),
      `${place}${model.doc.sites[row.site]?.text ? `  ${model.doc.sites[row.site]!.text.trim()}` : ""}`,
      place,
    );
    const op = take(`${line.id}.${row.op}`, line, "op", row.op || "op not known", row.op || "op not known", row.op);
    for (let part: Part | null = op; part; part = part.parent) {
      part.bytes += row.bytes;
      part.tensors += row.tensors;
    }
  }
  const root = made.get("m0") ?? {
    id: "m0",
    kind: "module",
    label: "(model)",
    name: "(model)",
    alike: "",
    bytes: 0,
    tensors: 0,
    children: [],
    parent: null,
  };
  for (const part of made.values()) part.children.sort((a, b) => b.bytes - a.bytes);
  return root;
}

/** The part with an id, or the root. */
export function find(root: Part, id: string | undefined): Part {
  const stack = [root];
  for (let part = stack.pop(); part; part = stack.pop()) {
    if (part.id === id) return part;
    stack.push(...part.children);
  }
  return root;
}

/** A part and those above it, the outermost first. */
export function trail(part: Part): Part[] {
  const found: Part[] = [];
  for (let p: Part | null = part; p; p = p.parent) found.unshift(p);
  return found;
}

/** Down to the first part that is divided: a module with one child in it alone shows the child's division. */
export function divided(part: Part): Part {
  let at = part;
  while (at.children.length === 1 && at.children[0]!.children.length > 0) at = at.children[0]!;
  return at;
}

export const GROUPS = ["module", "line", "op", "dtype"] as const;
export type Group = (typeof GROUPS)[number];

export interface Sum {
  name: string;
  bytes: number;
  tensors: number;
  /** Names of what was saved, as the nodes call it. */
  names: string;
}

/** Rows put together by one of their sides, the largest first. */
export function sums(model: Model, doc: Decoded, group: Group): Sum[] {
  const found = new Map<string, { sum: Sum; names: Set<string> }>();
  for (const row of doc.memory?.rows ?? []) {
    const key = {
      module: model.name(Math.max(row.module, 0)),
      line: model.place(row.site) || "not known",
      op: row.op || "not known",
      dtype: row.dtype || "not known",
    }[group];
    const at = found.get(key) ?? { sum: { name: key, bytes: 0, tensors: 0, names: "" }, names: new Set() };
    found.set(key, at);
    at.sum.bytes += row.bytes;
    at.sum.tensors += row.tensors;
    for (const name of row.names) at.names.add(name);
  }
  return [...found.values()]
    .map(({ sum, names }) => ({ ...sum, names: [...names].sort().join(", ") }))
    .sort((a, b) => b.bytes - a.bytes);
}
