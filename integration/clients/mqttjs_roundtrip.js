// QoS 1 round trip with a durable session that is away for half of the
// messages. Args: host:port count protocolVersion(4|5).
const mqtt = require("mqtt");
const assert = require("assert");

const [addr, countArg, versionArg] = process.argv.slice(2);
const count = Number(countArg);
const version = Number(versionArg);
const topic = `js/v${version}/data`;

function session() {
  const properties = version === 5 ? { sessionExpiryInterval: 600 } : undefined;
  return { clientId: `js-sub-${version}`, clean: false, protocolVersion: version, properties, reconnectPeriod: 0 };
}

async function main() {
  let sub = await mqtt.connectAsync(`mqtt://${addr}`, session());
  await sub.subscribeAsync(`js/v${version}/+`, { qos: 1 });
  await sub.endAsync();

  const pub = await mqtt.connectAsync(`mqtt://${addr}`, { clientId: `js-pub-${version}`, protocolVersion: version, reconnectPeriod: 0 });
  const options = { qos: 1 };
  if (version === 5) options.properties = { contentType: "text/plain", userProperties: { a: ["1", "2"], b: "3" }, responseTopic: "back", correlationData: Buffer.from([1, 0, 255]) };
  const half = Math.floor(count / 2);
  const sent = [];
  for (let i = 0; i < half; i++) sent.push(pub.publishAsync(topic, `js-${i}`, options));
  await Promise.all(sent);

  let seen = 0;
  const done = new Promise((resolve, reject) => {
    sub = mqtt.connect(`mqtt://${addr}`, session());
    sub.on("connect", (ack) => { if (!ack.sessionPresent) reject(new Error("the session is gone")); });
    sub.on("error", reject);
    sub.on("message", (t, payload, packet) => {
      try {
        assert.strictEqual(t, topic);
        assert.strictEqual(payload.toString(), `js-${seen}`);
        assert.strictEqual(packet.qos, 1);
        if (version === 5) {
          assert.deepStrictEqual(Object.assign({}, packet.properties.userProperties), { a: ["1", "2"], b: "3" });
          assert.strictEqual(packet.properties.contentType, "text/plain");
          assert.strictEqual(packet.properties.responseTopic, "back");
          assert.deepStrictEqual([...packet.properties.correlationData], [1, 0, 255]);
        }
        if (++seen === count) resolve();
      } catch (e) {
        reject(e);
      }
    });
  });
  for (let i = half; i < count; i++) await pub.publishAsync(topic, `js-${i}`, options);
  await done;
  await sub.unsubscribeAsync(`js/v${version}/+`);
  await sub.endAsync();
  await pub.endAsync();
  console.log(`ok ${seen}`);
}

const guard = setTimeout(() => { console.error("timed out"); process.exit(1); }, 30000);
main().then(() => clearTimeout(guard), (e) => { console.error(e); process.exit(1); });
