import { callShown, callSteps } from "../../data/step";
import type { View } from "../view";
import { Source } from "./source";

export const sourceView: View = {
  name: "source",
  title: "Source",
  empty: (model) => (model.doc.sources.length > 0 ? null : "The source of this run was not kept."),
  component: Source,
  steps: callSteps,
  of: "a graph",
  shows: (model, at) => callShown(model, at).map((one) => ({ ...one, what: "times and gradients" })),
};
