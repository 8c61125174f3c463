// What is drawn instead of laid out: a task's timeline, a card's last minutes, the map of a
// cluster. One clock drives all that moves.

import { useEffect, useRef } from "preact/hooks";
import type { JSX } from "preact";
import type { Card } from "./api";
import type { CardTrace, SpanKind } from "./trace";

export const kWindowNs = 10e9;
const kBehindNs = 0.6e9; // what is drawn was heard of by then, or so long after as answers take
const kFrameMs = 50;
const kStillFrameMs = 1000; // for who wants nothing to move

type Draw = (canvas: HTMLCanvasElement, pen: CanvasRenderingContext2D) => void;
const moving = new Map<HTMLCanvasElement, Draw>();
const stillness = matchMedia("(prefers-reduced-motion: reduce)");
const darkness = matchMedia("(prefers-color-scheme: dark)");

let colours: Record<string, string> = {};
darkness.addEventListener("change", () => (colours = {}));
export function colour(name: string): string {
  return (colours[name] ??= getComputedStyle(document.documentElement).getPropertyValue(
    `--${name}`,
  ));
}

function paint(canvas: HTMLCanvasElement, draw: Draw): void {
  const pen = canvas.getContext("2d");
  const { width, height } = canvas.getBoundingClientRect();
  if (pen === null || width === 0) return;
  const scale = devicePixelRatio;
  const across = Math.round(width * scale);
  const down = Math.round(height * scale);
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  pen.setTransform(scale, 0, 0, scale, 0, 0);
  pen.clearRect(0, 0, width, height);
  draw(canvas, pen);
}

let painted = 0;
function frame(now: number): void {
  if (moving.size === 0) return;
  if (now - painted >= (stillness.matches ? kStillFrameMs : kFrameMs)) {
    painted = now;
    for (const [canvas, draw] of moving) paint(canvas, draw);
  }
  requestAnimationFrame(frame);
}

function useMoving(draw: Draw): { current: HTMLCanvasElement | null } {
  const canvas = useRef<HTMLCanvasElement>(null);
  const newest = useRef(draw);
  newest.current = draw;
  useEffect(() => {
    const mine = canvas.current;
    if (mine === null) return undefined;
    moving.set(mine, (c, pen) => newest.current(c, pen));
    if (moving.size === 1) requestAnimationFrame(frame);
    return () => void moving.delete(mine);
  }, []);
  return canvas;
}

// In this order: a hold lies over its slice. What is shorter than `least` px is drawn as long, so
// that it is seen; the others keep their length, and many short ones their sum.
const kBars: { kind: SpanKind; colour: string; inset: number; least: number }[] = [
  { kind: "wait", colour: "wait", inset: 0.38, least: 0 },
  { kind: "slice", colour: "slice", inset: 0, least: 0 },
  { kind: "work", colour: "online", inset: 0, least: 1 },
  { kind: "hold", colour: "hold", inset: 0, least: 0 },
];

export function Timeline(props: {
  trace: CardTrace | undefined;
  task: number;
  label: string;
}): JSX.Element {
  const canvas = useMoving((c, pen) => {
    const { clientWidth: width, clientHeight: height } = c;
    pen.fillStyle = colour("line");
    const trace = props.trace;
    const to =
      trace === undefined
        ? 0
        : trace.at(performance.now()) - Math.max(kBehindNs, 1.2 * trace.every);
    const x = (ns: number): number => width * (1 + (ns - to) / kWindowNs);
    if (trace === undefined) return;
    for (let s = Math.ceil((to - kWindowNs) / 1e9); s * 1e9 < to; ++s) {
      pen.fillRect(Math.round(x(s * 1e9)), 0, 1, height);
    }
    const lane = trace.lanes.get(props.task);
    if (lane === undefined) return;
    for (const bar of kBars) {
      pen.fillStyle = colour(bar.colour);
      const top = height * bar.inset;
      for (const span of lane.spans) {
        if (span.kind !== bar.kind || span.to < to - kWindowNs || span.from > to) continue;
        const from = Math.max(0, x(span.from));
        const length = Math.min(width, x(Math.min(span.to, to, trace.now))) - from;
        pen.fillRect(from, top, Math.max(length, bar.least), height - 2 * top);
      }
    }
    pen.fillStyle = colour("bad");
    for (const at of lane.refused) pen.fillRect(x(at) - 1, 0, 2, height);
  });
  return <canvas ref={canvas} class="timeline" role="img" aria-label={props.label} />;
}

