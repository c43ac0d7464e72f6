// Produce, then consume in a group from the beginning. Args: host:port count.
const { Kafka, logLevel } = require("kafkajs");
const assert = require("assert");

async function main(addr, count) {
  const kafka = new Kafka({ clientId: "js", brokers: [addr], logLevel: logLevel.ERROR });
  const producer = kafka.producer();
  await producer.connect();
  const messages = [];
  for (let i = 0; i < count; i++) messages.push({ key: `k${i}`, value: `kjs-${i}`, headers: { h: "v" } });
  await producer.send({ topic: "kafkajs", messages, acks: -1 });
  await producer.disconnect();
  const consumer = kafka.consumer({ groupId: "kjs" });
  await consumer.connect();
  await consumer.subscribe({ topic: "kafkajs", fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    consumer.run({
      eachMessage: async ({ message }) => {
        try {
          assert.strictEqual(message.value.toString(), `kjs-${seen}`);
          assert.strictEqual(message.headers.h.toString(), "v");
          if (++seen === count) resolve();
        } catch (e) {
          reject(e);
        }
      },
    });
  });
  await consumer.disconnect();
  console.log(`ok ${seen}`);
}

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const guard = setTimeout(() => { console.error("timed out"); process.exit(1); }, 60000);
main(process.argv[2], Number(process.argv[3])).then(() => clearTimeout(guard), (e) => { console.error(e); process.exit(1); });
