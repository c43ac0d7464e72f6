package config

// Memory bounds what the process holds in memory. 0 is a share of the limit.
type Memory struct {
	Limit         Bytes `key:"limit" default:"0" about:"what the process should use; garbage is collected in time for that, and with 70 % of it in use publishes are refused; 0 = three quarters of the machine's or control group's memory, or GOMEMLIMIT"`
	InFlight      Bytes `key:"in_flight" default:"0" about:"publishes on their way to the log before publishers are read more slowly, of each log; 0 = 16MiB or a 32nd of the limit"`
	Volatile      Bytes `key:"volatile" default:"0" about:"messages of memory-only queues; 0 = 256MiB or a quarter of the limit"`
	Cache         Bytes `key:"cache" default:"0" about:"log that is not in segments yet; 0 = 64MiB or an 8th of the limit"`
	Retained      Bytes `key:"retained" default:"0" about:"small retained messages; 0 = 64MiB or a 16th of the limit"`
	AMQPOut       Bytes `key:"amqp_out" default:"0" about:"what waits for AMQP clients; 0 = 256MiB or an 8th of the limit"`
	AMQPIn        Bytes `key:"amqp_in" default:"0" about:"what AMQP clients have sent of messages that are not whole, or wait for the end of an alarm; 0 = 512MiB or an 8th of the limit"`
	MQTTOut       Bytes `key:"mqtt_out" default:"0" about:"what waits for MQTT clients; 0 = 256MiB or an 8th of the limit"`
	MQTTIn        Bytes `key:"mqtt_in" default:"0" about:"what MQTT clients have sent of packets over 64KiB that are not whole; 0 = 256MiB or an 8th of the limit"`
	KafkaRequests Bytes `key:"kafka_requests" default:"0" about:"Kafka requests over 1MiB, at least 100MiB; 0 = 256MiB or an 8th of the limit"`
	KafkaFetches  Bytes `key:"kafka_fetches" default:"0" about:"answers to Kafka consumers; 0 = 256MiB or an 8th of the limit"`
}

// minMemory is the least limit with which a node is of use.
const minMemory = 64 << 20

func (m *Memory) check(p *problems) {
	if m.Limit > 0 && m.Limit < minMemory {
		p.add("memory.limit", "it is less than 64MiB")
	}
}

// Shared fills in what is 0, for a limit that is known, 0 = none.
func (m Memory) Shared(limit int64) Memory {
	const mib = 1 << 20
	for _, s := range []struct {
		v     *Bytes
		most  Bytes
		share int64
	}{
		{&m.InFlight, 16 * mib, 32}, {&m.Volatile, 256 * mib, 4}, {&m.Cache, 64 * mib, 8}, {&m.Retained, 64 * mib, 16},
		{&m.AMQPOut, 256 * mib, 8}, {&m.AMQPIn, 512 * mib, 8}, {&m.MQTTOut, 256 * mib, 8}, {&m.MQTTIn, 256 * mib, 8},
		{&m.KafkaRequests, 256 * mib, 8}, {&m.KafkaFetches, 256 * mib, 8},
	} {
		if *s.v > 0 {
			continue
		}
		if *s.v = s.most; limit > 0 {
			*s.v = min(s.most, Bytes(limit/s.share))
		}
	}
	return m
}

// Disk is about the volume of the data directory.
type Disk struct {
	Low Bytes `key:"low" default:"192MiB" min:"1MiB" about:"with less than that free publishes are refused; at most a quarter of the volume counts"`
}
