import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { allows, get, send, type Schemas, type Template } from "../api/client";
import { href } from "../router";
import { loadError, recentEvents, refresh, sandboxes, type Event } from "../state/sandboxes";
import { Card, Empty, Meter, Page, Problem, Show, Stat, useLoad } from "../ui/basics";
import { bytes, clockTime, duration, mebibytes, shortId } from "../ui/format";
import { HistoryCharts } from "../ui/history";
import { Chart } from "../ui/lazy";
import { describe, endReason, isRefusal } from "../sandbox/event_text";
import { CREATE, EXEC, parse, quantile, requests, type Sample } from "./metrics_text";

const EVERY_MS = 5_000;
const MOST = 120;

type Host = Schemas["HostView"];

export function Overview() {
  return (
    <Page title="Overview" actions={allows("run") && <a class="button button-primary" href={href("/sandboxes")}>All sandboxes</a>}>
      {loadError.value && <Problem error={loadError.value} retry={refresh} />}
      <div class="stack">
      <States />
      {allows("operator") && <Server />}
      <div class="grid grid-wide">
        <Usage />
        <Recent />
        <Refusals />
        <Deaths />
        <TemplateList />
      </div>
      </div>
    </Page>
  );
}

function States() {
  const counts = new Map<string, number>();
  for (const { status } of sandboxes.value.values()) counts.set(status, (counts.get(status) ?? 0) + 1);
  const total = sandboxes.value.size;
  const known = ["running", "paused", "hibernated"];
  const other = [...counts].filter(([status]) => !known.includes(status)).reduce((sum, [, count]) => sum + count, 0);
  const parts: [string, number][] = [...known.map((state): [string, number] => [state, counts.get(state) ?? 0]), ["other", other]];
  return (
    <Card title={`${total} ${total === 1 ? "sandbox" : "sandboxes"}`}>
      <div class="states" role="img" aria-label={parts.map(([state, count]) => `${count} ${state}`).join(", ")}>
        {parts.map(([state, count]) => count > 0 && <div class={`s-${state}`} style={{ flex: count }} />)}
      </div>
      <div class="legend">
        {parts.map(([state, count]) => (state !== "other" || count > 0) && <span class={`l-${state}`}>{count} {state}</span>)}
      </div>
    </Card>
  );
}

interface Point {
  time: number;
  samples: Sample[];
}

/** Rates and times of the whole server, for operators. */
function Server() {
  const points = useSignal<Point[]>([]);
  const host = useSignal<Host | null>(null);
  const problem = useSignal<Error | null>(null);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout>;
    let stopped = false;
    const read = async () => {
      try {
        const text = await (await send("GET", "/metrics")).text();
        points.value = [...points.value, { time: Date.now() / 1000, samples: parse(text) }].slice(-MOST);
        host.value = await get<Host>("/v1/host");
        problem.value = null;
      } catch (error) {
        problem.value = error as Error;
      }
      if (!stopped) timer = setTimeout(() => void read(), EVERY_MS);
    };
    void read();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, []);
  const newest = points.value.at(-1)?.samples ?? [];
  const rate = (routes: string[]) =>
    points.value.map((point, index) => {
      const before = points.value[index - 1];
      return before ? Math.max(0, (requests(point.samples, routes) - requests(before.samples, routes)) / (point.time - before.time)) : null;
    });
  const times = (routes: string[]) => {
    const [middle, slow] = [quantile(newest, routes, 0.5), quantile(newest, routes, 0.99)];
    const text = (value: number | null) => (value === null ? "–" : value === Infinity ? "> 5 min" : `≤ ${duration(value * 1000)}`);
    return { middle: text(middle), slow: text(slow) };
  };
  // The server measures requests by route only, and the same route lists sandboxes. So creates come from their events.
  const made = recentEvents.value.filter(({ type }) => type === "sandbox.created").map(({ payload }) => Number((payload as { boot_ms?: number }).boot_ms ?? 0)).sort((a, b) => a - b);
  const within = (part: number) => (made.length ? duration(made[Math.min(made.length - 1, Math.floor(part * made.length))]) : "–");
  const [creates, execs] = [rate(CREATE), rate(EXEC)];
  const perSecond = (values: (number | null)[]) => `${(values.at(-1) ?? 0).toFixed(1)}/s`;
  const at = points.value.map(({ time }) => time);
  const h = host.value;
  if (problem.value && !h) return <Problem error={problem.value} />;
  return (
    <>
      <div class="stats">
        <Stat label="Creates" value={perSecond(creates)} more={`p50 ${within(0.5)} · p99 ${within(0.99)}`} />
        <Stat label="Commands and cells" value={perSecond(execs)} more={`p50 ${times(EXEC).middle} · p99 ${times(EXEC).slow}`} />
        <Stat label="Standby machines" value={h ? h.standbys : "–"} more="pre-warmed, ready to hand out" />
        <Stat label="CPUs of the host" value={h ? h.cpus : "–"} />
      </div>
      <div class="grid grid-wide">
        <Card title="Requests per second">
          <Chart
            label="Last 10 minutes, since this page was opened"
            times={at}
            format={(value) => value.toFixed(1)}
            series={[
              { name: "creates", values: creates, colour: "--accent" },
              { name: "commands", values: execs, colour: "--info" },
            ]}
          />
        </Card>
        {h && (
          <Card title="Host">
            <Meter label="Memory" used={h.memory_total_bytes - h.memory_available_bytes} total={h.memory_total_bytes} text={`${bytes(h.memory_available_bytes)} of ${bytes(h.memory_total_bytes)} available`} />
            <Meter label="Disk of the home directory" used={h.disk_total_bytes - h.disk_available_bytes} total={h.disk_total_bytes} text={`${bytes(h.disk_available_bytes)} of ${bytes(h.disk_total_bytes)} available`} />
          </Card>
        )}
      </div>
      <HistoryCharts title="Resources of the host" path="/v1/host/metrics" live />
    </>
  );
}

