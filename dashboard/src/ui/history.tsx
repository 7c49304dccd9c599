// Charts of resource usage over time, with a choice of ranges.
import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { get, query, type Schemas } from "../api/client";
import { Card, Empty, Problem } from "./basics";
import { bytes } from "./format";
import { Chart } from "./lazy";

type History = Schemas["MetricHistoryView"];
type Point = Schemas["MetricPointView"];

const RANGES: [string, number][] = [["15 minutes", 900], ["1 hour", 3600], ["6 hours", 6 * 3600], ["24 hours", 24 * 3600]];
const SHORT = 3600;

interface HistoryProps {
  title: string;
  /** The route, without parameters. */
  path: string;
  /** Whether new points are made. */
  live: boolean;
}

export function HistoryCharts({ title, path, live }: HistoryProps) {
  const range = useSignal(RANGES[0][1]);
  const history = useSignal<History | null>(null);
  const problem = useSignal<Error | null>(null);
  const until = useSignal(Date.now() / 1000);
  const seconds = range.value;
  useEffect(() => {
    let stopped = false;
    let timer: ReturnType<typeof setTimeout>;
    const read = async () => {
      try {
        const now = Math.ceil(Date.now() / 1000);
        const found = await get<History>(path + query({ from: now - seconds, to: now }));
        if (stopped) return;
        until.value = now;
        history.value = found;
        problem.value = null;
      } catch (error) {
        problem.value = error as Error;
      }
      if (!stopped && live) timer = setTimeout(() => void read(), seconds > SHORT ? 60_000 : 5_000);
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, [path, seconds, live]);
  const choice = (
    <select aria-label="Range" value={seconds} onChange={(event) => (range.value = Number(event.currentTarget.value))}>
      {RANGES.map(([name, length]) => <option value={length}>Last {name}</option>)}
    </select>
  );
  return (
    <Card title={title} actions={choice}>
      {problem.value && !history.value ? (
        <Problem error={problem.value} />
      ) : !history.value ? (
        <div class="loading">Loading …</div>
      ) : history.value.points.length === 0 ? (
        <Empty title="No measurements in this range">{live ? "The first one appears within ten seconds." : "Measurements are kept for 24 hours."}</Empty>
      ) : (
        <Charts history={history.value} from={until.value - seconds} until={until.value} />
      )}
    </Card>
  );
}

function Charts({ history, from, until }: { history: History; from: number; until: number }) {
  const { times, values } = series(history);
  const percent = (value: number) => `${value.toFixed(value < 10 ? 1 : 0)} %`;
  const rate = (value: number) => `${bytes(value)}/s`;
  const span: [number, number] = [from, until];
  const cpu = history.cpus === 1 ? "CPU" : `CPU: 100 % is one of ${history.cpus} CPUs`;
  return (
    <div class="grid grid-wide">
      <Chart label={cpu} span={span} times={times} format={percent} series={[{ name: "CPU", values: values((point) => point.cpu_percent), colour: "--accent" }]} />
      <Chart label={`Memory, of ${bytes(history.memory_total_bytes)}`} span={span} times={times} format={bytes} leastBytes={2 ** 20} series={[{ name: "memory", values: values((point) => point.memory_bytes), colour: "--info" }]} />
      <Chart label={`Disk, of ${bytes(history.disk_total_bytes)}`} span={span} times={times} format={bytes} leastBytes={2 ** 20} series={[{ name: "disk", values: values((point) => point.disk_bytes), colour: "--warn" }]} />
      <Chart
        label="Network"
        span={span}
        times={times}
        format={rate}
        leastBytes={2 ** 12}
        series={[
          { name: "received", values: values((point) => point.network_received_bytes_per_second), colour: "--accent" },
          { name: "sent", values: values((point) => point.network_sent_bytes_per_second), colour: "--info" },
        ]}
      />
    </div>
  );
}

/** The points, with a gap wherever nothing was measured. */
function series({ points, step_seconds: step }: History) {
  const times: number[] = [];
  const rows: (Point | null)[] = [];
  for (const point of points) {
    const time = new Date(point.time).getTime() / 1000;
    const last = times.at(-1);
    if (last !== undefined && time - last > 2.5 * step) {
      times.push(last + step);
      rows.push(null);
    }
    times.push(time);
    rows.push(point);
  }
  return { times, values: (read: (point: Point) => number) => rows.map((point) => point && read(point)) };
}
