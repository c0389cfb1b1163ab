import type { Model } from "../../data/model";
import { count } from "../../parts/words";
import type { ViewProps } from "../view";
import { Compiled } from "./compiled";

/** The run in figures, and what was not seen of it. */
export function Figures({ model, link }: { model: Model; link: ViewProps["link"] }) {
  const { figures, unseen, run } = model.doc;
  return (
    <div class="findings-figures">
      {(figures.length > 0 || run.took) && (
        <section>
          <h4>The run in figures</h4>
          <ul>
            {figures.map((text) => (
              <li key={text}>{text}</li>
            ))}
            {run.took && <li>{run.took}</li>}
          </ul>
        </section>
      )}
      {unseen.length > 0 && (
        <section>
          <h4>Not seen</h4>
          <ul>
            {unseen.map((one) => (
              <li key={one.what + one.note}>
                {one.count.toLocaleString("en-US")} {one.what} <span class="quiet">({one.note})</span>
              </li>
            ))}
          </ul>
        </section>
      )}
      <Compiled model={model} link={link} />
      {figures.length === 0 && <p class="quiet">{count(run.steps, "step")}, of which nothing was measured.</p>}
    </div>
  );
}
