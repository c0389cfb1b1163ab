/** The seen part of a timeline from 0 to `total`, moved and zoomed without leaving it. */
export type Range = [number, number];

export function clamped([low, high]: readonly [number, number], total: number): Range {
  // A millionth of the whole is as close as numbers on the axis stay different.
  const size = Math.min(total, Math.max(high - low, total * 1e-6));
  const from = Math.min(Math.max(low, 0), total - size);
  return [from, from + size];
}

/** Moved by a share of what is seen. */
export function panned([low, high]: readonly [number, number], share: number, total: number): Range {
  const by = share * (high - low);
  return clamped([low + by, high + by], total);
}

/** `factor` below 1 is closer; the place at `share` of the width stays where it is. */
export function zoomed([low, high]: readonly [number, number], share: number, factor: number, total: number): Range {
  const centre = low + share * (high - low);
  return clamped([centre - (centre - low) * factor, centre + (high - centre) * factor], total);
}
