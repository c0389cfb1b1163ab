import type { View } from "../view";
import { Source } from "./source";

export const sourceView: View = {
  name: "source",
  title: "Source",
  empty: (model) =>
    model.doc.sources.length > 0 ? null : "The source files of this run were not kept and are not on this disk.",
  component: Source,
};
