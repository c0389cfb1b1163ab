import { useMemo, useRef } from "preact/hooks";
import { Lines, PngOf, type Series } from "../../charts/line";
import { plainCurve } from "../../charts/marks";
import { Legend, Panel } from "../../charts/panel";
import type { Marker } from "../../charts/signs";
import { byteTicks } from "../../charts/ticks";
import { bytes } from "../../parts/words";
import type { ViewProps } from "../view";
import { alive, grown, HOLDING, recorded } from "./grown";

/** What the run's memory did over its steps, and who holds it where a finding says so. */
export function Story({ model, step, set, link }: ViewProps) {
  const { steps, findings } = model.doc;
  const box = useRef<HTMLDivElement>(null);
  const charts = useMemo(() => {
    const curve = (values: ArrayLike<number>) => plainCurve(values, (i) => values[i]! >= 0);
    const held: Series[] = [
      { name: "process", curve: curve(steps.resident), colour: (p) => p.forward },
      { name: "CUDA tensors", curve: curve(steps.allocated), colour: (p) => p.backward, dash: [6, 3] },
    ];
    const graphs: Series[] = [{ name: "graphs alive", curve: plainCurve(steps.graphs), colour: (p) => p.update }];
    return { held: held.filter((s) => s.curve.values.some((v) => v !== null)), graphs };
  }, [steps]);
  const marker = useMemo(
    (): Marker[] => [{ x: step, name: "the selected step", severity: "info", sign: "▲", onPick: () => undefined }],
    [step],
  );
  if (!recorded(model.doc)) return null;
  const said = [
    grown("Process", steps, steps.resident),
    grown("CUDA tensors", steps, steps.allocated),
    alive(steps),
  ].filter(Boolean);
  const holders = findings.flatMap((finding, i) =>
    HOLDING.slice(0, 2).includes(finding.kind) ? [{ finding, i }] : [],
  );
  const shared = {
    x: steps.index,
    range: null,
    log: false,
    markers: marker,
    sync: "memory",
    onStep: (n: number) => set({ step: String(n), call: "" }),
  };
  return (
    <div ref={box}>
      <Panel
        title="Memory over the steps"
        note="What the process held in main memory, and its tensors on CUDA devices, when each step was over. A click selects a step."
        tools={<PngOf name="memory-over-steps" within={box} />}
      >
        {holders.map(({ finding, i }) => {
          const site = finding.sites[0] && model.doc.sites[finding.sites[0].site];
          return (
            <p key={i} class="memory-holder">
              <b aria-hidden="true">▲ </b>
              <a href={link("findings", { finding: String(i) })}>{finding.title}</a>
              {site && (
                <>
                  {" "}
                  at{" "}
                  <a class="mono" href={link("source", { file: site.file, line: String(site.line) })}>
                    {site.file}:{site.line}
                  </a>
                </>
              )}
            </p>
          );
        })}
        {said.map((sentence) => (
          <p key={sentence} class="memory-said">
            {sentence}
          </p>
        ))}
        <Lines
          label={`Bytes over ${steps.index.length} steps. ${said.join(" ")}`}
          series={charts.held}
          height={210}
          text={(v) => bytes(Math.max(0, v))}
          ticks={byteTicks}
          yName="held"
          {...shared}
        />
        {charts.held.length > 1 && (
          <Legend
            items={[
              { name: "process", colour: "var(--forward)" },
              { name: "CUDA tensors", colour: "var(--backward)", dash: [6, 3] },
            ]}
          />
        )}
        {alive(steps) && (
          <Lines label={alive(steps)} series={charts.graphs} height={130} yName="graphs alive" {...shared} />
        )}
      </Panel>
    </div>
  );
}
