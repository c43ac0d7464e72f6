// Asks and answers over AMQP by direct reply-to. Args: host:port count.
const amqp = require("amqplib");
const assert = require("assert");

const replyTo = "amq.rabbitmq.reply-to";

async function main(addr, count) {
  const [asks, answers] = await Promise.all([1, 2].map(() => amqp.connect(`amqp://guest:guest@${addr}`)));
  const ch = await asks.createConfirmChannel();
  const server = await answers.createChannel();
  const { queue } = await server.assertQueue("", { exclusive: true });
  await server.consume(queue, (m) => {
    assert(m.properties.replyTo.startsWith(replyTo + "."), m.properties.replyTo);
    server.sendToQueue(m.properties.replyTo, Buffer.from(`answer ${m.content}`), { correlationId: m.properties.correlationId });
  }, { noAck: true });
  let seen = 0;
  const all = new Promise((resolve, reject) => {
    ch.consume(replyTo, (m) => {
      try {
        assert.strictEqual(m.properties.correlationId, `c${seen}`);
        assert.strictEqual(m.content.toString(), `answer ${seen}`);
        if (++seen === count) resolve();
      } catch (e) {
        reject(e);
      }
    }, { noAck: true });
  });
  for (let i = 0; i < count; i++) {
    ch.sendToQueue(queue, Buffer.from(`${i}`), { replyTo, correlationId: `c${i}` });
  }
  await ch.waitForConfirms();
  await all;
  await asks.close();
  await answers.close();
  console.log(`ok ${seen}`);
}

const guard = setTimeout(() => { console.error("timed out"); process.exit(1); }, 30000);
main(process.argv[2], Number(process.argv[3])).then(() => clearTimeout(guard), (e) => { console.error(e); process.exit(1); });
