import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface VirtualProps<T> {
  items: T[];
  rowHeight: number;
  row: (item: T, index: number) => ComponentChildren;
  /** Where the list scrolls; its height comes from the style sheet. */
  class?: string;
  label: string;
}

const MARGIN = 8;

/** Rows of a table, of which only the visible ones exist. */
export function VirtualRows<T>({ items, rowHeight, row, class: name, label }: VirtualProps<T>) {
  const box = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  useEffect(() => {
    const element = box.current!;
    const update = () => setView({ top: element.scrollTop, height: element.clientHeight });
    element.addEventListener("scroll", update, { passive: true });
    const observer = new ResizeObserver(update);
    observer.observe(element);
    update();
    return () => {
      element.removeEventListener("scroll", update);
      observer.disconnect();
    };
  }, []);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - MARGIN);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / rowHeight) + MARGIN);
  return (
    <div ref={box} class={name} role="rowgroup" aria-label={label} tabIndex={0}>
      <div style={{ height: `${first * rowHeight}px` }} role="presentation" />
      {items.slice(first, last).map((item, offset) => row(item, first + offset))}
      <div style={{ height: `${(items.length - last) * rowHeight}px` }} role="presentation" />
    </div>
  );
}
