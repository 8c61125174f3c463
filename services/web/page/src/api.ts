// What the daemon is asked, and how its answers look: those of its admin socket, by HTTP.

export interface Card {
  id: string;
  index: number;
  node: string;
  model: string;
  backend: string;
  mem_bytes: number;
  mem_bound_bytes: number;
  share_bound_permille: number;
  policy: string;
  kind: string;
  suspend: string;
  suspend_why?: string;
  memory_counted?: string;
  driver?: string;
  report_unix_ms?: number;
  state: string;
  tasks: number;
  holder: number;
  online_active: boolean;
  used_ns: number;
  idle_ns: number;
  online_ns: number;
  holds: number;
  overruns: number;
  settle_us: { p50: number; p99: number; n: number };
}

export interface Task {
  id: number;
  name: string;
  class: "online" | "offline" | "ordinary";
  node: string;
  card: string; // ids, with commas between
  share_permille: number;
  mem_bytes: number;
  mem_used_bytes: number;
  state: string;
  processes: number;
  used_ns: number; // charged
  gpu_ns: number; // measured, 0 where the card has no such clock
  held_ns: number;
  launches: number;
  quarantined?: boolean;
  evicting?: boolean;
  note?: string;
  // Of a cluster alone.
  node_task?: number; // its number on its node
  place?: string;
  reason?: string;
  submitted_unix_ms?: number;
}

export interface ClusterNode {
  name: string;
  state: string;
  since_unix_ms: number;
  cordoned: boolean;
  draining: boolean;
  version: string;
  cards: number;
  tasks: number;
  mem_bytes: number;
  mem_bound_bytes: number;
  share_bound_permille: number;
}

export interface Event {
  seq: number;
  unix_ms: number;
  kind: string;
  task: number;
  card: string;
  text: string;
  actor: string;
}

export interface Status {
  version: string;
  pid: number;
  uptime_ns: number;
  storage: string;
  // Of a node.
  node?: string;
  policy?: string;
  realtime?: string;
  cluster?: string;
  // Of a scheduler.
  role?: "scheduler";
  nodes?: number;
  alive?: number;
  waiting?: number;
  priority?: string;
  pending?: { class: string; reason: string; tasks: number }[];
}

export interface Trace {
  card: string;
  now_ns: number;
  newest: number;
  lost: number;
  entries: { seq: number; at_ns: number; kind: string; task?: number; since_ns?: number }[];
  tasks: { id: number; name: string; class: string }[];
}

export interface Landing {
  task: number;
  node: string;
  cards: string[];
  evicts: number[];
  reason: string;
}

export interface Plan {
  landed: Landing[];
  stay: Landing[];
  allocated_before_permille: number;
  allocated_after_permille: number;
  fragment_before_permille: number;
  fragment_after_permille: number;
}

export class TokenWanted extends Error {}
// The daemon's own words for why not.
export class Refused extends Error {}

const kAnswerWithinMs = 10_000;
const kTokenKey = "qgpu-token"; // kept until the tab is closed

export function keepToken(token: string): void {
  sessionStorage.setItem(kTokenKey, token);
}

// Any other failure is of the way there: the daemon is away.
export async function ask<T>(command: string, argument = ""): Promise<T> {
  const token = sessionStorage.getItem(kTokenKey);
  const query = argument === "" ? "" : `?${encodeURIComponent(argument)}`;
  const answer = await fetch(`api/${command}${query}`, {
    headers: token === null ? {} : { Authorization: `Bearer ${token}` },
    signal: AbortSignal.timeout(kAnswerWithinMs),
  });
  if (answer.status === 401) throw new TokenWanted();
  if (answer.status === 403) throw new Refused(await answer.text());
  const document = (await answer.json()) as { ok: boolean; error?: string };
  if (!document.ok) throw new Refused(document.error ?? "refused");
  return document as T;
}
