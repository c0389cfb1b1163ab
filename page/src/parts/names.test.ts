import { expect, it } from "vitest";
import { ending, middle, shorten } from "./names";

const NAME = "encoder.layers.11.self_attn.out_proj.weight";

it("keeps numbers of layers and the last part while it can", () => {
  expect(shorten(NAME, 60)).toBe(NAME);
  expect(shorten(NAME, 36)).toBe("encoder.layers.11…out_proj.weight");
  expect(shorten(NAME, 24)).toBe("encoder…11…weight");
  expect(shorten(NAME, 12)).toBe("…11…weight");
  expect(shorten(NAME, 8)).toBe("…weight");
});

it("never gives more than there is room for, and tells layers apart", () => {
  for (let most = 5; most < 50; most++) {
    expect(shorten(NAME, most).length).toBeLessThanOrEqual(most);
    if (most >= 10) expect(shorten(NAME, most)).not.toBe(shorten(NAME.replace("11", "12"), most));
  }
});

it("cuts one word in its middle", () => {
  expect(shorten("in_proj_weight", 9)).toBe("in_p…ight");
  expect(middle("abc", 3)).toBe("abc");
  expect(middle("abcdefgh", 5)).toBe("ab…gh");
});

it("keeps the end that tells a name from its neighbours", () => {
  expect(ending("backbone.transformer.h.0.attn.c_proj.weight")).toBe("h.0.attn.c_proj.weight");
  expect(ending("backbone.transformer.h.0.mlp.c_proj.weight")).toBe("h.0.mlp.c_proj.weight");
  expect(ending(NAME)).toBe("self_attn.out_proj.weight");
  expect(ending("backbone.embeddings.weight")).toBe("embeddings.weight");
  expect([ending("weight"), ending("0"), ending("")]).toEqual(["weight", "0", ""]);
});
