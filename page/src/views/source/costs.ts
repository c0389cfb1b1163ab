import type { Calls, Model } from "../../data/model";
import { BAD } from "../../data/step";

/** What the lines of a file cost in a backward call, the mean of those with the same graph, and what gradients did in one. */

/** Marks of nodes, the gravest first: bit, sign and word. */
export const MARKS = [
  { bit: 16, sign: "✕", word: "raised", long: "the backward raised here" },
  { bit: 2, sign: "✕", word: "made NaN/Inf", long: "made the first gradient that is not finite" },
  { bit: 4, sign: "✕", word: "forward NaN/Inf", long: "the result of the forward was not finite" },
  { bit: 1, sign: "▲", word: "NaN/Inf", long: "got a gradient that is not finite" },
  { bit: 8, sign: "○", word: "zero", long: "got gradients that were exactly zero" },
] as const;

/** By number of a line, from 1; entry 0 is unused. */
export interface Costs {
  /** Backward seconds, the mean over calls; -1 where no node of the line was measured. */
  time: Float64Array;
  nodes: Int32Array;
  /** Greatest norm of the gradients that came to its nodes; -1 where none was measured. */
  came: Float64Array;
  /** Bytes kept for backward by what the line did, in the step where they were counted. */
  kept: Float64Array;
  /** All marks of its nodes. */
  marks: Uint8Array;
  /** By line: the findings that name it, and the role that they give it. */
  roles: Map<number, { role: string; finding: number }[]>;
  /** The greatest entries, for bars. */
  most: { time: number; kept: number };
}

export function costs(model: Model, file: string, length: number, call: Calls | undefined): Costs {
  const { sites, memory, findings } = model.doc;
  const lineOf = Int32Array.from(sites, (site) =>
    site.file === file && site.line >= 1 && site.line <= length ? site.line : 0,
  );
  const found: Costs = {
    time: new Float64Array(length + 1).fill(-1),
    nodes: new Int32Array(length + 1),
    came: new Float64Array(length + 1).fill(-1),
    kept: new Float64Array(length + 1),
    marks: new Uint8Array(length + 1),
    roles: new Map(),
    most: { time: 0, kept: 0 },
  };
  if (call !== undefined) {
    const { time } = model.nodes(call);
    const site = model.linesIn(model.nodes(call), file);
    for (let node = 0; node < site.length; node++) {
      const line = lineOf[site[node]!] ?? 0;
      if (line === 0) continue;
      found.nodes[line]!++;
      found.marks[line]! |= call.marks[node]!;
      if (time[node]! >= 0) found.time[line] = Math.max(0, found.time[line]!) + time[node]!;
      found.came[line] = worse(found.came[line]!, call.came[node]!);
    }
  }
  for (const row of memory?.rows ?? []) {
    const line = lineOf[row.site] ?? 0;
    if (line > 0) found.kept[line]! += row.bytes;
  }
  findings.forEach((finding, number) => {
    for (const { role, site } of finding.sites) {
      const line = lineOf[site] ?? 0;
      if (line === 0) continue;
      const roles = found.roles.get(line) ?? [];
      roles.push({ role, finding: number });
      found.roles.set(line, roles);
    }
  });
  found.most = { time: most(found.time), kept: most(found.kept) };
  return found;
}

/** The greatest of many numbers, and at least 0. */
function most(values: Float64Array): number {
  return values.reduce((a, b) => Math.max(a, b), 0);
}

/** The one that is not a number, else the greater one. */
function worse(a: number, b: number): number {
  return Number.isNaN(a) || Number.isNaN(b) ? NaN : Math.max(a, b);
}

/** The gravest mark among some, or null. */
export function mark(marks: number): (typeof MARKS)[number] | null {
  return MARKS.find((one) => marks & one.bit) ?? null;
}

/** Lines that something went wrong at or that a finding names, in order. */
export function marked(found: Costs): number[] {
  const lines: number[] = [];
  for (let line = 1; line < found.marks.length; line++)
    if (found.marks[line]! & BAD || found.roles.has(line)) lines.push(line);
  return lines;
}

