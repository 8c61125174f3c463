// The page: who has the cards now, and why. Everything comes from this daemon, and nothing is
// changed by it.

import { render } from "preact";
import { useEffect, useMemo, useReducer, useRef, useState } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";
import type { Card, Task } from "./api";
import { CardMap } from "./canvas";
import { bytes, clock, duration, percent, plural } from "./format";
import { List } from "./list";
import { keyOf, Live } from "./live";
import "./page.css";
import {
  CardPanel,
  CardRow,
  EventRow,
  kNarrow,
  kWide,
  Legend,
  NodeRow,
  TaskRow,
  tasksOn,
} from "./rows";
import { WhatIf } from "./whatif";
import { matches, shortName, why } from "./words";

const narrow = matchMedia("(max-width: 760px)");

interface View {
  name: string;
  title: string;
  of: "node" | "cluster" | "both";
  count?: (live: Live) => number;
}
const kViews: View[] = [
  { name: "cards", title: "Cards", of: "both", count: (live) => live.cards.length },
  { name: "tasks", title: "Tasks", of: "both", count: (live) => live.tasks.length },
  {
    name: "waiting",
    title: "Waiting",
    of: "both",
    count: (live) => live.tasks.filter(isWaiting).length,
  },
  { name: "nodes", title: "Nodes", of: "cluster", count: (live) => live.nodes.length },
  { name: "events", title: "Events", of: "both" },
  { name: "what-if", title: "What if", of: "cluster" },
];

// Without a place in the cluster, or on its card and without the card.
function isWaiting(task: Task): boolean {
  if (task.place !== undefined) return task.place === "waiting";
  return ["pending", "bound", "ready", "suspended"].includes(task.state);
}

function App(): JSX.Element {
  const [, draw] = useReducer((n: number) => n + 1, 0);
  const live = useMemo(() => new Live(() => draw(0)), []);
  const [view, setView] = useState(location.hash.slice(1));
  const [filter, setFilter] = useState("");
  const input = useRef<HTMLInputElement>(null);

  useEffect(() => {
    const onHash = (): void => setView(location.hash.slice(1));
    const onNarrow = (): void => draw(0);
    const onKey = (event: KeyboardEvent): void => {
      const types = event.target instanceof Element && event.target.matches("input, select");
      if (event.key === "/" && !types && !event.ctrlKey && !event.metaKey) {
        event.preventDefault();
        input.current?.focus();
        input.current?.select();
      }
    };
    addEventListener("hashchange", onHash);
    addEventListener("keydown", onKey);
    narrow.addEventListener("change", onNarrow);
    return () => {
      removeEventListener("hashchange", onHash);
      removeEventListener("keydown", onKey);
      narrow.removeEventListener("change", onNarrow);
    };
  }, []);

  const views = kViews.filter(
    (one) => one.of === "both" || (one.of === "cluster") === live.isCluster,
  );
  const shown = views.find((one) => one.name === view)?.name ?? "cards";
  document.title = live.status === undefined ? "qgpu" : `${live.status.node ?? "cluster"} – qgpu`;
  return (
    <>
      <header>
        <Who live={live} />
        <input
          ref={input}
          type="search"
          placeholder="Filter   /"
          aria-label="Filter"
          aria-keyshortcuts="/"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
          onKeyDown={(event) => {
            if (event.key !== "Escape" && event.key !== "ArrowDown") return;
            if (event.key === "Escape") setFilter("");
            document.querySelector<HTMLElement>(".rows")?.focus();
            event.preventDefault();
          }}
        />
        <nav>
          {views.map((one) => (
            <a
              key={one.name}
              href={`#${one.name}`}
              aria-current={one.name === shown ? "page" : undefined}
            >
              {one.title}
              {one.count === undefined ? null : (
                <small>{one.count(live).toLocaleString("en")}</small>
              )}
            </a>
          ))}
        </nav>
        <Banner live={live} />
      </header>
      <main class={live.awaySince === undefined ? "" : "away"}>
        {live.status === undefined ? null : (
          <Shown view={shown} live={live} filter={filter} setFilter={setFilter} />
        )}
      </main>
    </>
  );
}

