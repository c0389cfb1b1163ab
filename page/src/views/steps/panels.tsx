import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import { usePalette } from "../../charts/colour";
import { Lines, PngOf, type Series } from "../../charts/line";
import { Button, Choice, Legend, Panel } from "../../charts/panel";
import { saveCsv } from "../../parts/save";
import { number, seconds } from "../../parts/words";
import type { Metric } from "../flow/values";
import type { ViewProps } from "../view";
import { type ChartOf, canLog, csvTable, edge } from "./curves";

const METRIC_WORDS: readonly (readonly [Metric, string])[] = [
  ["gradient", "Gradient"],
  ["weight", "Weight"],
  ["update", "Update"],
  ["ratio", "Update / weight"],
];

/** What the charts of the view have in common. */
export type Shared = Omit<Parameters<typeof Lines>[0], "label" | "x" | "series" | "log" | "height" | "text">;

/** A chart of the whole run. */
export function Total({
  chart,
  x,
  shared,
  at,
  set,
}: {
  chart: ChartOf;
  x: Int32Array;
  shared: Shared;
  at: ViewProps["at"];
  set: ViewProps["set"];
}) {
  const box = useRef<HTMLDivElement>(null);
  const able = useMemo(() => chart.key === "loss" && canLog(chart.series), [chart]);
  const log = chart.log || (able && at.scale === "log");
  const text = chart.key === "seconds" ? duration : number;
  const ends = chart.series.map((s) => `${s.name} from ${edge(s, false, text)} to ${edge(s, true, text)}`).join("; ");
  const save = (): void => saveCsv(`${chart.key}.csv`, ...csvTable(x, chart.series));
  return (
    <div ref={box}>
      <Panel
        title={chart.title}
        note={chart.note}
        tools={
          <>
            {able && (
              <Choice
                label="Scale of the loss"
                options={[
                  ["", "Linear"],
                  ["log", "Log"],
                ]}
                value={log ? "log" : ""}
                onChange={(scale) => set({ scale })}
              />
            )}
            <Button label={`Save ${chart.title} as CSV`} onClick={save}>
              CSV
            </Button>
            <PngOf name={chart.key} within={box} />
          </>
        }
      >
        <Lines
          label={`${chart.title} over ${x.length} steps: ${ends}.`}
          x={x}
          series={chart.series}
          log={log}
          height={204}
          yName={chart.unit}
          text={text}
          most={chart.most}
          {...shared}
        />
        {chart.series.length > 1 && <SeriesLegend series={chart.series} />}
      </Panel>
    </div>
  );
}

export function SeriesLegend({ series }: { series: readonly Series[] }) {
  const colours = usePalette();
  return <Legend items={series.map((s) => ({ name: s.name, colour: s.colour(colours), dash: s.dash ?? [] }))} />;
}

/** The frame of what is shown by parameter. */
export function ParametersPanel({
  note,
  metric,
  x,
  series,
  onMetric,
  children,
}: {
  note: string;
  metric: Metric;
  /** Curves that were chosen. */
  x: Int32Array;
  series: readonly Series[];
  onMetric: (metric: string) => void;
  children: ComponentChildren;
}) {
  const box = useRef<HTMLDivElement>(null);
  return (
    <div ref={box} style={{ marginTop: "var(--gap)" }}>
      <Panel
        title="Norms by parameter"
        note={note}
        tools={
          <>
            <Choice label="What is shown" options={METRIC_WORDS} value={metric} onChange={onMetric} />
            {series.length > 0 && (
              <>
                <Button
                  label="Save the curves as CSV"
                  onClick={() => saveCsv(`${metric}-curves.csv`, ...csvTable(x, series))}
                >
                  CSV
                </Button>
                <PngOf name={`${metric}-curves`} within={box} text="PNG of curves" />
              </>
            )}
            <PngOf name={`${metric}-map`} within={box} text="PNG of map" last />
          </>
        }
      >
        {children}
      </Panel>
    </div>
  );
}

function duration(s: number): string {
  return s === 0 ? "0" : seconds(s);
}
