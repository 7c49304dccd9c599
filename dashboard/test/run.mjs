// Runs all tests, or those whose names contain one of the arguments.
import { runAll } from "./browser.mjs";
import "./access.mjs";
import "./list.mjs";
import "./sandbox.mjs";
import "./history.mjs";
import "./hostile.mjs";
import "./agents.mjs";
import "./webhooks.mjs";
import "./usable.mjs";
if (process.env.SANDLING_PICTURES) await import("./pictures.mjs");

const failed = await runAll(process.argv.slice(2));
console.log(failed ? `${failed} failed` : "all passed");
process.exit(failed ? 1 : 0);
