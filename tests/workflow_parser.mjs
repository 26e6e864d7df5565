// Prints what GitHub's workflow parser finds wrong: node workflow_parser.mjs DIST FILE...
// DIST is the dist directory of the npm package @actions/workflow-parser.
import { readFileSync } from "node:fs";
import { register } from "node:module";
import { pathToFileURL } from "node:url";

// The package imports its schemas as JSON and leaves it to a bundler to allow that.
const hook = `import { readFileSync } from "node:fs";
export const load = (url, context, next) => url.endsWith(".json")
  ? { format: "module", shortCircuit: true, source: "export default " + readFileSync(new URL(url), "utf8") }
  : next(url, context);`;
register(`data:text/javascript,${encodeURIComponent(hook)}`);

const [dist, ...paths] = process.argv.slice(2);
const load = (name) => import(pathToFileURL(`${dist}/${name}.js`).href);
const { parseWorkflow, convertWorkflowTemplate, NoOperationTraceWriter } = await load("index");
const { parseAction } = await load("actions/action-parser");

for (const path of paths) {
  const file = { name: path, content: readFileSync(path, "utf8") };
  const isAction = /(^|\/)action\.ya?ml$/.test(path);
  const { context, value } = (isAction ? parseAction : parseWorkflow)(file, new NoOperationTraceWriter());
  if (!isAction && value) await convertWorkflowTemplate(context, value);
  for (const error of context.errors.getErrors()) console.log(`${path}: ${error.message}`);
}
