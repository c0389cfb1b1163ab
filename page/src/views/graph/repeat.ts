/** Where a sequence repeats itself: `times` times `period` entries, from `start` on. */
export interface Stretch {
  start: number;
  period: number;
  times: number;
}

export interface Limits {
  /** Fewest repeats that count. */
  least: number;
  /** Longest period looked for. */
  longest: number;
}

/**
 * The stretches of `signs` that repeat themselves, left to right, none inside another; the shortest period wins.
 *
 * A stretch often starts too early, because what is before a loop looks like the end of its body. `rank` says where a body
 * starts rather: the lowest rank does, as the first line of a loop is above the others.
 */
export function repeats(signs: ArrayLike<number>, limits: Limits, rank?: (at: number) => number): Stretch[] {
  const n = signs.length;
  const longest = Math.min(limits.longest, Math.floor(n / Math.max(2, limits.least)));
  // By period: up to where `signs[t] === signs[t + period]` is known to hold. Each entry is compared once for each period.
  const known = new Int32Array(longest + 1);
  const found: Stretch[] = [];
  let at = 0;
  while (at < n) {
    let best: Stretch | null = null;
    for (let period = 1; period <= longest && best === null; period++) {
      let same = Math.max(known[period]!, at);
      while (same + period < n && signs[same] === signs[same + period]) same++;
      known[period] = same;
      const length = same - at + period;
      const times = Math.floor(length / period);
      if (times < limits.least) continue;
      best = { start: at + phase(at, period, length - times * period, rank), period, times };
    }
    if (best === null) at++;
    else {
      found.push(best);
      at = best.start + best.period * best.times;
    }
  }
  return found;
}

/** How far to move the start of a stretch, at most by `slack`, so that it starts where a body starts. */
function phase(at: number, period: number, slack: number, rank: ((at: number) => number) | undefined): number {
  if (!rank || period === 1) return 0;
  let best = 0;
  for (let shift = 1; shift <= slack; shift++) if (rank(at + shift) < rank(at + best)) best = shift;
  return best;
}
