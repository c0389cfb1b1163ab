import { useMemo } from "preact/hooks";
import { Panel } from "../charts/panel";
import { whole } from "../route";
import { Bars, Key } from "./bars";
import type { Pair } from "./pair";
import type { Props } from "./view";

/** Steps of both to choose from; `at.step` is a place among them. */
export function StepChoice({ pair, at, set }: Pick<Props, "pair" | "at" | "set">) {
  const { steps } = pair.doc;
  if (steps.length < 2) return null;
  return (
    <label class="compare-step">
      Step{" "}
      <select value={String(chosen(pair, at))} onChange={(e) => set({ step: e.currentTarget.value })}>
        {steps.map((one, i) => (
          <option key={i} value={String(i)}>
            {one.a === one.b ? one.a : `${one.a} and ${one.b}`}
          </option>
        ))}
      </select>
    </label>
  );
}

export function chosen(pair: Pair, at: Props["at"]): number {
  return whole(at.step, Math.max(1, pair.doc.steps.length), 0);
}

/** The step as A numbers it. */
export function stepOf(pair: Pair, at: Props["at"]): number {
  return pair.doc.steps[chosen(pair, at)]?.a ?? 0;
}

export function Flow(props: Props) {
  const { pair, at, set } = props;
  const step = stepOf(pair, at);
  const lines = useMemo(() => pair.flow(step), [pair, step]);
  return (
    <Panel
      title="How far apart, by module"
      note="The last result of each module in the forward, and the last gradient in its backward; relative, on a logarithmic axis. Click a bar to see the operation."
      tools={<StepChoice {...props} />}
    >
      <Key pair={pair} lines={lines} />
      <Bars
        pair={pair}
        lines={lines}
        heads={["Forward", "Backward"]}
        what="modules"
        onPick={(row) => set({ view: "ops", row: String(row) }, true)}
      />
    </Panel>
  );
}
