import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { dark } from "../state/theme";
import { tickTime } from "./format";

interface ChartProps {
  label: string;
  /** Seconds since 1970. */
  times: number[];
  series: { name: string; values: (number | null)[]; colour: string }[];
  format: (value: number) => string;
  /** The first and the last second that the chart shows; those of the times if absent. */
  span?: [number, number];
  /** Bytes: the axis has steps of powers of two, and begins with at least this many. */
  leastBytes?: number;
}

const POWERS = Array.from({ length: 50 }, (_, index) => 2 ** index);

export function Chart({ label, times, series, format, span, leastBytes }: ChartProps) {
  const shown = useRef(span);
  shown.current = span;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const isDark = dark.value;
  useEffect(() => {
    const style = getComputedStyle(document.documentElement);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made = new uPlot(
      {
        width: Math.max(200, box.current!.clientWidth),
        height: 150,
        legend: { show: series.length > 1 },
        cursor: { y: false },
        scales: { x: { range: (_, min, max) => shown.current ?? [min, max] }, y: { range: (_, __, max) => [0, Math.max(leastBytes ?? 0, max > 0 ? max * 1.15 : 1)] } },
        axes: [
          { ...axis, space: 70, size: 30, values: (_, values, __, ___, step) => values.map((value) => tickTime(value, step)) },
          { ...axis, size: 64, ...(leastBytes && { incrs: POWERS }), values: (_, values) => values.map((value) => format(value)) },
        ],
        series: [
          { value: (_, value) => (value === null ? "" : new Date(value * 1000).toLocaleTimeString()) },
          ...series.map((each) => ({
            label: each.name,
            stroke: colour(each.colour),
            fill: series.length === 1 ? colour(each.colour) + "22" : undefined,
            width: 1.5,
            points: { show: times.length < 3 },
            value: (_: uPlot, value: number | null) => (value === null ? "–" : format(value)),
          })),
        ],
      },
      [times, ...series.map((each) => each.values)],
      box.current!,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: Math.max(200, box.current?.clientWidth ?? 200), height: 150 }));
    observer.observe(box.current!);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [isDark, series.length]);
  useEffect(() => plot.current?.setData([times, ...series.map((each) => each.values)]), [times, series]);
  const newest = series.map((each) => `${each.name} ${format(each.values.at(-1) ?? 0)}`).join(", ");
  return (
    <figure class="chart">
      <figcaption>{label}</figcaption>
      <div ref={box} role="img" aria-label={`${label}: now ${newest}`} />
    </figure>
  );
}
