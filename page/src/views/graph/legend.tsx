import type { Metric } from "./metrics";
import { colour, said, ticks } from "./scale";
import type { Scene } from "./scene";

export const METRIC_NAMES: Readonly<Record<Metric, string>> = {
  gradient: "gradient norm",
  time: "time in backward",
  bytes: "bytes kept",
  order: "order of the backward",
  bad: "first bad value",
};

/** What colours, patterns, lines and directions mean. */
export function Legend({ scene, metric }: { scene: Scene; metric: Metric }) {
  const scale = scene.scale(metric);
  const marks = ticks(scale);
  const stops = Array.from({ length: 9 }, (_, k) => `${colour(k / 8)} ${(100 * k) / 8}%`).join(", ");
  return (
    <div class="graph-legend" role="group" aria-label="Legend">
      {metric !== "bad" && marks.length > 0 && (
        <div class="graph-scale">
          <span class="graph-scale-name">
            {METRIC_NAMES[metric] +
              (metric === "time" ? `, ${scene.metrics.mean}` : "") +
              (scale.log ? ", log" : "") +
              (scale.below ? "; less looks like the least" : "")}
          </span>
          <div class="graph-ramp" style={{ background: `linear-gradient(to right, ${stops})` }} />
          <div class="graph-ticks">
            {marks.map(({ at, value }) => (
              <span key={at} style={{ left: `${100 * at}%` }}>
                {at === 0 && scale.below ? "≤ " : ""}
                {said(metric, value)}
              </span>
            ))}
          </div>
        </div>
      )}
      <ul>
        {metric === "bad" && (
          <li>
            <i class="graph-swatch-began" /> NaN or Inf began
          </li>
        )}
        {(metric === "gradient" || metric === "bad") && (
          <li>
            <i class="graph-swatch-bad" /> {metric === "bad" ? "spread to" : "NaN or Inf"}
          </li>
        )}
        {metric !== "order" && metric !== "bad" && (
          <li>
            <i class="graph-swatch-zero" /> exactly 0
          </li>
        )}
        <li>
          <i class="graph-swatch-unknown" /> {metric === "bad" ? "did not run" : "not measured"}
        </li>
        <li>
          <b class="graph-forward">↓</b> forward: down to the loss
        </li>
        <li>
          <b class="graph-backward">↑</b> backward: up to the parameters
        </li>
        <li>line width: gradient norm</li>
      </ul>
    </div>
  );
}
