import { describe, expect, it } from "vitest";
import examples from "../testing/changes.json";
import { empty } from "../testing/document";
import { walk } from "./decode";
import { type Change, merged, renewed } from "./merge";

async function gzip(value: unknown): Promise<Uint8Array<ArrayBuffer>> {
  const stream = new Blob([JSON.stringify(value)]).stream().pipeThrough(new CompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

describe("what the server found changed, put into what is shown,", () => {
  examples.forEach(([old, change, whole], i) => {
    it(`is the whole document: ${i}`, () => {
      expect(merged(walk(old, ""), change as Change)).toEqual(walk(whole, ""));
    });
  });
});

it("keeps what has not changed as it is", () => {
  const old = { a: { x: [1] }, b: Int32Array.of(1, 2) };
  const made = merged(old, ["in", { b: ["more", 1, { t: "i32", b: "BwAAAA==" }] }]) as typeof old;
  expect(made.a).toBe(old.a);
  expect([...made.b]).toEqual([1, 7]);
});

it("is refused where it is of another version than the one that is shown", async () => {
  const change: Change = ["in", { version: ["set", "2"] }];
  const old = { ...empty(), version: "1" };
  expect((await renewed(old, await gzip({ since: "1", change }))).version).toBe("2");
  await expect(renewed(old, await gzip({ since: "0", change }))).rejects.toThrow("another version");
  await expect(renewed(null, await gzip({ since: "1", change }))).rejects.toThrow("another version");
  await expect(renewed(old, await gzip({ format: 1 }))).rejects.toThrow("write the report again");
});
