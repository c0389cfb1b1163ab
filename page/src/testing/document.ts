import type { Decoded } from "../data/document";

/** A document with nothing in it, for tests to fill. */
export function empty(): Decoded {
  const none = () => new Float32Array();
  const ints = () => new Int32Array();
  const pair = () => ({ low: none(), high: none() });
  return {
    format: 3,
    version: "",
    run: {
      name: "run",
      script: "train.py",
      arguments: [],
      started: null,
      ended: null,
      seconds: null,
      steps: 0,
      backwards: 0,
      took: "",
      error: null,
      live: false,
      cut: false,
      level: "",
      torch: "",
      python: "",
      backprobe: "",
      thinned: 0,
      gaps: [],
    }, // prettier-ignore
    findings: [],
    figures: [],
    unseen: [],
    compiled: [],
    sites: [],
    sources: [],
    modules: [{ path: "", class: "Net", parent: -1, calls: 1, site: -1 }],
    parameters: [],
    steps: {
      index: ints(),
      seconds: none(),
      loss: none(),
      known: ints(),
      calls: ints(),
      scale: none(),
      gradient: none(),
      weight: none(),
      update: none(),
      ratio: none(),
      source: ints(),
      recorded: ints(),
      resident: none(),
      allocated: none(),
      graphs: ints(),
      call: ints(),
      series: { exact: true, start: ints(), size: 1, gradient: pair(), weight: pair(), update: pair() },
    }, // prettier-ignore
    layouts: [],
    calls: [],
    forward: [],
    phases: null,
    memory: null,
    tensors: [],
    ranks: null,
    levels: null,
    ledger: null,
  };
}
