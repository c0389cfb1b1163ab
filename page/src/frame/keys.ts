/** What a key means. */
export type Command = { go: string } | "help" | "search" | "close" | "wait" | null;

/** By view: the letter that goes to it after `g`: the first of its name that no view before it has. */
export function letters(names: readonly string[]): Map<string, string> {
  const taken = new Map<string, string>();
  for (const name of names) {
    const letter = [...name].find((one) => !taken.has(one));
    if (letter !== undefined) taken.set(letter, name);
  }
  return taken;
}

/**
 * What a key that was pressed outside any field means; `after` is the key before it where that one waits for another.
 */
export function command(key: string, after: string, names: readonly string[]): Command {
  if (after === "g") {
    const name = letters(names).get(key);
    return name === undefined ? null : { go: name };
  }
  const numbered = /^\d$/.test(key) ? names[(Number(key) + 9) % 10] : undefined; // 0 comes after 9
  if (numbered !== undefined) return { go: numbered };
  if (key === "g") return "wait";
  if (key === "?") return "help";
  if (key === "/") return "search";
  return key === "Escape" ? "close" : null;
}

/** Whether a key goes into a field, and so is no command. */
export function typing(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}
