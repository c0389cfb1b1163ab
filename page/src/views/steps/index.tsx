import "../../charts/charts.css";
import "./steps.css";
import { useMemo } from "preact/hooks";
import { MOST_CURVES } from "../../charts/colour";
import { Lines } from "../../charts/line";
import { Button } from "../../charts/panel";
import { RangeInputs } from "../../charts/range";
import type { Marker } from "../../charts/signs";
import { whole } from "../../route";
import { METRICS } from "../flow/values";
import type { View, ViewProps } from "../view";
import { chosen, thinning, totals } from "./curves";
import { around, events } from "./events";
import { useExact } from "./exact";
import { Heatmap } from "./heatmap";
import { flags, selectedMarker } from "./markers";
import { OneStep } from "./one";
import { ParametersPanel, SeriesLegend, Total } from "./panels";
import { Picker } from "./picker";

function Steps({ model, at, set, link, step }: ViewProps) {
  const { doc } = model;
  const { index } = doc.steps;
  const [first, last] = [index[0] ?? 0, index[index.length - 1] ?? 0];
  const from = whole(at.from, last + 1, first);
  const to = whole(at.to, last + 1, last);
  const zoomed = from > first || to < last;
  const range = useMemo((): [number, number] => (from < to ? [from, to] : [first, last]), [from, to, first, last]);
  const charts = useMemo(() => totals(doc), [doc]);
  const found = useMemo(() => events(doc), [doc]);
  const markers = useMemo(
    (): Marker[] =>
      flags(doc, (finding, n) => (location.hash = link("findings", { finding: String(finding), step: String(n) }))),
    [doc, link],
  );
  const shown = useMemo(
    (): Marker[] => (step >= first && step <= last ? [...markers, selectedMarker(step)] : markers),
    [markers, step, first, last],
  );
  const metric = METRICS.find((m) => m === at.show) ?? "gradient";
  const picked = useMemo(
    () =>
      (at.parameters ?? "")
        .split(",")
        .filter((p) => whole(p, doc.parameters.length, -1) >= 0)
        .map(Number)
        .slice(0, MOST_CURVES),
    [at.parameters, doc],
  );
  const near = useExact(model, range, zoomed);
  const series = useMemo(() => chosen(near.doc, metric, picked), [near, metric, picked]);
  const starts = useMemo(() => Int32Array.from(near.doc.steps.series.start, (s) => near.doc.steps.index[s]!), [near]);
  const pick = (p: number): void =>
    set({
      parameters: (picked.includes(p) ? picked.filter((q) => q !== p) : [...picked, p].slice(-MOST_CURVES)).join(","),
    });
  const brush = (r: [number, number] | null): void => {
    const [a, b] = r ? [Math.max(first, Math.floor(r[0])), Math.min(last, Math.ceil(r[1]))] : ["", ""];
    if (r === null || b > a) set({ from: String(a), to: String(b) }, true);
  };
  const jump = (n: number): void => {
    const [a, b] = around(n, first, last);
    set({ step: String(n), call: "", ...(last - first > 60 ? { from: String(a), to: String(b) } : {}) }, true);
  };
  const shared = {
    range: range as readonly [number, number],
    onRange: brush,
    onStep: (n: number) => set({ step: String(n), call: "" }),
    markers: shown,
    sync: "steps",
  };
  const measured = useMemo(
    () => METRICS.filter((m) => (m === "ratio" ? doc.steps.ratio : doc.steps[m]).some((v) => !(v < 0))),
    [doc],
  );
  return (
    <div class="steps">
      <div class="chart-bar">
        <span>Steps</span>
        <RangeInputs bounds={[first, last]} range={range} set={set} />
        <Button disabled={!zoomed} onClick={() => brush(null)}>
          All steps
        </Button>
        <a href={link("flow", { from: String(range[0]), to: String(range[1]) })}>Gradient flow over these</a>
        {found.length > 0 && (
          <span class="steps-jump" role="group" aria-label="Jump to">
            Jump to
            {found.map((e) => (
              <Button key={e.kind} onClick={() => jump(e.step)}>
                {e.title}: step {e.step}
              </Button>
            ))}
          </span>
        )}
      </div>
      {markers.length > 0 && (
        <p class="steps-findings">
          {doc.findings.map((f, i) =>
            f.step === null ? null : (
              <a key={i} href={link("findings", { finding: String(i), step: String(f.step) })}>
                <span aria-hidden="true">⚑</span> step {f.step}: {f.title}
              </a>
            ),
          )}
        </p>
      )}
      <OneStep model={model} step={step} link={link} />
      <div class="steps-grid">
        {charts.map((chart) => (
          <Total key={chart.key} chart={chart} x={index} shared={shared} at={at} set={set} />
        ))}
      </div>
      {doc.parameters.length > 0 && measured.length > 0 && (
        <ParametersPanel
          note={thinning(near.doc)}
          metric={metric}
          x={starts}
          series={series}
          onMetric={(show) => set({ show: show === "gradient" ? "" : show })}
        >
          <Picker model={model} picked={picked} onPick={pick} />
          {series.length > 0 ? (
            <>
              <Lines
                label={`${metric} of ${series.map((s) => s.name).join(", ")} over the steps ${range[0]} to ${range[1]}.`}
                x={starts}
                series={series}
                log
                height={244}
                yName={metric === "ratio" ? "update / weight" : `norm of the ${metric}`}
                {...shared}
              />
              <SeriesLegend series={series} />
            </>
          ) : (
            <p class="quiet chart-note">Each row is a parameter, in forward order. Click a row for its curve.</p>
          )}
          <Heatmap model={near} metric={metric} range={range} step={step} picked={picked} onPick={pick} />
        </ParametersPanel>
      )}
    </div>
  );
}

export const stepsView: View = {
  name: "steps",
  title: "Steps",
  empty: ({ doc }) =>
    doc.steps.index.length === 0
      ? "No step was recorded. A step ends where the optimizer's step() ran, or where the next backward begins."
      : null,
  component: Steps,
  steps: ({ doc }) => doc.steps.index,
  shows: () => [],
};
