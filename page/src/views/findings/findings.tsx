import type { ViewProps } from "../view";

export function Findings({ model }: ViewProps) {
  return <p>{model.doc.findings.length}</p>;
}
