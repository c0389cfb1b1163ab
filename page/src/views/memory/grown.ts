/** What a run's memory did over its steps, in figures. */
import type { Decoded } from "../../data/document";
import { bytes, count } from "../../parts/words";

/** Findings that are about who holds memory. */
export const HOLDING: readonly string[] = ["graph-retained", "reference-cycle", "saved-memory"];

type Steps = Decoded["steps"];

/** Whether anything is known of the memory over the steps. */
export function recorded({ steps }: Pick<Decoded, "steps">): boolean {
  return [steps.resident, steps.allocated].some((values) => values.some((v) => v >= 0));
}

/** Looks that are needed to call something growth, and the parts of equal length that it is measured over. */
const [ENOUGH_LOOKS, PARTS] = [10, 8];
/** Bytes a step below which growth is not told, and the share of all growth that makes one look's a jump. */
const [SMALL, JUMP] = [1024, 0.5];

/** "process: from 230 MiB in step 0 to 610 MiB in step 119, its most. From step 60 to 119 it grew by 3.2 MiB a step." */
export function grown(name: string, { index }: Pick<Steps, "index">, values: ArrayLike<number>): string {
  const known = Array.from(index, (_, i) => i).filter((i) => values[i]! >= 0);
  const [first, last] = [known[0], known.at(-1)];
  if (first === undefined || last === undefined) return "";
  const said = (i: number): string => `${bytes(values[i]!)} in step ${index[i]}`;
  if (first === last) return `${name}: ${said(first)}.`;
  const peak = known.reduce((best, i) => (values[i]! > values[best]! ? i : best), first);
  const most = peak === last ? ", its most" : `; most: ${said(peak)}`;
  const late = known.slice(known.length >> 1);
  const text = known.length < ENOUGH_LOOKS ? "" : growth(index, values, late);
  return `${name}: from ${said(first)} to ${said(last)}${most}.${text}`;
}

/**
 * What happened over the looks `late`: a jump if one look has most of what was gained, else the growth a step, as the
 * median over parts of equal length, if most parts grew.
 */
function growth(index: ArrayLike<number>, values: ArrayLike<number>, late: readonly number[]): string {
  const [begin, end] = [late[0]!, late.at(-1)!];
  const gained = values[end]! - values[begin]!;
  if (gained / (index[end]! - index[begin]!) < SMALL) return "";
  const steps = late.slice(1).map((i, n) => ({ from: late[n]!, to: i, by: values[i]! - values[late[n]!]! }));
  const jump = steps.reduce((a, b) => (b.by > a.by ? b : a));
  if (jump.by >= JUMP * gained) return ` It grew by ${bytes(jump.by)} at once, in step ${index[jump.to]}.`;
  const parts = Math.min(PARTS, steps.length);
  const edges = Array.from({ length: parts + 1 }, (_, n) => late[Math.round((n * (late.length - 1)) / parts)]!);
  const slopes = edges
    .slice(1)
    .map((to, n) => (values[to]! - values[edges[n]!]!) / (index[to]! - index[edges[n]!]!))
    .sort((a, b) => a - b);
  const each = slopes[slopes.length >> 1]!;
  const growing = slopes.filter((slope) => slope >= SMALL).length;
  if (each < SMALL || 4 * growing < 3 * parts) return "";
  return ` From step ${index[begin]} to ${index[end]} it grew by ${bytes(each)} a step.`;
}

/** "At least 118 graphs of earlier steps alive", or "" where none was. Not each step's graph is looked at. */
export function alive({ index, graphs }: Pick<Steps, "index" | "graphs">): string {
  const most = graphs.reduce((a, b) => Math.max(a, b), 0);
  if (most === 0) return "";
  const last = graphs.at(-1)!;
  const before = last < most ? `, and at least ${most} before` : "";
  return `At least ${count(last, "graph")} of earlier steps alive when step ${index.at(-1)} began${before}.`;
}