function Usage() {
  const quota = useLoad(() => get<Schemas["QuotaView"]>("/v1/quota"), [sandboxes.value.size]);
  return (
    <Card title="This workspace" actions={<a href={href("/quotas")}>Quotas</a>}>
      <Show from={quota}>
        {({ used, limits }) => {
          const row = (label: string, now: number, most: number | null | undefined, text: (value: number) => string) =>
            most ? <Meter label={label} used={now} total={most} text={`${text(now)} of ${text(most)}`} /> : <Meter label={label} used={0} total={1} text={`${text(now)}, no limit`} />;
          return (
            <>
              {row("Sandboxes", used.sandboxes, limits.sandboxes, String)}
              {row("CPUs", used.cpu, limits.cpu, String)}
              {row("Memory", used.memory_mb, limits.memory_mb, mebibytes)}
              {row("Disk", used.disk_mb, limits.disk_mb, mebibytes)}
            </>
          );
        }}
      </Show>
    </Card>
  );
}

function Feed({ events, empty }: { events: Event[]; empty: string }) {
  if (events.length === 0) return <Empty title={empty} />;
  return (
    <ul class="feed">
      {events.slice(0, 8).map((event) => (
        <li key={event.number}>
          <time dateTime={event.time}>{clockTime(event.time)}</time>
          <span class="cut" title={describe(event)}>{describe(event)}</span>
          <a class="mono" href={href(`/sandboxes/${event.sandbox_id}`)}>{shortId(event.sandbox_id)}</a>
        </li>
      ))}
    </ul>
  );
}

const Recent = () => (
  <Card title="Latest events">
    <Feed events={recentEvents.value.filter((event) => !isRefusal(event))} empty="Nothing has happened yet" />
  </Card>
);

const Refusals = () => (
  <Card title="Latest refusals of the network">
    <Feed events={recentEvents.value.filter(isRefusal)} empty="Nothing was refused" />
  </Card>
);

const Deaths = () => (
  <Card title="Sandboxes that ended">
    <Feed events={recentEvents.value.filter((event) => endReason(event) !== null)} empty="No sandbox has ended recently" />
  </Card>
);

function TemplateList() {
  const templates = useLoad(() => get<Template[]>("/v1/templates"), []);
  return (
    <Card title="Templates" actions={<a href={href("/templates")}>All templates</a>}>
      <Show from={templates}>
        {(list) =>
          list.length === 0 ? (
            <Empty title="No templates yet"><code>sandling template build code-interpreter</code> builds the first one.</Empty>
          ) : (
            <ul class="feed">
              {list.slice(0, 6).map((template) => (
                <li key={template.name} style={{ gridTemplateColumns: "minmax(0,1fr) auto" }}>
                  <span class="cut">{template.name}</span>
                  <span class="muted">{bytes(template.size_bytes)}</span>
                </li>
              ))}
            </ul>
          )
        }
      </Show>
    </Card>
  );
}

