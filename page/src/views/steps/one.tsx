import type { Model } from "../../data/model";
import { gradientSaid, lossSaid } from "../../data/said";
import { nearest, recordedSteps } from "../../data/step";
import { norm, number, seconds } from "../../parts/words";
import { positionOf } from "../flow/values";
import type { ViewProps } from "../view";

/** The numbers of one step, and where else it is shown. */
export function OneStep({ model, step, link }: { model: Model; step: number; link: ViewProps["link"] }) {
  const { steps } = model.doc;
  const i = positionOf(steps.index, step);
  if (i < 0) return null;
  const call = steps.call[i]!;
  const some = recordedSteps(model);
  const near = some && steps.recorded[i] !== 1 ? some[nearest(some, step)]! : null;
  const rows: [string, string][] = [
    ["loss", steps.known[i] ? worded(number(steps.loss[i]), lossSaid(steps, i, i)) : "not known"],
    ["gradient", steps.gradient[i]! < 0 ? "not known" : worded(norm(steps.gradient[i]), gradientSaid(steps, i, i))],
    ["weight", norm(steps.weight[i])],
    ["update", norm(steps.update[i])],
    ["update / weight", norm(steps.ratio[i])],
    ["time", seconds(steps.seconds[i]!)],
  ];
  const here = { step: String(steps.index[i]) };
  return (
    <section class="steps-one" aria-label={`Step ${steps.index[i]}`}>
      <strong>Step {steps.index[i]}</strong>
      <dl>
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
      <a href={link("flow", here)}>Gradient flow</a>
      {call >= 0 ? (
        <a href={link("graph", here)}>Graph</a>
      ) : near !== null ? (
        <span class="quiet">
          its nodes were not recorded; <a href={link("steps", { step: String(near) })}>step {near}</a> is the nearest
        </span>
      ) : (
        <span class="quiet">its graph is not in this page</span>
      )}
    </section>
  );
}

/** A number, and what it is. */
function worded(value: string, what: string): string {
  return what ? `${value} (${what})` : value;
}
