import { useMemo } from "preact/hooks";
import type { Column } from "../../charts/rows";
import { Table } from "../../charts/table";
import type { Model } from "../../data/model";
import { shapeSaid } from "../../data/said";
import { norm } from "../../parts/words";
import type { Buckets } from "./chart";
import type { Item } from "./items";
import type { PlotSeries } from "./shapes";
import { condition, type Metric, parameterBand } from "./values";

interface ParameterRow {
  index: number;
  name: string;
  shape: string;
  values: Record<Metric, number>;
  reached: number;
  trained: string;
  state: string;
}

const PARAMETER_COLUMNS: readonly Column<ParameterRow>[] = [
  { name: "parameter", value: (r) => r.name },
  { name: "shape", value: (r) => r.shape },
  ...(["weight", "gradient", "update", "ratio"] as const).map((metric) => ({
    name: metric === "ratio" ? "update / weight" : metric,
    value: (r: ParameterRow) => r.values[metric],
    text: (r: ParameterRow) => norm(r.values[metric]),
    numeric: true,
    about:
      metric === "ratio"
        ? "Norm of the update by the norm of the weight"
        : `Norm of the ${metric}; – where it was not measured`,
  })),
  { name: "reached", value: (r) => r.reached, numeric: true, about: "Backward calls that gave it a gradient" },
  { name: "trained", value: (r) => r.trained, about: "Whether an optimizer holds it" },
  { name: "note", value: (r) => r.state },
];

/** All parameters with their norms in the steps that the chart shows; over several, the middle one of each. */
export function ParameterTable({
  model,
  buckets,
  picked,
  onPick,
}: {
  model: Model;
  buckets: Buckets;
  picked: number;
  onPick: (parameter: number) => void;
}) {
  const rows = useMemo(() => {
    const { doc } = model;
    const bands = (["weight", "gradient", "update", "ratio"] as const).map(
      (m) => [m, parameterBand(doc, m, ...buckets(m))] as const,
    );
    return doc.parameters.map((p, index): ParameterRow => {
      // What is not finite in any of the steps is what a person looks for.
      const values = Object.fromEntries(
        bands.map(([m, b]) => [m, Number.isFinite(b.high[index]) ? b.middle[index]! : b.high[index]!]),
      ) as Record<Metric, number>;
      return {
        index,
        name: p.name,
        shape: shapeSaid(p.shape),
        values,
        reached: p.reached,
        trained: p.trained === null ? "not known" : p.trained ? "yes" : "no",
        state: condition(p, !(values.gradient < 0)),
      };
    });
  }, [model, buckets]);
  return (
    <Table
      rows={rows}
      columns={PARAMETER_COLUMNS}
      what="parameters"
      picked={(r) => r.index === picked}
      onPick={(r) => onPick(r.index)}
    />
  );
}

interface ModuleRow {
  item: Item;
  class: string;
  calls: number;
  values: number[];
}

export function ModuleTable({
  model,
  items,
  series,
  picked,
  onPick,
}: {
  model: Model;
  items: readonly Item[];
  series: readonly PlotSeries[];
  picked: number;
  onPick: (module: number) => void;
}) {
  const columns = useMemo(
    (): Column<ModuleRow>[] => [
      { name: "module", value: (r) => r.item.name },
      { name: "class", value: (r) => r.class },
      ...series.map((s, k) => ({
        name: s.name,
        value: (r: ModuleRow) => r.values[k]!,
        text: (r: ModuleRow) => norm(r.values[k]),
        numeric: true,
      })),
      { name: "calls", value: (r) => r.calls, numeric: true },
    ],
    [series],
  );
  const rows = useMemo(
    () =>
      items.map((item, i) => ({
        item,
        class: model.doc.modules[item.index]!.class,
        calls: model.doc.modules[item.index]!.calls,
        values: series.map((s) => s.band.high[i]!),
      })),
    [model, items, series],
  );
  return (
    <Table
      rows={rows}
      columns={columns}
      what="modules"
      picked={(r) => r.item.index === picked}
      onPick={(r) => onPick(r.item.index)}
    />
  );
}
