import { type Comparison, type OpsOf, PHASES, type Place, type SideOf, type Tensors } from "./document";

/** What two runs have: as `backprobe/report/paired.py` numbers it. */
export const [SAME, AGREES, DIFFERS, ONLY_A, ONLY_B, BITS, NOTHING] = [0, 1, 2, 3, 4, 5, 6] as const;
export type Which = "a" | "b";
export const SIDES: readonly Which[] = ["a", "b"];

/** A place in a table of distances: `row` is that of the op. */
export interface Cell {
  row: number;
  state: number;
  distance: number;
}

export interface Line {
  name: string;
  cells: (Cell | null)[];
}

/** Numbers of one step. */
export interface StepOf {
  index: number;
  a: number;
  b: number;
  loss: [number | null, number | null];
  gradients: Summary;
  weights: Summary;
}

export interface Summary {
  count: number;
  same: number;
  differs: number;
  /** The greatest distance; -1: none is known. */
  worst: number;
  row: number;
}

/** Two runs with what the views need of them worked out. */
export class Pair {
  readonly rows: number;
  /** By row: the words that a person may look for, in lower case. */
  private words: string[] | null = null;

  constructor(
    readonly doc: Comparison,
    readonly sides: readonly [SideOf, SideOf],
  ) {
    this.rows = doc.ops.state.length;
  }

  /** Which of both a row is read from: the first that has it. */
  which(row: number): Which {
    return this.doc.ops.a.name[row]! >= 0 ? "a" : "b";
  }

  has(row: number, side: Which): boolean {
    return this.doc.ops[side].name[row]! >= 0;
  }

  text(row: number, side: Which, what: "name" | "module" | "node" | "arguments"): string {
    const at = this.doc.ops[side][what][row]!;
    return at < 0 ? "" : this.doc.ops.strings[at]!;
  }

  name(row: number): string {
    return this.text(row, this.which(row), "name");
  }

  /** A person's word for it: sinks are no ops. */
  title(row: number): string {
    return PHASES[this.doc.ops.phase[row]!] === "sink" ? `the ${this.name(row)}` : this.name(row);
  }

  module(row: number): string {
    return this.text(row, this.which(row), "module");
  }

  step(row: number): number {
    return this.doc.ops[this.which(row)].step[row]!;
  }

  phase(row: number): string {
    const phase = PHASES[this.doc.ops.phase[row]!]!;
    return phase === "sink" ? "result" : phase;
  }

  site(row: number, side: Which, what: "site" | "inner" = "site"): Place | null {
    const ops: OpsOf = this.doc.ops[side];
    const at = ops[what][row]!;
    return at < 0 ? null : (this.doc.sites[side === "a" ? 0 : 1][at] ?? null);
  }

  /** The line that says most: a library's where the op is in one. */
  place(row: number, side: Which): string {
    const site = this.site(row, side, "inner") ?? this.site(row, side);
    return site === null ? "" : `${site.file}:${site.line}`;
  }

  /** The state in words. */
  word(state: number): string {
    if (state === AGREES) {
      const other = !this.doc.given || ["outside", "random"].includes(this.doc.blame?.kind ?? "");
      return other ? "same calculation" : "rounding";
    }
    return ["same bits", "", "differs", "only in A", "only in B", "other bits", "–"][state] ?? "";
  }

  /** How many rows have each state. */
  counts(): number[] {
    const found = [0, 0, 0, 0, 0, 0, 0];
    for (const state of this.doc.ops.state) found[state]!++;
    return found;
  }

  /** The rows of a kind that have all of these words. */
  find(kind: string, text: string): number[] {
    const low = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const { state } = this.doc.ops;
    this.words ??= Array.from(state, (_, row) => this.wordsOf(row));
    const found: number[] = [];
    for (let row = 0; row < this.rows; row++) {
      if (!KINDS[kind]!(state[row]!)) continue;
      if (low.every((word) => this.words![row]!.includes(word))) found.push(row);
    }
    return found;
  }

  private wordsOf(row: number): string {
    const parts = SIDES.flatMap((side) =>
      this.has(row, side)
        ? [
            this.text(row, side, "name"),
            this.text(row, side, "module"),
            this.text(row, side, "node"),
            this.place(row, side),
          ]
        : [],
    );
    return [...new Set(parts), this.phase(row), `step ${this.step(row)}`].join(" ").toLowerCase();
  }

  cell(row: number): Cell {
    const { state, distance } = this.doc.ops;
    return { row, state: state[row]!, distance: distance[row]! };
  }

