// The page of one run (being built).
import { element, fill } from "./dom.js";
export async function open(root, context) {
  const run = context.run();
  await run.ready;
  context.title(context.parameters.run);
  const show = () => fill(root, element("pre", {}, JSON.stringify(run.latest.totals, null, 1)));
  show();
  return run.subscribe(show);
}
