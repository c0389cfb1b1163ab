import type { Calls, Model } from "../../data/model";
import { type Cut, cutOf } from "./cut";
import { Hierarchy } from "./hierarchy";
import { Links } from "./links";
import { type Metric, Metrics } from "./metrics";
import { type Scale, scaleOf } from "./scale";

/** One backward call with what the view has worked out about it. */
export interface Scene {
  number: number;
  call: Calls;
  h: Hierarchy;
  links: Links;
  metrics: Metrics;
  scale: (metric: Metric) => Scale;
  /** Why the parameters of a group that is cut off have no gradient. */
  cut: (group: number) => Cut;
}

/** Scenes by call; calls with the same graph share its hierarchy. */
export class Scenes {
  private readonly graphs = new Map<number, { h: Hierarchy; links: Links }>();
  private readonly made = new Map<number, Scene>();

  constructor(private readonly model: Model) {}

  at(number: number): Scene {
    const known = this.made.get(number);
    if (known) return known;
    const call = this.model.doc.calls[number]!;
    let graph = this.graphs.get(call.layout);
    if (!graph) {
      const nodes = this.model.nodes(call);
      graph = { h: new Hierarchy(this.model, nodes), links: new Links(nodes) };
      this.graphs.set(call.layout, graph);
    }
    const metrics = new Metrics(this.model, call, graph.h, graph.links);
    const scale = once((metric: Metric) => scaleOf(metrics, metric));
    const { h } = graph;
    const cut = once((group: number) => cutOf(h, h.groups[group]!.parameters));
    const scene = { number, call, ...graph, metrics, scale, cut };
    this.made.set(number, scene);
    return scene;
  }
}

/** A function that keeps its results. */
function once<K, V>(of: (key: K) => V): (key: K) => V {
  const kept = new Map<K, V>();
  return (key) => {
    let value = kept.get(key);
    if (value === undefined) {
      value = of(key);
      kept.set(key, value);
    }
    return value;
  };
}
