import { PageError, unpack } from "../data/decode";
import type { Decoded } from "../data/document";
import { Model } from "../data/model";

/** The run inside this page, from the text of its data element. */
export async function open(text: string): Promise<Model> {
  if (text.trim() === "") {
    throw new PageError("this is the page without a run in it: `backprobe report RUN` writes one with a run");
  }
  return modelled(await unpack(text));
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
