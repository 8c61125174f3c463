// What the daemon says, asked again and again: its lists, what became of them since the last time,
// and the traces of the cards that somebody looks at. Where the daemon is away it is asked until it
// is back, and what belonged to the one before is forgotten.

import { ask, keepToken, Refused, TokenWanted } from "./api";
import type { Card, ClusterNode, Event, Status, Task, Trace } from "./api";
import { Rates } from "./rates";
import { CardTrace } from "./trace";

const kEveryMs = 1000;
const kTraceEveryMs = 400;
const kRestFactor = 10; // a daemon is asked a tenth of the time at most
const kEventsMax = 1000;
const kHistoryMax = 120; // looks at a card that its small picture shows
const kNodeWindowMs = 3000;
const kClusterWindowMs = 15_000; // nodes tell their scheduler what they used every few seconds

const pause = (ms: number): Promise<void> => new Promise((done) => setTimeout(done, ms));

export class Live {
  status: Status | undefined;
  cards: Card[] = [];
  tasks: Task[] = [];
  nodes: ClusterNode[] = [];
  events: Event[] = []; // the newest first
  awaySince: number | undefined;
  wantsToken = false;
  refused: string | undefined; // what the daemon said instead of an answer
  readonly traces = new Map<string, CardTrace>(); // by keyOf() of the card
  readonly untold = new Map<string, string>(); // why there is no trace of a card
  private readonly watched = new Map<string, { card: Card; by: number }>(); // whose trace is wanted
  private readonly cardRates = new Rates(kNodeWindowMs);
  private readonly taskRates = new Rates(kNodeWindowMs);
  private cardBusy = new Map<string, number>();
  private readonly history = new Map<string, number[]>();
  private newestEvent = 0;
  private wake: (() => void) | undefined;

  constructor(private readonly changed: () => void) {
    document.addEventListener("visibilitychange", () => this.wake?.());
    void this.follow();
    void this.followTraces();
  }

  get isCluster(): boolean {
    return this.status?.role === "scheduler";
  }

  // Of 0 to 1; undefined where it is not known yet.
  busy(card: Card): number | undefined {
    return this.cardBusy.get(keyOf(card));
  }
  // Online work is not charged: what of it the card has measured is told, or nothing.
  got(task: Task): number | undefined {
    const grown = this.taskRates.grown(task.id);
    const measured = task.class !== "online" || task.used_ns > 0 || task.gpu_ns > 0;
    if (grown === undefined || !measured) return undefined;
    return Math.max(grown.by[0] ?? 0, task.class === "online" ? (grown.by[2] ?? 0) : 0) / grown.ns;
  }
  held(task: Task): number | undefined {
    const grown = this.taskRates.grown(task.id);
    return grown === undefined ? undefined : Math.min(1, (grown.by[1] ?? 0) / grown.ns);
  }
  busyBefore(card: Card): readonly number[] {
    return this.history.get(keyOf(card)) ?? [];
  }

  tellToken(token: string): void {
    keepToken(token);
    this.wantsToken = false;
    this.wake?.();
  }

  // Its trace, until the answer is of use to nobody any more.
  watch(card: Card): () => void {
    const key = keyOf(card);
    const watched = this.watched.get(key) ?? { card, by: 0 };
    ++watched.by;
    this.watched.set(key, watched);
    return () => {
      if (--watched.by > 0) return;
      this.watched.delete(key);
      this.traces.delete(key);
      this.untold.delete(key);
    };
  }

  private async follow(): Promise<void> {
    for (;;) {
      const begun = performance.now();
      try {
        await this.look();
        this.awaySince = undefined;
        this.refused = undefined;
      } catch (error) {
        this.fail(error);
      }
      this.changed();
      await this.rest(Math.max(kEveryMs, kRestFactor * (performance.now() - begun)));
    }
  }

  private fail(error: unknown): void {
    this.refused = error instanceof Refused ? error.message : undefined;
    this.wantsToken = error instanceof TokenWanted;
    const away = this.refused === undefined && !this.wantsToken;
    this.awaySince = away ? (this.awaySince ?? Date.now()) : undefined;
  }

  // Nobody looks at a page that is hidden.
  private async rest(ms: number): Promise<void> {
    const woken = new Promise<void>((done) => (this.wake = done));
    if (this.wantsToken || document.hidden) await woken;
    else await Promise.race([woken, pause(this.awaySince === undefined ? ms : kEveryMs)]);
  }

