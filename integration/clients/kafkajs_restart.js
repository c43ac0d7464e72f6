// A member of a group that goes on while its broker is killed and started again: it joins once.
// Args: host:port topic partitions. It ends when every partition has said "end".
const { Kafka, logLevel } = require("kafkajs");
const assert = require("assert");

async function main(addr, topic, partitions) {
  const kafka = new Kafka({ clientId: "js", brokers: [addr], logLevel: logLevel.NOTHING, retry: { initialRetryTime: 200, maxRetryTime: 1000, retries: 60 } });
  const consumer = kafka.consumer({ groupId: "kafkajs", sessionTimeout: 45000, heartbeatInterval: 300 });
  const joins = [];
  consumer.on(consumer.events.GROUP_JOIN, (e) => joins.push(e.payload.memberId));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  const seen = Array(partitions).fill(0);
  const ended = new Set();
  await new Promise((resolve, reject) => {
    consumer.on(consumer.events.CRASH, (e) => reject(e.payload.error));
    consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ partition, message }) => {
        try {
          assert.strictEqual(Number(message.offset), seen[partition]++);
          if (message.value.toString() === "end" && ended.add(partition).size === partitions) resolve();
        } catch (e) {
          reject(e);
        }
      },
    });
  });
  assert.strictEqual(joins.length, 1, `joined ${joins}`);
  await consumer.disconnect();
  console.log(`ok ${seen}`);
}

setTimeout(() => { console.error("timed out"); process.exit(1); }, 120000);
main(process.argv[2], process.argv[3], Number(process.argv[4])).then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
