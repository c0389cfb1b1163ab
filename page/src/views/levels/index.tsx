import "../../charts/charts.css";
import "./levels.css";
import { useMemo, useRef } from "preact/hooks";
import { curveColour, DASHES, MOST_CURVES } from "../../charts/colour";
import { Lines, PngOf, type Series } from "../../charts/line";
import { Button, Panel } from "../../charts/panel";
import { RangeInputs } from "../../charts/range";
import type { Marker } from "../../charts/signs";
import { saveCsv } from "../../parts/save";
import { count } from "../../parts/words";
import { whole } from "../../route";
import { csvTable } from "../steps/curves";
import { SeriesLegend } from "../steps/panels";
import type { View, ViewProps } from "../view";
import { toAlarm } from "./alarms";
import { LevelMap } from "./map";
import { type AllLevels, chosen, columnAt, curveOf, edges, type Kind, kindOf, scaleOf, thinned } from "./picture";

/** Layers against steps, one quantity at a time. */
function LevelsPage({ model, at, set, link, step }: ViewProps) {
  const levels = model.doc.levels!;
  const kind = kindOf(levels, at.of);
  const { steps } = levels;
  const [first, last] = [steps[0] ?? 0, levels.last];
  const from = whole(at.from, last + 1, first);
  const to = whole(at.to, last + 1, last);
  const zoomed = from < to && (from > first || to < last);
  const range = useMemo((): [number, number] => {
    const sides = edges(steps);
    return zoomed ? [from, to] : [sides[0]!, Math.max(sides[sides.length - 1]!, last)];
  }, [steps, from, to, last, zoomed]);
  const picked = useMemo(() => chosen(levels, kind, at.layers, MOST_CURVES), [levels, kind, at.layers]);
  const log = useMemo(() => scaleOf(kind).log, [kind]);
  const series = useMemo(() => curves(levels, kind, picked, log), [levels, kind, picked, log]);
  const box = useRef<HTMLDivElement>(null);
  const markers = useMemo(
    (): Marker[] => [
      ...levels.alarms
        .filter((one) => one.quantity === kind.quantity)
        .map((one) => ({
          x: one.step,
          name: one.text,
          severity: "warning" as const,
          onPick: () => set({ ...toAlarm(one), step: String(one.step) }),
        })),
      { x: step, name: "the chosen step", severity: "info", sign: "▲", onPick: () => undefined },
    ],
    [levels, kind, step],
  );
  const keep = (layers: readonly number[]): string => layers.map((n) => kind.names[n]).join(",") || "none";
  const pick = (layer: number, to: number): void => {
    const now = picked.includes(layer) ? picked : [...picked, layer].slice(-MOST_CURVES);
    set({ layers: keep(now), step: String(to), call: "" });
  };
  const brush = (r: [number, number] | null): void => {
    const [a, b] = r ? [Math.max(first, Math.floor(r[0])), Math.min(last, Math.ceil(r[1]))] : ["", ""];
    if (r === null || b > a) set({ from: String(a), to: String(b) }, true);
  };
  return (
    <div class="levels">
      <div class="chart-bar">
        <label>
          Quantity{" "}
          <select
            value={kind.quantity}
            onChange={(e) => set({ of: e.currentTarget.value, layers: "" })}
            aria-label="Quantity"
          >
            {levels.kinds.map((one) => (
              <option key={one.quantity} value={one.quantity}>
                {one.title} ({one.names.length.toLocaleString("en-US")})
              </option>
            ))}
          </select>
        </label>
        <span>Steps</span>
        <RangeInputs bounds={[first, last]} range={zoomed ? [from, to] : [first, last]} set={set} />
        <Button disabled={!zoomed} onClick={() => brush(null)}>
          All steps
        </Button>
      </div>
      {levels.alarms.length > 0 && (
        <ul class="levels-alarms" aria-label="Alarms">
          {levels.alarms.map((one) => (
            <li key={`${one.kind} ${one.step} ${one.name}`}>
              <span aria-hidden="true">⚑</span>{" "}
              <a href={link("levels", { ...toAlarm(one), step: String(one.step) })}>
                {one.kind}: {one.text}
              </a>
            </li>
          ))}
        </ul>
      )}
      <div ref={box}>
        <Panel
          title={kind.title.charAt(0).toUpperCase() + kind.title.slice(1)}
          note={[
            `Measured in ${count(levels.looks, "step")}, up to step ${last.toLocaleString("en-US")}.`,
            thinned(levels, kind),
            bounds(kind, picked),
          ]
            .filter(Boolean)
            .join(" ")}
          tools={
            series.length > 0 && (
              <>
                <Button
                  label="Save the curves as CSV"
                  onClick={() => saveCsv(`${kind.quantity}.csv`, ...csvTable(steps, series))}
                >
                  CSV
                </Button>
                <PngOf name={`${kind.quantity}-curves`} within={box} text="PNG of curves" />
                <PngOf name={`${kind.quantity}-map`} within={box} text="PNG of map" last />
              </>
            )
          }
        >
          <div class="levels-chips">
            {picked.map((n) => (
              <Button
                key={n}
                label={`Take ${name(kind, n)} away`}
                onClick={() => set({ layers: keep(picked.filter((m) => m !== n)) })}
              >
                <span class="chart-mono">{name(kind, n)}</span> ✕
              </Button>
            ))}
          </div>
          {series.length > 0 ? (
            <>
              <Lines
                label={`${kind.title} of ${picked.map((n) => name(kind, n)).join(", ")} over ${count(steps.length, "point")}.`}
                x={steps}
                series={series}
                log={log}
                height={244}
                yName={log ? `${kind.title}, logarithmic` : kind.title}
                range={range}
                onRange={brush}
                onStep={(n) => set({ step: String(n), call: "" })}
                markers={markers}
              />
              {series.length > 1 && <SeriesLegend series={series} />}
            </>
          ) : (
            <p class="quiet chart-note">Each row is a layer, in forward order. A click on a row shows its curve.</p>
          )}
          <LevelMap levels={levels} kind={kind} range={range} step={step} picked={picked} onPick={pick} />
        </Panel>
      </div>
    </div>
  );
}

