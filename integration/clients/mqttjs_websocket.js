// QoS 1 over WebSocket, with payloads of several sizes. Args: url [ca file].
const fs = require("fs");
const mqtt = require("mqtt");
const assert = require("assert");

const [url, ca] = process.argv.slice(2);
const options = { protocolVersion: 5, reconnectPeriod: 0, ca: ca && fs.readFileSync(ca) };
const sizes = [0, 1, 125, 126, 65535, 65536, 300000];

async function main() {
  const c = await mqtt.connectAsync(url, options);
  await c.subscribeAsync("js/web", { qos: 1 });
  const got = [];
  const done = new Promise((resolve) => c.on("message", (topic, payload) => {
    got.push(payload);
    if (got.length === sizes.length) resolve();
  }));
  for (const n of sizes) await c.publishAsync("js/web", Buffer.alloc(n, n % 251), { qos: 1 });
  await done;
  sizes.forEach((n, i) => assert(got[i].equals(Buffer.alloc(n, n % 251)), `payload of ${n} bytes`));
  await c.endAsync();
  console.log(`ok ${got.length}`);
}

const guard = setTimeout(() => { console.error("timed out"); process.exit(1); }, 30000);
main().then(() => clearTimeout(guard), (e) => { console.error(e); process.exit(1); });
