import type { Run } from "../data/document";

/** Why finding nothing would not mean that nothing is wrong: watching that stopped, what was not seen. */
export function Gaps({ run }: { run: Run }) {
  if (run.gaps.length === 0) return null;
  return (
    <p class="frame-sign frame-warn frame-gaps" role="note">
      ▲ Not everything was watched: {run.gaps.join("; ")}
    </p>
  );
}
