import { type Decoded, FORMAT, type Packed, type Raw } from "./document";

/** Something that a person can act on: the message is shown as it is. */
export class PageError extends Error {}

const KINDS = { f32: Float32Array, f64: Float64Array, i32: Int32Array, u8: Uint8Array } as const;

function isPacked(value: unknown): value is Packed {
  return typeof value === "object" && value !== null && "t" in value && "b" in value && Object.keys(value).length === 2;
}

/** Bytes of a base64 text. */
export function bytes(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text);
  const out = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) out[i] = binary.charCodeAt(i);
  return out;
}

/** The numbers of a column; bytes become 32-bit integers so that every index has one type. */
export function column(packed: Packed): Float32Array | Float64Array | Int32Array {
  const raw = bytes(packed.b);
  const kind = KINDS[packed.t];
  if (!kind || raw.byteLength % kind.BYTES_PER_ELEMENT !== 0)
    throw new PageError(`a column of type ${packed.t} is damaged`);
  const made = new kind(raw.buffer);
  return made instanceof Uint8Array ? Int32Array.from(made) : made;
}

/** A document from its JSON. Evidence is a person's own data: nothing in it is taken for a column. */
export function decode(raw: Raw): Decoded {
  if (raw.format !== FORMAT) {
    throw new PageError(`this page reads format ${FORMAT}; the data has format ${raw.format}: write the report again`);
  }
  return walk(raw, "") as Decoded;
}

/** Whether what is under a key holds no column, whatever it looks like. */
export function plain(key: string): boolean {
  return key === "findings" || key === "sources" || key === "notes" || key === "strings";
}

export function walk(value: unknown, key: string): unknown {
  if (plain(key)) return value;
  if (Array.isArray(value)) return value.map((one) => walk(one, ""));
  if (isPacked(value)) return column(value);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, walk(v, k)]));
}

/** The document of a page: gzip of JSON, as base64. */
export async function unpack(text: string): Promise<Decoded> {
  return decode((await raw(text)) as Raw);
}

/** The JSON of a page, of whatever kind. */
export async function raw(text: string): Promise<object> {
  let packed: Uint8Array<ArrayBuffer>;
  try {
    packed = bytes(text.trim());
  } catch (error) {
    throw damaged(error);
  }
  return unzipped(packed);
}

/** Steps of a range, as a server gives them: gzip of their JSON. */
export async function unzipSteps(packed: Uint8Array<ArrayBuffer>): Promise<Decoded["steps"]> {
  return walk(await unzipped(packed), "steps") as Decoded["steps"];
}

export async function unzipped(packed: Uint8Array<ArrayBuffer>): Promise<object> {
  if (typeof DecompressionStream === "undefined") {
    throw new PageError("this browser cannot unpack the report: use one from 2023 or later");
  }
  let raw: unknown;
  try {
    const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
    raw = JSON.parse(await new Response(stream).text());
  } catch (error) {
    throw damaged(error);
  }
  if (typeof raw !== "object" || raw === null) throw damaged("it holds no document");
  return raw;
}

function damaged(why: unknown): PageError {
  return new PageError(
    `the data of this report is damaged (${why instanceof Error ? why.message : String(why)}): write it again`,
  );
}
