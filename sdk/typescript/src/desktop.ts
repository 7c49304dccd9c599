/** The desktop of a sandbox: its screen, mouse, keyboard, windows and clipboard. */

import { randomUUID } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";

import type { Exec } from "./exec.js";
import type { Sandbox } from "./sandbox.js";

/** The user whose session the desktop shows. */
export const USER = "user";
/** The ports on which noVNC serves the screen: with the mouse and the keyboard, and without them. */
const VIEW_PORT = 6080;
const VIEW_ONLY_PORT = 6081;

const BUTTONS = { left: "1", middle: "2", right: "3" } as const;
const WHEEL = { up: "4", down: "5", left: "6", right: "7" } as const;
/** Common names of keys, besides the names that X has for them. */
const KEYS: Record<string, string> = {
  backspace: "BackSpace",
  delete: "Delete",
  down: "Down",
  end: "End",
  enter: "Return",
  esc: "Escape",
  escape: "Escape",
  home: "Home",
  insert: "Insert",
  left: "Left",
  page_down: "Next",
  page_up: "Prior",
  right: "Right",
  tab: "Tab",
  up: "Up",
};

export type MouseButton = keyof typeof BUTTONS;
export type ScrollDirection = keyof typeof WHEEL;

/** In pixels from the upper left corner of the screen. */
export interface Position {
  x: number;
  y: number;
}

export interface Size {
  width: number;
  height: number;
}

/** A window on the screen. Its position is that of its upper left corner. */
export interface DesktopWindow extends Position, Size {
  id: string;
  title: string;
}

/** `sandbox.desktop`, in sandboxes of the template `desktop`. */
export class Desktop {
  readonly #sandbox: Sandbox;

  constructor(sandbox: Sandbox) {
    this.#sandbox = sandbox;
  }

  /** The screen with the mouse pointer, as a PNG. */
  async screenshot(): Promise<Buffer> {
    const path = `/tmp/screenshot-${randomUUID()}.png`;
    await this.#tool(["scrot", "--pointer", path]);
    const picture = await this.#sandbox.files.read(path);
    await this.#sandbox.files.remove(path);
    return picture;
  }