/** The main line of the first finding that names one here; 0 where none does. */
export function foremost({ roles }: Costs): number {
  let best = { line: 0, finding: Infinity };
  for (const [line, parts] of roles)
    for (const { finding } of parts) if (finding < best.finding) best = { line, finding };
  return best.line;
}

/** The marked line after (`way` 1) or before (-1) a line, from the other end where there is none; 0 where none is marked. */
export function next(lines: readonly number[], from: number, way: 1 | -1): number {
  const beyond = way === 1 ? lines.find((line) => line > from) : lines.findLast((line) => line < from);
  return beyond ?? (way === 1 ? lines[0] : lines.at(-1)) ?? 0;
}

/** Backward seconds by file in a call, the mean of those with the same graph. A node counts in each file that it was called
 * through. */
export function byFile(model: Model, call: Calls | undefined): Map<string, number> {
  const found = new Map<string, number>();
  if (call === undefined) return found;
  const { site, time, library, stacks } = model.nodes(call);
  const { sites } = model.doc;
  for (const { file } of sites) found.set(file, 0);
  const add = (one: number, seconds: number) => {
    const file = sites[one]?.file;
    if (file !== undefined) found.set(file, found.get(file)! + seconds);
  };
  const inside = new Float64Array(stacks.length);
  for (let node = 0; node < site.length; node++) {
    if (time[node]! < 0) continue;
    add(site[node]!, time[node]!);
    inside[library[node]!]! += time[node]!;
  }
  stacks.forEach((stack, i) => {
    const files = new Map(stack.map((one) => [sites[one]?.file, one]));
    for (const one of files.values()) add(one, inside[i]!);
  });
  return found;
}

/** The file to show first: where the first finding is, else where most of the time goes; of libraries the one that is called
 * through most lines. -1: there is none. */
export function chief(model: Model, times: ReadonlyMap<string, number>, library = false): number {
  const sources = model.doc.sources;
  for (const finding of model.doc.findings) {
    const file = model.doc.sites[finding.sites[0]?.site ?? -1]?.file;
    const at = sources.findIndex((one) => one.file === file);
    if (at >= 0 && sources[at]!.library === library) return at;
  }
  const lines = new Map<string, number>();
  if (library) for (const { file } of model.doc.sites) lines.set(file, (lines.get(file) ?? 0) + 1);
  const weight = library ? lines : times;
  let best = -1;
  sources.forEach((one, i) => {
    if (one.library !== library) return;
    if (best < 0 || (weight.get(one.file) ?? 0) > (weight.get(sources[best]!.file) ?? 0)) best = i;
  });
  return best;
}

/** How many nodes of a call the user's lines need to have for a share to say anything. */
const FEWEST_NODES = 20;

/** Whether one line of the user's made nearly all nodes of a call, as where a library runs the training: its lines then say
 * more than the user's. */
export function heldByOneLine(model: Model, call: Calls | undefined): boolean {
  if (call === undefined) return false;
  const counts = new Map<number, number>();
  let all = 0;
  for (const site of model.nodes(call).site) {
    if (site < 0) continue;
    counts.set(site, (counts.get(site) ?? 0) + 1);
    all++;
  }
  return all >= FEWEST_NODES && Math.max(...counts.values()) >= 0.9 * all;
}

/** What the nodes of a line are: names with how many there are, most first; their modules in forward order; their site. */
export interface Nodes {
  names: [string, number][];
  modules: string[];
  /** Index into `sites`, -1 without nodes: a line has one, but for the rare one that two functions share. */
  site: number;
}

export function nodesAt(model: Model, call: Calls, file: string, line: number): Nodes {
  const layout = model.nodes(call);
  const names = new Map<string, number>();
  const modules = new Set<number>();
  let first = -1;
  model.linesIn(layout, file).forEach((site, node) => {
    if (model.doc.sites[site]?.line !== line) return;
    const name = layout.strings[layout.name[node]!]!;
    names.set(name, (names.get(name) ?? 0) + 1);
    modules.add(layout.module[node]!);
    if (first < 0) first = site;
  });
  return {
    names: [...names].sort((a, b) => b[1] - a[1]),
    modules: [...modules]
      .sort((a, b) => a - b)
      .map((one) => model.name(one))
      .filter(Boolean),
    site: first,
  };
}
