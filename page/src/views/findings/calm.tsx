import type { Run } from "../../data/document";
import { Sign } from "../../parts/severity";
import type { ViewProps } from "../view";
import { Course } from "./course";
import { Figures } from "./figures";

/** The first screen of a run in which nothing wrong was found. */
export function Calm({ model, set, link, step }: Pick<ViewProps, "model" | "set" | "link" | "step">) {
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
      <Course model={model} set={set} step={step} />
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
