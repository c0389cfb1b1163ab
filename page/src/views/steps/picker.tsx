import { useMemo, useState } from "preact/hooks";
import { MOST_CURVES } from "../../charts/colour";
import { Button } from "../../charts/panel";
import type { Model } from "../../data/model";

const SHOWN = 60;

/** Which parameters have curves: search, and tick. */
export function Picker({
  model,
  picked,
  onPick,
}: {
  model: Model;
  picked: readonly number[];
  onPick: (parameter: number) => void;
}) {
  const { parameters } = model.doc;
  const [words, find] = useState("");
  const found = useMemo(() => {
    const low = words.trim().toLowerCase();
    return parameters.flatMap((p, i) => (p.name.toLowerCase().includes(low) ? [i] : []));
  }, [parameters, words]);
  return (
    <div>
      <div class="steps-chips">
        {picked.map((p) => (
          <Button key={p} label={`Take ${parameters[p]!.name} away`} onClick={() => onPick(p)}>
            <span class="chart-mono">{parameters[p]!.name}</span> ✕
          </Button>
        ))}
        <details class="steps-picker">
          <summary>Choose parameters</summary>
          <div class="steps-menu">
            <input
              type="search"
              placeholder="Find by name"
              aria-label="Find parameters by name"
              value={words}
              onInput={(e) => find(e.currentTarget.value)}
            />
            <ul>
              {found.slice(0, SHOWN).map((p) => (
                <li key={p}>
                  <label>
                    <input
                      type="checkbox"
                      checked={picked.includes(p)}
                      disabled={!picked.includes(p) && picked.length >= MOST_CURVES}
                      onChange={() => onPick(p)}
                    />
                    <span class="chart-mono">{parameters[p]!.name}</span>
                  </label>
                </li>
              ))}
            </ul>
            <p class="quiet">
              {found.length > SHOWN ? `${found.length - SHOWN} more: type a part of the name. ` : ""}
              {picked.length} of {MOST_CURVES} at most.
            </p>
          </div>
        </details>
      </div>
    </div>
  );
}
