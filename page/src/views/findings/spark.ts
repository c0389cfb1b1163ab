/** A small line of the loss: at most `columns` places, each with the least and the greatest value in it. */
export interface Spark {
  /** Parts of a line in a box of 1 by 1, y downwards; a gap where a value was not finite or not known. */
  parts: [number, number][][];
  low: number;
  high: number;
  first: number;
  last: number;
  /** Values that were NaN or infinite. */
  bad: number;
}

export function spark(values: ArrayLike<number>, known: ArrayLike<number>, columns = 240): Spark | null {
  let [low, high, bad, first, last] = [Infinity, -Infinity, 0, NaN, NaN];
  for (let i = 0; i < values.length; i++) {
    if (!known[i]) continue;
    const value = values[i]!;
    if (Number.isNaN(first) && low === Infinity && bad === 0) first = value;
    last = value;
    if (!Number.isFinite(value)) bad++;
    else [low, high] = [Math.min(low, value), Math.max(high, value)];
  }
  if (low === Infinity) return null;
  const x = (i: number) => (values.length > 1 ? i / (values.length - 1) : 0.5);
  const y = (value: number) => (high > low ? (high - value) / (high - low) : 0.5);
  const width = Math.max(1, Math.ceil(values.length / columns));
  const parts: [number, number][][] = [[]];
  for (let from = 0; from < values.length; from += width) {
    let [min, max] = [-1, -1];
    for (let i = from; i < Math.min(values.length, from + width); i++) {
      if (!known[i]) continue;
      if (!Number.isFinite(values[i]!)) {
        if (parts.at(-1)!.length > 0) parts.push([]);
        continue;
      }
      if (min < 0 || values[i]! < values[min]!) min = i;
      if (max < 0 || values[i]! > values[max]!) max = i;
    }
    if (min < 0) continue;
    for (const i of min === max ? [min] : [Math.min(min, max), Math.max(min, max)])
      parts.at(-1)!.push([x(i), y(values[i]!)]);
  }
  return { parts: parts.filter((part) => part.length > 0), low, high, first, last, bad };
}
