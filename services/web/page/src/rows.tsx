// How a card, a task, a node and an event look in their lists.

import { useEffect, useState } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import { ask } from "./api";
import type { Card, ClusterNode, Event, Task } from "./api";
import { Sparkline, Timeline } from "./canvas";
import { bytesOf, clock, duration, percent, plural } from "./format";
import { keyOf } from "./live";
import type { Live } from "./live";
import { shortName, trouble, wanted, why } from "./words";

// Heights that page.css keeps, in px: wide and narrow.
export interface Heights {
  cardHead: number;
  lane: number;
  cardEnd: number;
  row: number;
  told: number; // above the lanes of a cluster's card
  event: number;
  facts: number;
}
export const kWide: Heights = {
  cardHead: 66,
  lane: 30,
  cardEnd: 14,
  row: 46,
  told: 34,
  event: 30,
  facts: 128,
};
export const kNarrow: Heights = {
  cardHead: 112,
  lane: 58,
  cardEnd: 14,
  row: 86,
  told: 58,
  event: 50,
  facts: 210,
};

function Meter(props: { part: number | undefined; kind?: string; label: string }): JSX.Element {
  const part = Math.min(1, Math.max(0, props.part ?? 0));
  return (
    <span
      class={`meter ${props.kind ?? "slice"}`}
      role="meter"
      aria-label={props.label}
      aria-valuenow={Math.round(part * 100)}
      aria-valuemin={0}
      aria-valuemax={100}
    >
      <i style={{ width: `${part * 100}%` }} />
    </span>
  );
}

