import type { ViewProps } from "../views/view";
import { useSlow } from "./slow";

interface Props {
  /** First and last step that there is. */
  bounds: readonly [number, number];
  range: readonly [number, number];
  set: ViewProps["set"];
}

/** A range of steps by its numbers, `from` and `to` in the address. */
export function RangeInputs({ bounds: [low, high], range, set }: Props) {
  const [from, slowFrom] = useSlow(String(range[0]), (v) => set({ from: v }), 500);
  const [to, slowTo] = useSlow(String(range[1]), (v) => set({ to: v }), 500);
  return (
    <>
      <label>
        from
        <input
          class="chart-number"
          type="number"
          min={low}
          max={high}
          value={from}
          onInput={(e) => slowFrom(e.currentTarget.value)}
        />
      </label>
      <label>
        to
        <input
          class="chart-number"
          type="number"
          min={low}
          max={high}
          value={to}
          onInput={(e) => slowTo(e.currentTarget.value)}
        />
      </label>
    </>
  );
}
