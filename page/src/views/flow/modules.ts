/** Norms at the boundaries of modules: of what they returned, and of the gradients that came back to them. */
import type { Floats, Forward } from "../../data/document";
import type { Calls, Model } from "../../data/model";

/**
 * By module: the norm of all gradients of a call that enter it from outside, together. That is the gradient of what the
 * module returned, of all its calls. Gradients that go straight to a parameter belong to it and not to an output, and
 * are left out. -1 where none was measured.
 */
export function backwardNorms(model: Model, call: Calls): Float64Array {
  const nodes = model.nodes(call);
  const modules = model.doc.modules;
  const squares = new Float64Array(modules.length).fill(-1);
  const add = (module: number, norm: number): void => {
    // -1 stands for "none yet"; a NaN is kept by the sum.
    squares[module] = squares[module] === -1 ? norm * norm : squares[module]! + norm * norm;
  };
  const enter = (from: number, into: number, norm: number): void => {
    // Up from the module that the gradient goes to, until one that it comes from.
    for (let m = into; m >= 0 && !(from >= 0 && model.within(from, m)); m = modules[m]!.parent) add(m, norm);
  };
  for (let i = 0; i < nodes.module.length; i++) {
    const from = nodes.module[i]!;
    for (let e = nodes.edges[i]!; e < nodes.edges[i + 1]!; e++) {
      const to = nodes.to[e]!;
      const norm = call.out[e]!;
      if (to < 0 || norm < 0 || nodes.seq[to]! < 0) continue;
      const into = nodes.module[to]!;
      if (into !== from) enter(from, into, norm);
    }
  }
  // What the call starts with comes from outside of all modules.
  for (const root of new Set(call.roots.map((r) => r.node))) {
    const norm = root >= 0 ? (call.came[root] ?? -1) : -1;
    if (!(norm < 0) && nodes.seq[root]! >= 0) enter(-1, nodes.module[root]!, norm);
  }
  return squares.map((s) => (s < 0 ? -1 : Math.sqrt(s)));
}

/** By module: the norm of what all its calls returned together; -1 where not measured. */
export function forwardNorms(model: Model, forward: Forward<Floats, Int32Array>): Float64Array {
  const squares = new Float64Array(model.doc.modules.length).fill(-1);
  forward.module.forEach((m, i) => {
    const norm = forward.norm[i]!;
    if (m < 0 || norm < 0) return; // also where it is NaN it was measured: NaN < 0 is false
    squares[m] = squares[m] === -1 ? norm * norm : squares[m]! + norm * norm;
  });
  return squares.map((s) => (s < 0 ? -1 : Math.sqrt(s)));
}
