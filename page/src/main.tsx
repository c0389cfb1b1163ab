import "./style.css";
import "./frame/frame.css";
import { render } from "preact";
import { App } from "./app";
import { CompareApp } from "./compare/app";
import { PageError } from "./data/decode";
import { renewed } from "./data/merge";
import { Model } from "./data/model";
import { type Follow, keepLooking, type Link, look, token } from "./frame/live";
import { Message } from "./frame/message";
import { modelled, open } from "./frame/open";
import { apply, chosen } from "./frame/theme";

const root = document.getElementById("page")!;
apply(chosen());
render(<p class="frame-message quiet">Opening the run …</p>, root);

const served = token();
let model: Model | null = null;
/** The version of the document that is shown; "" where the next one has to be whole. */
let version = "";
let link: Link | null = served === null ? null : "on";

/** A message of ours, or a defect in words. */
function problem(error: unknown): string {
  if (error instanceof PageError) return error.message;
  console.error(error);
  return `the data of this report is damaged (${String(error)}): write it again`;
}

function draw(): void {
  if (model !== null) render(<App model={model} live={link} />, root);
}

async function start(): Promise<void> {
  const text = document.getElementById("data")?.textContent ?? "";
  // A server may send the page first and the run after it.
  if (served === null || text.trim() !== "") {
    const found = await open(text);
    if (!(found instanceof Model)) {
      render(<CompareApp doc={found} />, root);
      return;
    }
    model = found;
  }
  version = model?.doc.version ?? "";
  draw();
  if (served === null) return;
  const follow: Follow = {
    token: served,
    version: () => version,
    take: async (packed) => {
      version = "";
      model = modelled(await renewed(model?.doc ?? null, packed));
      version = model.doc.version;
      draw();
    },
    link: (state) => {
      if (state !== link || model === null) {
        link = state;
        draw();
      }
    },
    visible: () => !document.hidden,
    ask: (address) => fetch(address, { cache: "no-store" }),
    wait: (ms) => new Promise((done) => setTimeout(done, ms)),
  };
  await look(follow);
  await keepLooking(follow);
}

start().catch((error: unknown) => render(<Message text={problem(error)} />, root));
