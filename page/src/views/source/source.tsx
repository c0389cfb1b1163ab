import type { ViewProps } from "../view";

export function Source({ model }: ViewProps) {
  return <p>{model.doc.sources.length}</p>;
}