  /** The size of the screen. */
  async size(): Promise<Size> {
    const [width, height] = pairOf(/(\d+) (\d+)/, await this.#tool(["xdotool", "getdisplaygeometry"]));
    return { width, height };
  }

  /** Sets the size of the screen, up to 3840 × 2160. */
  async resize({ width, height }: Size): Promise<void> {
    await this.#tool(["resize-desktop", String(width), String(height)]);
  }

  /** The position of the mouse pointer. */
  async cursor(): Promise<Position> {
    const [x, y] = pairOf(/x:(\d+) y:(\d+)/, await this.#tool(["xdotool", "getmouselocation"]));
    return { x, y };
  }

  /** Moves the mouse pointer. */
  async move(position: Position): Promise<void> {
    await this.#tool(["xdotool", ...moveTo(position)]);
  }

  /** Clicks a mouse button, where the pointer is or at a position. */
  async click(position?: Position, button: MouseButton = "left"): Promise<void> {
    await this.#tool(["xdotool", ...moveTo(position), "click", BUTTONS[button]]);
  }

  /** Clicks the left mouse button twice. */
  async doubleClick(position?: Position): Promise<void> {
    await this.#tool(["xdotool", ...moveTo(position), "click", "--repeat", "2", "--delay", "50", BUTTONS.left]);
  }

  /** Turns the mouse wheel by `amount` steps. */
  async scroll(direction: ScrollDirection = "down", amount = 1): Promise<void> {
    await this.#tool(["xdotool", "click", "--repeat", String(amount), "--delay", "20", WHEEL[direction]]);
  }

  /** Moves the pointer from one position to another while the left mouse button is pressed. */
  async drag(start: Position, end: Position): Promise<void> {
    // XFCE's window manager takes the first motion as the beginning of a drag, and moves with the next ones.
    const between = { x: Math.floor((start.x + end.x) / 2), y: Math.floor((start.y + end.y) / 2) };
    const path = [...moveTo(between), ...moveTo(end)];
    await this.#tool(["xdotool", ...moveTo(start), "mousedown", "1", ...path, "mouseup", "1"]);
  }

  /** Types a text into the window that has the focus, with a delay between keys. */
  async type(text: string, delayMs = 12): Promise<void> {
    await this.#tool(["xdotool", "type", "--delay", String(delayMs), "--", text]);
  }

  /** Presses keys together and releases them: `press("enter")`, `press("ctrl", "c")`. */
  async press(...keys: string[]): Promise<void> {
    await this.#tool(["xdotool", "key", "--", keys.map((key) => KEYS[key] ?? key).join("+")]);
  }

  /** The open windows. */
  async windows(): Promise<DesktopWindow[]> {
    return windowsOf(await this.#tool(["wmctrl", "-lG"]));
  }

  /** The first open window whose title contains `title`, as soon as there is one. Throws after `timeoutSeconds`. */
  async waitForWindow(title: string, timeoutSeconds = 30): Promise<DesktopWindow> {
    const deadline = Date.now() + timeoutSeconds * 1000;
    for (;;) {
      const found = (await this.windows()).find((window) => window.title.includes(title));
      if (found) return found;
      if (Date.now() > deadline) {
        throw new Error(`no window with ${JSON.stringify(title)} in its title opened within ${timeoutSeconds} s`);
      }
      await sleep(200);
    }
  }

  /** Starts a program of the desktop in the background, such as `xterm` or `chromium`. */
  launch(program: string, ...args: string[]): Promise<Exec> {
    return this.#sandbox.start([program, ...args], { user: USER });
  }

  /** The text in the clipboard. An empty clipboard is an error. */
  clipboardGet(): Promise<string> {
    return this.#tool(["xclip", "-selection", "clipboard", "-out"]);
  }

  /** Puts a text into the clipboard. */
  async clipboardSet(text: string): Promise<void> {
    await this.#tool(["xclip", "-selection", "clipboard", "-in"], text);
  }

  /**
   * A URL that shows the screen in a browser. Anybody with the URL can use it, for an hour by default. With `viewOnly`, the
   * URL leads to a view that takes no input.
   */
  async viewUrl(options: { viewOnly?: boolean; ttlSeconds?: number } = {}): Promise<string> {
    await this.#tool(["view-desktop", ...(options.viewOnly ? ["only"] : [])]);
    const port = options.viewOnly ? VIEW_ONLY_PORT : VIEW_PORT;
    const url = new URL((await this.#sandbox.preview(port, { ttlSeconds: options.ttlSeconds })).url);
    url.pathname += "vnc.html";
    url.searchParams.set("autoconnect", "true");
    url.searchParams.set("resize", "scale");
    if (options.viewOnly) url.searchParams.set("view_only", "true");
    return url.toString();
  }

  async #tool(command: readonly string[], stdin?: string): Promise<string> {
    return (await this.#sandbox.exec(command, { check: true, user: USER, stdin })).stdout;
  }
}

function moveTo(position: Position | undefined): string[] {
  return position ? ["mousemove", "--sync", String(position.x), String(position.y)] : [];
}

/** Two numbers in the output of a command. */
function pairOf(pattern: RegExp, output: string): [number, number] {
  const match = pattern.exec(output);
  if (!match) throw new Error(`the desktop's tool printed no position or size: ${JSON.stringify(output)}`);
  return [Number(match[1]), Number(match[2])];
}

/** The windows in the output of `wmctrl -lG`, without the panel and the background, which are on all desktops. */
function windowsOf(listing: string): DesktopWindow[] {
  const line = /^(\S+) +(\S+) +(-?\d+) +(-?\d+) +(\d+) +(\d+) +\S+ ?(.*)$/gm;
  const found = [...listing.matchAll(line)].filter(([, , desktop]) => desktop !== "-1");
  return found.map(([, id = "", , x, y, width, height, title = ""]) => {
    return { id, title, x: Number(x), y: Number(y), width: Number(width), height: Number(height) };
  });
}