function useStill(draw: Draw): { current: HTMLCanvasElement | null } {
  const canvas = useRef<HTMLCanvasElement>(null);
  useEffect(() => {
    if (canvas.current !== null) paint(canvas.current, draw);
  });
  return canvas;
}

// 0 to 1, the newest at the right.
export function Sparkline(props: { values: readonly number[]; label: string }): JSX.Element {
  const canvas = useStill((c, pen) => {
    const { clientWidth: width, clientHeight: height } = c;
    const step = 3;
    pen.fillStyle = colour("slice");
    props.values.slice(-Math.floor(width / step)).forEach((value, i, shown) => {
      const tall = Math.max(1, value * height);
      pen.fillRect(width - (shown.length - i) * step, height - tall, step - 1, tall);
    });
  });
  return <canvas ref={canvas} class="sparkline" role="img" aria-label={props.label} />;
}

const kCell = 13;
const kSmallCell = 6; // of many cards on a narrow screen
const kManyCards = 200;
const kGap = 2;
const kNodeGap = 5;

// Every card of a cluster as a small square, node by node; a click asks for one.
export function CardMap(props: {
  cards: readonly Card[];
  busy: (card: Card) => number | undefined;
  pick: (card: Card) => void;
}): JSX.Element {
  const box = useRef<HTMLCanvasElement | null>(null);
  const places: { x: number; y: number; card: Card }[] = [];
  const width = box.current?.clientWidth ?? 600;
  const cell = width < 700 && props.cards.length > kManyCards ? kSmallCell : kCell;
  let x = 0;
  let y = 0;
  let node: string | undefined;
  for (const card of props.cards) {
    if (node !== undefined && card.node !== node) x += kNodeGap;
    node = card.node;
    if (x + cell > width) {
      x = 0;
      y += cell + kGap;
    }
    places.push({ x, y, card });
    x += cell + kGap;
  }
  const canvas = useStill((_, pen) => {
    for (const place of places) {
      const usable = place.card.state === "ready";
      pen.fillStyle = colour(usable ? "track" : "bad-dim");
      pen.fillRect(place.x, place.y, cell, cell);
      if (!usable) continue;
      const bound = Math.min(1, place.card.mem_bound_bytes / Math.max(1, place.card.mem_bytes));
      pen.fillStyle = colour("slice-dim");
      pen.fillRect(place.x, place.y + cell * (1 - bound), cell, cell * bound);
      pen.fillStyle = colour("slice");
      const tall = cell * (props.busy(place.card) ?? 0);
      pen.fillRect(place.x, place.y + cell - tall, cell, tall);
    }
  });
  const at = (event: MouseEvent): Card | undefined =>
    places.find(
      (p) =>
        event.offsetX >= p.x &&
        event.offsetX < p.x + cell &&
        event.offsetY >= p.y &&
        event.offsetY < p.y + cell,
    )?.card;
  return (
    <canvas
      ref={(element) => {
        box.current = element;
        canvas.current = element;
      }}
      class="map"
      role="img"
      aria-label={`A square for each of ${props.cards.length} cards`}
      style={{ height: `${y + cell}px` }}
      onMouseMove={(event) => {
        const card = at(event);
        event.currentTarget.title = card === undefined ? "" : `${card.node}/${card.id}`;
      }}
      onClick={(event) => {
        const card = at(event);
        if (card !== undefined) props.pick(card);
      }}
    />
  );
}
