import { FitAddon } from "@xterm/addon-fit";
import { Terminal as Xterm } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";
import { useEffect, useRef } from "preact/hooks";
import { query } from "../api/client";
import { dark } from "../state/theme";

interface TerminalProps {
  sandbox: string;
  /** The terminal survives its connection under this id. */
  id: string;
  visible: boolean;
  ended: () => void;
  state: (text: string) => void;
}

const DARK = { background: "#0d1117", foreground: "#d6deeb", cursor: "#2dd4bf", selectionBackground: "#264f78", red: "#ff7b72", blue: "#79b8ff", magenta: "#d2a8ff" };
const LIGHT = { background: "#ffffff", foreground: "#1f2937", cursor: "#0f766e", selectionBackground: "#b6e3dc", white: "#6b7280", brightWhite: "#374151", yellow: "#92610a", brightYellow: "#7c4f00", green: "#15703a", brightGreen: "#166534", cyan: "#0e7490" };
const LONGEST_WAIT = 10_000;

export function Terminal({ sandbox, id, visible, ended, state }: TerminalProps) {
  const box = useRef<HTMLDivElement>(null);
  const parts = useRef<{ xterm: Xterm; fit: FitAddon }>(null);
  const isDark = dark.value;
  useEffect(() => {
    const xterm = new Xterm({ fontSize: 13, fontFamily: "ui-monospace, Menlo, Consolas, monospace", cursorBlink: true, screenReaderMode: true, scrollback: 5000, theme: dark.value ? DARK : LIGHT });
    const fit = new FitAddon();
    xterm.loadAddon(fit);
    xterm.open(box.current!);
    fit.fit();
    parts.current = { xterm, fit };
    let socket: WebSocket | undefined;
    let closed = false;
    let over = false;
    let tries = 0;
    let timer: ReturnType<typeof setTimeout> | undefined;
    const encoder = new TextEncoder();
    const connect = () => {
      const scheme = location.protocol === "https:" ? "wss" : "ws";
      const path = `/v1/sandboxes/${sandbox}/exec/pty${query({ rows: xterm.rows, cols: xterm.cols, id })}`;
      socket = new WebSocket(`${scheme}://${location.host}${path}`);
      socket.binaryType = "arraybuffer";
      socket.onopen = () => {
        // The server sends the recent output again.
        xterm.reset();
        tries = 0;
        state("connected");
        socket?.send(JSON.stringify({ resize: { rows: xterm.rows, cols: xterm.cols } }));
      };
      socket.onmessage = ({ data }) => {
        if (data instanceof ArrayBuffer) xterm.write(new Uint8Array(data));
        else finish(JSON.parse(data as string));
      };
      socket.onclose = () => {
        if (closed || over) return;
        state("reconnecting");
        timer = setTimeout(connect, Math.min(LONGEST_WAIT, 500 * 2 ** tries++));
      };
    };
    const finish = (message: { exit?: number; error?: string }) => {
      over = true;
      state("ended");
      xterm.write(`\r\n\x1b[2m[${message.error ? "the terminal failed" : `the shell ended with exit code ${message.exit}`}]\x1b[0m\r\n`);
      ended();
    };
    const input = xterm.onData((text) => socket?.readyState === WebSocket.OPEN && socket.send(encoder.encode(text)));
    const resize = xterm.onResize(({ rows, cols }) => {
      if (socket?.readyState === WebSocket.OPEN) socket.send(JSON.stringify({ resize: { rows, cols } }));
    });
    const observer = new ResizeObserver(() => {
      if (box.current?.offsetParent) fit.fit();
    });
    observer.observe(box.current!);
    connect();
    return () => {
      closed = true;
      clearTimeout(timer);
      observer.disconnect();
      input.dispose();
      resize.dispose();
      socket?.close();
      xterm.dispose();
    };
  }, [sandbox, id]);
  useEffect(() => {
    if (parts.current) parts.current.xterm.options.theme = isDark ? DARK : LIGHT;
  }, [isDark]);
  useEffect(() => {
    if (!visible || !parts.current) return;
    parts.current.fit.fit();
    parts.current.xterm.focus();
  }, [visible]);
  return <div class="term-box" ref={box} hidden={!visible} data-terminal={id} />;
}
