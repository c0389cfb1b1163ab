import { useEffect, useMemo, useState } from "preact/hooks";
import { unzipSteps } from "../../data/decode";
import type { Decoded } from "../../data/document";
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
 *  can be asked, once for each stretch; until its answer comes, and in a file, the model itself. */
export function useExact(model: Model, range: readonly [number, number], zoomed: boolean): Model {
  const [near, setNear] = useState<{ of: string; steps: Decoded["steps"] } | null>(null);
  const secret = token();
  const [first, end] = positions(model.doc.steps.index, range[0], range[1]);
  const thinned = secret !== null && zoomed && !model.doc.steps.series.exact;
  const of = thinned ? `${first} ${end} ${model.doc.steps.series.size}` : "";
  useEffect(() => {
    if (of === "") return;
    const stop = new AbortController();
    void (async () => {
      try {
        const query = new URLSearchParams({ token: secret!, from: String(first), to: String(end) });
        const answer = await fetch(`steps?${query}`, { signal: stop.signal });
        if (!answer.ok) return;
        setNear({ of, steps: await unzipSteps(new Uint8Array(await answer.arrayBuffer())) });
      } catch {
        // The server has gone, or another range was chosen: what is in the page stays.
      }
    })();
    return () => stop.abort();
  }, [of]);
  return useMemo(
    () => (near !== null && near.of === of ? new Model({ ...model.doc, steps: near.steps }) : model),
    [model, near, of],
  );
}
