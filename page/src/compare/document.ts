import { PageError } from "../data/decode";
import type { Num } from "../data/document";

/**
 * The document of compared runs: what `backprobe/report/comparison.py` writes. Columns are as in a run's document: -1 says
 * that an index or a distance is not there.
 */
export const FORMAT = 1;

export interface Document {
  kind: "comparison";
  format: number;
  title: string;
  sides: SideOf[];
  /** Each side after the first with the first. */
  comparisons: Comparison[];
  /** Of more than two sides those that agree. */
  groups: { runs: number[]; bits: number[][] }[];
}

export interface SideOf {
  name: string;
  script: string;
  started: number | null;
  error: string | null;
  /** Steps that were recorded to be compared. */
  steps: number[];
  ops: number;
  versions: Record<string, string>;
  /** The loss over all steps that have one. */
  curve: { step: Int32Array; loss: Float64Array };
}

export type Verdict = "identical" | "rounding" | "differs" | "unseen";

export interface Comparison {
  verdict: Verdict;
  /** What came out, in a sentence. */
  result: string;
  /** Whether other tensors from outside are a difference: not between steps of one run. */
  given: boolean;
  /** Both were calculated again in float64. */
  calculated: boolean;
  /** The op to look at: that which differs; where all is rounding, that by which one run loses more (`loses`). */
  blame: Blame | null;
  /** What differs before any number; without `a` and `b` all of it is in `what`. */
  early: { what: string; a: string; b: string; of: string }[];
  /** What is the same around both: kind, name, value. */
  same: [string, string, string][];
  pairs: number;
  alone: [number, number];
  ends: number;
  different: number;
  drift: [string, Num][];
  notes: string[];
  findings: Found[];
  steps: { a: number; b: number; loss: [Num | null, Num | null] }[];
  ops: Ops;
  /** Lines of either run that ops refer to. */
  sites: [Place[], Place[]];
}

export interface Place {
  file: string;
  line: number;
  function: string;
  text: string;
}

export interface Found {
  kind: string;
  severity: "error" | "warning" | "info";
  title: string;
  module: string | null;
  line: string;
  a: boolean;
  b: boolean;
}

export interface Blame {
  kind: string;
  what: string;
  exact: boolean;
  row: number;
  a: Suspect | null;
  b: Suspect | null;
  /** The source around it, lines that are the same beside each other. */
  lines: { a: [number, string] | null; b: [number, string] | null; state: "same" | "changed" | "a" | "b" }[];
}

export interface Suspect {
  op: string;
  module: string;
  call: number;
  phase: string;
  step: number;
  node: string;
  arguments: string;
  file: string;
  line: number;
  text: string;
  /** The user's line where the op is in a library. */
  caller: string;
}

/** Ops of both, partners in one row, in the order in which they ran. Names are indexes into `strings`. */
export interface Ops {
  /** All of them; rows are fewer where there is no room. */
  count: number;
  suspect: number;
  /** What row i took and gave: `start[i]` to `start[i + 1]` in `tensors`. */
  start: Int32Array;
  /** Index into `PHASES`. */
  phase: Int32Array;
  state: Int32Array;
  /** How far apart, relative, as fingerprints tell. */
  distance: Float32Array | Float64Array;
  /** The same in float64 from the same tensors. */
  exact: Float32Array | Float64Array;
  a: OpsOf;
  b: OpsOf;
  tensors: Tensors;
  /** By step and phase, the last result of each module. */
  flow: { step: Int32Array; phase: Int32Array; row: Int32Array };
  strings: string[];
}

export interface OpsOf {
  name: Int32Array;
  module: Int32Array;
  call: Int32Array;
  step: Int32Array;
  site: Int32Array;
  /** The line of a library inside `site`. */
  inner: Int32Array;
  node: Int32Array;
  arguments: Int32Array;
}

export interface Tensors {
  /** 0 what an op took, 1 what it gave. */
  kind: Int32Array;
  state: Int32Array;
  distance: Float32Array | Float64Array;
  a: TensorsOf;
  b: TensorsOf;
}

export interface TensorsOf {
  /** Shape and dtype, in `strings`. */
  word: Int32Array;
  norm: Float32Array | Float64Array;
  /** How many values are not finite. */
  bad: Int32Array;
  /** The row of the op that it is from. */
  from: Int32Array;
  /** Of a weight or buffer. */
  name: Int32Array;
}

export const PHASES = ["forward", "backward", "optimizer", "sink"] as const;

/** What is in a page: compared runs, and not one run. */
export function isComparison(raw: object): boolean {
  return (raw as { kind?: unknown }).kind === "comparison";
}

const PARTS = ["title", "sides", "comparisons", "groups"] as const;

/** Throws where the page cannot read it. */
export function checked(doc: Document): Document {
  if (doc.format !== FORMAT)
    throw new PageError(
      `this page reads comparisons of format ${FORMAT}; the data has format ${doc.format}: write it again`,
    );
  const missing = PARTS.filter((part) => doc[part] === undefined || doc[part] === null);
  if (missing.length > 0 || doc.comparisons.length === 0)
    throw new PageError(
      `the data of this comparison is damaged (no ${missing.join(", ") || "comparison"}): write it again`,
    );
  return doc;
}
