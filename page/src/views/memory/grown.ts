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

/** "process: from 230 MiB in step 0 to 610 MiB in step 119, its most. In the second half it grew by 3.2 MiB a step." */
export function grown(name: string, { index }: Pick<Steps, "index">, values: ArrayLike<number>): string {
  const known = Array.from(index, (_, i) => i).filter((i) => values[i]! >= 0);
  const [first, last] = [known[0], known.at(-1)];
  if (first === undefined || last === undefined) return "";
  const said = (i: number): string => `${bytes(values[i]!)} in step ${index[i]}`;
  if (first === last) return `${name}: ${said(first)}.`;
  const peak = known.reduce((best, i) => (values[i]! > values[best]! ? i : best), first);
  const most = peak === last ? ", its most" : `; most: ${said(peak)}`;
  const middle = known[known.length >> 1]!;
  const each = (values[last]! - values[middle]!) / (index[last]! - index[middle]!);
  const grew =
    known.length >= 10 && each >= 1024 ? ` From step ${index[middle]} on it grew by ${bytes(each)} a step.` : "";
  return `${name}: from ${said(first)} to ${said(last)}${most}.${grew}`;
}

/** "Graphs of earlier steps alive: 118 at the end", or "" where none was. */
export function alive({ index, graphs }: Pick<Steps, "index" | "graphs">): string {
  const most = graphs.reduce((a, b) => Math.max(a, b), 0);
  if (most === 0) return "";
  const last = graphs.at(-1)!;
  return `${count(last, "graph")} of earlier steps alive when step ${index.at(-1)} began${last < most ? `, ${most} at most` : ""}.`;
}
