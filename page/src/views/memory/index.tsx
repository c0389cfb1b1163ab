import "../../charts/charts.css";
import "./memory.css";
import { useMemo, useRef } from "preact/hooks";
import { Lines, PngOf, type Series } from "../../charts/line";
import { plainCurve } from "../../charts/marks";
import { Button, Choice, Panel } from "../../charts/panel";
import type { Column } from "../../charts/rows";
import { Table } from "../../charts/table";
import { byteTicks } from "../../charts/ticks";
import type { Floats, Memory as MemoryOf } from "../../data/document";
import { savePng, saveSvg } from "../../parts/save";
import { bytes, count } from "../../parts/words";
import type { View, ViewProps } from "../view";
import { recorded } from "./grown";
import { divided, find, GROUPS, type Group, hierarchy, type Sum, sums, trail } from "./hierarchy";
import { Story } from "./story";
import { Treemap } from "./treemap";

const WORDS: Record<Group, string> = { module: "Module", line: "Line", op: "Op", dtype: "Dtype" };

/** Bytes over the steps, and what autograd kept for the backward of one. */
function Memory(props: ViewProps) {
  const { memory } = props.model.doc;
  return (
    <div class="memory">
      <Story {...props} />
      {memory && memory.rows.length > 0 ? (
        <Kept {...props} memory={memory} />
      ) : (
        <p class="quiet">
          What autograd keeps for the backward, by module and line: <code>backprobe run --check memory script.py</code>
        </p>
      )}
    </div>
  );
}

function Kept({ model, at, set, memory }: ViewProps & { memory: MemoryOf<Floats> }) {
  const { doc } = model;
  const root = useMemo(() => hierarchy(model, memory.rows), [model, memory]);
  const part = divided(find(root, at.in));
  const group = GROUPS.find((g) => g === at.group) ?? "module";
  const rows = useMemo(() => sums(model, doc, group), [model, doc, group]);
  const columns = useMemo((): Column<Sum>[] => tableColumns(group, root.bytes), [group, root]);
  const svg = useRef<SVGSVGElement>(null);
  const tensors = memory.rows.reduce((n, r) => n + r.tensors, 0);
  const open = (id: string): void => set({ in: id === "m0" ? "" : id }, true);
  return (
    <>
      <Panel
        title={`${bytes(memory.total)} kept for backward in one step`}
        note={`${count(tensors, "tensor")} that the forward saved for the backward, by the module and the line that saved them. A click opens a part.`}
        tools={
          <>
            <Button label="Save the picture as SVG" onClick={() => svg.current && saveSvg("memory.svg", svg.current)}>
              SVG
            </Button>
            <Button
              label="Save the picture as PNG"
              onClick={() => svg.current && void savePng("memory.png", svg.current)}
            >
              PNG
            </Button>
          </>
        }
      >
        <nav aria-label="Opened parts">
          <ol class="memory-trail">
            {trail(part).map((p) => (
              <li key={p.id}>
                {p === part ? (
                  <span aria-current="page">
                    {p.label} · {bytes(p.bytes)}
                  </span>
                ) : (
                  <button type="button" onClick={() => open(p.id)}>
                    {p.label}
                  </button>
                )}
              </li>
            ))}
          </ol>
        </nav>
        <Treemap part={part} total={root.bytes} height={380} onOpen={(p) => open(p.id)} svg={svg} />
        {memory.notes.length > 0 && (
          <ul class="memory-notes">
            {memory.notes.map((note) => (
              <li key={note}>{note}</li>
            ))}
          </ul>
        )}
      </Panel>
      {memory.curve && memory.curve.length > 1 && <Curve curve={memory.curve} />}
      <Panel
        title="Kept for backward"
        tools={
          <Choice
            label="By"
            options={GROUPS.map((g) => [g, WORDS[g]] as const)}
            value={group}
            onChange={(g) => set({ group: g === "module" ? "" : g })}
          />
        }
      >
        <Table
          key={group}
          rows={rows}
          columns={columns}
          what={group === "dtype" ? "dtypes" : `${group}s`}
          start={{ column: "kept", down: true }}
          room={12}
        />
      </Panel>
    </>
  );
}

function tableColumns(group: Group, total: number): Column<Sum>[] {
  return [
    { name: group, value: (r) => r.name },
    {
      name: "kept",
      value: (r) => r.bytes,
      text: (r) => bytes(r.bytes),
      numeric: true,
      about: "Bytes; the CSV has them as a number",
    },
    {
      name: "share",
      value: (r) => (total > 0 ? r.bytes / total : 0),
      text: (r) => (total > 0 ? `${((100 * r.bytes) / total).toFixed(1)}%` : ""),
      numeric: true,
    },
    { name: "tensors", value: (r) => r.tensors, numeric: true },
    { name: "saved as", value: (r) => r.names, about: "What the nodes call them" },
  ];
}

/** Bytes still kept while the backward frees them node by node. */
function Curve({ curve }: { curve: Floats }) {
  const box = useRef<HTMLDivElement>(null);
  const { x, series } = useMemo(() => {
    const made: Series[] = [
      { name: "still kept", curve: plainCurve(curve, (i) => curve[i]! >= 0), colour: (p) => p.forward },
    ];
    return { x: Int32Array.from(curve, (_, i) => i + 1), series: made };
  }, [curve]);
  return (
    <div ref={box} style={{ margin: "var(--gap) 0" }}>
      <Panel
        title="Still kept, over the backward"
        note="After each node, in the order in which they ran."
        tools={<PngOf name="memory-curve" within={box} />}
      >
        <Lines
          label={`Bytes still kept after each of ${curve.length} nodes: ${bytes(curve[0]!)} after the first, ${bytes(Math.max(0, curve[curve.length - 1]!))} after the last.`}
          x={x}
          series={series}
          log={false}
          height={214}
          yName="still kept"
          range={null}
          text={(v) => bytes(Math.max(0, v))}
          ticks={byteTicks}
          xName="node"
        />
      </Panel>
    </div>
  );
}

export const memoryView: View = {
  name: "memory",
  title: "Memory",
  empty: ({ doc }) =>
    (doc.memory === null || doc.memory.rows.length === 0) && !recorded(doc)
      ? "Nothing is known of this run's memory: its system does not say what a process holds, and it was not asked what autograd keeps for the backward.\nRecord that with:  backprobe run --check memory script.py"
      : null,
  component: Memory,
  steps: ({ doc }) => doc.steps.index,
  shows: ({ doc }) => (doc.memory && doc.memory.step >= 0 ? [{ what: "kept bytes", step: doc.memory.step }] : []),
};
