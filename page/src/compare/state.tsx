import type { Pair } from "./pair";

/** Signs with a shape of their own, so that colour is not needed to tell states apart. */
const SIGNS = ["=", "≈", "✕", "A", "B", "~", "–"];
export const CLASSES = ["same", "agrees", "differs", "a", "b", "bits", "none"];

export function State({ pair, state }: { pair: Pair; state: number }) {
  return (
    <span class={`compare-state compare-${CLASSES[state]}`}>
      <span class="compare-sign" aria-hidden="true">
        {SIGNS[state]}
      </span>
      {pair.word(state)}
    </span>
  );
}

/** A distance: short, and nothing where none is known. */
export function apart(value: number): string {
  if (value < 0) return "–";
  if (value === 0) return "0";
  if (Number.isNaN(value)) return "NaN";
  return value >= 0.001 && value < 1000
    ? String(Number(value.toPrecision(2)))
    : value.toExponential(1).replace("e+", "e");
}
