import type { Marker } from "../../charts/signs";
import type { Decoded } from "../../data/document";

/** Flags at the steps of findings; `pick` is called with the number of the finding and its step. */
export function flags(
  { findings }: Pick<Decoded, "findings">,
  pick: (finding: number, step: number) => void,
): Marker[] {
  return findings.flatMap(({ step, title, severity }, i): Marker[] =>
    step === null ? [] : [{ x: step, name: title, severity, onPick: () => pick(i, step) }],
  );
}

/** The sign of the selected step. */
export function selectedMarker(step: number): Marker {
  return { x: step, name: "the selected step", severity: "info", sign: "▲", onPick: () => undefined };
}
