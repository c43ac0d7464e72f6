// Package sharegroup is the state machine behind "many consumers work off one
// backlog": an AMQP queue, an MQTT shared subscription, a Kafka share group.
package sharegroup
