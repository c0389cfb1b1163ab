import "../../charts/charts.css";
import "./flow.css";
import { useMemo, useRef } from "preact/hooks";
import { Button, Legend, Panel } from "../../charts/panel";
import { pair, paired, useSlow } from "../../charts/slow";
import { clamped, zoomed } from "../../charts/zoom";
import { gradientSaid, shapeSaid } from "../../data/said";
import { savePng, saveSvg } from "../../parts/save";
import { count } from "../../parts/words";
import { whole } from "../../route";
import type { View, ViewProps } from "../view";
import { type By, bucketsOf, flowShown, moduleChart, parameterChart, places, said } from "./chart";
import { Controls, metricsOf, SHOWN } from "./controls";
import { ParameterCurve } from "./curve";
import { brackets, CLOSEST } from "./items";
import { LEDGER } from "./ledger";
import { ParameterLedger } from "./ledger-panel";
import { FlowPlot } from "./plot";
import { ModuleTable, ParameterTable } from "./table";
import { METRICS, measuredStep } from "./values";

const GUIDE = {
  value: 1e-3,
  text: "A rule of thumb: updates of about a thousandth of the weight's norm are usual. Far more is often unstable, far less learns slowly. Biases and norms may differ.",
};

function Flow({ model, at, set, link, step }: ViewProps) {
  const { doc } = model;
  const by: By = at.by === "modules" ? "modules" : "parameters";
  const show =
    by === "modules"
      ? ["forward", "backward"].includes(at.show ?? "")
        ? at.show!
        : "both"
      : SHOWN.some(([k]) => k === at.show)
        ? at.show!
        : "gradient";
  const from = whole(at.from, Infinity, -1);
  const to = whole(at.to, Infinity, -1);
  const band = by === "parameters" && from >= 0 && to >= from ? ([from, to] as const) : null;
  const buckets = useMemo(() => bucketsOf(model, step, band), [model, step, band?.[0], band?.[1]]);
  const chart = useMemo(
    () => (by === "modules" ? moduleChart(model, show, step, at) : parameterChart(model, metricsOf(show), buckets)),
    [model, by, show, step, at.call, buckets],
  );
  const rows = useMemo(() => brackets(chart.items, 3), [model, by]);
  const [windowText, slide] = useSlow(at.items ?? "", (items) => set({ items }));
  const total = chart.items.length;
  const chosen = pair(windowText);
  const window = clamped(chosen ?? [0, total], total, CLOSEST);
  const move = ([a, b]: readonly [number, number]): void =>
    slide(b - a >= total - 0.01 ? "" : paired(clamped([a, b], total, CLOSEST)));
  const parameter = whole(at.parameter, doc.parameters.length, -1);
  const module = whole(at.module, doc.modules.length, -1);
  const picked = by === "modules" ? chart.items.findIndex((i) => i.index === module) : parameter;
  const pick = (index: number): void =>
    set(
      by === "modules"
        ? { module: index === module ? "" : String(index) }
        : { parameter: index === parameter ? "" : String(index), section: "" },
      true,
    );
  const svg = useRef<SVGSVGElement>(null);
  const zoom = (factor: number): void => {
    const [a, b] = window;
    const centre = picked >= a && picked < b ? picked + 0.5 : (a + b) / 2;
    move(zoomed(window, factor, centre, total, CLOSEST));
  };
  const measured = chart.series.some((s) => s.band.high.some((v) => !(v < 0)));
  const when =
    by === "modules"
      ? ""
      : band
        ? `steps ${band[0]} to ${band[1]}`
        : `step ${show === "norms" ? step : measured ? measuredStep(doc, metricsOf(show)[0]!, step) : step}`;
  const what =
    by === "modules"
      ? "Modules"
      : show === "ratio"
        ? "Update by weight"
        : show === "norms"
          ? "Norms of gradient, weight and update"
          : `Norm of the ${show}`;
  const metrics = metricsOf(show);
  const gradients =
    by === "parameters" && measured && metrics.includes("gradient")
      ? gradientSaid(doc.steps, ...places(model, step, band))
      : "";
  const source = gradients && `The gradient is ${gradients}.`;
  const title = `${what}, ${by === "modules" ? "outputs and their gradients" : "by parameter"}${when ? `, ${when}` : ""}`;
  const two = by === "parameters" && parameter >= 0 && doc.steps.index.length > 1;
  const about = (i: number): [string, string][] => {
    const p = by === "parameters" ? doc.parameters[i]! : null;
    return [
      ...chart.series.map((s): [string, string] => [
        s.wide ? `${s.name}: least · middle · greatest` : s.name,
        said(s, i),
      ]),
      ...(p
        ? ([
            ["shape", shapeSaid(p.shape)],
            ["reached by", count(p.reached, "backward")],
          ] as [string, string][])
        : ([["class", doc.modules[chart.items[i]!.index]!.class]] as [string, string][])),
      ...(chart.states[i] ? ([["note", chart.states[i]]] as [string, string][]) : []),
    ];
  };
  return (
    <div class="flow">
      <Controls by={by} show={show} steps={doc.steps.index} band={band} set={set} />
      <div class={two ? "flow-columns flow-two" : "flow-columns"}>
        <Panel
          title={title}
          note={[source, chart.note].filter(Boolean).join(" ")}
          tools={
            <>
              <Button label="Zoom in" onClick={() => zoom(0.5)}>
                +
              </Button>
              <Button label="Zoom out" onClick={() => zoom(2)} disabled={!chosen}>
                −
              </Button>
              <Button onClick={() => slide("")} disabled={!chosen}>
                All
              </Button>
              <Button
                label="Save the picture as SVG"
                onClick={() => svg.current && saveSvg("gradient-flow.svg", svg.current)}
              >
                SVG
              </Button>
              <Button
                label="Save the picture as PNG"
                onClick={() => svg.current && void savePng("gradient-flow.png", svg.current)}
              >
                PNG
              </Button>
            </>
          }
        >
          {chart.summary.map((sentence) => (
            <p class="flow-summary" key={sentence}>
              <b aria-hidden="true">▲ </b>
              {sentence}
            </p>
          ))}
          {measured ? (
            <FlowPlot
              items={chart.items}
              brackets={rows}
              series={chart.series}
              states={chart.states}
              about={about}
              label={`${title}: ${count(total, by === "modules" ? "module" : "parameter")} in forward order. ${chart.summary.join(" ")}`}
              unit={show === "ratio" ? "norm of update / norm of weight" : "norm, logarithmic"}
              guide={show === "ratio" ? GUIDE : null}
              window={window}
              onWindow={move}
              picked={picked}
              onPick={(i) => pick(chart.items[i]!.index)}
              svg={svg}
            />
          ) : (
            <p class="chart-empty">
              {by === "modules"
                ? "No norms of modules were measured in the recorded steps."
                : `No norm of this kind was measured in ${band ? when : "any step"}: norms are taken in some steps only, where a step of the optimizer ends it.`}
            </p>
          )}
          {measured && chart.series.length > 1 && (
            <Legend
              items={chart.series.map((s) => ({
                name: s.name,
                colour: s.colour,
                dash: s.dash ? s.dash.split(" ").map(Number) : [],
              }))}
            />
          )}
        </Panel>
        {two && (
          <ParameterCurve
            model={model}
            parameter={parameter}
            onStep={(n) => set({ step: String(n), call: "", from: "", to: "" })}
            onClose={() => set({ parameter: "", section: "" })}
            link={link("steps", { parameters: String(parameter) })}
          />
        )}
      </div>
      {by === "parameters" && parameter >= 0 && (
        <ParameterLedger model={model} parameter={parameter} arrive={at.section === LEDGER} link={link} />
      )}
      <Panel title={by === "modules" ? "Modules" : `Parameters, ${band ? when : `step ${tableStep(doc, step)}`}`}>
        {by === "modules" ? (
          <ModuleTable model={model} items={chart.items} series={chart.series} picked={module} onPick={pick} />
        ) : (
          <ParameterTable model={model} buckets={buckets} picked={parameter} onPick={pick} />
        )}
      </Panel>
    </div>
  );
}

/** The step that the numbers of the table are of; the selected one where they are of several. */
function tableStep(doc: ViewProps["model"]["doc"], step: number): number {
  const of = new Set(METRICS.map((metric) => measuredStep(doc, metric, step)).filter((one) => one >= 0));
  return of.size === 1 ? [...of][0]! : step;
}

export const flowView: View = {
  name: "flow",
  title: "Gradient flow",
  empty: ({ doc }) =>
    doc.parameters.length === 0 && doc.forward.length === 0 && doc.calls.length === 0
      ? "Nothing was recorded of parameters or modules. `backprobe run script.py` records both."
      : null,
  component: Flow,
  steps: ({ doc }, at) =>
    at.by !== "modules"
      ? doc.steps.index
      : Int32Array.from(new Set([...doc.calls, ...doc.forward].map((one) => one.step))).sort(),
  of: "norms of modules",
  shows: flowShown,
  leave: { from: "", to: "" },
};
