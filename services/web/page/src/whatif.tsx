// Something tried on a copy of the cluster: where tasks would go, or what a drain would move.

import { useState } from "preact/hooks";
import type { JSX } from "preact";
import { ask } from "./api";
import type { Landing, Plan } from "./api";
import { plural } from "./format";

const kShown = 200; // landings

function question(form: FormData): string {
  const text = (name: string): string => String(form.get(name) ?? "").trim();
  if (text("what") === "drain") return JSON.stringify({ drain: text("target") });
  const spec: Record<string, string | number> = {
    name: "what-if",
    class: text("class"),
    memory: text("memory"), // as `--memory` takes it: the daemon reads both
  };
  if (text("class") !== "online") spec["core_percent"] = Number(text("core"));
  return JSON.stringify({ place: spec, count: Number(text("count")) });
}

export function WhatIf(): JSX.Element {
  const [what, setWhat] = useState("place");
  const [plan, setPlan] = useState<Plan>();
  const [error, setError] = useState<string>();
  const onSubmit = async (event: SubmitEvent): Promise<void> => {
    event.preventDefault();
    try {
      setPlan(
        await ask<Plan>("whatif", question(new FormData(event.currentTarget as HTMLFormElement))),
      );
      setError(undefined);
    } catch (failed) {
      setPlan(undefined);
      setError(
        failed instanceof Error ? failed.message || "the scheduler is away" : String(failed),
      );
    }
  };
  return (
    <section class="whatif">
      <form onSubmit={(event) => void onSubmit(event)}>
        <p class="hint">Tried on a copy of the cluster: nothing is changed.</p>
        <label>
          What if
          <select name="what" value={what} onChange={(e) => setWhat(e.currentTarget.value)}>
            <option value="place">tasks were submitted</option>
            <option value="drain">a node or card were drained</option>
          </select>
        </label>
        {what === "drain" ? (
          <label>
            Node, or NODE/CARD
            <input name="target" required placeholder="node-3" />
          </label>
        ) : (
          <>
            <label>
              Tasks
              <input name="count" type="number" min="1" max="10000" defaultValue="1" required />
            </label>
            <label>
              Class
              <select name="class">
                <option>ordinary</option>
                <option>online</option>
                <option>offline</option>
              </select>
            </label>
            <label>
              Memory
              <input name="memory" defaultValue="4GiB" placeholder="1.5GiB, 512MiB" required />
            </label>
            <label>
              Share, percent
              <input name="core" type="number" min="0" max="1600" defaultValue="30" required />
            </label>
          </>
        )}
        <button type="submit">Try</button>
      </form>
      {error === undefined ? null : (
        <p class="refusal" role="alert">
          {error}
        </p>
      )}
      {plan === undefined ? null : <Outcome plan={plan} />}
    </section>
  );
}

function Outcome({ plan }: { plan: Plan }): JSX.Element {
  const change = (from: number, to: number): string => `${from / 10} % → ${to / 10} %`;
  return (
    <div class="outcome" role="status">
      <p>
        <b>{plural(plan.landed.length, "task")}</b> would find a place, <b>{plan.stay.length}</b>
        {" would not. Shares given away: "}
        {change(plan.allocated_before_permille, plan.allocated_after_permille)}; of the rest, too
        small to use: {change(plan.fragment_before_permille, plan.fragment_after_permille)}.
      </p>
      <Landings list={plan.landed} />
      <Landings list={plan.stay} />
    </div>
  );
}

function Landings({ list }: { list: Landing[] }): JSX.Element | null {
  if (list.length === 0) return null;
  return (
    <ul>
      {list.slice(0, kShown).map((one) => (
        <li key={one.task}>
          <b>{one.task}</b> {one.node === "" ? one.reason : `${one.node} ${one.cards.join(", ")}`}
          {one.evicts.length === 0 ? "" : `, evicts ${one.evicts.join(", ")}`}
        </li>
      ))}
      {list.length > kShown ? <li>and {list.length - kShown} more</li> : null}
    </ul>
  );
}
