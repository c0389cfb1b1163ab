import { checked, type Document, isComparison } from "../compare/document";
import { decode, PageError, raw, walk } from "../data/decode";
import type { Decoded, Raw } from "../data/document";
import { Model } from "../data/model";

/** What is inside this page, from the text of its data element: a run, or runs that were compared. */
export async function open(text: string): Promise<Model | Document> {
  if (text.trim() === "") {
    throw new PageError("this is the page without a run in it: `backprobe report RUN` writes one with a run");
  }
  const found = await raw(text);
  if (isComparison(found)) return checked(walk(found, "") as Document);
  return modelled(decode(found as Raw));
}

/** A model of a document; one that lacks parts is damaged. */
export function modelled(doc: Decoded): Model {
  const missing = PARTS.filter((part) => doc[part] === undefined || (doc[part] === null && part !== "memory"));
  if (missing.length > 0)
    throw new PageError(`the data of this report is damaged (no ${missing.join(", ")}): write it again`);
  return new Model(doc);
}

const PARTS = [
  "run",
  "findings",
  "figures",
  "unseen",
  "compiled",
  "sites",
  "sources",
  "modules",
  "parameters",
  "steps",
  "layouts",
  "calls",
  "forward",
  "memory",
  "tensors",
] as const; // prettier-ignore
