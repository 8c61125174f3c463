// A list of which only what is on the screen is drawn, however long it is. It scrolls with the
// page. With the keyboard it is one stop: arrows, Page, Home and End move in it, Enter opens a row.

import { useEffect, useLayoutEffect, useReducer, useRef, useState } from "preact/hooks";
import type { ComponentChildren, JSX } from "preact";

const kSpare = 300; // px above and below the screen

interface Props<T> {
  label: string;
  items: readonly T[];
  keyOf: (item: T) => string;
  height: (item: T, open: boolean) => number; // px
  render: (item: T, open: boolean) => ComponentChildren;
  empty: string;
  head?: ComponentChildren;
}

export function List<T>({
  label,
  items,
  keyOf,
  height,
  render,
  empty,
  head,
}: Props<T>): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const [, drawAgain] = useReducer((n: number) => n + 1, 0);
  const [active, setActive] = useState<string>();
  const [open, setOpen] = useState<string>();

  useEffect(() => {
    let due = 0;
    const soon = (): void => {
      due ||= requestAnimationFrame(() => {
        due = 0;
        drawAgain(0);
      });
    };
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
      cancelAnimationFrame(due);
    };
  }, []);
  // Where the list begins is known once it is there.
  useLayoutEffect(() => drawAgain(0), [items.length === 0]);

  const tops: number[] = [];
  let total = 0;
  for (const item of items) {
    tops.push(total);
    total += height(item, keyOf(item) === open);
  }
  const above = box.current === null ? 0 : -box.current.getBoundingClientRect().top;
  const first = Math.max(0, lastAtOrBefore(tops, above - kSpare));
  const last = lastAtOrBefore(tops, above + innerHeight + kSpare);
  const activeIndex = items.findIndex((item) => keyOf(item) === active);

  const moveTo = (to: number): void => {
    const index = Math.min(items.length - 1, Math.max(0, to));
    const item = items[index];
    if (item === undefined || box.current === null) return;
    setActive(keyOf(item));
    const top = box.current.getBoundingClientRect().top + (tops[index] ?? 0);
    const bottom = top + height(item, keyOf(item) === open);
    const cover = document.querySelector("header")?.offsetHeight ?? 0; // it stays in view
    if (top < cover) scrollBy(0, top - cover);
    else if (bottom > innerHeight) scrollBy(0, bottom - innerHeight);
  };
  const toggle = (key: string | undefined): void => setOpen(key === open ? undefined : key);
  const onKeyDown = (event: KeyboardEvent): void => {
    const page = 10;
    const to: Record<string, number> = {
      ArrowDown: activeIndex + 1,
      ArrowUp: activeIndex - 1,
      PageDown: activeIndex + page,
      PageUp: activeIndex - page,
      Home: 0,
      End: items.length - 1,
    };
    const target = to[event.key];
    if (target !== undefined) moveTo(target);
    else if (event.key === "Enter" || event.key === " ") toggle(active);
    else return;
    event.preventDefault();
  };

  return (
    <div class="list">
      {head}
      {items.length === 0 ? <p class="empty">{empty}</p> : null}
      <div
        ref={box}
        class="rows"
        role="listbox"
        aria-label={label}
        aria-activedescendant={activeIndex < 0 ? undefined : idOf(label, active)}
        tabIndex={0}
        style={{ height: `${total}px` }}
        onKeyDown={onKeyDown}
      >
        {items.slice(first, last + 1).map((item, i) => {
          const key = keyOf(item);
          const isOpen = key === open;
          return (
            <div
              key={key}
              id={idOf(label, key)}
              role="option"
              aria-selected={key === active}
              aria-setsize={items.length}
              aria-posinset={first + i + 1}
              class={`row${key === active ? " active" : ""}${isOpen ? " open" : ""}`}
              style={{
                transform: `translateY(${tops[first + i]}px)`,
                height: `${height(item, isOpen)}px`,
              }}
              onClick={() => {
                if (getSelection()?.toString()) return; // somebody copies a name
                setActive(key);
                toggle(key);
              }}
            >
              {render(item, isOpen)}
            </div>
          );
        })}
      </div>
    </div>
  );
}

function idOf(label: string, key: string | undefined): string {
  return `${label}:${key}`.replace(/\s/g, "_");
}

// -1 where all begin later.
function lastAtOrBefore(tops: readonly number[], y: number): number {
  let low = 0;
  let high = tops.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((tops[middle] ?? 0) <= y) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