function Facts({ of }: { of: [string, ComponentChildren][] }): JSX.Element {
  return (
    <dl class="facts">
      {of
        .filter(([, value]) => value !== "" && value !== undefined)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

function State({ name, bad }: { name: string; bad: boolean }): JSX.Element {
  return <span class={`state${bad ? " bad" : ""} ${name}`}>{name}</span>;
}

function cardFacts(card: Card): [string, ComponentChildren][] {
  const us = card.settle_us;
  const reported = card.report_unix_ms;
  return [
    ["id", card.id],
    ["model", card.model],
    ["backend", card.backend],
    ["holds by", card.suspend + (card.suspend_why === undefined ? "" : `: ${card.suspend_why}`)],
    ["memory counted", card.memory_counted ?? ""],
    ["driver", card.driver ?? ""],
    ["report", reported === undefined ? "" : new Date(reported).toLocaleDateString("en")],
    ["kind", card.kind],
    ["shares given", `${card.share_bound_permille / 10} %`],
    ["holds", card.holds.toLocaleString("en")],
    ["overruns", card.overruns.toLocaleString("en")],
    ["a hold takes", us.n === 0 ? "" : `${us.p50} µs (p50), ${us.p99} µs (p99)`],
  ];
}

function CardHead({ card, live }: { card: Card; live: Live }): JSX.Element {
  const busy = live.busy(card);
  return (
    <div class="card-head">
      <b class="name">{live.isCluster ? `${card.node} / ${shortName(card)}` : shortName(card)}</b>
      <span class="model">{card.model}</span>
      <span class="tags">
        <i>{card.policy}</i>
        <i title={card.suspend_why ?? "how a hold is made"}>holds by {card.suspend}</i>
        <State name={card.state} bad={card.state !== "ready"} />
      </span>
      <span class="gauge">
        <span>used</span>
        <b>{percent(busy)}</b>
        <Meter part={busy} label="used" />
      </span>
      <span class="gauge">
        <span>memory given</span>
        <b>{bytesOf(card.mem_bound_bytes, card.mem_bytes)}</b>
        <Meter part={card.mem_bound_bytes / card.mem_bytes} kind="memory" label="memory given" />
      </span>
    </div>
  );
}

export function tasksOn(card: Card, tasks: readonly Task[]): Task[] {
  return tasks.filter((task) => task.node === card.node && task.card.split(",").includes(card.id));
}

const kLegend = [
  ["slice", "has the card"],
  ["online", "online work"],
  ["hold", "being held"],
  ["wait", "waits"],
  ["refused", "memory refused"],
] as const;

export function Legend(): JSX.Element {
  return (
    <p class="legend">
      <span>The last 10 s:</span>
      {kLegend.map(([kind, text]) => (
        <span key={kind}>
          <i class={kind} />
          {text}
        </span>
      ))}
    </p>
  );
}

// What each task of a card did lately, while somebody looks.
function Lanes(props: { card: Card; tasks: readonly Task[]; live: Live }): JSX.Element {
  const { card, live, tasks } = props;
  const key = keyOf(card);
  useEffect(() => live.watch(card), [key]);
  return (
    <>
      {tasks.map((task) => (
        <div class={`lane ${task.class}`} key={task.id} data-task={task.name}>
          <span class="who" title={`task ${task.id}, ${task.class}`}>
            {task.name}
          </span>
          <Timeline
            trace={live.traces.get(key)}
            task={task.node_task ?? task.id}
            label={`what ${task.name} did in the last 10 seconds`}
          />
          <span class="shares" title="share wanted and got">
            {wanted(task)} <em>→</em> <b>{percent(live.got(task))}</b>
          </span>
          <span class="mem" title="memory used, of its quota">
            {bytesOf(task.mem_used_bytes, task.mem_bytes)}
          </span>
          <span class="why" title={why(task, card, tasks)}>
            {why(task, card, tasks) || task.state}
          </span>
        </div>
      ))}
    </>
  );
}

// A card of a node with a timeline for each of its tasks.
export function CardPanel(props: {
  card: Card;
  tasks: readonly Task[];
  live: Live;
  open: boolean;
}): JSX.Element {
  const { card } = props;
  return (
    <article class="panel" data-card={card.id}>
      <CardHead card={card} live={props.live} />
      {props.open ? <Facts of={cardFacts(card)} /> : null}
      <Lanes card={card} tasks={props.tasks} live={props.live} />
    </article>
  );
}

// A card of a cluster; an open one has its tasks' timelines, which its node is asked for.
export function CardRow(props: {
  card: Card;
  tasks: readonly Task[];
  live: Live;
  open: boolean;
}): JSX.Element {
  const { card, live } = props;
  const busy = live.busy(card);
  const untold = live.untold.get(keyOf(card));
  return (
    <>
      <div class="cells card-row">
        <b class="name">
          {card.node} <em>/</em> {shortName(card)}
        </b>
        <span class="model">{card.model}</span>
        <State name={card.state} bad={card.state !== "ready"} />
        <Sparkline values={live.busyBefore(card)} label="use in the last two minutes" />
        <span class="gauge">
          <b>{percent(busy)}</b> <Meter part={busy} label="used" />
        </span>
        <span class="gauge">
          <b>{bytesOf(card.mem_bound_bytes, card.mem_bytes)}</b>
          <Meter part={card.mem_bound_bytes / card.mem_bytes} kind="memory" label="memory given" />
        </span>
        <span class="count">{card.tasks === 0 ? "" : plural(card.tasks, "task")}</span>
      </div>
      {props.open ? (
        <div class="opened" data-card={keyOf(card)}>
          <div class="told">{untold ?? <Legend />}</div>
          <Lanes card={card} tasks={props.tasks} live={live} />
          <Facts of={[...cardFacts(card), ["policy", card.policy]]} />
        </div>
      ) : null}
    </>
  );
}

// Why the scheduler did with a task what it did, in its own words.
function Explained({ task }: { task: number }): JSX.Element {
  const [text, setText] = useState("…");
  useEffect(() => {
    ask<{ text: string; remedy: string }>("explain", String(task)).then(
      (said) => setText([said.text, said.remedy].filter(Boolean).join("\n")),
      (error: Error) => setText(error.message),
    );
  }, [task]);
  return <span class="explained">{text}</span>;
}

export function TaskRow(props: { task: Task; live: Live; open: boolean }): JSX.Element {
  const { task, live } = props;
  const got = live.got(task);
  const card = live.cards.find((one) => one.node === task.node && one.id === task.card);
  const reason = why(task, card, live.tasks);
  return (
    <>
      <div class={`cells task-row ${task.class}`} data-task={task.name}>
        <span class="who">
          <b>{task.name}</b> <small>{task.id}</small>
        </span>
        <span class="class">{task.class}</span>
        <span class="where">
          {live.isCluster && task.node !== "" ? `${task.node} / ` : ""}
          {card === undefined ? task.card || "–" : shortName(card)}
        </span>
        <span class="gauge shares">
          <b title="share wanted and got">
            {wanted(task)} <em>→</em> {percent(got)}
          </b>
          <Meter part={got} kind={task.class} label="share got" />
        </span>
        <span class="gauge">
          <b title="memory used, of its quota">{bytesOf(task.mem_used_bytes, task.mem_bytes)}</b>
          <Meter part={task.mem_used_bytes / task.mem_bytes} kind="memory" label="memory used" />
        </span>
        <State name={task.state} bad={trouble(task) !== "" && task.place !== "waiting"} />
        <span class="why" title={reason}>
          {reason}
        </span>
      </div>
      {props.open ? (
        <Facts
          of={[
            ["why", live.isCluster ? <Explained task={task.id} /> : reason],
            ["task", task.id],
            ["card", task.card],
            ["processes", task.processes],
            ["launches", task.launches.toLocaleString("en")],
            ["used", duration(task.used_ns)],
            ["held", `${duration(task.held_ns)}, ${percent(live.held(task))} of now`],
            ["note", task.note ?? ""],
            ["submitted", task.submitted_unix_ms ? clock(task.submitted_unix_ms) : ""],
          ]}
        />
      ) : null}
    </>
  );
}

export function NodeRow(props: { node: ClusterNode; open: boolean }): JSX.Element {
  const { node } = props;
  const state = node.draining ? "draining" : node.cordoned ? "cordoned" : node.state;
  return (
    <>
      <div class="cells node-row">
        <b class="name">{node.name}</b>
        <State name={state} bad={state !== "alive"} />
        <span class="count">{plural(node.cards, "card")}</span>
        <span class="count">{plural(node.tasks, "task")}</span>
        <span class="gauge">
          <b>{node.share_bound_permille / 10} % given</b>
          <Meter
            part={node.share_bound_permille / 1000 / Math.max(1, node.cards)}
            label="shares"
          />
        </span>
        <span class="gauge">
          <b>{bytesOf(node.mem_bound_bytes, node.mem_bytes)}</b>
          <Meter part={node.mem_bound_bytes / node.mem_bytes} kind="memory" label="memory given" />
        </span>
      </div>
      {props.open ? (
        <Facts
          of={[
            ["version", node.version],
            [node.state, `since ${new Date(node.since_unix_ms).toLocaleString()}`],
          ]}
        />
      ) : null}
    </>
  );
}

export function EventRow(props: { event: Event; live: Live; open: boolean }): JSX.Element {
  const { event, live } = props;
  const task = live.tasks.find((one) => one.id === event.task);
  const card = live.cards.find((one) => one.id === event.card);
  const about = [
    event.task === 0 ? "" : (task?.name ?? `task ${event.task}`),
    card === undefined ? event.card : shortName(card),
  ];
  return (
    <>
      <div class="cells event-row">
        <time>{clock(event.unix_ms)}</time>
        <b class="kind">{event.kind}</b>
        <span class="where">{about.filter(Boolean).join(" on ")}</span>
        <span class="why">{event.text}</span>
        <small>{event.actor}</small>
      </div>
      {props.open ? (
        <Facts
          of={[
            ["what", event.text],
            ["when", new Date(event.unix_ms).toLocaleString()],
            ["by", event.actor],
            ["card", event.card],
            ["number", event.seq],
          ]}
        />
      ) : null}
    </>
  );
}
