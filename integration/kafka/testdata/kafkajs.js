// Admin, gzip and idempotent produce, group consume, SASL. Args: host:port.
const { Kafka, CompressionTypes, logLevel } = require("../../clients/node_modules/kafkajs");
const assert = require("assert");

async function main(addr) {
  const kafka = new Kafka({ clientId: "js", brokers: [addr], logLevel: logLevel.ERROR, sasl: { mechanism: "plain", username: "guest", password: "guest" } });
  const admin = kafka.admin();
  await admin.connect();
  assert(await admin.createTopics({ topics: [{ topic: "js", numPartitions: 2, replicationFactor: 1 }] }));
  const meta = await admin.fetchTopicMetadata({ topics: ["js"] });
  assert.strictEqual(meta.topics[0].partitions.length, 2);

  const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 });
  await producer.connect();
  const messages = Array.from({ length: 200 }, (_, i) => ({ value: `js ${i}`, headers: { h: "v" } }));
  await producer.send({ topic: "js", messages, compression: CompressionTypes.GZIP });
  await producer.disconnect();

  const consumer = kafka.consumer({ groupId: "js" });
  await consumer.connect();
  await consumer.subscribe({ topics: ["js"], fromBeginning: true });
  const seen = new Set();
  await new Promise((resolve, reject) =>
    consumer
      .run({
        eachMessage: async ({ message }) => {
          seen.add(message.value.toString());
          if (seen.size === 200) resolve();
        },
      })
      .catch(reject));
  const groups = await admin.listGroups();
  assert(groups.groups.some((g) => g.groupId === "js"));
  await consumer.disconnect();
  const offsets = await admin.fetchOffsets({ groupId: "js", topics: ["js"] });
  assert.strictEqual(offsets[0].partitions.reduce((n, p) => n + Number(p.offset), 0), 200);
  await admin.deleteGroups(["js"]);
  await admin.deleteTopics({ topics: ["js"] });
  await admin.disconnect();
  console.log("ok");
}

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
main(process.argv[2]).then(() => process.exit(0), (e) => { console.error(e); process.exit(1); });
