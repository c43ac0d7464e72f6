package kernel

// Exchange names that every tenant has from the start.
const (
	ExchangeDefault = ""
	ExchangeDirect  = "amq.direct"
	ExchangeFanout  = "amq.fanout"
	ExchangeTopic   = "amq.topic" // what topic-style publishers share with subscribers
	ExchangeHeaders = "amq.headers"
	ExchangeMatch   = "amq.match" // like ExchangeHeaders
)

// ExchangeType is how an exchange picks targets.
type ExchangeType string

// The exchange types.
const (
	Direct ExchangeType = "direct"
	Fanout ExchangeType = "fanout"
	Topics ExchangeType = "topic"
	// Headers compares the headers of a record with the binding's arguments.
	Headers ExchangeType = "headers"
	// ConsistentHash picks one binding by a hash of the key, or of what the
	// arguments ArgHashHeader or ArgHashProperty name, in proportion to the
	// binding keys, which are weights. A new binding takes over its part and
	// moves nothing else.
	ConsistentHash ExchangeType = "x-consistent-hash"
	// ModulusHash picks one binding by a hash of the key modulo their number.
	ModulusHash ExchangeType = "x-modulus-hash"
	// Random picks any binding. LocalRandom would prefer those on this node.
	Random      ExchangeType = "x-random"
	LocalRandom ExchangeType = "x-local-random"
)

// Arguments of exchanges that mean something here.
const (
	ArgAlternate    = "alternate-exchange" // string: where to go when no binding matches
	ArgHashHeader   = "hash-header"        // string: name of the header to hash
	ArgHashProperty = "hash-property"      // string: message_id, correlation_id or timestamp
	ArgMatch        = "x-match"            // of a binding: how its other arguments match
)

// Exchange is one entry of a tenant's routing table.
type Exchange struct {
	Tenant     string
	Name       string
	Type       ExchangeType
	Durable    bool
	AutoDelete bool
	Internal   bool
	Arguments  []Argument // sorted by name
}

// Text returns a string argument of the exchange, or "".
func (x *Exchange) Text(name string) string {
	for i := range x.Arguments {
		if x.Arguments[i].Name == name {
			text, _ := x.Arguments[i].Value.(string)
			return text
		}
	}
	return ""
}

// Binding routes from an exchange to a queue or another exchange. All of it
// is its identity.
type Binding struct {
	Exchange   string
	Queue      string // the target: a queue, or with ToExchange an exchange
	Key        string
	Arguments  []Argument
	ToExchange bool
}

// Argument is one optional argument of a declaration. Value is one of: nil,
// bool, int64, float64, string, []byte, or (opaque, compared bytewise) Raw.
type Argument struct {
	Name  string
	Value any
}

// Raw is an argument value of a type the kernel does not interpret.
type Raw string
