import { describe, expect, test } from "vitest";
import { href, parse } from "../route";
import { Address, changed, type Place } from "./address";

/** A window whose history is a list and whose timer runs when told. */
class Fake implements Place {
  entries = ["file:///r.html"];
  at = 0;
  listeners: Record<string, () => void> = {};
  work: (() => void) | null = null;
  refuses = false;
  location: Place["location"];
  history = {
    replaceState: (_: unknown, __: string, url: string) => {
      if (this.refuses) throw new Error("not here");
      this.entries[this.at] = url;
    },
  };

  constructor(hash = "") {
    this.entries[0] += hash;
    const fake = this;
    this.location = {
      get hash() {
        return fake.entries[fake.at]!.replace(/^[^#]*/, "");
      },
      set hash(value: string) {
        fake.entries = [...fake.entries.slice(0, fake.at + 1), `file:///r.html${value}`];
        fake.at++;
        fake.listeners.hashchange?.();
      },
      get href() {
        return fake.entries[fake.at]!;
      },
    };
  }
  addEventListener(type: string, listener: () => void) {
    this.listeners[type] = listener;
  }
  setTimeout(work: () => void) {
    this.work = work;
    return 1;
  }
  clearTimeout() {
    this.work = null;
  }
  back() {
    this.at--;
    this.listeners.hashchange?.();
  }
}

const made = (hash = "") => {
  const fake = new Fake(hash);
  const seen: string[] = [];
  const address: Address = new Address(fake, (_, back) => seen.push((back ? "back to " : "") + href(address.route)));
  return { fake, seen, address };
};

describe("the address", () => {
  test("is read at the start", () => {
    const { address } = made("#/graph?call=0&node=12");
    expect(address.route).toEqual({ view: "graph", at: { call: "0", node: "12" } });
  });

  test("a step of history is undone by Back, once", () => {
    const { fake, seen, address } = made("#/findings");
    address.go({ view: "flow", at: { parameter: "a b&c" } }, true);
    expect(fake.entries).toEqual(["file:///r.html#/findings", "file:///r.html#/flow?parameter=a+b%26c"]);
    fake.back();
    expect(seen).toEqual(["#/flow?parameter=a+b%26c", "back to #/findings"]);
  });

  test("small changes are shown at once and written together", () => {
    const { fake, seen, address } = made("#/graph");
    for (const node of ["1", "2", "3"]) address.go(changed(address.route, { node }), false);
    expect(seen).toHaveLength(3);
    expect(fake.entries).toEqual(["file:///r.html#/graph"]);
    fake.work!();
    expect(fake.entries).toEqual(["file:///r.html#/graph?node=3"]);
  });

  test("what waits is written before a step", () => {
    const { fake, address } = made("#/graph");
    address.go({ view: "graph", at: { node: "3" } }, false);
    address.go({ view: "flow", at: {} }, true);
    expect(fake.entries).toEqual(["file:///r.html#/graph?node=3", "file:///r.html#/flow"]);
  });

  test("leaving the page writes what waits", () => {
    const { fake, address } = made("#/graph");
    address.go({ view: "graph", at: { node: "3" } }, false);
    fake.listeners.pagehide!();
    expect(fake.entries).toEqual(["file:///r.html#/graph?node=3"]);
  });

  test("a frame that forbids it still shows the change", () => {
    const { fake, seen, address } = made();
    fake.refuses = true;
    address.go({ view: "graph", at: {} }, false);
    fake.work!();
    expect(seen).toEqual(["#/graph"]);
  });

  test("the same again is nothing", () => {
    const { seen, address } = made("#/graph?node=1");
    address.go({ view: "graph", at: { node: "1" } }, true);
    expect(seen).toEqual([]);
  });
});

test("parts of an address change and go", () => {
  expect(changed({ view: "v", at: { a: "1", b: "2" } }, { a: "", c: "3" })).toEqual({
    view: "v",
    at: { b: "2", c: "3" },
  });
});

test("a mistyped address is no error", () => {
  expect(parse("#/100%?a=%E0%A4")).toEqual({ view: "100%", at: { a: "\ufffd" } });
  expect(parse("")).toEqual({ view: "", at: {} });
});
