/** What a server sends of a newer document, put into the one that is shown: the other side of `report/changes.py`. */
import { column, decode, PageError, plain, unzipped, walk } from "./decode";
import type { Decoded, Packed, Raw } from "./document";

export type Change =
  | ["set", unknown]
  | ["in", Record<string, Change>]
  | ["list", ([number, number] | [number, Change] | [unknown])[]]
  | ["more", number, Packed];

type Numbers = Float32Array | Float64Array | Int32Array;

/** The document after `packed`, gzip of JSON: a whole one, or what has changed since `old`. */
export async function renewed(old: Decoded | null, packed: Uint8Array<ArrayBuffer>): Promise<Decoded> {
  const sent = (await unzipped(packed)) as Raw | { since: string; change: Change };
  if (!("change" in sent)) return decode(sent);
  if (sent.since !== old?.version) throw new PageError("the server sent what has changed since another version");
  return merged(old, sent.change) as Decoded;
}

/** `old`, decoded, with a change put into it. `key` is where it is; what has not changed is the same object. */
export function merged(old: unknown, change: Change, key = "", inside = false): unknown {
  const own = inside || plain(key);
  const taken = (value: unknown): unknown => (own ? value : walk(value, key));
  switch (change[0]) {
    case "set":
      return taken(change[1]);
    case "in": {
      const entries = Object.entries(change[1]);
      return { ...(old as object), ...Object.fromEntries(entries.map(([k, c]) => [k, merged(at(old, k), c, k, own)])) };
    }
    case "list":
      return change[1].flatMap((part) => {
        if (part.length === 1) return [own ? part[0] : walk(part[0], "")];
        const [from, end] = part as [number, number | Change];
        if (typeof end === "number") return (old as unknown[]).slice(from, end);
        return [merged((old as unknown[])[from], end, "", own)];
      });
    case "more":
      return joined(old as Numbers, change[1], column(change[2]));
  }
}

function at(old: unknown, key: string): unknown {
  return (old as Record<string, unknown>)[key];
}

/** The first `count` numbers of a column, and more. */
function joined(old: Numbers, count: number, more: Numbers): Numbers {
  const made = new (more.constructor as new (size: number) => Numbers)(count + more.length);
  made.set(old.subarray(0, count));
  made.set(more, count);
  return made;
}