function Who({ live }: { live: Live }): JSX.Element {
  const { status } = live;
  const daemon = live.isCluster ? "qgpu-scheduler" : "qgpu-manager";
  return (
    <div class="who-am-i">
      <img src="icon.svg" alt="" width="26" height="26" />
      <h1>{status === undefined ? "qgpu" : (status.node ?? "cluster")}</h1>
      <span>{status === undefined ? "" : `${daemon} ${status.version}`}</span>
      <span class="up">{status === undefined ? "" : `up ${duration(status.uptime_ns)}`}</span>
    </div>
  );
}

// What keeps the page from being true and live.
function Banner({ live }: { live: Live }): JSX.Element {
  const [token, setToken] = useState("");
  let text: ComponentChildren = null;
  if (live.wantsToken) {
    text = (
      <form
        class="token"
        onSubmit={(event) => {
          event.preventDefault();
          live.tellToken(token.trim());
          setToken("");
        }}
      >
        <label>
          This daemon asks for its token, the first line of the file that --web-token names
          <input
            type="password"
            autocomplete="off"
            value={token}
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <button type="submit">Show</button>
      </form>
    );
  } else if (live.awaySince !== undefined) {
    text = `The daemon is away since ${clock(live.awaySince)}; it is asked again each second. ${
      live.status === undefined ? "" : "What you see is from before. Programs run on without it."
    }`;
  } else if (live.refused !== undefined) {
    text = `The daemon answers: ${live.refused}`;
  } else if (live.status !== undefined && live.status.storage !== "ok") {
    text = `Its storage: ${live.status.storage}`;
  }
  return (
    <div class={text === null ? "banner" : "banner shown"} role="status" aria-live="polite">
      {text}
    </div>
  );
}

interface ShownProps {
  live: Live;
  filter: string;
}

function Shown(
  props: ShownProps & { view: string; setFilter: (to: string) => void },
): JSX.Element {
  const { live, filter } = props;
  switch (props.view) {
    case "tasks":
      return <Tasks live={live} filter={filter} tasks={live.tasks} empty="No task is here." />;
    case "waiting":
      return <Waiting live={live} filter={filter} />;
    case "nodes":
      return <Nodes live={live} filter={filter} />;
    case "events":
      return <Events live={live} filter={filter} />;
    case "what-if":
      return <WhatIf />;
    default:
      return <Cards live={live} filter={filter} setFilter={props.setFilter} />;
  }
}

const heights = (): typeof kWide => (narrow.matches ? kNarrow : kWide);
const rowHeight = (_: unknown, open: boolean): number =>
  heights().row + (open ? heights().facts : 0);
const lanesHeight = (tasks: readonly Task[]): number =>
  heights().told + tasks.length * heights().lane;
const nothingFound = (filter: string, otherwise: string): string =>
  filter === "" ? otherwise : `Nothing here has “${filter}”.`;

function Cards({
  live,
  filter,
  setFilter,
}: ShownProps & { setFilter: (to: string) => void }): JSX.Element {
  const on = new Map(live.cards.map((card) => [keyOf(card), tasksOn(card, live.tasks)]));
  const tasksOf = (card: Card): Task[] => on.get(keyOf(card)) ?? [];
  const cards = live.cards.filter((card) =>
    matches(
      filter,
      `${card.node}/${card.id}`,
      shortName(card),
      card.model,
      card.policy,
      card.state,
      card.suspend,
      ...tasksOf(card).map((task) => task.name),
    ),
  );
  const empty = nothingFound(filter, "No card is here yet.");
  if (live.isCluster) {
    return (
      <>
        <Tiles live={live} />
        <CardMap
          cards={cards}
          busy={(card) => live.busy(card)}
          pick={(card) => setFilter(`${card.node}/${card.id}`)}
        />
        <List
          label="cards"
          items={cards}
          keyOf={keyOf}
          height={(card, open) => rowHeight(card, open) + (open ? lanesHeight(tasksOf(card)) : 0)}
          render={(card, open) => (
            <CardRow card={card} tasks={tasksOf(card)} live={live} open={open} />
          )}
          empty={empty}
        />
      </>
    );
  }
  return (
    <>
      <Tiles live={live} />
      <Legend />
      <List
        label="cards"
        items={cards}
        keyOf={keyOf}
        height={(card, open) => {
          const h = heights();
          return h.cardHead + tasksOf(card).length * h.lane + h.cardEnd + (open ? h.facts : 0);
        }}
        render={(card, open) => (
          <CardPanel card={card} tasks={tasksOf(card)} live={live} open={open} />
        )}
        empty={empty}
      />
    </>
  );
}

