/** Long names in little room: what tells them from their neighbours stays, numbers of layers and the last part first. */

const GAP = "…";

/** A name in at most `most` letters: "encoder.layers.11.self_attn.out_proj.weight" as "encoder…11…out_proj.weight". */
export function shorten(name: string, most: number): string {
  if (name.length <= most) return name;
  const parts = name.split(".");
  const last = parts.length - 1;
  const gone = new Set<number>();
  // Words first, those nearest to the middle before others; then numbers from the outside in. The last part stays.
  const order = parts
    .map((part, i) => ({ i, number: /^\d+$/.test(part), far: Math.abs(i - last / 2) }))
    .filter(({ i }) => i < last)
    .sort((a, b) => Number(a.number) - Number(b.number) || (a.number ? a.i - b.i : a.far - b.far));
  let text = name;
  for (const { i } of order) {
    gone.add(i);
    text = joined(parts, gone);
    if (text.length <= most) return text;
  }
  return middle(parts[last]!, most);
}

function joined(parts: readonly string[], gone: ReadonlySet<number>): string {
  let text = "";
  parts.forEach((part, i) => {
    if (gone.has(i)) text += text.endsWith(GAP) ? "" : GAP;
    else text += (text === "" || text.endsWith(GAP) ? "" : ".") + part;
  });
  return text;
}

/** A text with its middle left out. */
export function middle(text: string, most: number): string {
  if (text.length <= most) return text;
  const tail = Math.floor((most - 1) / 2);
  return `${text.slice(0, Math.max(0, most - 1 - tail))}${GAP}${text.slice(text.length - tail)}`;
}

/** No end of a name is longer than this, if its last part is not. */
const END = 26;

/** The end of a name that tells it from its neighbours: from the number of its layer on, with the word before it, where
 *  that is short enough. */
export function ending(name: string): string {
  const parts = name.split(".");
  const layer = parts.findLastIndex((part) => /^\d+$/.test(part));
  const from = layer < 0 ? parts.length - 2 : layer - 1;
  for (let i = Math.max(0, from); i < parts.length; i++) {
    const end = parts.slice(i).join(".");
    if (end.length <= END || i === parts.length - 1) return end;
  }
  return name;
}
