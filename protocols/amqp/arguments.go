package amqp

import (
	"fmt"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

var queueTypes = map[string]kernel.QueueType{
	"classic": kernel.Classic, "quorum": kernel.Quorum, "stream": kernel.Stream,
}

// queueArguments reads the arguments of a queue declaration into the spec. An
// argument that does not work is refused, never ignored: a limit that does not
// hold is worse than none.
func queueArguments(args wire.Table, spec *broker.QueueSpec, vhost string) error {
	invalid := func(name, format string, a ...any) error {
		return faultf(wire.PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s': %s", name, spec.Name, vhost, fmt.Sprintf(format, a...))
	}
	for _, a := range args { // first: it says which others may be there
		if a.Name == "x-queue-type" {
			name, ok := a.Value.(string)
			kind, known := queueTypes[name]
			if !ok {
				name = typeOf(a.Value)
			}
			if !known {
				return invalid(a.Name, "\"unsupported queue type '%s'\"", name)
			}
			spec.Type = kind
		}
	}
	if err := limitArguments(args, spec, vhost); err != nil {
		return err
	}
	for _, a := range args {
		switch a.Name {
		case "x-queue-type":
		case argRetention, argRetentionBytes, argStartOffset, argDedupWindow:
			if wrong := logArgument(a, spec, args); wrong != "" {
				return invalid(a.Name, "%s", wrong)
			}
			spec.Arguments = append(spec.Arguments, kernel.Argument{Name: a.Name, Value: argument(a.Value)})
		default:
			if !isLimit(a.Name) {
				return invalid(a.Name, "the argument is not supported yet")
			}
		}
	}
	return nil
}

// checkType refuses the properties that a replicated queue type does not have
// in RabbitMQ.
func checkType(spec *broker.QueueSpec, vhost string) error {
	if spec.Type == kernel.Classic {
		return nil
	}
	name := "rabbit_quorum_queue"
	if spec.Type == kernel.Stream {
		name = "rabbit_stream_queue"
	}
	property := ""
	switch {
	case spec.Name == "":
		return faultf(wire.PreconditionFailed, "Cannot declare a server-named queue for type %s", name)
	case !spec.Durable:
		property = "non-durable"
	case spec.Exclusive:
		property = "exclusive-owner"
	case spec.AutoDelete:
		property = "auto-delete"
	default:
		return nil
	}
	return faultf(wire.PreconditionFailed, "invalid property '%s' for queue '%s' in vhost '%s'", property, spec.Name, vhost)
}

// arguments turns a table into the kernel's arguments.
func arguments(t wire.Table) []kernel.Argument {
	if len(t) == 0 {
		return nil
	}
	out := make([]kernel.Argument, len(t))
	for i := range t {
		out[i] = kernel.Argument{Name: t[i].Name, Value: argument(t[i].Value)}
	}
	return out
}

// argument turns a value into one the kernel knows: integers of all sizes are
// equal if their numbers are.
func argument(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, float64, string, []byte:
		return v
	case int8:
		return int64(v)
	case uint8:
		return int64(v)
	case int16:
		return int64(v)
	case uint16:
		return int64(v)
	case int32:
		return int64(v)
	case uint32:
		return int64(v)
	case float32:
		return float64(v)
	}
	return kernel.Raw(wire.AppendTable(nil, wire.Table{{Value: v}}))
}
