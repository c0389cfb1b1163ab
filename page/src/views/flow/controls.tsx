import { Choice } from "../../charts/panel";
import { RangeInputs } from "../../charts/range";
import type { ViewProps } from "../view";
import type { By } from "./chart";
import type { Metric } from "./values";

export const SHOWN: readonly (readonly [string, string])[] = [
  ["gradient", "Gradient"],
  ["weight", "Weight"],
  ["update", "Update"],
  ["norms", "All three"],
  ["ratio", "Update / weight"],
]; // prettier-ignore
const BOUNDARIES: readonly (readonly [string, string])[] = [
  ["both", "Both"],
  ["forward", "Forward"],
  ["backward", "Backward"],
];

/** The metrics of a choice. */
export function metricsOf(show: string): Metric[] {
  return show === "norms" ? ["gradient", "weight", "update"] : [show as Metric];
}

interface Props {
  by: By;
  show: string;
  /** Numbers of the steps that can be chosen, in order. */
  steps: ArrayLike<number>;
  band: readonly [number, number] | null;
  set: ViewProps["set"];
}

/** What the chart shows, of the selected step or over several. */
export function Controls({ by, show, steps, band, set }: Props) {
  const many = steps.length > 1;
  return (
    <div class="chart-bar">
      <Choice
        label="Along the axis"
        options={[
          ["parameters", "Parameters"],
          ["modules", "Modules"],
        ]}
        value={by}
        onChange={(v) => set({ by: v === "parameters" ? "" : v, show: "", items: "" })}
      />
      <Choice
        label="What is shown"
        options={by === "parameters" ? SHOWN : BOUNDARIES}
        value={show}
        onChange={(v) => set({ show: v })}
      />
      {by === "parameters" && many && (
        <Choice
          label="Steps"
          options={[
            ["one", "One step"],
            ["band", "Over steps"],
          ]}
          value={band ? "band" : "one"}
          onChange={(v) =>
            set(v === "band" ? { from: String(steps[0]), to: String(steps[steps.length - 1]) } : { from: "", to: "" })
          }
        />
      )}
      {band && <RangeInputs bounds={[steps[0]!, steps[steps.length - 1]!]} range={band} set={set} />}
    </div>
  );
}
