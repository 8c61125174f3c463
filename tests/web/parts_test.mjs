// parts_test.mjs SOURCES PACKAGES: what of the page is pure: shares from counters, timelines from a
// card's trace, filters and numbers.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { join } from "node:path";
import { test } from "node:test";

const [sources, packages] = process.argv.slice(2);
const { buildSync } = createRequire(`${packages}/`)("esbuild");
const load = (name) => {
  const entryPoints = [join(sources, `${name}.ts`)];
  const { outputFiles } = buildSync({ entryPoints, bundle: true, format: "esm", write: false });
  return import(
    `data:text/javascript;base64,${Buffer.from(outputFiles[0].text).toString("base64")}`
  );
};
const { Rates } = await load("rates");
const { CardTrace } = await load("trace");
const { bytes, bytesOf, duration } = await load("format");
const { matches, why } = await load("words");

const kSecond = 1e9;
function traceOf(entries, { newest, now = 10 * kSecond, lost = 0, online = [] } = {}) {
  const ids = [...new Set(entries.map((entry) => entry.task))];
  return {
    card: "sim-0",
    now_ns: now,
    newest: newest ?? entries.at(-1)?.seq ?? 0,
    lost,
    entries,
    tasks: ids.map((id) => ({
      id,
      name: `t${id}`,
      class: online.includes(id) ? "online" : "ordinary",
    })),
  };
}
const entry = (seq, kind, task, at, since) => ({
  seq,
  kind,
  task,
  at_ns: at * kSecond,
  since_ns: since === undefined ? undefined : since * kSecond,
});
const spansOf = (trace, task) =>
  trace.lanes.get(task).spans.map((s) => [s.kind, s.from / kSecond, s.to / kSecond]);

test("counters become shares of the time between looks", () => {
  const rates = new Rates(3000);
  rates.add(0, [["a", [0, 5]]]);
  assert.equal(rates.grown("a"), undefined);
  rates.add(1000, [["a", [5e8, 5]]]);
  assert.deepEqual(rates.grown("a"), { by: [5e8, 0], ns: 1e9 });
  for (let s = 2; s <= 10; ++s) rates.add(s * 1000, [["a", [s * 5e8, 5]]]);
  assert.equal(rates.grown("a").ns, 3e9);
});

test("a counter that fell is one of another daemon, and who is gone is forgotten", () => {
  const rates = new Rates(3000);
  rates.add(0, [["a", [100]]]);
  rates.add(1000, [["a", [50]]]);
  assert.equal(rates.grown("a"), undefined);
  rates.add(2000, [["a", [60]]]);
  assert.deepEqual(rates.grown("a").by, [10]);
  rates.add(3000, []);
  rates.add(4000, [["a", [70]]]);
  assert.equal(rates.grown("a"), undefined);
});

test("counters that are told now and then are shares of the time between two tellings", () => {
  const rates = new Rates(15_000);
  rates.setTold(true);
  // Half of the time, told every 5 s, looked at every second from 2.5 s on.
  const told = (ms) => [["a", [Math.floor(ms / 5000) * 25e8]]];
  const known = [];
  for (let ms = 2500; ms <= 60_000; ms += 1000) {
    rates.add(ms, told(ms));
    const grown = rates.grown("a");
    if (grown !== undefined) known.push([ms, grown.by[0] / grown.ns]);
  }
  assert.equal(known[0][0], 10_500);
  for (const [ms, share] of known) assert.ok(Math.abs(share - 0.5) < 1e-9, `${share} at ${ms} ms`);
  // Who does nothing for long has nothing, and is not as it was when it was told of last.
  for (let ms = 61_000; ms <= 90_000; ms += 1000) rates.add(ms, told(60_000));
  assert.deepEqual(rates.grown("a").by, [0]);
});

