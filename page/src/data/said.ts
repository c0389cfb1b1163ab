/** What the numbers of steps are, in words. */

import { count, number } from "../parts/words";
import type { Decoded, Parameter } from "./document";

type Steps = Decoded["steps"];

/** What the gradients of the steps at positions `first` to `last` (both in) are; "" where nothing is known of them. */
export function gradientSaid({ source }: Pick<Steps, "source">, first = 0, last = source.length - 1): string {
  const seen = source.subarray(first, last + 1);
  const [backward, optimizer] = [1, 2].map((kind) => seen.filter((one) => one === kind).length) as [number, number];
  if (backward > 0 && optimizer > 0)
    return `as backward gave it in ${count(backward, "step")}, as the optimizer met it in ${optimizer.toLocaleString("en-US")}`;
  return backward > 0 ? "as backward gave it" : optimizer > 0 ? "as the optimizer met it" : "";
}

/** How the losses of the steps at positions `first` to `last` (both in) came about, where they are not the roots of one
 *  backward call each. */
export function lossSaid({ calls, scale, known }: Steps, first = 0, last = known.length - 1): string {
  const [of, by] = [new Set<number>(), new Set<number>()];
  for (let i = first; i <= last; i++) {
    if (known[i] !== 1) continue;
    of.add(calls[i]!);
    by.add(scale[i]!);
  }
  const said: string[] = [];
  if ([...of].some((n) => n > 1)) said.push(`the sum over ${of.size > 1 ? "" : "its "}${span(of)} backward calls`);
  if ([...by].some((factor) => factor !== 1)) said.push(`without the GradScaler's factor, ${span(by)}`);
  return said.join("; ");
}

function span(values: ReadonlySet<number>): string {
  const [low, high] = [Math.min(...values), Math.max(...values)];
  return low === high ? number(low) : `${number(low)} to ${number(high)}`;
}

/** "64×10", "scalar", "?". */
export function shapeSaid(shape: Parameter["shape"]): string {
  return shape.length === 1 && shape[0] === -1 ? "?" : shape.join("×") || "scalar";
}

/** "mean of 5 calls", for the times of nodes. */
export function meanSaid(timed: number): string {
  return timed > 1 ? `mean of ${count(timed, "call")}` : timed === 1 ? "of one call" : "";
}
