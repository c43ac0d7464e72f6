package amqp

import (
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// maxTTL is the longest time to live that RabbitMQ takes, ten years in
// milliseconds.
const maxTTL = 315_360_000_000

// The arguments that bound a queue, in the order in which RabbitMQ looks at
// them.
const (
	argExpires      = "x-expires"
	argMessageTTL   = "x-message-ttl"
	argDeadExchange = "x-dead-letter-exchange"
	argDeadKey      = "x-dead-letter-routing-key"
	argDeadStrategy = "x-dead-letter-strategy"
	argMaxLength    = "x-max-length"
	argMaxBytes     = "x-max-length-bytes"
	argOverflow     = "x-overflow"
	argDeliveries   = "x-delivery-limit"
)

var limitArgs = []struct {
	name  string
	check func(v any, spec *broker.QueueSpec, args wire.Table) string // what is wrong with it, "" if nothing
	types []kernel.QueueType                                          // that have it
}{
	{argExpires, checkExpires, classicAndQuorum},
	{argMessageTTL, checkTTL, classicAndQuorum},
	{argDeadExchange, nil, classicAndQuorum},
	{argDeadKey, checkDeadKey, classicAndQuorum},
	{argDeadStrategy, checkStrategy, onlyQuorum},
	{argMaxLength, checkLength, classicAndQuorum},
	{argMaxBytes, checkLength, classicAndQuorum},
	{argOverflow, checkOverflow, classicAndQuorum},
	{argDeliveries, checkDeliveries, onlyQuorum},
}

var (
	classicAndQuorum = []kernel.QueueType{kernel.Classic, kernel.Quorum}
	onlyQuorum       = []kernel.QueueType{kernel.Quorum}
)

func isLimit(name string) bool {
	for i := range limitArgs {
		if limitArgs[i].name == name {
			return true
		}
	}
	return false
}

// limitArguments checks the arguments that bound a queue, with RabbitMQ's words
// for what is wrong, and puts them into the spec.
func limitArguments(args wire.Table, spec *broker.QueueSpec, vhost string) error {
	for i := range limitArgs {
		l := &limitArgs[i]
		v, ok := lookup(args, l.name)
		if !ok {
			continue
		}
		if !hasType(l.types, spec.Type) {
			return faultf(wire.PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s' of queue type %s",
				l.name, spec.Name, vhost, moduleOf(spec.Type))
		}
		if l.check == nil {
			if _, text := v.(string); !text {
				return faultf(wire.PreconditionFailed, "invalid type '%s' for arg '%s' in queue '%s' in vhost '%s'",
					typeOf(v), l.name, spec.Name, vhost)
			}
		} else if wrong := l.check(v, spec, args); wrong != "" {
			return faultf(wire.PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s': %s", l.name, spec.Name, vhost, wrong)
		}
		spec.Arguments = append(spec.Arguments, kernel.Argument{Name: l.name, Value: argument(v)})
	}
	return nil
}

func lookup(args wire.Table, name string) (any, bool) {
	for i := range args {
		if args[i].Name == name {
			return args[i].Value, true
		}
	}
	return nil, false
}

func hasType(list []kernel.QueueType, t kernel.QueueType) bool {
	for _, x := range list {
		if x == t {
			return true
		}
	}
	return false
}

// moduleOf is RabbitMQ's name of a queue type in its errors.
func moduleOf(t kernel.QueueType) string {
	switch t {
	case kernel.Quorum:
		return "rabbit_quorum_queue"
	case kernel.Stream:
		return "rabbit_stream_queue"
	}
	return "rabbit_classic_queue"
}

// typeOf is RabbitMQ's name of the type of a table value.
func typeOf(v any) string {
	switch v.(type) {
	case nil:
		return "void"
	case bool:
		return "bool"
	case string:
		return "longstr"
	case []byte:
		return "binary"
	case int8:
		return "byte"
	case uint8:
		return "unsignedbyte"
	case int16:
		return "short"
	case uint16:
		return "unsignedshort"
	case int32:
		return "signedint"
	case uint32:
		return "unsignedint"
	case int64:
		return "long"
	case float32:
		return "float"
	case float64:
		return "double"
	case wire.Table:
		return "table"
	case wire.Timestamp:
		return "timestamp"
	}
	return "array"
}

func wholeNumber(v any) (n int64, wrong string) {
	n, ok := argument(v).(int64)
	if !ok {
		return 0, fmt.Sprintf("\"expected integer, got %s\"", typeOf(v))
	}
	return n, ""
}

func checkLength(v any, _ *broker.QueueSpec, _ wire.Table) string {
	n, wrong := wholeNumber(v)
	if wrong == "" && n < 0 {
		return fmt.Sprintf("{value_negative,%d}", n)
	}
	return wrong
}

func checkTTL(v any, spec *broker.QueueSpec, args wire.Table) string {
	wrong := checkLength(v, spec, args)
	if n, _ := wholeNumber(v); wrong == "" && n > maxTTL {
		return fmt.Sprintf("{value_too_large,%d}", n)
	}
	return wrong
}

// checkExpires takes what checkTTL takes, but 0.
func checkExpires(v any, spec *broker.QueueSpec, args wire.Table) string {
	if n, wrong := wholeNumber(v); wrong == "" && n == 0 {
		return "{value_zero,0}"
	}
	return checkTTL(v, spec, args)
}

// checkDeliveries takes negative numbers: they are no limit.
func checkDeliveries(v any, _ *broker.QueueSpec, _ wire.Table) string {
	_, wrong := wholeNumber(v)
	return wrong
}

func checkText(v any) string {
	if _, ok := v.(string); !ok {
		return fmt.Sprintf("{unacceptable_type,%s}", typeOf(v))
	}
	return ""
}

func checkDeadKey(v any, _ *broker.QueueSpec, args wire.Table) string {
	if wrong := checkText(v); wrong != "" {
		return wrong
	}
	if _, ok := lookup(args, argDeadExchange); !ok {
		return "routing_key_but_no_dlx_defined"
	}
	return ""
}

func checkStrategy(v any, _ *broker.QueueSpec, _ wire.Table) string {
	wrong := checkText(v)
	if wrong == "" && v != "at-most-once" && v != "at-least-once" {
		return "invalid_dlx_strategy"
	}
	return wrong
}

func checkOverflow(v any, spec *broker.QueueSpec, _ wire.Table) string {
	wrong := checkText(v)
	switch {
	case wrong != "" || v == "drop-head" || v == "reject-publish":
		return wrong
	case v == "reject-publish-dlx" && spec.Type == kernel.Classic:
		return ""
	}
	return "invalid_overflow"
}
