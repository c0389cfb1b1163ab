import { useMemo } from "preact/hooks";
import type { Finding } from "../../data/document";
import type { Model } from "../../data/model";
import { shorten } from "../../parts/names";
import { count } from "../../parts/words";
import type { ViewProps } from "../view";
import { chain } from "./chain";

interface Props {
  model: Model;
  finding: Finding;
  /** The finding's step, as a part of an address. */
  step: Record<string, string>;
  /** The site that is pointed at, here or in the lines; -1. */
  lit: number;
  light: (site: number) => void;
  link: ViewProps["link"];
}

/** The nodes from the cause to the loss; those that were not finite are red. */
export function Strip({ model, finding, step, lit, light, link }: Props) {
  const nodes = useMemo(() => chain(model, finding), [model, finding]);
  if (nodes.length === 0) return null;
  const call = String(finding.at![0]);
  return (
    <ol class="findings-strip" aria-label="The way from the cause to the loss">
      {nodes.map((one) =>
        typeof one === "number" ? (
          <li key="omitted" class="quiet">
            {count(one, "more node")}
          </li>
        ) : (
          <li key={one.node}>
            <a
              class={`mono ${one.bad ? "findings-bad" : ""} ${one.site >= 0 && one.site === lit ? "findings-lit" : ""}`}
              href={link("graph", { ...step, call, node: String(one.node) })}
              title={[one.module && `in ${one.module}`, model.place(one.site), one.bad && "not finite"]
                .filter(Boolean)
                .join(", ")}
              onMouseEnter={() => light(one.site)}
              onMouseLeave={() => light(-1)}
              onFocus={() => light(one.site)}
              onBlur={() => light(-1)}
            >
              {shorten(one.text, 28)}
            </a>
          </li>
        ),
      )}
      <li class="quiet">loss</li>
    </ol>
  );
}