test("who was never told of anew is not known yet, and later has nothing", () => {
  const rates = new Rates(3000);
  rates.setTold(true);
  rates.add(0, [["a", [7]]]);
  rates.add(1000, [["a", [7]]]);
  assert.equal(rates.grown("a"), undefined);
  for (let s = 2; s <= 4; ++s) rates.add(s * 1000, [["a", [7]]]);
  assert.deepEqual(rates.grown("a").by, [0]);
});

test("a trace becomes what each task did", () => {
  const trace = new CardTrace();
  trace.add(
    traceOf(
      [
        entry(1, "ready", 1, 1, 0.5),
        entry(2, "running", 1, 2),
        entry(3, "suspending", 1, 4),
        entry(4, "running", 2, 4.5, 4),
        entry(5, "suspended", 1, 5),
        entry(6, "memory-refused", 1, 6),
        entry(7, "idle", 2, 7),
      ],
      { online: [2] },
    ),
    0,
  );
  assert.deepEqual(spansOf(trace, 1), [
    ["wait", 1, 2], // nothing is known before the first entry
    ["slice", 2, 5],
    ["hold", 4, 5],
    ["wait", 5, Infinity],
  ]);
  assert.deepEqual(spansOf(trace, 2), [["work", 4, 7]]);
  assert.deepEqual(trace.lanes.get(1).refused, [6 * kSecond]);
  assert.equal(trace.lanes.get(2).name, "t2");
});

test("a trace is heard in parts, and anew from a manager that was started again", () => {
  const trace = new CardTrace();
  trace.add(traceOf([entry(1, "running", 1, 1)], { newest: 2 }), 0);
  assert.equal(trace.caughtUp, false);
  assert.equal(trace.since, 1);
  trace.add(traceOf([entry(2, "idle", 1, 3)]), 0);
  assert.equal(trace.caughtUp, true);
  assert.deepEqual(spansOf(trace, 1), [["slice", 1, 3]]);
  trace.add(traceOf([entry(1, "running", 4, 11)], { now: 12 * kSecond }), 0);
  assert.equal(trace.lanes.has(1), false);
  assert.deepEqual(spansOf(trace, 4), [["slice", 11, Infinity]]);
});

test("what is older than half a minute is forgotten", () => {
  const trace = new CardTrace();
  trace.add(traceOf([entry(1, "running", 1, 1), entry(2, "left", 1, 3)]), 0);
  trace.add(traceOf([], { newest: 2, now: 40 * kSecond }), 0);
  assert.equal(trace.lanes.size, 0);
});

test("a filter has words, each of which is somewhere", () => {
  assert.equal(matches("", "a"), true);
  assert.equal(matches("TRAIN gpu-0", "train-7", "node/gpu-0"), true);
  assert.equal(matches("train gpu-1", "train-7", "node/gpu-0"), false);
  assert.equal(matches("undefined", "a", undefined), false);
});

test("why a task does not work is said in words", () => {
  const task = { state: "ready", class: "ordinary" };
  assert.equal(why({ ...task, state: "running" }, undefined, []), "");
  assert.equal(
    why({ ...task, state: "bound" }, undefined, []),
    "no process of it is attached yet",
  );
  assert.equal(why(task, { online_active: true }, []), "waits: an online task has the card");
  assert.equal(why(task, { holder: 3 }, [{ id: 3, name: "x" }]), "waits for its turn: x works");
  assert.equal(why({ ...task, id: 3 }, { holder: 3 }, [{ id: 3 }]), "waits for its turn");
  assert.equal(why({ ...task, place: "waiting", reason: "no room" }, undefined, []), "no room");
});

test("numbers are short", () => {
  assert.equal(bytes(0), "0 B");
  assert.equal(bytes(1536 * 2 ** 20), "1.5 GiB");
  assert.equal(bytesOf(31.5 * 2 ** 30, 40 * 2 ** 30), "31.5 / 40 GiB");
  assert.equal(bytesOf(2 ** 10, 40 * 2 ** 30), "1 KiB / 40 GiB");
  assert.equal(duration(59e9), "59 s");
  assert.equal(duration(90_000e9), "1 d 1 h");
});
