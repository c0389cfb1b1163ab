import { useMemo } from "preact/hooks";
import { Lines, type Series } from "../../charts/line";
import { normCurve } from "../../charts/marks";
import { Button, Legend, Panel } from "../../charts/panel";
import type { Model } from "../../data/model";
import { shapeSaid } from "../../data/said";
import { beginnings, condition, parameterCurve } from "./values";

const KINDS = [
  ["gradient", "backward", []],
  ["weight", "forward", [6, 3]],
  ["update", "update", [2, 3]],
] as const;

/** One parameter over the steps. */
export function ParameterCurve({
  model,
  parameter,
  onStep,
  onClose,
  link,
}: {
  model: Model;
  parameter: number;
  onStep: (step: number) => void;
  onClose: () => void;
  link: string;
}) {
  const { doc } = model;
  const found = doc.parameters[parameter]!;
  const { x, series } = useMemo(() => {
    const start = doc.steps.series.start;
    const made = KINDS.map(([metric, colour, dash]): Series => {
      const { low, high } = parameterCurve(doc, metric, parameter);
      return {
        name: metric,
        curve: normCurve(high),
        dash,
        colour: (p) => p[colour],
        ...(doc.steps.series.exact ? {} : { low: normCurve(low) }),
      };
    });
    return { x: Int32Array.from(start, (s) => doc.steps.index[s]!), series: made };
  }, [doc, parameter]);
  const { nonfinite, zero } = useMemo(() => beginnings(doc, parameter), [doc, parameter]);
  const words = [
    shapeSaid(found.shape),
    condition(found, series[0]!.curve.values.some((v) => v !== null) || nonfinite >= 0 || zero >= 0),
    nonfinite >= 0 ? `gradient not finite since step ${nonfinite}` : "",
    zero >= 0 ? `gradient exactly zero first in step ${zero}` : "",
  ].filter(Boolean);
  return (
    <Panel
      title="Over the steps"
      tools={
        <Button label="Close the curve" onClick={onClose}>
          ✕
        </Button>
      }
      note={
        <>
          <span class="chart-mono">{found.name}</span>: {words.join(", ")}
        </>
      }
    >
      <Lines
        label={`Norms of ${found.name} over ${x.length} points. ${words.join(", ")}.`}
        x={x}
        series={series}
        log
        height={254}
        yName="2-norm, logarithmic"
        range={null}
        onStep={onStep}
      />
      <Legend items={KINDS.map(([name, colour, dash]) => ({ name, colour: `var(--${colour})`, dash }))} />
      <p class="chart-note quiet">
        A click shows that step. <a href={link}>All steps</a>
      </p>
    </Panel>
  );
}
