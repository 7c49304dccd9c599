import { useSignal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { query, send } from "../api/client";
import { follow } from "../api/live";
import type { Event } from "../state/sandboxes";
import { Button, Card, Empty, Problem, useLoad } from "../ui/basics";
import { clockTime, plain } from "../ui/format";
import { describe } from "./event_text";
import type { TabProps } from "./page";

const MOST = 500;

export function EventList({ sandbox }: TabProps) {
  const events = useSignal<Event[]>([]);
  useEffect(() => {
    events.value = [];
    return follow<Event>(`/v1/sandboxes/${sandbox.id}/events?follow=true&tail=200`, (event) => (events.value = [event, ...events.value].slice(0, MOST)));
  }, [sandbox.id]);
  return (
    <Card title="Events, live">
      {events.value.length === 0 && <Empty title="Nothing has happened yet" />}
      <ul class="feed">
        {events.value.map((event) => (
          <li key={event.number}>
            <time dateTime={event.time}>{clockTime(event.time)}</time>
            <span class="wrap">{describe(event)}</span>
            <span class="label">{event.type}</span>
          </li>
        ))}
      </ul>
    </Card>
  );
}

export function Console({ sandbox }: TabProps) {
  const log = useLoad(async () => (await send("GET", `/v1/sandboxes/${sandbox.id}/logs${query({ tail: 500 })}`)).text(), [sandbox.id]);
  return (
    <Card title="Console of the machine" actions={<Button onClick={log.reload}>Refresh</Button>}>
      {log.error && <Problem error={log.error} />}
      {log.value === "" && <Empty title="The console is empty">The kernel and the first process write here.</Empty>}
      {log.value && <pre class="code" tabIndex={0} aria-label="Console">{plain(log.value)}</pre>}
    </Card>
  );
}
