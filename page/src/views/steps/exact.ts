import { useEffect, useState } from "preact/hooks";
import { unzipSteps } from "../../data/decode";
import { Model } from "../../data/model";
import { token } from "../../frame/live";

/** Positions of the steps `from` to `to` among the ascending numbers `index`: the first, and the one after the last. */
export function positions(index: Int32Array, from: number, to: number): [number, number] {
  const before = (limit: number): number => {
    let [low, high] = [0, index.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (index[middle]! < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  };
  return [before(from), before(to + 1)];
}

/** The model with the norms of the chosen steps as they were recorded, where those in the page are thinned and a server
 *  can be asked; until its answer comes, and in a file, the model itself. */
export function useExact(model: Model, range: readonly [number, number], zoomed: boolean): Model {
  const [near, setNear] = useState<{ of: Model; range: readonly [number, number]; model: Model } | null>(null);
  const secret = token();
  useEffect(() => {
    if (secret === null || !zoomed || model.doc.steps.series.exact) return;
    const stop = new AbortController();
    const [first, end] = positions(model.doc.steps.index, range[0], range[1]);
    void (async () => {
      try {
        const query = new URLSearchParams({ token: secret, from: String(first), to: String(end) });
        const answer = await fetch(`steps?${query}`, { signal: stop.signal });
        if (!answer.ok) return;
        const steps = await unzipSteps(new Uint8Array(await answer.arrayBuffer()));
        setNear({ of: model, range, model: new Model({ ...model.doc, steps }) });
      } catch {
        // The server has gone, or another range was chosen: what is in the page stays.
      }
    })();
    return () => stop.abort();
  }, [model, range, zoomed, secret]);
  return near !== null && near.of === model && near.range === range && zoomed ? near.model : model;
}
