// Counters that only grow become shares of the time between two looks at them.

interface Sample {
  at: number;
  values: number[];
}

export class Rates {
  private readonly samples = new Map<string | number, Sample[]>();

  constructor(private windowMs: number) {}

  setWindow(ms: number): void {
    this.windowMs = ms;
  }

  forget(): void {
    this.samples.clear();
  }

  // Who was not seen now is not known any more.
  add(at: number, rows: Iterable<[string | number, number[]]>): void {
    const seen = new Set<string | number>();
    for (const [key, values] of rows) {
      seen.add(key);
      const kept = this.samples.get(key) ?? [];
      const before = kept[kept.length - 1];
      if (before !== undefined && values.some((v, i) => v < (before.values[i] ?? 0)))
        kept.length = 0;
      kept.push({ at, values });
      while (kept.length > 2 && at - (kept[1]?.at ?? at) >= this.windowMs) kept.shift();
      this.samples.set(key, kept);
    }
    for (const key of this.samples.keys()) if (!seen.has(key)) this.samples.delete(key);
  }

  // By how much each grew in the window, and the window's length in ns.
  grown(key: string | number): { by: number[]; ns: number } | undefined {
    const kept = this.samples.get(key);
    const first = kept?.[0];
    const last = kept?.[kept.length - 1];
    if (first === undefined || last === undefined || last.at <= first.at) return undefined;
    return {
      by: last.values.map((v, i) => v - (first.values[i] ?? 0)),
      ns: (last.at - first.at) * 1e6,
    };
  }
}
