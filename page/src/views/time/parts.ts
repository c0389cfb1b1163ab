/** The parts of a step, named. */
import type { Phases } from "../../data/document";

export interface Part {
  key: string;
  name: string;
  about: string;
  seconds: number;
  /** Of the whole step. */
  share: number;
}

/** In the order of `Phases.seconds`. */
const PARTS: readonly (readonly [string, string, string])[] = [
  ["before", "Before the forward", "From the end of the last step to the first call of a module: loading data"],
  ["forward", "Forward", "From the call of the model to the backward call: the loss, too"],
  ["backward", "Backward", "Backward calls"],
  ["optimizer", "Optimizer", "Steps of optimizers"],
  ["rest", "Rest", "After the first backward call: clipping, a loss scaler, logging"],
];

/** The parts that take time, and the sum of their seconds. */
export function partsOf(phases: Phases): { total: number; parts: Part[] } {
  const total = phases.seconds.reduce((sum, s) => sum + s, 0);
  const parts = PARTS.map(([key, name, about], i) => {
    const seconds = phases.seconds[i] ?? 0;
    return { key, name, about, seconds, share: total > 0 ? seconds / total : 0 };
  });
  return { total, parts: parts.filter((p) => p.seconds > 0) };
}
