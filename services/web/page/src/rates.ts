// Counters that only grow become shares of the time between two looks at them.

interface Sample {
  at: number;
  values: number[];
}

interface Counter {
  samples: Sample[];
  seenAt: number;
  changed: boolean; // since it was seen first
}

export class Rates {
  private readonly counters = new Map<string | number, Counter>();
  private told = false;

  constructor(private windowMs: number) {}

  setWindow(ms: number): void {
    this.windowMs = ms;
  }

  // Whoever is asked was told of the counters now and then: only a look that found another value
  // says when it was true.
  setTold(told: boolean): void {
    this.told = told;
  }

  forget(): void {
    this.counters.clear();
  }

  // Who was not seen now is not known any more.
  add(at: number, rows: Iterable<[string | number, number[]]>): void {
    const seen = new Set<string | number>();
    for (const [key, values] of rows) {
      seen.add(key);
      let counter = this.counters.get(key);
      const before = counter?.samples[counter.samples.length - 1];
      if (before !== undefined && values.some((v, i) => v < (before.values[i] ?? 0)))
        counter = undefined;
      counter ??= { samples: [], seenAt: at, changed: false };
      this.counters.set(key, counter);
      counter.seenAt = at;
      this.look(counter, { at, values });
    }
    for (const key of this.counters.keys()) if (!seen.has(key)) this.counters.delete(key);
  }

  private look(counter: Counter, now: Sample): void {
    const kept = counter.samples;
    const before = kept[kept.length - 1];
    if (this.told && before !== undefined) {
      if (now.values.every((v, i) => v === before.values[i])) return;
      if (!counter.changed) kept.length = 0; // when that was told, nobody knows
      counter.changed = true;
    }
    kept.push(now);
    while (kept.length > 2 && now.at - (kept[1]?.at ?? now.at) >= this.windowMs) kept.shift();
  }

  // By how much each grew in the window, and the window's length in ns.
  grown(key: string | number): { by: number[]; ns: number } | undefined {
    const counter = this.counters.get(key);
    const first = counter?.samples[0];
    const last = counter?.samples[counter.samples.length - 1];
    if (counter === undefined || first === undefined || last === undefined) return undefined;
    const still = counter.seenAt - last.at;
    if (this.told && still >= this.windowMs)
      return { by: last.values.map(() => 0), ns: still * 1e6 };
    if (last.at <= first.at) return undefined;
    return {
      by: last.values.map((v, i) => v - (first.values[i] ?? 0)),
      ns: (last.at - first.at) * 1e6,
    };
  }
}