function Tiles({ live }: { live: Live }): JSX.Element {
  const { cards } = live;
  const known = cards.map((card) => live.busy(card)).filter((busy) => busy !== undefined);
  const busy = known.reduce((sum, one) => sum + one, 0) / Math.max(1, known.length);
  const given = cards.reduce((sum, card) => sum + card.mem_bound_bytes, 0);
  const all = cards.reduce((sum, card) => sum + card.mem_bytes, 0);
  const waiting = live.tasks.filter(isWaiting).length;
  const bad = cards.filter((card) => card.state !== "ready").length;
  const tiles: [string, string, boolean?][] = [
    [percent(known.length === 0 ? undefined : busy), `used, of ${plural(cards.length, "card")}`],
    [bytes(given), `memory, of ${bytes(all)}`],
    [live.tasks.length.toLocaleString("en"), "tasks"],
    [waiting.toLocaleString("en"), live.isCluster ? "wait for a place" : "wait for the card"],
  ];
  if (bad > 0)
    tiles.push([
      bad.toLocaleString("en"),
      bad === 1 ? "card takes nothing new" : "cards take nothing new",
      true,
    ]);
  if (live.isCluster) {
    const { alive = 0, nodes = 0 } = live.status ?? {};
    tiles.push([`${alive} / ${nodes}`, "nodes alive", alive < nodes]);
  }
  return (
    <dl class="tiles">
      {tiles.map(([value, name, isBad]) => (
        <div key={name} class={isBad ? "bad" : ""}>
          <dd>{value}</dd>
          <dt>{name}</dt>
        </div>
      ))}
    </dl>
  );
}

function Tasks(props: ShownProps & { tasks: readonly Task[]; empty: string }): JSX.Element {
  const { live, filter } = props;
  const tasks = props.tasks.filter((t) =>
    matches(filter, t.name, t.id, t.class, t.node, t.card, t.state, why(t, undefined, [])),
  );
  return (
    <List
      label="tasks"
      items={tasks}
      keyOf={(task) => String(task.id)}
      height={rowHeight}
      render={(task, open) => <TaskRow task={task} live={live} open={open} />}
      empty={nothingFound(filter, props.empty)}
    />
  );
}

function Waiting({ live, filter }: ShownProps): JSX.Element {
  const pending = live.status?.pending ?? [];
  return (
    <>
      {pending.length === 0 ? null : (
        <ul class="pending">
          {pending.map((one) => (
            <li key={one.class + one.reason}>
              <b>{one.tasks.toLocaleString("en")}</b> {one.class}: {one.reason}
            </li>
          ))}
        </ul>
      )}
      <Tasks
        live={live}
        filter={filter}
        tasks={live.tasks.filter(isWaiting)}
        empty="Nobody waits."
      />
    </>
  );
}

function Nodes({ live, filter }: ShownProps): JSX.Element {
  return (
    <List
      label="nodes"
      items={live.nodes.filter((node) => matches(filter, node.name, node.state, node.version))}
      keyOf={(node) => node.name}
      height={rowHeight}
      render={(node, open) => <NodeRow node={node} open={open} />}
      empty={nothingFound(filter, "No node has joined.")}
    />
  );
}

function Events({ live, filter }: ShownProps): JSX.Element {
  const names = new Map(live.tasks.map((task) => [task.id, task.name]));
  return (
    <List
      label="events"
      items={live.events.filter((e) =>
        matches(filter, e.kind, e.card, e.text, e.actor, e.task || "", names.get(e.task)),
      )}
      keyOf={(event) => String(event.seq)}
      height={(_, open) => heights().event + (open ? heights().facts : 0)}
      render={(event, open) => <EventRow event={event} live={live} open={open} />}
      empty={nothingFound(filter, "Nothing has happened yet.")}
    />
  );
}

render(<App />, document.body);
