import type { Run } from "../../data/document";
import type { Model } from "../../data/model";
import { lossSaid } from "../../data/said";
import { Sign } from "../../parts/severity";
import { number } from "../../parts/words";
import type { ViewProps } from "../view";
import { Figures } from "./figures";
import { spark } from "./spark";

const WIDTH = 560;
const HEIGHT = 96;

/** The first screen of a run in which nothing wrong was found. */
export function Calm({ model, link }: { model: Model; link: ViewProps["link"] }) {
  const { run } = model.doc;
  const watched = run.backwards > 0;
  return (
    <section class="findings-calm">
      <h2>
        <Verdict run={run} />
      </h2>
      {!watched && (
        <p class="quiet">
          backprobe looks at what happens inside backward calls. This run made none while it was watched.
        </p>
      )}
      <Loss model={model} link={link} />
      <Figures model={model} link={link} />
    </section>
  );
}

/** What it means that nothing wrong was found. */
export function Verdict({ run }: { run: Run }) {
  const text = headline(run);
  return (
    <>
      {text.startsWith("No problems") && <Sign level="good" />} {text}
    </>
  );
}

export function headline(run: Run): string {
  if (run.backwards === 0) return "No backward call was seen";
  if (run.error) return "Nothing found that explains the error";
  if (run.gaps.length > 0) return "Nothing found in what was recorded";
  if (run.cut && !run.live) return "Nothing found before the run was cut off";
  return run.live ? "No problems found so far" : "No problems found";
}

function Loss({ model, link }: { model: Model; link: ViewProps["link"] }) {
  const steps = model.doc.steps;
  const found = spark(steps.loss, steps.known);
  if (found === null || steps.index.length < 2) return null;
  const at = ([x, y]: [number, number]) => `${(x * WIDTH).toFixed(1)},${(4 + y * (HEIGHT - 8)).toFixed(1)}`;
  const said = lossSaid(steps);
  const from = steps.index[0]!;
  const to = steps.index.at(-1)!;
  return (
    <figure class="findings-loss">
      <figcaption>
        Loss <span class="quiet">by step{said && `: ${said}`}</span>
      </figcaption>
      {/* biome-ignore lint/a11y/useAnchorContent: aria-label says what the picture shows */}
      <a href={link("steps")} aria-label={`Loss from ${number(found.first)} to ${number(found.last)}; open the steps`}>
        <svg viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-hidden="true">
          {found.parts.map((part, i) => (
            <polyline key={i} points={part.map(at).join(" ")} />
          ))}
        </svg>
        <span class="findings-scale" aria-hidden="true">
          <span>{number(found.high)}</span>
          {found.high > found.low && <span>{number(found.low)}</span>}
        </span>
      </a>
      <p class="findings-ends">
        <span>
          step {from}: {number(found.first)}
        </span>
        <span>
          step {to}: {number(found.last)}
        </span>
      </p>
      {found.bad > 0 && <p class="quiet">{found.bad} not finite</p>}
    </figure>
  );
}
