import type { Model } from "../../data/model";
import { type Draft, draft, type Instances } from "./instances";

/** More boxes than these for one reason are put together. */
const APART = 3;

/**
 * Parameters that want a gradient and are not in this graph: one box for each outermost module that is not there at all.
 *
 * @param reached by parameter, 1 where it is in the graph.
 */
export function addCuts(model: Model, instances: Instances, reached: Uint8Array): void {
  const { modules, parameters } = model.doc;
  const there = present(model, instances, reached);
  const made = new Map<number, Draft>();
  parameters.forEach((parameter, p) => {
    if (reached[p] || !parameter.requires_grad) return;
    let module = Math.max(0, parameter.module);
    while (!there[module] && !there[modules[module]!.parent]) module = modules[module]!.parent;
    let cut = made.get(module);
    if (!cut) {
      cut = draft("cut", module);
      made.set(module, cut);
      instances.home(module).cuts.push(cut);
    }
    cut.parameters.push(p);
  });
  for (const calls of instances.of) for (const one of calls) one.cuts = together(model, one);
}

/** By module: whether there is anything of it in the graph, a call or a parameter. */
function present(model: Model, instances: Instances, reached: Uint8Array): Uint8Array {
  const { modules, parameters } = model.doc;
  const there = new Uint8Array(modules.length);
  const mark = (module: number): void => {
    for (let m = module; m >= 0 && !there[m]; m = modules[m]!.parent) there[m] = 1;
  };
  mark(0);
  instances.of.forEach((calls, module) => calls.length && mark(module));
  parameters.forEach((parameter, p) => reached[p] && mark(parameter.module));
  return there;
}

/** Cuts of a group; many that one finding is about, or none, as one. */
function together(model: Model, group: Draft): Draft[] {
  const { findings, parameters } = model.doc;
  const reasons = new Map<number, Draft[]>();
  for (const cut of group.cuts) {
    const names = cut.parameters.map((p) => parameters[p]!.name);
    const reason = findings.findIndex(
      (f) => f.kind === "none-grad" && names.some((name) => f.parameters.includes(name)),
    );
    reasons.set(reason, [...(reasons.get(reason) ?? []), cut]);
  }
  return [...reasons.values()].flatMap((cuts) => {
    if (cuts.length <= APART) return cuts;
    const one = draft("cut", group.module);
    one.parameters = cuts.flatMap((cut) => cut.parameters);
    return [one];
  });
}