const name = (kind: Kind, n: number): string => kind.names[n] || "(model)";

/** A curve for each layer that was picked, and its bound below it, in the same colour. */
function curves(levels: AllLevels, kind: Kind, picked: readonly number[], log: boolean): Series[] {
  const lines = picked.map(
    (n, i): Series => ({
      name: name(kind, n),
      curve: curveOf(kind, n, log),
      colour: (p) => curveColour(i, p.dark),
      dash: DASHES[i % DASHES.length] ?? [],
    }),
  );
  const drawn = new Set<number>();
  const limits = picked.flatMap((n): Series[] => {
    const bound = kind.bound[n] ?? -Infinity;
    if (bound === -Infinity || drawn.has(bound)) return [];
    drawn.add(bound);
    const curve = { values: Array.from(levels.steps, () => bound), stretches: [] };
    return [
      { name: drawn.size > 1 ? `bound of ${name(kind, n)}` : "bound", curve, colour: (p) => p.warn, dash: [2, 4] },
    ];
  });
  return [...lines, ...limits];
}

/** What the dotted line is. */
function bounds(kind: Kind, picked: readonly number[]): string {
  if (!picked.some((n) => (kind.bound[n] ?? -Infinity) !== -Infinity)) return "";
  const side = kind.least ? "below" : "above";
  if (kind.middle) return `An alarm comes where the layer in the middle stays ${side} the dotted bound.`;
  return `An alarm comes where a layer stays ${side} the dotted bound.`;
}

export const levelsView: View = {
  name: "levels",
  title: "Levels",
  empty: ({ doc }) =>
    doc.levels === null || doc.levels.kinds.length === 0
      ? "Nothing was measured layer by layer. backprobe run --layer-stats 10 script.py measures weights, gradients, updates, activations and attention in every tenth step; in Python: backprobe.trace(model, layer_stats=10)."
      : null,
  component: LevelsPage,
  steps: ({ doc }) => doc.levels!.steps,
  of: "statistics",
  shows: ({ doc }, _at, step) => {
    const { steps, width } = doc.levels!;
    const found = steps[columnAt(steps, step)];
    return found === undefined || width > 1 ? [] : [{ what: "levels", step: found }];
  },
};
