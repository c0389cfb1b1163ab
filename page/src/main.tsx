import "./style.css";
import { render } from "preact";
import { unpack } from "./data/decode";
import { Model } from "./data/model";

const text = document.getElementById("data")?.textContent ?? "";
const doc = await unpack(text);
const model = new Model(doc);
render(<p>{model.doc.run.name}</p>, document.getElementById("page")!);
