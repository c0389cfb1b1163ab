import type { Model } from "../data/model";
import type { ViewProps } from "../views/view";
import { number, seconds } from "./words";

/** Which of several backward calls of one step is shown. */
export function CallChoice({ model, shown, set }: { model: Model; shown: number; set: ViewProps["set"] }) {
  const { calls } = model.doc;
  const step = calls[shown]?.step;
  const same = calls.flatMap((call, i) => (call.step === step ? [i] : []));
  if (same.length < 2) return null;
  return (
    <label>
      <span>Backward call</span>
      <select
        value={shown}
        onChange={(e) => set({ step: String(step), call: e.currentTarget.value, node: "", group: "", range: "" })}
      >
        {same.map((i) => (
          <option key={i} value={i}>
            {callName(calls[i]!)}
          </option>
        ))}
      </select>
    </label>
  );
}

function callName({ index, kind, roots, raised, seconds: took }: Model["doc"]["calls"][number]): string {
  const value = roots[0]?.value;
  const loss = value === null || value === undefined ? "" : `, loss ${number(value)}`;
  return `${index}${kind.endsWith("backward") ? "" : ` ${kind}`}${loss}${raised ? ", raised" : `, ${seconds(took)}`}`;
}
