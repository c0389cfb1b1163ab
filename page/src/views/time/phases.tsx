import { Panel } from "../../charts/panel";
import type { Phases } from "../../data/document";
import { count, seconds } from "../../parts/words";
import { partsOf } from "./parts";

/** Where the time of a whole step goes: a bar with a part for each phase, and the numbers below it. */
export function PhaseBar({ phases }: { phases: Phases }) {
  const { total, parts } = partsOf(phases);
  if (total <= 0) return null;
  return (
    <Panel
      title={`A step takes ${seconds(total)}`}
      note={`Median of ${count(phases.steps, "recorded step")}, without the time of backprobe. The clock is the host's: work that an accelerator does later counts where the script waits for it.`}
    >
      <div class="time-phases" role="img" aria-label={parts.map((p) => `${p.name} ${seconds(p.seconds)}`).join(", ")}>
        {parts.map((p) => (
          <span
            key={p.name}
            class={`time-phase time-phase-${p.key}`}
            style={{ flexGrow: p.share }}
            title={`${p.name}: ${seconds(p.seconds)}. ${p.about}`}
          />
        ))}
      </div>
      <ul class="time-phase-names">
        {parts.map((p) => (
          <li key={p.name} title={p.about}>
            <span class={`time-phase-sign time-phase-${p.key}`} aria-hidden="true" />
            {p.name} <strong>{seconds(p.seconds)}</strong>{" "}
            <span class="quiet">{(100 * p.share).toFixed(p.share < 0.0995 ? 1 : 0)}%</span>
          </li>
        ))}
      </ul>
    </Panel>
  );
}
