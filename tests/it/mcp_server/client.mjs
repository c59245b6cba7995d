// Drives `orchestrator serve --mcp` with the official TypeScript client; prints what it got as one JSON object.

import { existsSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [packages, binary, project] = process.argv.slice(2);
const sdk = `${packages}/node_modules/@modelcontextprotocol/sdk/dist/esm`;
const load = (name) => import(pathToFileURL(`${sdk}/${name}`).href);
const { Client } = await load("client/index.js");
const { StdioClientTransport } = await load("client/stdio.js");
const { ResourceUpdatedNotificationSchema } = await load("types.js");

const client = new Client({ name: "test", version: "1" });
const transport = new StdioClientTransport({ command: binary, args: ["serve", "--mcp", "--project-dir", project] });
await client.connect(transport);
const got = { server: client.getServerVersion().name };
const call = (name, args, options) => client.callTool({ name, arguments: args }, undefined, options);
const text = (result) => [result.content.map((content) => content.text), result.isError];

got.tools = (await client.listTools()).tools.map((tool) => tool.name);
const updated = [];
client.setNotificationHandler(ResourceUpdatedNotificationSchema, (message) => updated.push(message.params.uri));
await client.subscribeResource({ uri: "screen://bash" });
await call("bash", { command: "cd /; word=kept" });
got.good = text(await call("bash", { command: "echo $word" }));
got.bad = text(await call("bash", { command: "echo no; false" }));
got.updated = updated;
const progress = [];
await call("bash", { command: "sleep 1" }, { onprogress: (message) => progress.push(message.progress) });
got.progress = progress;
got.resources = (await client.listResources()).resources.map((resource) => resource.uri);
got.templates = (await client.listResourceTemplates()).resourceTemplates;
got.screen = (await client.readResource({ uri: "screen://bash" })).contents.map((content) => content.text);
const missing = await client.readResource({ uri: "screen://none" }).catch((error) => error.code);
got.missing = missing;
const stop = new AbortController();
const long = call("bash", { command: `touch ${project}/begun; sleep 300` }, { signal: stop.signal });
long.catch(() => {});
while (!existsSync(`${project}/begun`)) await new Promise((resolve) => setTimeout(resolve, 10));
await client.ping();
stop.abort("enough");
got.aborted = await long.then(() => false, () => true);
got.after = text(await call("bash", { command: "echo $word" }));
await client.close();
console.log(JSON.stringify(got));
