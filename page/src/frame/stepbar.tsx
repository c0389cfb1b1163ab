import { useMemo } from "preact/hooks";
import { elsewhere, nearest, recordedSteps, toStep } from "../data/step";
import type { View, ViewProps } from "../views/view";

/** The selected step, which all views share: where it is set, and what of the view in sight is of another one. */
export function StepBar({ view, ...props }: ViewProps & { view: View }) {
  const { model, at, set, step, link } = props;
  const { index } = model.doc.steps;
  const go = (to: number): void => set({ ...toStep(model, at, to), ...view.leave });
  const steps = view.steps!(model, at);
  const some = useMemo(() => recordedSteps(model), [model]);
  const first = Math.min(index[0] ?? step, steps[0] ?? step);
  const last = Math.max(index.at(-1) ?? step, steps[steps.length - 1] ?? step);
  if (first === last || steps.length === 0) return null;
  const place = nearest(steps, step);
  const found = model.doc.findings.flatMap((one, i) => (one.step === step ? [i] : []));
  const move = (by: number): void => {
    // From a step that the view has nothing of, the next one that it has on that side.
    const beside = Math.sign(steps[place]! - step) === by ? place : place + by;
    go(steps[Math.min(Math.max(beside, 0), steps.length - 1)]!);
  };
  return (
    <div class="frame-step" role="group" aria-label="Selected step">
      <label>
        Step
        <input
          class="number"
          type="number"
          min={first}
          max={last}
          value={step}
          onChange={(e) => e.currentTarget.value !== "" && go(Math.max(0, Math.round(Number(e.currentTarget.value))))}
        />
      </label>
      <button type="button" disabled={step <= steps[0]!} onClick={() => move(-1)} aria-label="Step before">
        ‹
      </button>
      <span class="frame-slide">
        <input
          type="range"
          min={0}
          max={steps.length - 1}
          value={place}
          disabled={steps.length < 2}
          aria-label="Step"
          aria-valuetext={`step ${steps[place]}`}
          onInput={(e) => go(steps[Number(e.currentTarget.value)]!)}
        />
        {some && <Marks of={some} among={steps} />}
      </span>
      <button type="button" disabled={step >= steps[steps.length - 1]!} onClick={() => move(1)} aria-label="Step after">
        ›
      </button>
      <span class="quiet">
        {first.toLocaleString("en-US")} to {last.toLocaleString("en-US")}
        {view.of && steps.length < index.length ? `; ${steps.length.toLocaleString("en-US")} with ${view.of}` : ""}
      </span>
      {some && <Recorded some={some} step={step} go={go} />}
      {found.map((i) => (
        <a key={i} href={link("findings", { finding: String(i), step: String(step) })}>
          <span aria-hidden="true">⚑</span> finding {i + 1}
        </a>
      ))}
      {elsewhere(view.shows!(model, at, step), step).map((one) => (
        <span key={one} class="frame-elsewhere">
          {one.charAt(0).toUpperCase() + one.slice(1)}
        </span>
      ))}
    </div>
  );
}

/** Below the slider, where the recorded steps are. */
function Marks({ of, among }: { of: Int32Array; among: ArrayLike<number> }) {
  const last = Math.max(1, among.length - 1);
  const there = new Set(of);
  const places = Array.from(among).flatMap((step, i) => (there.has(step) ? [i] : []));
  return (
    <svg class="frame-marks" viewBox={`0 0 ${last} 1`} preserveAspectRatio="none" aria-hidden="true">
      <path d={places.map((i) => `M${i} 0v1`).join("")} vector-effect="non-scaling-stroke" />
    </svg>
  );
}

/** Of how many steps the nodes were recorded, and the way to the ones beside the selected step. */
function Recorded({ some, step, go }: { some: Int32Array; step: number; go: (to: number) => void }) {
  const before = some.findLast((one) => one < step);
  const after = some.find((one) => one > step);
  return (
    <span class="frame-recorded quiet" role="group" aria-label="Recorded steps">
      nodes of {some.length.toLocaleString("en-US")} recorded
      <button
        type="button"
        disabled={before === undefined}
        onClick={() => go(before!)}
        aria-label="Recorded step before"
      >
        ‹
      </button>
      <button type="button" disabled={after === undefined} onClick={() => go(after!)} aria-label="Recorded step after">
        ›
      </button>
    </span>
  );
}
