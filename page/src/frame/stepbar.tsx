import { elsewhere, nearest, toStep } from "../data/step";
import type { View, ViewProps } from "../views/view";

/** The selected step, which all views share: where it is set, and what of the view in sight is of another one. */
export function StepBar({ view, ...props }: ViewProps & { view: View }) {
  const { model, at, set, step, link } = props;
  const { index } = model.doc.steps;
  const go = (to: number): void => set({ ...toStep(model, at, to), ...view.leave });
  const steps = view.steps!(model, at);
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
      <button type="button" disabled={step >= steps[steps.length - 1]!} onClick={() => move(1)} aria-label="Step after">
        ›
      </button>
      <span class="quiet">
        {first.toLocaleString("en-US")} to {last.toLocaleString("en-US")}
        {view.of && steps.length < index.length ? `; ${steps.length.toLocaleString("en-US")} with ${view.of}` : ""}
      </span>
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
