import { callShown, callSteps } from "../../data/step";
import type { View } from "../view";
import { Source } from "./source";

export const sourceView: View = {
  name: "source",
  title: "Source",
  empty: (model) =>
    model.doc.sources.length > 0 ? null : "The source files of this run were not kept and are not on this disk.",
  component: Source,
  steps: callSteps,
  of: "a graph",
  shows: (model, at) => callShown(model, at).map((one) => ({ ...one, what: "times and gradients" })),
};
