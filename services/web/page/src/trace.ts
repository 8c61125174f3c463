// What a card did lately, from its trace: entries become stretches of time for each task. The same
// rules as `qgpuctl timeline` has (services/ctl/trace/card_history.cc).

import type { Trace } from "./api";

export type SpanKind = "slice" | "hold" | "wait" | "work";
export interface Span {
  kind: SpanKind;
  from: number; // ns of the card's clock
  to: number; // Infinity while it goes on
}
export interface Lane {
  id: number;
  name: string;
  class: string;
  spans: Span[];
  refused: number[]; // times of refused memory
  last: number; // when something was last told of it
}

const kKeptNs = 30e9;

export class CardTrace {
  readonly lanes = new Map<number, Lane>();
  since = 0;
  caughtUp = true;
  now = 0; // of the card's clock, when the newest answer was made
  heard = 0; // performance.now() of then
  every = 0; // ns between answers, of late
  private begun = 0; // nothing older is known

  add(trace: Trace, heard: number): void {
    if (this.since > trace.newest || trace.now_ns < this.now) this.restart();
    if (this.since === 0 || trace.lost > 0) this.begun = trace.entries[0]?.at_ns ?? trace.now_ns;
    if (this.now > 0) this.every = Math.max(0.9 * this.every, trace.now_ns - this.now);
    this.now = trace.now_ns;
    this.heard = heard;
    for (const task of trace.tasks) this.lane(task.id, task.name, task.class);
    for (const entry of trace.entries) {
      this.since = entry.seq;
      if (entry.task !== undefined)
        this.follow(entry.kind, entry.task, entry.at_ns, entry.since_ns);
    }
    this.caughtUp = this.since >= trace.newest;
    this.forget(trace.now_ns - kKeptNs);
  }

  // The card's clock at this moment of the page.
  at(moment: number): number {
    return this.now + (moment - this.heard) * 1e6;
  }

  private restart(): void {
    this.lanes.clear();
    this.every = 0;
    this.since = 0;
  }

  private lane(id: number, name = `task ${id}`, kind = "ordinary"): Lane {
    let lane = this.lanes.get(id);
    if (lane === undefined) {
      lane = { id, name, class: kind, spans: [], refused: [], last: this.now };
      this.lanes.set(id, lane);
    }
    return lane;
  }

  private follow(kind: string, task: number, at: number, since = 0): void {
    const lane = this.lane(task);
    lane.last = at;
    const begin = (what: SpanKind, from: number): void => {
      if (!lane.spans.some((s) => s.kind === what && s.to === Infinity)) {
        lane.spans.push({ kind: what, from: Math.max(from, this.begun), to: Infinity });
      }
    };
    const endAll = (): void => {
      for (const span of lane.spans) if (span.to === Infinity) span.to = at;
    };
    switch (kind) {
      case "ready":
        return begin("wait", since || at);
      case "running":
        if (lane.class === "online") return begin("work", since || at);
        endAll();
        return begin("slice", at);
      case "suspending":
        return begin("hold", at);
      case "suspended":
        endAll();
        return begin("wait", at);
      case "idle":
      case "overrun":
        return endAll();
      case "left":
      case "drained":
        endAll();
        lane.last = at;
        return;
      case "memory-refused":
        lane.refused.push(at);
    }
  }

  private forget(before: number): void {
    for (const lane of this.lanes.values()) {
      lane.spans = lane.spans.filter((span) => span.to > before);
      lane.refused = lane.refused.filter((at) => at > before);
      if (lane.spans.length === 0 && lane.last < before) this.lanes.delete(lane.id);
    }
  }
}
