import { expect, test } from "vitest";
import { type Follow, keepLooking, type Link, look } from "./live";

function server(version: string, shown: string) {
  const asked: string[] = [];
  const taken: number[][] = [];
  const links: Link[] = [];
  const follow: Follow = {
    token: "a b",
    version: () => shown,
    take: async (packed) => {
      taken.push([...packed]);
      shown = version;
    },
    link: (state) => links.push(state),
    visible: () => true,
    ask: async (address) => {
      asked.push(address);
      const since = new URLSearchParams(address.split("?")[1]).get("since");
      return since === version ? new Response(null, { status: 204 }) : new Response(new Uint8Array([1, 2]));
    },
    wait: async () => {},
  };
  return { follow, asked, taken, links };
}

test("a newer document is taken, once", async () => {
  const { follow, asked, taken, links } = server("2", "1");
  await look(follow);
  await look(follow);
  expect(asked).toEqual(["data?token=a+b&since=1", "data?token=a+b&since=2"]);
  expect(taken).toEqual([[1, 2]]);
  expect(links).toEqual(["on", "on"]);
});

test("a server that is gone, refuses or sends damaged data is told", async () => {
  const { follow, links } = server("2", "1");
  const gone = () => Promise.reject(new TypeError("Failed to fetch"));
  await look({ ...follow, ask: gone });
  await look({ ...follow, ask: async () => new Response("", { status: 403 }) });
  await look({ ...follow, take: () => Promise.reject(new Error("damaged")) });
  expect(links).toEqual(["lost", "lost", "lost"]);
});

test("nothing is asked while nobody looks", async () => {
  const { follow, asked } = server("2", "1");
  let rounds = 0;
  const wait = async () => {
    if (++rounds > 3) throw new Error("enough");
  };
  await expect(keepLooking({ ...follow, visible: () => false, wait })).rejects.toThrow("enough");
  expect(asked).toEqual([]);
});

test("a server that takes long to answer is asked less often", async () => {
  const { follow } = server("2", "2");
  const waits: number[] = [];
  const wait = async (ms: number) => {
    waits.push(ms);
    if (waits.length > 1) throw new Error("enough");
  };
  const ask = async (address: string) => {
    await new Promise((done) => setTimeout(done, 300));
    return follow.ask(address);
  };
  await expect(keepLooking({ ...follow, ask, wait })).rejects.toThrow("enough");
  expect(waits[0]).toBe(2000);
  expect(waits[1]).toBeGreaterThan(2600);
});
