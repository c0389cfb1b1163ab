import "./graph.css";
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { callAt, callSteps, graphShown } from "../../data/step";
import { CallChoice } from "../../parts/calls";
import { saveCsv, savePng, saveSvg } from "../../parts/save";
import type { View, ViewProps } from "../view";
import { flows } from "./between";
import { Canvas } from "./canvas";
import { choose, chosen as chosenAt } from "./choice";
import { cutFlows } from "./cut";
import { asked, ofSite } from "./emphasis";
import { Layouter } from "./layout";
import { Legend, METRIC_NAMES } from "./legend";
import { METRICS, type Metric } from "./metrics";
import { opened, reveal, written } from "./opened";
import { Outline } from "./outline";
import { Panel } from "./panel";
import { Scenes } from "./scene";
import { SearchBox } from "./searchbox";
import { sizeOf } from "./sizes";
import { NODE_COLUMNS, nodeRows } from "./tables";

function GraphPage({ model, at, set, link }: ViewProps) {
  const scenes = useMemo(() => new Scenes(model), [model]);
  const scene = scenes.at(callAt(model, at));
  const { h, links, call } = scene;
  const metric: Metric = METRICS.find((one) => one === at.color) ?? "gradient";
  const chosen = useMemo(() => chosenAt(h, at), [h, at.node, at.group, at.module, at.nth, at.parameter]);
  const open = useMemo(() => {
    const asIs = opened(h, at.open);
    return chosen === null ? asIs : reveal(h, asIs, chosen);
  }, [h, at.open, chosen]);
  const layouter = useMemo(
    () =>
      new Layouter(
        h,
        (id) => [...flows(h, links, call.out, id, null), ...cutFlows(h, id)],
        (box) => sizeOf(h, box),
      ),
    [h, call],
  );
  const picture = useMemo(() => layouter.picture(open), [layouter, open]);
  const path = useMemo(() => asked(scene, at), [scene, at.from, at.to]);
  const site = useMemo(() => ofSite(h, at), [h, at.site]);
  const way = typeof path === "string" ? null : path;
  const emphasis = way ?? site;
  const marked = useMemo(() => marker(scene, emphasis?.on ?? null), [scene, emphasis]);
  const svg = useRef<SVGSVGElement>(null);

  // The view ends where the window does, whatever is above it.
  const page = useRef<HTMLElement>(null);
  const [above, setAbove] = useState(150);
  useLayoutEffect(() => setAbove(Math.round(page.current!.getBoundingClientRect().top + scrollY) + 16), []);

  // A box that comes with the address, or from a list, is brought into sight; one that was clicked is there already.
  const clicked = useRef<number | null>(null);
  const [sight, setSight] = useState<{ box: number } | null>(null);
  useEffect(() => {
    if (chosen !== null && clicked.current !== chosen) setSight({ box: chosen });
    clicked.current = null;
  }, [h, chosen]);

  const toggled = (box: number, to: boolean): Record<string, string> => {
    const next = new Set(open);
    if (to) next.add(box);
    else next.delete(box);
    return { open: written(next) };
  };
  const press = (box: number, toggle: boolean): void => {
    clicked.current = box;
    set({ ...choose(h, box), open: written(open), ...(toggle ? toggled(box, !open.has(box)) : {}) }, true);
  };
  const go = (box: number): void => {
    if (box === chosen) setSight({ box });
    else set({ ...choose(h, box), open: written(reveal(h, open, box)) }, true);
  };
  const say = typeof path === "string" ? path : (emphasis?.text ?? "");
  const name = `graph-step-${call.step}`;
  return (
    <section class="graph" ref={page} style={{ "--graph-above": `${above}px` }} aria-label="Graph of one backward call">
      <div class="graph-bar">
        <CallChoice model={model} shown={scene.number} set={set} />
        <label>
          <span>Colour</span>
          <select value={metric} onChange={(event) => set({ color: event.currentTarget.value })}>
            {METRICS.map((one) => (
              <option key={one} value={one} disabled={one === "bytes" && !model.doc.memory}>
                {METRIC_NAMES[one] + (one === "bytes" && !model.doc.memory ? " (run with --check memory)" : "")}
              </option>
            ))}
          </select>
        </label>
        <SearchBox h={h} go={go} />
        <div class="graph-save">
          <button type="button" onClick={() => set({ open: "0", ...choose(h, null) })}>
            Close all
          </button>
          <button
            type="button"
            onClick={() => svg.current && saveSvg(`${name}.svg`, svg.current)}
            title="What is in sight, as SVG"
          >
            SVG
          </button>
          <button
            type="button"
            onClick={() => svg.current && void savePng(`${name}.png`, svg.current)}
            title="What is in sight, as PNG"
          >
            PNG
          </button>
          <button
            type="button"
            onClick={() => saveCsv(`${name}.csv`, NODE_COLUMNS, nodeRows(scene, chosen))}
            title={chosen === null ? "All nodes" : "The nodes of what is chosen"}
          >
            CSV
          </button>
        </div>
      </div>
      {say && (
        <p class={`graph-say ${emphasis ? "" : "graph-say-none"}`} role="status">
          <span>{say}</span>
          {way && (
            <button type="button" onClick={() => go(~way.shortest[Math.floor(way.shortest.length / 2)]!)}>
              To its middle
            </button>
          )}
          {at.to && (
            <button type="button" onClick={() => set({ from: at.to!, to: at.from || "loss" })}>
              Swap ends
            </button>
          )}
          <button type="button" onClick={() => set({ from: "", to: "", site: "" })}>
            Clear
          </button>
        </p>
      )}
      {!say && at.from && (
        <p class="graph-say" role="status">
          <span>Paths start at the chosen place. Choose another one and say “Path to here”.</span>
          <button type="button" onClick={() => set({ from: "" })}>
            Start at the loss again
          </button>
        </p>
      )}
      <div class="graph-main">
        <Outline
          {...{ scene, open, metric, chosen, emphasis }}
          choose={(box) => set({ ...choose(h, box), open: written(open) })}
          toggle={(box, to) => {
            clicked.current = box;
            set({ ...choose(h, box), ...toggled(box, to) });
          }}
        />
        <div class="graph-middle">
          <Canvas {...{ scene, picture, metric, chosen, emphasis, marked, press, sight, svg }} />
          <Legend scene={scene} metric={metric} />
        </div>
        <Panel {...{ scene, link, go, set }} box={chosen ?? 0} from={at.from ?? ""} />
      </div>
    </section>
  );
}

/** By group: which of its flows have an edge between two nodes that are emphasised. */
function marker(
  { h, links, call }: ReturnType<Scenes["at"]>,
  on: Uint8Array | null,
): (group: number) => ReadonlySet<string> {
  const kept = new Map<number, ReadonlySet<string>>();
  const none = new Set<string>();
  return (group) => {
    if (on === null) return none;
    let found = kept.get(group);
    if (!found) {
      found = new Set(
        flows(h, links, call.out, group, on)
          .filter((flow) => flow.marked)
          .map((flow) => `${flow.from},${flow.to}`),
      );
      kept.set(group, found);
    }
    return found;
  };
}

export const graphView: View = {
  name: "graph",
  title: "Graph",
  empty: (model) => (model.doc.calls.length > 0 ? null : "No backward call was recorded with its graph."),
  component: GraphPage,
  steps: callSteps,
  of: "a graph",
  shows: graphShown,
  leave: { from: "", to: "" },
};
