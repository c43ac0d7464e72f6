package kernel

// Exchange names that every tenant has from the start.
const (
	ExchangeDefault = ""
	ExchangeDirect  = "amq.direct"
	ExchangeFanout  = "amq.fanout"
	ExchangeTopic   = "amq.topic" // what topic-style publishers share with subscribers
)

// ExchangeType is how an exchange picks targets.
type ExchangeType string

// The exchange types that work today.
const (
	Direct ExchangeType = "direct"
	Fanout ExchangeType = "fanout"
	Topics ExchangeType = "topic"
)

// Exchange is one entry of a tenant's routing table.
type Exchange struct {
	Tenant     string
	Name       string
	Type       ExchangeType
	Durable    bool
	AutoDelete bool
	Internal   bool
}

// Binding routes from an exchange to a queue.
type Binding struct {
	Exchange  string
	Queue     string
	Key       string
	Arguments []Argument // kept for equality; headers exchanges will read them
}

// Argument is one optional argument of a declaration. Value is one of: nil,
// bool, int64, float64, string, []byte, or (opaque, compared bytewise) Raw.
type Argument struct {
	Name  string
	Value any
}

// Raw is an argument value of a type the kernel does not interpret.
type Raw string
