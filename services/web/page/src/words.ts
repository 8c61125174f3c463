// What a state means for a person, and which rows a filter leaves.

import type { Card, Task } from "./api";

// Every word of the filter is somewhere in what a row says.
export function matches(filter: string, ...texts: (string | number | undefined)[]): boolean {
  const all = texts.join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((word) => all.includes(word));
}

export function wanted(task: Task): string {
  if (task.class === "online") return "at once";
  if (task.class === "offline") return "idle time";
  return `${task.share_permille / 10} %`;
}

// Where it holds that something keeps the task from working, what.
export function trouble(task: Task): string {
  if (task.evicting) return "is being ended";
  if (task.quarantined) return "quarantined: its work did not stop in time";
  return task.note || (task.place === "waiting" ? (task.reason ?? "") : "");
}

// Why it does not work at this moment.
export function why(task: Task, card: Card | undefined, tasks: readonly Task[]): string {
  const said = trouble(task);
  if (said !== "") return said;
  if (task.state === "bound") return "no process of it is attached yet";
  if (task.state !== "ready" && task.state !== "suspended") return "";
  if (task.class !== "online" && card?.online_active) return "waits: an online task has the card";
  const holder = tasks.find((one) => one.id === card?.holder && one.id !== task.id);
  return holder === undefined ? "waits for its turn" : `waits for its turn: ${holder.name} works`;
}

// As `qgpuctl` has it where there is little room: "gpu-0".
export function shortName(card: Card): string {
  const kind: Record<string, string> = { nvidia: "gpu", opencl: "ocl" };
  return `${kind[card.backend] ?? card.backend}-${card.index}`;
}