  /** Of each module in a step how far its last results are apart: forward, backward. */
  flow(step: number): Line[] {
    const { flow } = this.doc.ops;
    const lines = new Map<string, Line>();
    flow.row.forEach((row, i) => {
      if (flow.step[i] !== step) return;
      const name = this.module(row) || "(model)";
      const line = lines.get(name) ?? { name, cells: [null, null] };
      line.cells[flow.phase[i]!] = this.cell(row);
      lines.set(name, line);
    });
    return [...lines.values()];
  }

  /** Of each parameter in a step how far both are apart: its gradient, its weight after the step. */
  parameters(step: number): Line[] {
    const lines = new Map<string, Line>();
    for (const row of this.sinks(step)) {
      const name = this.module(row);
      const line = lines.get(name) ?? { name, cells: [null, null] };
      line.cells[this.name(row) === "weight" ? 1 : 0] = this.cell(row);
      lines.set(name, line);
    }
    return [...lines.values()];
  }

  private sinks(step: number): number[] {
    const sink = PHASES.indexOf("sink");
    const found: number[] = [];
    this.doc.ops.phase.forEach((phase, row) => {
      if (phase === sink && this.step(row) === step) found.push(row);
    });
    return found;
  }

  steps(): StepOf[] {
    const number = (value: string | number | null) => (value === null ? null : Number(value));
    return this.doc.steps.map((one, index) => {
      const sinks = this.sinks(one.a);
      const of = (weight: boolean) => this.summary(sinks.filter((row) => (this.name(row) === "weight") === weight));
      return {
        index,
        a: one.a,
        b: one.b,
        loss: [number(one.loss[0]), number(one.loss[1])],
        gradients: of(false),
        weights: of(true),
      };
    });
  }

  private summary(rows: readonly number[]): Summary {
    const found: Summary = { count: rows.length, same: 0, differs: 0, worst: -1, row: -1 };
    for (const row of rows) {
      const { state, distance } = this.cell(row);
      if (state === SAME) found.same++;
      if (state === DIFFERS) found.differs++;
      if (distance > found.worst) [found.worst, found.row] = [distance, row];
    }
    return found;
  }

  /** Ops that took what a row gave. */
  takers(row: number): number[] {
    const { start, tensors } = this.doc.ops;
    const found: number[] = [];
    // What is given is taken later, as both runs have it.
    for (let other = row + 1; other < this.rows; other++) {
      for (let at = start[other]!; at < start[other + 1]!; at++) {
        if (tensors.kind[at] === 0 && (tensors.a.from[at] === row || tensors.b.from[at] === row)) {
          found.push(other);
          break;
        }
      }
    }
    return found;
  }

  /** Places of what a row took (0) or gave (1) in the columns of tensors. */
  tensors(row: number, kind: number): number[] {
    const { start, tensors } = this.doc.ops;
    const found: number[] = [];
    for (let at = start[row]!; at < start[row + 1]!; at++) if (tensors.kind[at] === kind) found.push(at);
    return found;
  }

  string(at: number | undefined): string {
    return at === undefined || at < 0 ? "" : this.doc.ops.strings[at]!;
  }

  get columns(): Tensors {
    return this.doc.ops.tensors;
  }
}

/** Which states a choice of rows holds. */
export const KINDS: Readonly<Record<string, (state: number) => boolean>> = {
  all: () => true,
  differs: (state) => state === DIFFERS || state === ONLY_A || state === ONLY_B,
  bits: (state) => state !== SAME && state !== NOTHING,
  alone: (state) => state === ONLY_A || state === ONLY_B,
};

/** Powers of ten around positive distances, at least three, for a logarithmic axis; null where there are none. */
export function decades(distances: Iterable<number>): [number, number] | null {
  let [low, high] = [Infinity, 0];
  for (const one of distances) {
    if (!(one > 0) || one === Infinity) continue;
    low = Math.min(low, one);
    high = Math.max(high, one);
  }
  if (high === 0) return null;
  const last = Math.ceil(Math.log10(high) - 1e-9) || 0; // and not -0
  return [Math.min(Math.floor(Math.log10(low)), last - 3), last];
}

/** Texts cut into parts, those that are not in the other marked. */
export function marked(one: string, other: string): [string, boolean][] {
  const parts = (text: string) => text.match(/[\w.+-]+|\s+|[^\w\s]/g) ?? [];
  const [mine, its] = [parts(one), parts(other)];
  let head = 0;
  while (head < mine.length && mine[head] === its[head]) head++;
  let tail = 0;
  while (tail < Math.min(mine.length, its.length) - head && mine.at(-1 - tail) === its.at(-1 - tail)) tail++;
  const cut: [string, boolean][] = [
    [mine.slice(0, head).join(""), false],
    [mine.slice(head, mine.length - tail).join(""), true],
    [mine.slice(mine.length - tail).join(""), false],
  ];
  return cut.filter(([text]) => text !== "");
}