  private async look(): Promise<void> {
    const status = await ask<Status>("status");
    const before = this.status ?? status;
    if (status.pid !== before.pid || status.uptime_ns < before.uptime_ns) this.forget();
    this.status = status;
    const window = this.isCluster ? kClusterWindowMs : kNodeWindowMs;
    for (const rates of [this.cardRates, this.taskRates]) {
      rates.setWindow(window);
      rates.setTold(this.isCluster);
    }
    const [cards, tasks, nodes] = await Promise.all([
      ask<{ cards: Card[] }>("cards"),
      ask<{ tasks: Task[] }>("tasks"),
      this.isCluster ? ask<{ nodes: ClusterNode[] }>("nodes") : { nodes: [] },
    ]);
    const at = performance.now();
    this.cards = cards.cards;
    this.tasks = tasks.tasks;
    this.nodes = nodes.nodes;
    this.cardRates.add(
      at,
      this.cards.map((c) => [keyOf(c), [c.used_ns, c.idle_ns]]),
    );
    this.taskRates.add(
      at,
      this.tasks.map((t) => [t.id, [t.used_ns, t.held_ns, t.gpu_ns]]),
    );
    this.remember();
    await this.hearEvents();
  }

  // A node tells its scheduler what its tasks used, and of a card only when it changes.
  private remember(): void {
    this.cardBusy = this.isCluster ? this.busyByTasks() : this.busyByCards();
    for (const card of this.cards) {
      const before = this.history.get(keyOf(card)) ?? [];
      before.push(this.busy(card) ?? 0);
      if (before.length > kHistoryMax) before.shift();
      this.history.set(keyOf(card), before);
    }
  }

  private busyByCards(): Map<string, number> {
    const busy = new Map<string, number>();
    for (const card of this.cards) {
      const [used = 0, idle = 0] = this.cardRates.grown(keyOf(card))?.by ?? [];
      if (used + idle > 0) busy.set(keyOf(card), used / (used + idle));
    }
    return busy;
  }

  private busyByTasks(): Map<string, number> {
    const busy = new Map(this.cards.map((card) => [keyOf(card), 0]));
    for (const task of this.tasks) {
      const ids = task.card.split(",");
      for (const id of ids) {
        const key = keyOf({ node: task.node, id });
        const before = busy.get(key);
        if (before !== undefined) busy.set(key, Math.min(1, before + (this.got(task) ?? 0)));
      }
    }
    return busy;
  }

  private async hearEvents(): Promise<void> {
    for (;;) {
      const { events } = await ask<{ events: Event[] }>("events", String(this.newestEvent));
      const last = events[events.length - 1];
      if (last === undefined || last.seq <= this.newestEvent) return;
      this.newestEvent = last.seq;
      this.events = [...events.reverse(), ...this.events].slice(0, kEventsMax);
    }
  }

  private forget(): void {
    this.cardRates.forget();
    this.taskRates.forget();
    this.history.clear();
    this.events = [];
    this.newestEvent = 0;
    this.traces.clear();
    this.untold.clear();
  }

  private async followTraces(): Promise<void> {
    for (;;) {
      const begun = performance.now();
      let behind = false;
      if (this.status !== undefined && this.awaySince === undefined && !this.wantsToken) {
        for (const { card } of document.hidden ? [] : [...this.watched.values()])
          behind = (await this.hear(card)) || behind;
      }
      const took = performance.now() - begun;
      await pause(behind ? 0 : Math.max(kTraceEveryMs, kRestFactor * took));
    }
  }

  // Whether there is more to hear at once.
  private async hear(card: Card): Promise<boolean> {
    const key = keyOf(card);
    const trace = this.traces.get(key) ?? new CardTrace();
    const name = this.isCluster ? `${card.node}/${card.id}` : card.id;
    try {
      const answer = await ask<Trace>("trace", `${name} ${trace.since}`);
      if (!this.watched.has(key)) return false;
      trace.add(answer, performance.now());
      this.traces.set(key, trace);
      this.untold.delete(key);
      return !trace.caughtUp;
    } catch (error) {
      // Of a node that is away while its scheduler is not; else follow() tells why.
      if (error instanceof Refused && this.watched.has(key)) this.untold.set(key, error.message);
      return false;
    }
  }
}

export function keyOf(card: { node: string; id: string }): string {
  return `${card.node}/${card.id}`;
}
