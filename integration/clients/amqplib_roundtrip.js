// Publishes over AMQP with confirms, reads back and acks. Args: host:port count.
const amqp = require("amqplib");
const assert = require("assert");

async function main(addr, count) {
  const conn = await amqp.connect(`amqp://guest:guest@${addr}`);
  const ch = await conn.createConfirmChannel();
  await ch.assertQueue("amqplib", { durable: true });
  const headers = { text: "x", number: 7, nested: { a: [1, 2] } };
  for (let i = 0; i < count; i++) {
    ch.sendToQueue("amqplib", Buffer.from(`amqplib-${i}`), { persistent: true, contentType: "text/plain", headers, messageId: `m${i}` });
  }
  await ch.waitForConfirms();
  await ch.prefetch(50);
  let seen = 0;
  await new Promise((resolve, reject) => {
    ch.consume("amqplib", (m) => {
      try {
        assert.strictEqual(m.content.toString(), `amqplib-${seen}`);
        assert.deepStrictEqual(m.properties.headers, headers);
        assert.strictEqual(m.properties.messageId, `m${seen}`);
        assert.strictEqual(m.properties.timestamp, undefined);
        ch.ack(m);
        if (++seen === count) resolve();
      } catch (e) {
        reject(e);
      }
    });
  });
  await ch.close();
  await conn.close();
  console.log(`ok ${seen}`);
}

const guard = setTimeout(() => { console.error("timed out"); process.exit(1); }, 30000);
main(process.argv[2], Number(process.argv[3])).then(() => clearTimeout(guard), (e) => { console.error(e); process.exit(1); });
