/** What stands for a line that the run has not kept; see `backprobe/records/places.py`. */
export const NOT_KEPT = "…";

/**
 * The row that shows each line, from 1; lines in a row that were not kept share one. Entry 0 is -1, so a line whose entry
 * is that of the line before it has no row of its own.
 */
export function rowsOf(lines: readonly string[]): Int32Array {
  const rows = new Int32Array(lines.length + 1);
  rows[0] = -1;
  lines.forEach((text, i) => {
    const goesOn = text === NOT_KEPT && lines[i - 1] === NOT_KEPT;
    rows[i + 1] = rows[i]! + (goesOn ? 0 : 1);
  });
  return rows;
}

/** The last line of the gap that begins at a line. */
export function endOfGap(lines: readonly string[], first: number): number {
  let last = first;
  while (lines[last] === NOT_KEPT) last++;
  return last;
}

/** The next line (`way` 1) or the one before (-1) that was kept, from one that may be 0; the same where there is none. */
export function keptBeside(lines: readonly string[], line: number, way: 1 | -1): number {
  let found = line + way;
  while (lines[found - 1] === NOT_KEPT) found += way;
  return found >= 1 && found <= lines.length ? found : line;
}
