/** Which findings are unfolded, as the address has it: "0", "0,3", "none"; the first one where it has nothing. */

export function opened(text: string | undefined, size: number): number[] {
  if (size === 0 || text === "none") return [];
  const numbers = (text ?? "").split(",").filter((one) => /^\d+$/.test(one));
  const found = [...new Set(numbers.map(Number))].filter((one) => one < size);
  return found.length > 0 ? found : [0];
}

/** The address after one is folded or unfolded. */
export function toggled(open: readonly number[], one: number): string {
  const next = open.includes(one) ? open.filter((other) => other !== one) : [...open, one];
  return next.length === 0 ? "none" : next.join(",");
}
