// Logs in: node kafkajs_login.js BROKER MECHANISM USER PASSWORD
const { Kafka, logLevel } = require('kafkajs')
const [, , broker, mechanism, username, password] = process.argv
const kafka = new Kafka({ clientId: 'login', brokers: [broker], sasl: { mechanism, username, password }, retry: { retries: 0 }, logLevel: logLevel.NOTHING })
const admin = kafka.admin()
admin.connect().then(() => admin.listTopics()).then(() => console.log('ok'), (e) => console.log(e.name, e.message)).finally(() => admin.disconnect())
